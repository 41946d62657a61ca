//! How fast is the scanner? Times it against serde_json's raw value on texts like those of nodes.
//!
//! `cargo bench --bench json`. Each figure is the best of many runs, in bytes per nanosecond (GB/s).

use ringway::wire::json::validate;
use ringway::wire::jsonrpc::{Checked, check, parse, request_len, write_request};
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let calldata = format!("\"0x{}\"", "00a9059cbb".repeat(20_000));
    let texts = [
        ("getLogs, 1 MB", logs(1_000_000, "")),
        ("getLogs, 1 MB, indented", logs(1_000_000, "\n        ")),
        ("getLogs, 10 KB", logs(10_000, "")),
        ("trace with long hex, 1 MB", format!("[{}]", [calldata.as_str(); 5].join(","))),
        ("numbers, 1 MB", format!("[{}]", vec!["1,22,333,4444.5,-6e7,123456789012"; 30_000].join(","))),
        ("text in Chinese, 1 MB", format!("[{}]", vec!["\"區塊鏈節點的回答\""; 40_000].join(","))),
        ("escapes, 1 MB", format!("[{}]", vec![r#""a\n\"b\"\u00e9\\""#; 50_000].join(","))),
    ];
    for (name, text) in &texts {
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{text}}}");
        let ours = best(|| validate(black_box(text.as_bytes()), 10_000).is_ok());
        let checked = best(|| matches!(check(black_box(body.as_bytes()), 7), Checked::Result(_)));
        let serde = best(|| serde_json::from_slice::<&RawValue>(black_box(text.as_bytes())).is_ok());
        let speed = |time: Duration| text.len() as f64 / time.as_nanos().max(1) as f64;
        let times = serde.as_nanos() as f64 / ours.as_nanos().max(1) as f64;
        writeln!(
            out,
            "{name:28} {:8} B  validate {:6.2}  check {:6.2}  serde_json {:6.2} GB/s  {times:5.2} times",
            text.len(),
            speed(ours),
            speed(checked),
            speed(serde)
        )?;
    }
    small(&mut out)
}

/// What one ordinary Call costs.
fn small(out: &mut impl Write) -> io::Result<()> {
    let request = br#"{"jsonrpc":"2.0","id":83,"method":"eth_call","params":[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"0x70a082310000000000000000000000006e0d01a76c3cf4288372a29124a26d4353ee51be"},"latest"]}"#;
    let answer =
        br#"{"jsonrpc":"2.0","id":83,"result":"0x0000000000000000000000000000000000000000000000000858898f93629000"}"#;
    let params = &request[49..request.len() - 1];
    let mut buffer = Vec::with_capacity(1024);
    for (name, time) in [
        ("parse of an eth_call", many(|| parse(black_box(request), 100).is_ok())),
        ("check of its answer", many(|| matches!(check(black_box(answer), 83), Checked::Result(_)))),
        (
            "writing it again",
            many(|| {
                buffer.clear();
                write_request(&mut buffer, Some(83), "eth_call", Some(black_box(params)));
                buffer.len() == request_len(Some(83), "eth_call", Some(params))
            }),
        ),
    ] {
        writeln!(out, "{name:28} {time:6.1} ns")?;
    }
    Ok(())
}

fn best(mut run: impl FnMut() -> bool) -> Duration {
    let once = || {
        let start = Instant::now();
        assert!(run());
        start.elapsed()
    };
    std::iter::repeat_with(once).take(200).min().unwrap_or_default()
}

fn many(mut run: impl FnMut() -> bool) -> f64 {
    const RUNS: u32 = 20_000;
    let times = best(|| (0..RUNS).all(|_| black_box(run())));
    times.as_nanos() as f64 / f64::from(RUNS)
}

/// An answer of `eth_getLogs` of about `size` bytes; `space` stands after each comma and brace.
fn logs(size: usize, space: &str) -> String {
    let mut text = String::from("[");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut hex = |digits: usize| {
        let mut word = String::from("0x");
        while word.len() < digits + 2 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(word, "{:08x}", seed >> 32);
        }
        word.truncate(digits + 2);
        word
    };
    while text.len() < size {
        if text.len() > 1 {
            text.push(',');
        }
        let members = [
            ("address", format!("\"{}\"", hex(40))),
            ("topics", format!("[\"{}\",\"{}\",\"{}\"]", hex(64), hex(64), hex(64))),
            ("data", format!("\"{}\"", hex(64))),
            ("blockHash", format!("\"{}\"", hex(64))),
            ("blockNumber", format!("\"{}\"", hex(7))),
            ("blockTimestamp", format!("\"{}\"", hex(8))),
            ("transactionHash", format!("\"{}\"", hex(64))),
            ("transactionIndex", format!("\"{}\"", hex(2))),
            ("logIndex", format!("\"{}\"", hex(3))),
            ("removed", "false".to_owned()),
        ];
        text.push('{');
        for (at, (name, value)) in members.iter().enumerate() {
            let _ = write!(text, "{}{space}\"{name}\":{value}", if at > 0 { "," } else { "" });
        }
        text.push('}');
    }
    text.push(']');
    text
}
