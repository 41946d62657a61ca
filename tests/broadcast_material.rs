//! Do the transactions of recorded exchanges get the hashes that nodes gave them?

use flate2::read::GzDecoder;
use ringway::wire::evm_tx::{hash_text, transaction_hash};
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// The recorded calls, each with its answer. Without the material the tests are left out, and say so; where
/// `CI` is set they fail instead.
fn calls() -> Vec<(Value, Value)> {
    let material = env::var_os("RINGWAY_MATERIAL")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/material"), PathBuf::from);
    let files = ["pairs_spec.jsonl.gz", "pairs_hive.jsonl.gz", "pairs_gnosis.jsonl.gz"].map(|name| material.join(name));
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        assert!(env::var_os("CI").is_none(), "no file {}: set RINGWAY_MATERIAL", missing.display());
        let _ = writeln!(std::io::stderr(), "left out: recorded exchanges, no file {}", missing.display());
        return Vec::new();
    }
    let mut calls = Vec::new();
    for file in files {
        for line in BufReader::new(GzDecoder::new(File::open(file).expect("the file can be opened"))).lines() {
            let line: Value = serde_json::from_str(&line.expect("the file can be read")).expect("a line is JSON");
            let response = line["response"].as_str().and_then(|text| serde_json::from_str(text).ok());
            calls.push((line["request"].clone(), response.unwrap_or_default()));
        }
    }
    assert!(calls.len() > 400, "the recordings are not whole");
    calls
}

fn hash_of(params: &str) -> Option<String> {
    let hash = transaction_hash(params.as_bytes())?;
    Some(String::from_utf8_lossy(&hash_text(&hash)).into_owned())
}

/// Says how many transactions of each type there were, legacy as 0xc0.
fn assert_counts(found: &BTreeMap<u8, usize>, expected: [(u8, usize); 5]) {
    for (kind, at_least) in expected {
        let count = found.get(&kind).copied().unwrap_or_default();
        assert!(count >= at_least, "{count} of type {kind:#x}, not {at_least} as there should be");
    }
}

#[test]
fn sent_transactions_have_the_hash_that_the_node_answered() {
    let calls = calls();
    let mut found = BTreeMap::new();
    for (request, response) in &calls {
        let (Some("eth_sendRawTransaction"), Some(answered)) =
            (request["method"].as_str(), response["result"].as_str())
        else {
            continue;
        };
        assert_eq!(hash_of(&request["params"].to_string()).as_deref(), Some(answered), "{request}");
        let raw = request["params"][0].as_str().unwrap_or_default();
        let first = u8::from_str_radix(raw.get(2..4).unwrap_or_default(), 16).unwrap_or_default();
        *found.entry(first.min(0xc0)).or_default() += 1;
        assert!(first != 3 || raw.len() > 260_000, "the blob comes with it");
    }
    if !calls.is_empty() {
        assert_counts(&found, [(0xc0, 1), (1, 1), (2, 4), (3, 1), (4, 0)]);
    }
}

#[test]
fn raw_transactions_have_the_hash_they_were_asked_by() {
    let calls = calls();
    let mut found = 0;
    for (request, response) in &calls {
        if let (Some("debug_getRawTransaction"), Some(raw)) = (request["method"].as_str(), response["result"].as_str())
        {
            assert_eq!(hash_of(&format!("[\"{raw}\"]")).as_deref(), request["params"][0].as_str(), "{request}");
            found += 1;
        }
    }
    assert!(calls.is_empty() || found > 0);
}

#[test]
fn transactions_of_recorded_blocks_have_the_hashes_that_stand_there() {
    let calls = calls();
    let mut found = BTreeMap::new();
    for (_, response) in &calls {
        let mut values = vec![response];
        while let Some(value) = values.pop() {
            match value {
                Value::Array(all) => values.extend(all),
                Value::Object(all) => values.extend(all.values()),
                _ => {}
            }
            if let (Some(hash), Some((kind, bytes))) = (value["hash"].as_str(), signed(value)) {
                let raw: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hash_of(&format!("[\"0x{raw}\"]")).as_deref(), Some(hash), "{value}");
                *found.entry(if kind == 0 { 0xc0 } else { kind }).or_default() += 1;
            }
        }
    }
    if !calls.is_empty() {
        assert_counts(&found, [(0xc0, 50), (1, 5), (2, 79), (3, 3), (4, 2)]);
    }
}

/// The signed bytes of a transaction that stands in an answer as an object, and its type.
fn signed(tx: &Value) -> Option<(u8, Vec<u8>)> {
    let kind = u8::from_str_radix(tx["type"].as_str()?.strip_prefix("0x")?, 16).ok()?;
    let fields = match kind {
        0 => "nonce gasPrice gas to value input v r s",
        1 => "chainId nonce gasPrice gas to value input accessList yParity r s",
        2 => "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList yParity r s",
        3 => {
            "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList maxFeePerBlobGas \
             blobVersionedHashes yParity r s"
        }
        4 => {
            "chainId nonce maxPriorityFeePerGas maxFeePerGas gas to value input accessList authorizationList \
             yParity r s"
        }
        _ => return None,
    };
    tx.get("input")?;
    let list = rlp_fields(tx, fields)?;
    Some((kind, if kind == 0 { list } else { [&[kind][..], &list].concat() }))
}

fn rlp_fields(value: &Value, names: &str) -> Option<Vec<u8>> {
    let fields: Option<Vec<Vec<u8>>> = names.split_whitespace().map(|name| rlp_field(name, value.get(name)?)).collect();
    Some(rlp(0xc0, &fields?.concat()))
}

fn rlp_field(name: &str, value: &Value) -> Option<Vec<u8>> {
    let parts = |part: fn(&Value) -> Option<Vec<u8>>| {
        let parts: Option<Vec<Vec<u8>>> = value.as_array()?.iter().map(part).collect();
        Some(rlp(0xc0, &parts?.concat()))
    };
    match name {
        "to" if value.is_null() => Some(rlp(0x80, &[])),
        "to" | "input" | "address" => Some(rlp(0x80, &bytes(value)?)),
        "blobVersionedHashes" | "storageKeys" => parts(|part| Some(rlp(0x80, &bytes(part)?))),
        "accessList" => parts(|part| rlp_fields(part, "address storageKeys")),
        "authorizationList" => parts(|part| rlp_fields(part, "chainId address nonce yParity r s")),
        _ => {
            let number = bytes(value)?;
            let zeros = number.iter().take_while(|&&byte| byte == 0).count();
            Some(rlp(0x80, &number[zeros..]))
        }
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    let digits = if digits.len() % 2 == 0 { digits.to_owned() } else { format!("0{digits}") };
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

/// An item of RLP: texts have the offset 0x80, lists 0xc0.
fn rlp(offset: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let zeros = length.iter().take_while(|&&byte| byte == 0).count();
    let head = match content {
        [0..0x80] if offset == 0x80 => vec![],
        _ if content.len() < 56 => vec![offset + content.len() as u8],
        _ => [&[offset + 55 + (8 - zeros) as u8][..], &length[zeros..]].concat(),
    };
    [&head[..], content].concat()
}
