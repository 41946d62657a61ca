//! `GET /v1/methods/unlisted`: the names behind the method `other`.

use super::harness::{Gateway, Reply, Setup, Upstream, call_body, notification_body};
use serde_json::{Value, json};

fn unlisted(gateway: &Gateway) -> Value {
    let page = gateway.admin_get("/v1/methods/unlisted", &[]);
    assert_eq!(page.status, 200, "{page:?}");
    page.json()
}

#[test]
fn names_that_no_table_has_are_counted_and_listed_ones_are_not() {
    let upstream = Upstream::answering("1");
    let setup = || Setup::of(&[&upstream]).gateway("blocked_methods = [\"acme_blocked\"]");
    let gateway = setup().start();
    assert_eq!(unlisted(&gateway), json!({"total": 0, "methods": []}));
    // Over connections of their own, so that both shards have some.
    (0..12).for_each(|_| assert_eq!(gateway.call("acme_often", "[]").status, 200));
    (0..5).for_each(|_| assert_eq!(gateway.call("acme_blocked", "[]").code(), -32601));
    (0..3).for_each(|_| assert_eq!(gateway.call("admin_unheard", "[]").code(), -32601));
    gateway.post(notification_body("acme_told", "[]"));
    gateway.post(format!("[{0},{0}]", call_body("1", "ETH_CALL", "[]")));
    gateway.post(r#"{"id":1,"method":"acme\u005foften\n\""}"#);
    gateway.call("eth_call", "[]");
    gateway.call("admin_peers", "[]");
    gateway.post("nonsense");
    let right = json!({"total": 24, "methods": [
        {"name": "acme_often", "count": 12},
        {"name": "acme_blocked", "count": 5},
        {"name": "admin_unheard", "count": 3},
        {"name": "ETH_CALL", "count": 2},
        {"name": "acme_often\n\"", "count": 1},
        {"name": "acme_told", "count": 1},
    ]});
    assert_eq!(unlisted(&gateway), right);
    assert_eq!(gateway.metrics().sum("ringway_unlisted_methods_total", &[]), 24);
    assert!(gateway.reload(&setup().circuit("consecutive_failures = 9")));
    assert_eq!(unlisted(&gateway), right, "a reload forgets nothing");
    let page = gateway.admin_post("/v1/methods/unlisted", &["Host: localhost"], "");
    assert_eq!((page.status, page.header("allow").as_deref()), (405, Some("GET, HEAD")));
}

#[test]
fn the_heavy_ones_stand_on_top_of_ten_thousand_others() {
    let upstream = Upstream::answering("1");
    let gateway = Setup::of(&[&upstream]).gateway("allowed_methods = [\"eth_call\"]").start();
    let mut client = gateway.connect();
    let long = "x".repeat(1_000);
    for at in 0..100 {
        let random = (0..100).map(|nth| call_body("1", &format!("r{at}_{nth}_{long}"), "[]"));
        let heavy =
            (0..20).flat_map(|heavy| (0..=heavy).map(move |_| call_body("1", &format!("heavy_{heavy:02}"), "[]")));
        for members in random.chain(heavy).collect::<Vec<_>>().chunks(100) {
            assert_eq!(client.ask(format!("[{}]", members.join(","))).status, 200);
        }
    }
    let told = unlisted(&gateway);
    assert_eq!(told["total"], 100 * (100 + 210));
    let methods = told["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 100);
    let count = |method: &Value| method["count"].as_u64().unwrap();
    assert!(methods.is_sorted_by(|one, next| count(one) >= count(next)));
    assert!(methods.iter().all(|method| method["name"].as_str().unwrap().len() <= 128), "cut");
    // Whoever came more often than one in 256 is there, and no count is above the truth.
    for (heavy, method) in (8..20).rev().zip(methods) {
        let truth = 100 * (heavy + 1);
        assert_eq!(method["name"], format!("heavy_{heavy:02}"), "{told}");
        assert!((truth - 31_000 / 256..=truth).contains(&count(method)), "{method}");
    }
    assert!(methods[20..].iter().all(|method| count(method) <= 200), "{told}");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn unknown_paths_of_trons_http_api_are_names_too() {
    let upstream = Upstream::start(|_| Reply::json(200, "{}"));
    let gateway = Setup::of(&[&upstream]).tron().start();
    for path in ["/tron/wallet/unknown", "/tron/wallet/unknown?x=1", "/tron/wallet/getnowblock", "/tron/elsewhere"] {
        gateway.post_to(path, "{}");
    }
    assert_eq!(unlisted(&gateway), json!({"total": 2, "methods": [{"name": "/wallet/unknown", "count": 2}]}));
}
