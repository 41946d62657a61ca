//! How fast is the scanner? Times it against serde_json's raw value and simd-json's tape on texts like those of nodes.
//!
//! `cargo bench --bench json`. Times are CPU time of the thread, which other load on the machine hardly touches. Each
//! round times all of them, so that ratios are taken between neighbours; told are medians, and in brackets least and
//! most. simd-json rewrites its input, so each of its runs begins with a copy; its buffers and tape are used again.

mod stopwatch;

use ringway::wire::json::validate;
use ringway::wire::jsonrpc::{Checked, check, parse, request_len, write_request};
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Write};
use stopwatch::{ROUNDS, many, mean, repeats, spread};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let calldata = format!("\"0x{}\"", "00a9059cbb".repeat(20_000));
    let texts = [
        ("short answer, 118 B", format!("{{\"jsonrpc\":\"2.0\",\"id\":983,\"result\":\"0x{}\"}}", "5e".repeat(39))),
        ("getLogs, 2 KB", logs(1_900, "")),
        ("getLogs, 10 KB", logs(10_000, "")),
        ("getLogs, 100 KB", logs(100_000, "")),
        ("getLogs, 1 MB", logs(1_000_000, "")),
        ("getLogs of many shapes, 100 KB", mixed_logs(100_000)),
        ("getLogs, 1 MB, indented", logs(1_000_000, "\n        ")),
        ("block with transactions, 1 MB", transactions(1_000_000)),
        ("trace with long hex, 1 MB", format!("[{}]", [calldata.as_str(); 5].join(","))),
        ("numbers, 1 MB", format!("[{}]", vec!["1,22,333,4444.5,-6e7,123456789012"; 30_000].join(","))),
        ("text in Chinese, 1 MB", format!("[{}]", vec!["\"區塊鏈節點的回答\""; 40_000].join(","))),
        ("escapes, 1 MB", format!("[{}]", vec![r#""a\n\"b\"\u00e9\\""#; 50_000].join(","))),
    ];
    writeln!(
        out,
        "| text | bytes | validate GB/s | check GB/s | RawValue GB/s | simd-json GB/s | RawValue ÷ validate | simd-json ÷ validate |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for (name, text) in &texts {
        row(&mut out, name, text)?;
    }
    writeln!(out)?;
    small(&mut out)
}

/// One text: four ways to read it.
fn row(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    let bytes = text.as_bytes();
    let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{text}}}");
    let (mut scratch, mut buffers) = (vec![0; bytes.len()], simd_json::Buffers::new(bytes.len()));
    let mut spare = Some(simd_json::Tape::null());
    let mut ours = || validate(black_box(bytes), 10_000).is_ok();
    let mut checked = || matches!(check(black_box(body.as_bytes()), 7), Checked::Result(_));
    let mut serde = || serde_json::from_slice::<&RawValue>(black_box(bytes)).is_ok();
    let mut simd = || {
        scratch.copy_from_slice(black_box(bytes));
        let mut tape = spare.take().unwrap_or_else(simd_json::Tape::null).reset();
        let good = simd_json::fill_tape(&mut scratch, &mut buffers, &mut tape).is_ok();
        spare = Some(tape.reset());
        good
    };
    let mut runs: [&mut dyn FnMut() -> bool; 4] = [&mut ours, &mut checked, &mut serde, &mut simd];
    let counts = runs.each_mut().map(|run| repeats(run));
    let rounds: Vec<[f64; 4]> = (0..ROUNDS).map(|_| timed(&mut runs, counts)).collect();
    let speed = |at: usize| {
        let length = if at == 1 { body.len() } else { bytes.len() };
        length as f64 / spread(rounds.iter().map(|times| times[at])).0
    };
    let ratio = |at: usize| {
        let (middle, least, most) = spread(rounds.iter().map(|times| times[at] / times[0]));
        format!("{middle:.2} ({least:.2}..{most:.2})")
    };
    let length = bytes.len();
    let [ours, checked, serde, simd] = [0, 1, 2, 3].map(speed);
    let (to_serde, to_simd) = (ratio(2), ratio(3));
    writeln!(out, "| {name} | {length} | {ours:.2} | {checked:.2} | {serde:.2} | {simd:.2} | {to_serde} | {to_simd} |")
}

/// What one ordinary Call costs.
fn small(out: &mut impl Write) -> io::Result<()> {
    let request = br#"{"jsonrpc":"2.0","id":83,"method":"eth_call","params":[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"0x70a082310000000000000000000000006e0d01a76c3cf4288372a29124a26d4353ee51be"},"latest"]}"#;
    let answer =
        br#"{"jsonrpc":"2.0","id":83,"result":"0x0000000000000000000000000000000000000000000000000858898f93629000"}"#;
    let params = &request[49..request.len() - 1];
    let mut buffer = Vec::with_capacity(1024);
    for (name, time) in [
        ("parse of an eth_call", many(&mut || parse(black_box(request), 100).is_ok()).0),
        ("check of its answer", many(&mut || matches!(check(black_box(answer), 83), Checked::Result(_))).0),
        (
            "writing it again",
            many(&mut || {
                buffer.clear();
                write_request(&mut buffer, Some(83), "eth_call", Some(black_box(params)));
                buffer.len() == request_len(Some(83), "eth_call", Some(params))
            })
            .0,
        ),
    ] {
        writeln!(out, "- {name}: {time:.1} ns")?;
    }
    Ok(())
}

fn timed(runs: &mut [&mut dyn FnMut() -> bool; 4], counts: [u32; 4]) -> [f64; 4] {
    let mut times = [0.0; 4];
    for ((time, run), count) in times.iter_mut().zip(runs).zip(counts) {
        *time = mean(run, count);
    }
    times
}

/// A block of about `size` bytes with full transactions, whose call data and numbers have many lengths.
fn transactions(size: usize) -> String {
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut text = String::from("{\"number\":\"0x16f2a81\",\"transactions\":[");
    let mut index = 0;
    while text.len() < size {
        let mut hex = |least: usize, more: usize, step: usize| {
            let digits = least + step * random(more + 1);
            let digits: String = (0..digits).map(|_| char::from(b"0123456789abcdef"[random(16)])).collect();
            format!("\"0x{digits}\"")
        };
        let members = [
            ("blockHash", hex(64, 0, 1)),
            ("blockNumber", hex(7, 0, 1)),
            ("from", hex(40, 0, 1)),
            ("gas", hex(4, 2, 1)),
            ("gasPrice", hex(8, 1, 1)),
            ("hash", hex(64, 0, 1)),
            ("input", hex(8, 8, 64)),
            ("nonce", hex(1, 4, 1)),
            ("to", hex(40, 0, 1)),
            ("transactionIndex", format!("\"0x{index:x}\"")),
            ("value", hex(1, 16, 1)),
            ("type", "\"0x2\"".to_owned()),
            ("accessList", "[]".to_owned()),
            ("chainId", "\"0x1\"".to_owned()),
            ("yParity", hex(1, 0, 1)),
            ("r", hex(64, 0, 1)),
            ("s", hex(64, 0, 1)),
        ];
        text.push_str(if index == 0 { "{" } else { ",{" });
        for (at, (name, value)) in members.iter().enumerate() {
            let _ = write!(text, "{}\"{name}\":{value}", if at > 0 { "," } else { "" });
        }
        text.push('}');
        index += 1;
    }
    text.push_str("]}");
    text
}

/// Logs of several shapes: the indexes grow, and so do their digits; some have topics or words of data more.
fn mixed_logs(size: usize) -> String {
    let mut text = String::from("[");
    let (mut seed, mut index) = (0x9e37_79b9_7f4a_7c15u64, 0);
    while text.len() < size {
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let (topics, words) = *[(3, 1), (3, 1), (3, 1), (3, 1), (1, 2), (2, 4)].get(random(6)).unwrap_or(&(3, 1));
        let mut hex =
            |digits: usize| -> String { (0..digits).map(|_| char::from(b"0123456789abcdef"[random(16)])).collect() };
        let topics: Vec<String> = (0..topics).map(|_| format!("\"0x{}\"", hex(64))).collect();
        let _ = write!(
            text,
            "{}{{\"address\":\"0x{}\",\"topics\":[{}],\"data\":\"0x{}\",\"blockNumber\":\"0x{}\",\"transactionHash\":\"0x{}\",\"transactionIndex\":\"0x{:x}\",\"blockHash\":\"0x{}\",\"logIndex\":\"0x{index:x}\",\"removed\":false}}",
            if text.len() > 1 { "," } else { "" },
            hex(40),
            topics.join(","),
            hex(64 * words),
            hex(7),
            hex(64),
            index / 2,
            hex(64),
        );
        index = (index + 3) % 600;
    }
    text.push(']');
    text
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
