//! Do the transactions of recorded exchanges get the hashes that nodes gave them?

use flate2::read::GzDecoder;
use ringway::wire::evm_tx::{hash_text, transaction_hash};
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// The exchanges of all recordings: request and response. Without the material the tests are left out, and
/// say so; where `CI` is set they fail instead.
fn exchanges() -> Option<Vec<(Value, Value)>> {
    let material = env::var_os("RINGWAY_MATERIAL")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/material"), PathBuf::from);
    let files = ["pairs_spec.jsonl.gz", "pairs_hive.jsonl.gz", "pairs_gnosis.jsonl.gz"].map(|name| material.join(name));
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        assert!(env::var_os("CI").is_none(), "no file {}: set RINGWAY_MATERIAL", missing.display());
        let _ = writeln!(std::io::stderr(), "left out: recorded exchanges, no file {}", missing.display());
        return None;
    }
    let mut exchanges = Vec::new();
    for file in files {
        for line in BufReader::new(GzDecoder::new(File::open(file).expect("the file can be opened"))).lines() {
            let line: Value = serde_json::from_str(&line.expect("the file can be read")).expect("a line is JSON");
            let response = line["response"].as_str().and_then(|text| serde_json::from_str(text).ok());
            exchanges.push((line["request"].clone(), response.unwrap_or_default()));
        }
    }
    Some(exchanges)
}

/// The requests of a line, and each one's answer.
fn calls(exchanges: &[(Value, Value)]) -> Vec<(&Value, &Value)> {
    let mut calls = Vec::new();
    for (request, response) in exchanges {
        match (request, response) {
            (Value::Array(requests), Value::Array(responses)) => calls.extend(requests.iter().zip(responses)),
            _ => calls.push((request, response)),
        }
    }
    calls
}

fn hash_of(raw: &str) -> Option<String> {
    let hash = transaction_hash(format!("[{}]", Value::from(raw)).as_bytes())?;
    Some(String::from_utf8_lossy(&hash_text(&hash)).into_owned())
}

#[test]
fn sent_transactions_have_the_hash_that_the_node_answered() {
    let Some(exchanges) = exchanges() else { return };
    let mut kinds = BTreeMap::<u8, usize>::new();
    for (request, response) in calls(&exchanges) {
        if request["method"] != "eth_sendRawTransaction" {
            continue;
        }
        let Some(answered) = response["result"].as_str() else { continue };
        let hash = transaction_hash(request["params"].to_string().as_bytes()).map(|hash| hash_text(&hash).to_vec());
        assert_eq!(hash.as_deref(), Some(answered.as_bytes()), "{request}");
        let raw = request["params"][0].as_str().unwrap_or_default();
        let first = u8::from_str_radix(raw.get(2..4).unwrap_or_default(), 16).unwrap_or_default();
        *kinds.entry(first.min(0xc0)).or_default() += 1;
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), vec![]);
}

#[test]
fn raw_transactions_have_the_hash_they_were_asked_by() {
    let Some(exchanges) = exchanges() else { return };
    let mut found = 0;
    for (request, response) in calls(&exchanges) {
        let by_hash = ["debug_getRawTransaction", "eth_getRawTransactionByHash"];
        let asked = request["method"].as_str().is_some_and(|method| by_hash.contains(&method));
        if let (true, Some(raw)) = (asked, response["result"].as_str()) {
            assert_eq!(hash_of(raw).as_deref(), request["params"][0].as_str(), "{request}");
            found += 1;
        }
    }
    assert_eq!(found, 0);
}
