//! Nodes whose answers hold what only one Call may get, and that lose, cut, delay and misplace them at random.

use super::client::chunked;
use super::storm_node::draw;
use super::upstream::{read_request, reset, response};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Whatever no Call may get holds this.
pub const STRAY: &str = "stray";

/// What nodes answer to the Call with this token, in JSON: `Err` = the error that is its answer.
pub fn answer(seed: u64, token: u64) -> Result<String, String> {
    if draw(seed, token, 1, 20) == 0 {
        return Err(format!(r#"{{"code":3,"message":"no {token}","data":"{:016x}"}}"#, draw(seed, token, 2, u64::MAX)));
    }
    let length = match draw(seed, token, 3, 1000) {
        0..=799 => draw(seed, token, 4, 300),
        800..=989 => draw(seed, token, 4, 8_000),
        _ => draw(seed, token, 4, 200_000),
    };
    // Of one token only, at any place of it.
    let word = format!("{token:x}.{:x};", draw(seed, token, 5, u64::MAX));
    let times = length as usize / word.len() + 1;
    Ok(format!("{{\"token\":{token},\"text\":\"{}\"}}", word.repeat(times)))
}

/// What the nodes did, over all of them.
#[derive(Default)]
pub struct Done {
    /// Requests that were read whole.
    pub requests: AtomicU64,
    /// Answers that were lost, cut, late or wrong on purpose.
    pub faults: AtomicU64,
}

/// A node; it ends with the test.
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Node {
    /// Starts one.
    pub fn start(at: u64, seed: u64, done: &Arc<Done>) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let (done, over) = (done.clone(), stopped.clone());
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                if over.load(SeqCst) {
                    return;
                }
                let done = done.clone();
                std::thread::spawn(move || serve(stream, draw(seed, connection as u64, at, u64::MAX), seed, &done));
            }
        });
        Node { address, stopped }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopped.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// The token and the id of a request body.
fn read(body: &[u8]) -> Option<(u64, &str)> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, token) = text.split_once("\"params\":[")?;
    let token = &token[..token.find(|byte: char| !byte.is_ascii_digit())?];
    let id = text.split_once("\"id\":").map_or("null", |(_, rest)| rest.split(',').next().unwrap_or("null"));
    Some((token.parse().ok()?, id))
}

fn serve(mut stream: TcpStream, own: u64, seed: u64, done: &Done) {
    let _ = stream.set_nodelay(true);
    let mut buf = VecDeque::new();
    for nth in 0.. {
        let Some((_, body)) = read_request(&mut stream, &mut buf) else { return };
        let (token, id) = read(&body).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&body)));
        done.requests.fetch_add(1, SeqCst);
        let body = match answer(seed, token) {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            Err(error) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
        };
        let dice = draw(own, nth, token, 1000);
        if dice < 60 {
            done.faults.fetch_add(1, SeqCst);
        }
        if !act(&mut stream, dice, own ^ nth, id, &body) {
            return;
        }
    }
}

/// Answers by the dice; `false` = the connection is over.
fn act(stream: &mut TcpStream, dice: u64, other: u64, id: &str, body: &str) -> bool {
    let whole = response(200, &[], body);
    let cut = other as usize % whole.len();
    let stray = |id: &str| response(200, &[], &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{STRAY}"}}"#));
    let mut write = |bytes: &[u8]| stream.write_all(bytes).is_ok();
    match dice {
        0..=5 => false,
        6..=11 => {
            reset(stream);
            false
        }
        12..=19 => {
            write(&whole.as_bytes()[..cut]);
            false
        }
        20..=24 => {
            write(&whole.as_bytes()[..cut]);
            reset(stream);
            false
        }
        // Half of it, and the rest when nobody waits any more.
        25..=26 => {
            write(&whole.as_bytes()[..cut]);
            std::thread::sleep(Duration::from_millis(400));
            write(&whole.as_bytes()[cut..]);
            let _ = stream.read(&mut [0]);
            false
        }
        27..=28 => {
            std::thread::sleep(Duration::from_millis(400));
            write(whole.as_bytes()) && write(stray(id).as_bytes())
        }
        29..=34 => write(stray("4503599627370495").as_bytes()),
        35..=39 => write(response(503, &["Retry-After: 0"], STRAY).as_bytes()),
        40..=44 => write(response(500, &[], STRAY).as_bytes()),
        // Right, and with an answer behind it that nobody asked for, in the same segment.
        45..=52 if body.len() < 4_000 => write(format!("{whole}{}", stray(id)).as_bytes()),
        // Right, and then a connection that is stale in its pool, at once or later.
        45..=56 => {
            write(whole.as_bytes());
            false
        }
        57..=59 => {
            write(whole.as_bytes());
            std::thread::sleep(Duration::from_millis(other % 5));
            reset(stream);
            false
        }
        60..=99 => {
            std::thread::sleep(Duration::from_micros(other % 3_000));
            write(whole.as_bytes())
        }
        100..=199 => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            write(&[head.as_bytes(), &chunked(body.as_bytes(), other as usize % 7)].concat())
        }
        200..=229 => {
            let wrote = write(&whole.as_bytes()[..cut]);
            std::thread::yield_now();
            wrote && write(&whole.as_bytes()[cut..])
        }
        230..=239 => {
            write(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes());
            false
        }
        _ => write(whole.as_bytes()),
    }
}
