//! Does the JSON scanner agree with JSONTestSuite, as a whole text, inside a request and inside a response?

use ringway::wire::json::{JsonError, validate};
use ringway::wire::jsonrpc::{BadAnswer, Checked, Message, check, parse};
use std::env;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// The name and the text of each file of the suite. Without the material the tests are left out, and say
/// so; where `CI` is set they fail instead.
fn suite() -> Vec<(String, Vec<u8>)> {
    let material = env::var_os("RINGWAY_MATERIAL")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/material"), PathBuf::from);
    let folder = material.join("jsontestsuite");
    if !folder.is_dir() {
        assert!(env::var_os("CI").is_none(), "no folder {}: set RINGWAY_MATERIAL", folder.display());
        let _ = writeln!(std::io::stderr(), "left out: JSONTestSuite, no folder {}", folder.display());
        return Vec::new();
    }
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
        .expect("the folder can be listed")
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read(path).expect("the file can be read"))
        })
        .collect();
    files.sort();
    let count = |kind: &str| files.iter().filter(|(name, _)| name.starts_with(kind)).count();
    assert!(count("y_") >= 90 && count("n_") >= 180 && count("i_") >= 30, "the suite is not whole");
    files
}

/// What must be said of the file: accepted, refused, or anything.
fn expected(name: &str) -> Option<bool> {
    match &name[..2] {
        "y_" => Some(true),
        "n_" => Some(false),
        _ => None,
    }
}

/// Names the files on which `accepts` is wrong.
fn disagreements(accepts: impl Fn(&[u8]) -> bool) -> Vec<String> {
    suite()
        .into_iter()
        .filter(|(name, text)| {
            let accepted = accepts(text);
            expected(name).is_some_and(|right| right != accepted)
        })
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn as_a_whole_text() {
    assert_eq!(disagreements(|text| validate(text, 10_000).is_ok()), Vec::<String>::new());
}

#[test]
fn as_a_whole_text_of_small_depth() {
    let accepts = |text: &[u8]| match validate(text, 128) {
        Ok(()) => true,
        Err(JsonError::Invalid | JsonError::TooDeep) => false,
    };
    assert_eq!(disagreements(accepts), Vec::<String>::new());
}

#[test]
fn as_the_params_of_a_request() {
    let accepts = |text: &[u8]| {
        let body = [&b"{\"id\":1,\"method\":\"m\",\"params\":"[..], text, b"}"].concat();
        match parse(&body, 10) {
            Ok(Message::Single(Ok(call))) => call.params.map(<[u8]>::trim_ascii) == Some(text.trim_ascii()),
            _ => false,
        }
    };
    assert_eq!(disagreements(accepts), Vec::<String>::new());
}

#[test]
fn as_a_member_of_a_batch() {
    let accepts = |text: &[u8]| {
        let body = [&b"[{\"id\":1,\"method\":\"m\",\"params\":"[..], text, b"},{\"method\":\"last\"}]"].concat();
        match parse(&body, 10) {
            Ok(Message::Batch(batch)) => batch.iter().filter(|call| call.is_ok()).count() == 2,
            _ => false,
        }
    };
    assert_eq!(disagreements(accepts), Vec::<String>::new());
}

#[test]
fn as_the_result_of_a_response() {
    let accepts = |text: &[u8]| {
        let body = [&b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"[..], text, b"}"].concat();
        match check(&body, 1) {
            Checked::Result(range) => body[range].trim_ascii() == text.trim_ascii(),
            Checked::Bad(BadAnswer::NotJson | BadAnswer::TooDeep) => false,
            other => panic!("{other:?} for {}", String::from_utf8_lossy(&body)),
        }
    };
    assert_eq!(disagreements(accepts), Vec::<String>::new());
}

#[test]
fn as_the_data_of_an_error() {
    let accepts = |text: &[u8]| {
        let body = [&b"{\"id\":1,\"error\":{\"code\":-1,\"data\":"[..], text, b"}}"].concat();
        matches!(check(&body, 1), Checked::Error { code: -1, .. })
    };
    assert_eq!(disagreements(accepts), Vec::<String>::new());
}

#[test]
fn as_a_whole_body_nothing_crashes() {
    for (name, text) in suite() {
        let request = parse(&text, 10);
        let answer = check(&text, 1);
        assert!(matches!(answer, Checked::Bad(_)), "{name}");
        if name.starts_with("n_") {
            assert!(request.is_err(), "{name}: {request:?}");
        }
    }
}
