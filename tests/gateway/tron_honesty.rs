//! After an ambiguous attempt of a broadcast, what a TRON node says about the same bytes may only mean that the
//! first one was taken: the caller hears what the chain knows.

use super::harness::{ClosedPort, Gateway, Reply, Response, Seen, Setup, Upstream};
use super::tron::{ask, assert_fault};

/// `raw_data` of a transfer, as protobuf bytes, and its id.
const RAW: &str = "0a028ad92208eaef69105495eb1540f09fc0cfcd335aae01081f12a9010a31747970652e676f6f676c65617069732e636f6d2f\
                   70726f746f636f6c2e54726967676572536d617274436f6e747261637412740a1541495511a493d8c362be4267224e6d81013a\
                   6862ee121541eca9bc828a3005b9a3b909f2cc5c2a54794de05f2244a9059cbb00000000000000000000004150125bea243a64\
                   0bf85348873b6c4f3c517aee7a00000000000000000000000000000000000000000000000000000000000000017090cbbccfcd\
                   33900180c2d72f";
const ID: &str = "c70b20da8cb8d96a99c1aceb283412acb9dea313a9e467178431a3c6ae8b9f08";

const BROADCAST: &str = "/wallet/broadcasttransaction";
const HEX: &str = "/wallet/broadcasthex";
const BY_ID: &str = "/wallet/gettransactionbyid";
const PENDING: &str = "/wallet/gettransactionfrompending";

/// `Dup transaction.`, which a node says of what its store holds.
const DUP: &str =
    "{\"code\":\"DUP_TRANSACTION_ERROR\",\"txid\":\"ID\",\"message\":\"447570207472616e73616374696f6e2e\"}";
/// `Transaction already exists.`, which it says of what it has seen.
const SEEN: &str = "{\"result\":false,\"code\":\"DUP_TRANSACTION_ERROR\",\"message\":\"Transaction already exists.\"}";
const EXPIRED: &str = "{\"code\":\"TRANSACTION_EXPIRATION_ERROR\",\"txid\":\"ID\",\"message\":\"00\"}";

fn success() -> String {
    format!("{{\"result\":true,\"txid\":\"{ID}\"}}")
}

/// The bodies of both broadcasts.
fn bodies() -> [(&'static str, String); 2] {
    let length = RAW.len() / 2;
    let varint = format!("{:02x}{:02x}", (length & 0x7f) | 0x80, length >> 7);
    [
        (
            BROADCAST,
            format!("{{\"txID\":\"{ID}\",\"raw_data\":{{}},\"raw_data_hex\":\"{RAW}\",\"signature\":[\"00\"]}}"),
        ),
        (HEX, format!("{{\"transaction\":\"0a{varint}{RAW}1201ff\"}}")),
    ]
}

fn path(seen: &Seen) -> String {
    seen.line().split(' ').nth(1).unwrap().to_owned()
}

fn is_broadcast(seen: &Seen) -> bool {
    [BROADCAST, HEX].contains(&&*path(seen))
}

/// A node that answers broadcasts with this, and knows the transaction in these places.
fn node(knows: [bool; 2], broadcast: impl Fn() -> Reply + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |seen| {
        let known = match &*path(seen) {
            BY_ID => knows[0],
            PENDING => knows[1],
            _ => return broadcast(),
        };
        assert_eq!(seen.text(), format!("{{\"value\":\"{ID}\"}}"));
        Reply::json(200, &if known { format!("{{\"ret\":[{{}}],\"txID\":\"{ID}\"}}") } else { "{}".to_owned() })
    })
}

fn saying(text: &'static str) -> impl Fn() -> Reply + Send + Sync + 'static {
    move || Reply::json(200, &text.replace("ID", ID))
}

fn count(node: &Upstream, of: &str) -> usize {
    node.seen().iter().filter(|seen| path(seen) == of).count()
}

fn broadcasts(node: &Upstream) -> usize {
    node.seen().iter().filter(|seen| is_broadcast(seen)).count()
}

fn look_ups(node: &Upstream) -> usize {
    count(node, BY_ID) + count(node, PENDING)
}

fn send(gateway: &Gateway, at: usize) -> Response {
    let (path, body) = &bodies()[at];
    ask(gateway, "POST", &format!("/tron{path}"), body)
}

#[test]
fn a_dup_after_a_lost_answer_is_success() {
    for at in [0, 1] {
        let (a, b) = (node([true; 2], Reply::close), node([true; 2], saying(DUP)));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        let answer = send(&gateway, at);
        assert_eq!((answer.status, answer.body.clone()), (200, success()));
        assert_eq!(answer.header("content-type").as_deref(), Some("application/json"));
        assert_eq!((broadcasts(&a), broadcasts(&b)), (1, 1));
        assert_eq!(a.only().text(), b.only().text(), "the same bytes, and nothing left to ask");
        assert_eq!(gateway.metrics().calls("ok"), 1);
    }
}

#[test]
fn a_first_error_goes_out_unchanged() {
    for text in [DUP, SEEN, EXPIRED] {
        let (a, b) = (node([true; 2], saying(text)), node([true; 2], saying("{\"result\":true}")));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        assert_eq!(send(&gateway, 0).body, text.replace("ID", ID));
        assert_eq!((a.count(), b.count()), (1, 0));
    }
}

#[test]
fn not_sent_refused_and_busy_raise_no_doubt() {
    let (closed, refusing) = (ClosedPort::new(), node([true; 2], || Reply::http(429, &[], "slow down")));
    let busy = node([true; 2], saying("{\"code\":\"SERVER_BUSY\",\"message\":\"00\"}"));
    let last = node([true; 2], saying(DUP));
    let all = [closed.address, refusing.address, busy.address, last.address];
    let gateway = Setup::at(&all).tron().route("max_attempts = 4").start();
    assert_eq!(send(&gateway, 0).body, DUP.replace("ID", ID));
    assert_eq!(look_ups(&last), 0);
}

#[test]
fn a_success_is_the_nodes_own() {
    let own = "{ \"result\" : true, \"txid\":\"else\" }";
    let (a, b) = (node([true; 2], Reply::close), node([true; 2], saying(own)));
    let gateway = Setup::of(&[&a, &b]).tron().start();
    assert_eq!(send(&gateway, 0).body, own);
    assert_eq!(look_ups(&b), 0);
}

#[test]
fn any_other_error_asks_the_chain_and_then_what_waits_for_it() {
    for (knows, text, asked) in [
        ([true, false], EXPIRED, 1),
        ([false, true], EXPIRED, 2),
        ([false, false], EXPIRED, 2),
        ([false, true], SEEN, 2),
        ([false, false], SEEN, 2),
        ([false, true], "{\"Error\":\"class x : y\"}", 2),
    ] {
        let (a, b) = (node([true; 2], Reply::close), node(knows, saying(text)));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        let known = knows[0] || knows[1];
        let expected = if known { success() } else { text.replace("ID", ID) };
        assert_eq!(send(&gateway, 0).body, expected, "{knows:?} {text}");
        assert_eq!((look_ups(&a), look_ups(&b)), (0, asked), "{knows:?} {text}");
        let outcome = format!("outcome=\"{}\"", if known { "found" } else { "not_found" });
        assert_eq!(gateway.metrics().sum("ringway_lookups_total", &["endpoint=\"b\"", &outcome]), 1);
    }
}

#[test]
fn a_node_that_saw_it_and_can_not_be_asked_is_believed() {
    for (text, believed) in [(SEEN, true), (EXPIRED, false)] {
        let lite = "this API is closed because this node is a lite fullnode";
        let script = move |seen: &Seen| if is_broadcast(seen) { saying(text)() } else { Reply::http(200, &[], lite) };
        let (a, b) = (node([true; 2], Reply::close), Upstream::start(script));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        let expected = if believed { success() } else { text.replace("ID", ID) };
        assert_eq!(send(&gateway, 0).body, expected);
    }
}

#[test]
fn an_answer_about_another_transaction_proves_nothing() {
    let other = DUP.replace("ID", &ID.replace('c', "d"));
    let told = other.clone();
    let (a, b) = (node([true; 2], Reply::close), node([false; 2], move || Reply::json(200, &told)));
    let gateway = Setup::of(&[&a, &b]).tron().start();
    assert_eq!(send(&gateway, 0).body, other);
    assert_eq!(look_ups(&b), 2, "asked by the id of what was sent");
}

#[test]
fn after_total_failure_two_are_asked_and_the_id_is_told_either_way() {
    for (knows, at) in [(true, 0), (false, 1)] {
        let (a, b) = (node([false; 2], Reply::close), node([knows, false], Reply::close));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        let answer = send(&gateway, at);
        if knows {
            assert_eq!((answer.status, answer.body), (200, success()));
        } else {
            let data = assert_fault(&answer, 502, -32054);
            assert_eq!((&data["transaction_hash"], &data["attempts"]), (&ID.into(), &2.into()));
            assert_eq!((look_ups(&a), look_ups(&b)), (2, 2));
        }
        assert_eq!((broadcasts(&a), broadcasts(&b)), (1, 1));
    }
}

#[test]
fn a_kept_busy_answer_goes_out_if_the_chain_knows_nothing() {
    let busy = "{\"code\":\"NO_CONNECTION\",\"message\":\"00\"}";
    for knows in [false, true] {
        let (a, b) = (node([false; 2], Reply::close), node([knows; 2], saying(busy)));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        assert_eq!(send(&gateway, 0).body, if knows { success() } else { busy.to_owned() });
    }
}

#[test]
fn a_body_without_a_name_keeps_the_nodes_word() {
    for body in ["{}", "{\"raw_data_hex\":\"zz\"}", "transaction=00"] {
        let (a, b) = (node([true; 2], Reply::close), node([true; 2], saying(SEEN)));
        let gateway = Setup::of(&[&a, &b]).tron().start();
        assert_eq!(ask(&gateway, "POST", &format!("/tron{BROADCAST}"), body).body, SEEN);
        assert_eq!(look_ups(&b), 0);
    }
}

#[test]
fn look_ups_go_below_the_endpoints_own_path() {
    let (a, b) = (Upstream::start(|_| Reply::close()), Upstream::start(|_| Reply::close()));
    let own = |node: &Upstream| format!("url = \"http://{}/key?k=1\"", node.address);
    let gateway = Setup::of(&[&a, &b]).tron().endpoint(0, &own(&a)).endpoint(1, &own(&b)).start();
    assert_fault(&send(&gateway, 0), 502, -32054);
    for node in [a, b] {
        let lines: Vec<String> = node.seen().iter().map(path).collect();
        let prefixed = [BROADCAST, BY_ID, PENDING].map(|path| format!("/key{path}?k=1"));
        assert_eq!(lines[0], prefixed[0]);
        assert!(lines[1..].iter().all(|line| prefixed[1..].contains(line)), "{lines:?}");
    }
}
