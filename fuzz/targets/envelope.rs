//! Request bodies against serde_json: what is valid, what each member is, and that a rebuilt request is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::logic::call::{Call, Id};
use ringway::logic::fault::{Fault, Invalid};
use ringway::wire::jsonrpc::{
    Message, REQUEST_DEPTH_MAX, Refused, answer_prefix_len, parse, request_len, write_answer_prefix, write_fault,
    write_request,
};
use ringway_fuzz::json;

const NAMES: [&str; 4] = ["method", "id", "params", "jsonrpc"];

fuzz_target!(|data: &[u8]| {
    let Some(([most, nesting], inner)) = ringway_fuzz::settings::<2>(data) else { return };
    let max_batch = usize::from(most % 8) + 1;
    let body = nested(inner, *nesting);
    let valid = json::value(&body);
    let deep = json::depth(json::without_mark(&body)) > REQUEST_DEPTH_MAX;
    let message = match (parse(&body, max_batch), valid) {
        (Err(Fault::InvalidRequest(Invalid::TooDeep)), _) => return assert!(deep),
        (Err(Fault::NotJson), valid) => return assert_eq!(valid, None),
        (Err(fault), Some(text)) => return assert_eq!(Some(fault), fault_of(text, max_batch)),
        (Ok(message), Some(text)) => {
            assert!(!deep);
            assert_eq!(fault_of(text, max_batch), None);
            (message, text)
        }
        (ours, valid) => panic!("{ours:?} {valid:?}"),
    };
    match message {
        (Message::Single(call), text) => same(call, text),
        (Message::Batch(batch), text) => {
            let elements = json::elements(text);
            assert_eq!((batch.len(), batch.iter().count()), (elements.len(), elements.len()));
            batch.iter().zip(elements).for_each(|(call, text)| same(call, text));
        }
    }
});

/// The text, or with a high number many brackets around it: mutations alone rarely get deep.
fn nested(inner: &[u8], nesting: u8) -> Vec<u8> {
    match nesting.checked_sub(100) {
        None => inner.to_vec(),
        Some(levels) => {
            let levels = usize::from(levels);
            [&b"[".repeat(levels), inner, &b"]".repeat(levels)].concat()
        }
    }
}

/// The fault about the whole of a valid text.
fn fault_of(text: &str, max_batch: usize) -> Option<Fault> {
    let invalid = match text.as_bytes()[0] {
        b'{' => return None,
        b'[' => match json::elements(text).len() {
            0 => Invalid::EmptyBatch,
            len if len > max_batch => Invalid::BatchTooLong,
            _ => return None,
        },
        _ => Invalid::NotAnObject,
    };
    Some(Fault::InvalidRequest(invalid))
}

/// One Call and the text of it.
fn same(ours: Result<Call<'_>, Refused<'_>>, text: &str) {
    let (id, call) = expected(text);
    let bytes = id.map(str::as_bytes).map_or(Id::Absent, Id::Present);
    match (ours, call) {
        (Err(refused), Err(why)) => assert_eq!((refused.id, refused.why), (bytes, why), "{text}"),
        (Ok(found), Ok((method, params))) => {
            assert_eq!((found.id, &*found.method, found.params), (bytes, &*method, params.map(str::as_bytes)));
            rebuilt(&found);
        }
        (ours, call) => panic!("{text}: {ours:?}, should be {call:?}"),
    }
    answered(bytes);
}

type Expected<'t> = Result<(String, Option<&'t str>), Invalid>;

/// The id that is echoed, and the method and params or what is wrong.
fn expected(text: &str) -> (Option<&str>, Expected<'_>) {
    if !text.starts_with('{') {
        return (None, Err(Invalid::NotAnObject));
    }
    let members = json::members(text);
    let mut wrong = None;
    let mut seen = Vec::new();
    for (name, _) in &members {
        if NAMES.contains(name) {
            if seen.contains(name) {
                wrong = wrong.or(Some(Invalid::DuplicateMember));
            }
            seen.push(*name);
        } else {
            // The long s is the one letter outside ASCII that folds into one of the names'.
            let folded = json::text(name).replace('ſ', "s");
            if NAMES.iter().any(|known| known.eq_ignore_ascii_case(&folded)) {
                wrong = wrong.or(Some(Invalid::MisspelledMember));
            }
        }
    }
    let all = |wanted: &str| -> Vec<&str> {
        members.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| *value).collect()
    };
    let ids = all("id");
    let id = match ids[..] {
        [id] if id == "null" || id.starts_with('"') || id.parse::<f64>().is_ok() => Some(id),
        [_] => {
            wrong = wrong.or(Some(Invalid::BadId));
            None
        }
        _ => None,
    };
    if let Some(why) = wrong {
        return (id, Err(why));
    }
    let call = match all("method")[..] {
        [] => Err(Invalid::NoMethod),
        [method, ..] => match serde_json::from_str::<String>(method) {
            Ok(method) => Ok((method, all("params").first().copied())),
            Err(_) => Err(Invalid::MethodNotAString),
        },
    };
    (id, call)
}

/// The request for an upstream says the same, to serde_json and to us.
fn rebuilt(call: &Call<'_>) {
    for id in [None, Some(0), Some(call.upstream_id(999_999_999_999_999)), Some(u64::MAX)] {
        let mut out = Vec::new();
        write_request(&mut out, id, &call.method, call.params);
        assert_eq!(out.len(), request_len(id, &call.method, call.params));
        let text = json::value(&out).expect("a valid request");
        let members = json::members(text);
        let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
        let mut wanted = vec!["jsonrpc", "id", "method", "params"];
        wanted.retain(|name| (*name != "id" || id.is_some()) && (*name != "params" || call.params.is_some()));
        assert_eq!(names, wanted);
        let Ok(Message::Single(Ok(again))) = parse(&out, 1) else { panic!("{text}") };
        assert_eq!((&again.method, again.params), (&call.method, call.params));
        let id = id.map(|id| id.to_string());
        assert_eq!(again.id, id.as_ref().map_or(Id::Absent, |id| Id::Present(id.as_bytes())));
    }
}

/// An answer around a value, and one that the gateway makes, are JSON with the caller's id.
fn answered(id: Id<'_>) {
    let mut answer = Vec::new();
    write_answer_prefix(&mut answer, id.bytes(), false);
    assert_eq!(answer.len(), answer_prefix_len(id.bytes(), false));
    answer.extend_from_slice(b"null}");
    let mut fault = Vec::new();
    write_fault(&mut fault, id.bytes(), &Fault::TimedOut, 3, None);
    for text in [&answer, &fault] {
        let members = json::members(json::value(text).expect("a valid answer"));
        assert_eq!(members[1], ("id", std::str::from_utf8(id.bytes()).expect("text")));
    }
}
