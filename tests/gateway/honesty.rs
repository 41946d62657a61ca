//! After an ambiguous attempt of a signed broadcast, what a node says about the same bytes may only mean that the
//! first one was taken: the caller hears what the chain knows.

use super::harness::{ClosedPort, Gateway, Reply, Setup, Upstream, call_body};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A legacy transaction (the example of EIP-155) and its hash.
pub const RAW: &str = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a0\
                   28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800cc\
                   f555c9f3dc64214b297fb1966a3b6d83";

/// Its hash.
pub fn hash() -> String {
    let params = format!("[\"{RAW}\"]");
    let hash = ringway::wire::evm_tx::transaction_hash(params.as_bytes()).expect("a well-formed transaction");
    String::from_utf8(ringway::wire::evm_tx::hash_text(&hash).to_vec()).unwrap()
}

/// A node that answers broadcasts by `script`, and look-ups by whether it `knows`.
fn node(knows: bool, script: impl Fn(&super::harness::Seen) -> Reply + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |seen| match (seen.holds("eth_getTransactionByHash"), knows) {
        (true, true) => Reply::result(seen, &format!("{{\"hash\":\"{}\",\"blockNumber\":null}}", hash())),
        (true, false) => Reply::result(seen, "null"),
        (false, _) => script(seen),
    })
}

fn error(message: &'static str) -> impl Fn(&super::harness::Seen) -> Reply + Send + Sync + 'static {
    move |seen| Reply::error(seen, 200, &format!("{{\"code\":-32000,\"message\":\"{message}\"}}"))
}

fn send(gateway: &Gateway) -> super::harness::Response {
    gateway.post(call_body("7", "eth_sendRawTransaction", &format!("[\"{RAW}\"]")))
}

const BROADCAST: &str = "eth_sendRawTransaction";
const LOOK_UP: &str = "eth_getTransactionByHash";

#[test]
fn already_known_after_a_lost_answer_is_success() {
    let (a, b) = (node(true, |_| Reply::close()), node(true, error("already known")));
    let gateway = Setup::of(&[&a, &b]).start();
    send(&gateway).assert_result("7", &format!("\"{}\"", hash()));
    assert_eq!((a.count_with(BROADCAST), b.count_with(BROADCAST)), (1, 1));
    assert_eq!(a.only().json()["params"], b.only().json()["params"], "the same bytes");
    assert_eq!(a.count_with(LOOK_UP) + b.count_with(LOOK_UP), 0, "nothing was left to ask");
}

#[test]
fn a_first_error_goes_out_unchanged() {
    for message in ["already known", "nonce too low"] {
        let (a, b) = (node(true, error(message)), Upstream::answering("1"));
        let gateway = Setup::of(&[&a, &b]).start();
        let answer = send(&gateway).json();
        assert_eq!(answer["error"], serde_json::json!({"code": -32000, "message": message}));
        assert_eq!((a.count(), b.count()), (1, 0));
    }
}

#[test]
fn not_sent_and_refused_raise_no_doubt() {
    let closed = ClosedPort::new();
    let refusing = node(true, |_| Reply::http(429, &[], "slow down"));
    let last = node(true, error("already known"));
    let gateway = Setup::at(&[closed.address, refusing.address, last.address]).start();
    assert_eq!(send(&gateway).json()["error"]["message"], "already known");
    assert_eq!(last.count_with(LOOK_UP), 0);
}

#[test]
fn any_other_error_asks_the_chain_where_it_came_from_and_where_the_doubt_arose() {
    for (first, second, message) in [
        (false, true, "nonce too low"),
        (true, false, "nonce too low"),
        (true, false, "insufficient funds for gas * price + value"),
        (false, false, "nonce too low"),
        (false, false, "insufficient funds"),
    ] {
        let (a, b) = (node(first, |_| Reply::close()), node(second, error(message)));
        let gateway = Setup::of(&[&a, &b]).start();
        let answer = send(&gateway);
        match first || second {
            true => answer.assert_result("7", &format!("\"{}\"", hash())),
            false => assert_eq!(answer.json()["error"]["message"], message),
        }
        // The first is asked only if the one that answered does not have it.
        assert_eq!((a.count_with(LOOK_UP), b.count_with(LOOK_UP)), (usize::from(!second), 1));
        let outcome = if second { "found" } else { "not_found" };
        let counted =
            gateway.metrics().sum("ringway_lookups_total", &["endpoint=\"b\"", &format!("outcome=\"{outcome}\"")]);
        assert_eq!(counted, 1);
    }
}

#[test]
fn a_look_up_without_an_answer_is_no_no() {
    // The node that speaks can't say what the chain has: hung, broken, or without the method.
    for broken in 0..3 {
        let a = node(true, |_| Reply::close());
        let b = Upstream::start(move |seen| match (seen.holds(LOOK_UP), broken) {
            (false, _) => error("nonce too low")(seen),
            (true, 0) => Reply::hang(),
            (true, 1) => Reply::http(500, &[], ""),
            (true, _) => Reply::error(seen, 200, "{\"code\":-32601,\"message\":\"no such method\"}"),
        });
        let gateway = Setup::of(&[&a, &b]).start();
        send(&gateway).assert_result("7", &format!("\"{}\"", hash()));
    }
}

#[test]
fn after_total_failure_two_are_asked_and_the_hash_is_told_either_way() {
    for knows in [true, false] {
        let (a, b) = (node(false, |_| Reply::close()), node(knows, |_| Reply::close()));
        let gateway = Setup::of(&[&a, &b]).start();
        let answer = send(&gateway);
        if knows {
            answer.assert_result("7", &format!("\"{}\"", hash()));
        } else {
            answer.assert_fault(200, "7", -32054);
            assert_eq!(answer.json()["error"]["data"]["transaction_hash"], hash());
            assert_eq!(answer.attempts(), 2);
            assert_eq!((a.count_with(LOOK_UP), b.count_with(LOOK_UP)), (1, 1));
        }
        assert_eq!((a.count_with(BROADCAST), b.count_with(BROADCAST)), (1, 1));
    }
}

#[test]
fn a_kept_error_goes_out_if_the_chain_knows_nothing() {
    let busy = |seen: &super::harness::Seen| Reply::error(seen, 503, "{\"code\":-32000,\"message\":\"try later\"}");
    let (a, b) = (node(false, busy), node(false, |_| Reply::close()));
    let gateway = Setup::of(&[&a, &b]).start();
    assert_eq!(send(&gateway).json()["error"]["message"], "try later");
}

#[test]
fn a_black_hole_leaves_time_to_ask_the_other() {
    let (a, b) = (Upstream::start(|_| Reply::hang()), node(true, error("nonce too low")));
    let closed = ClosedPort::new();
    // `a` takes the transaction and is silent for ever, also when asked; the second is down; the third is full.
    let gateway = Setup::at(&[a.address, closed.address]).route("attempt_timeout = \"100ms\"").start();
    let begun = Instant::now();
    send(&gateway).assert_fault(200, "7", -32054);
    assert!(begun.elapsed().as_millis() < 2_600, "{:?}", begun.elapsed());
    let gateway = Setup::of(&[&a, &b]).route("attempt_timeout = \"100ms\"\nmax_attempts = 1").start();
    send(&gateway).assert_result("7", &format!("\"{}\"", hash()));
    assert_eq!(b.count_with(BROADCAST), 0, "asked, but not sent to");
}

#[test]
fn a_send_lost_on_an_old_connection_raises_doubt() {
    // The first broadcast of a connection is answered, the second breaks it after it was received.
    let broke = Arc::new(AtomicBool::new(false));
    let once = broke.clone();
    let a = node(true, move |seen| {
        if !seen.holds(BROADCAST) {
            return Reply::result(seen, "1");
        }
        match once.swap(true, Ordering::SeqCst) {
            false => Reply::close(),
            true => Reply::error(seen, 200, "{\"code\":-32000,\"message\":\"already known\"}"),
        }
    });
    let gateway = Setup::of(&[&a]).shards(1).start();
    let mut client = gateway.connect();
    client.ask(call_body("1", "eth_call", "[]")).assert_result("1", "1");
    let answer = client.ask(call_body("7", BROADCAST, &format!("[\"{RAW}\"]")));
    answer.assert_result("7", &format!("\"{}\"", hash()));
    assert_eq!(a.count_with(BROADCAST), 2, "the same attempt, over a fresh connection");
}

#[test]
fn a_transaction_of_an_unknown_type_keeps_the_nodes_word() {
    let (a, b) = (node(true, |_| Reply::close()), node(true, error("already known")));
    let gateway = Setup::of(&[&a, &b]).start();
    let answer = gateway.post(call_body("7", BROADCAST, "[\"0x7fc0\"]"));
    assert_eq!(answer.json()["error"]["message"], "already known");
    assert_eq!(b.count_with(LOOK_UP), 0);
}

#[test]
fn a_node_that_saw_it_before_is_asked_whether_it_took_it() {
    // Nethermind also says `AlreadyKnown` of what it refused shortly before.
    let seen_before =
        |seen: &super::harness::Seen| Reply::error(seen, 200, "{\"code\":-32010,\"message\":\"AlreadyKnown\"}");
    for knows in [true, false] {
        let (a, b) = (node(false, |_| Reply::close()), node(knows, seen_before));
        let gateway = Setup::of(&[&a, &b]).start();
        let answer = send(&gateway);
        match knows {
            true => answer.assert_result("7", &format!("\"{}\"", hash())),
            false => assert_eq!(answer.json()["error"]["message"], "AlreadyKnown"),
        }
    }
    // One that has no answer to that is taken at its word.
    let (a, b) = (node(true, |_| Reply::close()), Upstream::start(seen_before));
    let gateway = Setup::of(&[&a, &b]).start();
    send(&gateway).assert_result("7", &format!("\"{}\"", hash()));
}
