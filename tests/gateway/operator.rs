//! What an operator changes by hand, and who may.

use super::harness::{Reply, Setup, Upstream};
use std::time::{Duration, Instant};

const JSON: [&str; 2] = ["Host: localhost", "Content-Type: application/json"];

#[test]
fn a_circuit_is_held_open_and_let_go() {
    let first = Upstream::start(|seen| Reply::result(seen, "1"));
    let second = Upstream::start(|seen| Reply::result(seen, "2"));
    let gateway = Setup::of(&[&first, &second]).shards(2).start();
    let told = gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"open","for":"1h"}"#);
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!((&told["endpoint"], &told["circuit"]["state"]), (&"a".into(), &"open".into()));
    assert_eq!(told["circuit"]["reason"], "operator");
    assert!(told["circuit"]["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{told}");
    (0..20).for_each(|_| gateway.call("eth_call", "[]").assert_result("1", "2"));
    assert_eq!(first.count(), 0);
    assert_eq!(gateway.metrics().of("ringway_circuit_state", "a"), 1);
    gateway.wait_for_log(r#""reason":"operator""#);

    let told = gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"auto"}"#);
    assert_eq!(told.json()["circuit"]["state"], "half_open", "a probe decides");
    (0..20).for_each(|_| gateway.call("eth_call", "[]").assert_result("1", "1"));
    assert_eq!(gateway.metrics().of("ringway_circuit_state", "a"), 0);
    let told = gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"auto"}"#);
    assert_eq!(told.json()["circuit"], serde_json::json!({"state":"closed","reason":null,"until":null}));
}

#[test]
fn a_hold_ends_by_itself() {
    let first = Upstream::start(|seen| Reply::result(seen, "1"));
    let second = Upstream::start(|seen| Reply::result(seen, "2"));
    let gateway = Setup::of(&[&first, &second]).start();
    let began = Instant::now();
    gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"open","for":"300ms"}"#);
    while gateway.call("eth_call", "[]").result() != "1" {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_circuit_that_is_held_closed_admits_whatever_fails() {
    let dead = Upstream::start(|_| Reply::json(500, "no"));
    let gateway =
        Setup::of(&[&dead]).circuit("consecutive_failures = 1\ncooldown = \"1h\"\nmax_cooldown = \"1h\"").start();
    gateway.call("eth_call", "[]").assert_fault(502, "1", -32052);
    gateway.call("eth_call", "[]").assert_fault(503, "1", -32051);
    let told = gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"close","for":"1h"}"#);
    assert_eq!(told.json()["circuit"]["state"], "closed", "{told:?}");
    (0..10).for_each(|_| gateway.call("eth_call", "[]").assert_fault(502, "1", -32052));
    assert_eq!(dead.count(), 11);
    gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"auto"}"#);
    gateway.call("eth_call", "[]").assert_fault(502, "1", -32052);
    gateway.call("eth_call", "[]").assert_fault(503, "1", -32051);
}

#[test]
fn a_hold_outlives_a_reload() {
    let first = Upstream::start(|seen| Reply::result(seen, "1"));
    let second = Upstream::start(|seen| Reply::result(seen, "2"));
    let gateway = Setup::of(&[&first, &second]).start();
    gateway.admin_post("/v1/circuits/a", &JSON, r#"{"action":"open"}"#);
    assert!(gateway.reload(&Setup::of(&[&first, &second]).circuit("consecutive_failures = 9")));
    (0..5).for_each(|_| gateway.call("eth_call", "[]").assert_result("1", "2"));
    assert_eq!(first.count(), 0);
}

#[test]
fn a_wish_that_is_not_understood_changes_nothing_and_says_what_would_be_right() {
    let upstream = Upstream::start(|seen| Reply::result(seen, "1"));
    let gateway = Setup::of(&[&upstream]).start();
    let post = |body: &str| gateway.admin_post("/v1/circuits/a", &JSON, body);
    for (body, says) in [
        ("", "send {\"action\""),
        ("{}", "missing field `action`"),
        (r#"["open","1m"]"#, "send {\"action\""),
        ("[]", "missing field `action`"),
        (r#"{"action":"shut"}"#, "unknown variant `shut`"),
        (r#"{"action":"open","to":"1h"}"#, "unknown field `to`"),
        (r#"{"action":"open","for":"soon"}"#, "write one like"),
        (r#"{"action":"open","for":"0s"}"#, "more than 0"),
        (r#"{"action":"open","for":"169h"}"#, "at most"),
        (r#"{"action":"open","for":60}"#, "expected a string"),
        (r#"{"action":"auto","for":"1h"}"#, "lets go at once"),
        (r#"{"action":"open"} {"action":"open"}"#, "trailing"),
    ] {
        let told = post(body);
        assert_eq!(
            (told.status, told.json()["error"]["code"].as_str()),
            (400, Some("invalid_body")),
            "{body}: {told:?}"
        );
        let message = told.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(says), "{body}: {message}");
    }
    assert_eq!(gateway.admin_post("/v1/circuits/nobody", &JSON, r#"{"action":"open"}"#).status, 404);
    let page = gateway.admin_get("/v1/circuits/a", &[]);
    assert_eq!((page.status, page.header("allow").as_deref()), (405, Some("POST")));
    assert_eq!(post(&" ".repeat(70_000)).status, 413);
    assert_eq!(gateway.metrics().of("ringway_circuit_state", "a"), 0);
}

#[test]
fn only_who_may_changes_anything() {
    let upstream = Upstream::start(|seen| Reply::result(seen, "1"));
    let open = r#"{"action":"open"}"#;
    let bare = Setup::of(&[&upstream]).start();
    let status = |headers: &[&str]| bare.admin_post("/v1/circuits/a", headers, open).status;
    let json = "Content-Type: application/json";
    // What a browser can be made to send by a page of another site.
    assert_eq!(status(&["Host: localhost"]), 415);
    assert_eq!(status(&["Host: localhost", "Content-Type: text/plain"]), 415);
    assert_eq!(status(&["Host: localhost", "Content-Type: application/x-www-form-urlencoded"]), 415);
    assert_eq!(status(&["Host: localhost", json, "Origin: http://evil.example"]), 403);
    assert_eq!(status(&["Host: localhost", json, "Origin: null"]), 403);
    assert_eq!(status(&["Host: evil.example", json]), 403);
    assert_eq!(status(&["Host: evil.example", json, "Origin: http://evil.example"]), 403);
    assert_eq!(bare.metrics().of("ringway_circuit_state", "a"), 0);
    assert_eq!(status(&["Host: localhost:9545", json, "Origin: http://localhost:9545"]), 200);
    assert_eq!(bare.metrics().of("ringway_circuit_state", "a"), 1);

    let tokened =
        Setup::of(&[&upstream]).server("admin_token = \"sesame-sesame-sesame\"\nmetrics_public = true").start();
    let status = |headers: &[&str]| tokened.admin_post("/v1/circuits/a", headers, open).status;
    assert_eq!(status(&["Host: localhost", json]), 401, "public metrics are no public circuits");
    assert_eq!(status(&["Host: localhost", json, "Authorization: Bearer sesame"]), 401);
    assert_eq!(tokened.metrics().of("ringway_circuit_state", "a"), 0);
    assert_eq!(status(&["Host: admin.example", json, "Authorization: bearer sesame-sesame-sesame"]), 200);
    assert_eq!(tokened.metrics().of("ringway_circuit_state", "a"), 1);
}

#[test]
fn a_rest_is_written_down() {
    let busy = Upstream::start(|_| Reply::http(429, &["Retry-After: 3"], ""));
    let other = Upstream::start(|seen| Reply::result(seen, "2"));
    let gateway = Setup::of(&[&busy, &other]).start();
    gateway.call("eth_call", "[]").assert_result("1", "2");
    gateway.wait_for_log(r#""message":"Rest","endpoint":"a","reason":"retry_after","for_ms":3000"#);
    assert_eq!(gateway.log().matches("\"Rest\"").count(), 1);
}
