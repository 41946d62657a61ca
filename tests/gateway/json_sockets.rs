//! JSONTestSuite through a running gateway: as `params`, as a whole request body, and as an upstream's `result`.
//! What must be accepted arrives byte for byte, and of what must be refused not a byte goes further.

use super::harness::{Client, Reply, Response, Seen, Setup, Upstream, call_body, in_threads};
use super::material;
use std::sync::Arc;

const THREADS: usize = 4;

/// Where the suite allows both (`i_`), this contract does not: big numbers and lone surrogate escapes are accepted,
/// other bytes than UTF-8 are refused; so is depth 500 in a request, but not in an answer.
fn accepted(name: &str, in_answer: bool) -> bool {
    const NOT_UTF8: [&str; 13] = [
        "i_string_UTF-16LE_with_BOM",
        "i_string_UTF-8_invalid_sequence",
        "i_string_UTF8_surrogate_U+D800",
        "i_string_invalid_utf-8",
        "i_string_iso_latin_1",
        "i_string_lone_utf8_continuation_byte",
        "i_string_not_in_unicode_range",
        "i_string_overlong_sequence_2_bytes",
        "i_string_overlong_sequence_6_bytes",
        "i_string_overlong_sequence_6_bytes_null",
        "i_string_truncated-utf-8",
        "i_string_utf16BE_no_BOM",
        "i_string_utf16LE_no_BOM",
    ];
    let stem = name.strip_suffix(".json").unwrap();
    match &stem[..2] {
        "y_" => true,
        "n_" => false,
        _ if NOT_UTF8.contains(&stem) => false,
        _ if stem == "i_structure_500_nested_arrays" => in_answer,
        // A mark stands in front of a text, not inside one.
        _ if stem == "i_structure_UTF-8_BOM_empty_object" => false,
        _ => true,
    }
}

struct File {
    name: String,
    text: Vec<u8>,
}

/// The suite: 318 files, of which nobody may lose one.
fn suite() -> Option<Arc<Vec<File>>> {
    let entries = std::fs::read_dir(material::find("jsontestsuite")?).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<File> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| File {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: std::fs::read(path).unwrap(),
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(files.len(), 318, "the suite is not whole");
    Some(Arc::new(files))
}

fn around(front: &str, text: &[u8], back: &str) -> Vec<u8> {
    [front.as_bytes(), text, back.as_bytes()].concat()
}

/// Whatever was sent before, the connection goes on with the next request or ends in good order.
fn assert_goes_on(client: &mut Client, before: &Response, name: &str) {
    if before.header("connection").as_deref() == Some("close") {
        return client.closed();
    }
    let next = client.ask(call_body("\"next\"", "eth_chainId", "[]"));
    assert_eq!(next.body, r#"{"jsonrpc":"2.0","id":"next","result":"next"}"#, "after {name}");
}

fn answer_next(seen: &Seen) -> Option<Reply> {
    seen.body.ends_with(b"\"eth_chainId\",\"params\":[]}").then(|| Reply::result(seen, "\"next\""))
}

#[test]
fn as_params_they_go_up_byte_for_byte_or_not_at_all() {
    let Some(files) = suite() else { return };
    let node = Upstream::start(|seen| answer_next(seen).unwrap_or_else(|| Reply::json(200, r#"{"id":1,"result":1}"#)));
    let gateway = Setup::of(&[&node]).no_circuit().gateway("endpoint_free = []").start();
    in_threads(THREADS, &files, |_, file| {
        for batch in [false, true] {
            let call = around(r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":"#, &file.text, "}");
            let body = if batch { around("[", &call, "]") } else { call };
            let mut client = gateway.connect();
            let answer = client.ask(body);
            if accepted(&file.name, false) {
                let told = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
                let told = if batch { format!("[{told}]") } else { told.into() };
                assert_eq!((answer.status, answer.body.as_str()), (200, told.as_str()), "{}", file.name);
            } else {
                let code = answer.json()["error"]["code"].as_i64();
                assert!(matches!(code, Some(-32700 | -32600)), "{}: {answer:?}", file.name);
            }
            assert_goes_on(&mut client, &answer, &file.name);
        }
    });
    let seen: Vec<Seen> = node.seen().into_iter().filter(|seen| answer_next(seen).is_none()).collect();
    let expected: Vec<&File> = files.iter().filter(|file| accepted(&file.name, false)).collect();
    for file in &expected {
        let up = around(r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":"#, file.text.trim_ascii(), "}");
        assert!(seen.iter().filter(|seen| seen.body == up).count() >= 2, "{} did not go up as it was", file.name);
    }
    assert_eq!(seen.len(), 2 * expected.len(), "and nothing else went up");
}

#[test]
fn as_whole_bodies_they_are_answered_and_none_goes_up() {
    let Some(files) = suite() else { return };
    let node = Upstream::start(|seen| answer_next(seen).unwrap_or_else(Reply::close));
    let gateway = Setup::of(&[&node]).gateway("endpoint_free = []").start();
    in_threads(THREADS, &files, |_, file| {
        let mut client = gateway.connect();
        let answer = client.ask(&file.text);
        let told = answer.json();
        let members = told.as_array().cloned().unwrap_or_else(|| vec![told.clone()]);
        // A mark in front of the whole text is skipped.
        let valid = accepted(&file.name, false) || file.name.starts_with("i_structure_UTF-8_BOM");
        let code = if valid { -32600 } else { -32700 };
        // Their depth shows before their end does.
        let deep =
            ["i_structure_500_nested_arrays", "n_structure_100000_opening_arrays", "n_structure_open_array_object"];
        let too_deep = deep.iter().any(|name| file.name.starts_with(name));
        for member in &members {
            let right = member["error"]["code"] == code || (too_deep && member["error"]["code"] == -32600);
            let nameless = member["id"].is_null() || file.name == "y_object_long_strings.json";
            assert!(right && nameless, "{}: {answer:?}", file.name);
        }
        assert!(valid || told.is_object(), "{}: {answer:?}", file.name);
        assert_goes_on(&mut client, &answer, &file.name);
    });
    assert!(node.seen().iter().all(|seen| answer_next(seen).is_some()), "a text without a Call went up");
}

#[test]
fn as_results_they_come_down_byte_for_byte_or_not_at_all() {
    let Some(files) = suite() else { return };
    let known = files.clone();
    let node = Upstream::start(move |seen| {
        if let Some(next) = answer_next(seen) {
            return next;
        }
        let json = seen.json();
        let at: usize = json["params"][0].as_str().unwrap().parse().unwrap();
        let body = around(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, json["id"]), &known[at].text, "}");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        Reply::raw(around(&head, &body, ""))
    });
    let other = Upstream::answering("\"other\"");
    let gateway = Setup::of(&[&node, &other])
        .no_circuit()
        .targets("[\"a\"]")
        .gateway("endpoint_free = []")
        .another("both", "[\"a\", \"b\"]", "")
        .start();
    in_threads(THREADS, &files, |at, file| {
        let call = call_body("\"u\\u0041\"", "eth_call", &format!("[\"{at}\"]"));
        let mut client = gateway.connect();
        let (alone, both) = (client.ask(&call), client.post("/both", &[], &call).response());
        if accepted(&file.name, true) {
            let text = String::from_utf8(file.text.trim_ascii().to_vec()).unwrap();
            alone.assert_result("\"u\\u0041\"", &text);
            both.assert_result("\"u\\u0041\"", &text);
        } else {
            alone.assert_fault(502, "\"u\\u0041\"", -32052);
            assert_eq!(alone.reason(), "invalid_response", "{}", file.name);
            both.assert_result("\"u\\u0041\"", "\"other\"");
        }
        assert_goes_on(&mut client, &both, &file.name);
    });
    let accepted = files.iter().filter(|file| accepted(&file.name, true)).count();
    assert_eq!(other.count(), files.len() - accepted);
}
