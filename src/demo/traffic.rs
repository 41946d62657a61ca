//! Callers inside the process, so that something is to be seen: so many requests a second, through the
//! Gateway's own port like anybody's.

use crate::net::ring;
use crate::wire::http1::HeadLimits;
use crate::wire::http1_response::{BodyFraming, response_head};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Callers at a time; each waits for its answer before its next request.
const CALLERS_MAX: u64 = 64;
/// A request that is later than this is left out: what a slow node held up is not made up for.
const LATE_NS: u64 = 1_000_000_000;
const PATIENCE: Duration = Duration::from_secs(30);
const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, headers: 100 };

/// What the callers ask, in turn: mostly what the cheapest node has, one trace, one old balance, some logs.
const BODIES: [&str; 8] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"eth_getBlockByNumber","params":["latest",false]}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"eth_call","params":[{"to":"0x1111111111111111111111111111111111111111","data":"0x70a08231"},"latest"]}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"eth_gasPrice","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"eth_getBalance","params":["0x1111111111111111111111111111111111111111","latest"]}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"trace_block","params":["latest"]}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"eth_getBalance","params":["0x1111111111111111111111111111111111111111","0xf4240"]}"#,
    r#"{"jsonrpc":"2.0","id":8,"method":"eth_getLogs","params":[{"fromBlock":"latest","toBlock":"latest"}]}"#,
];

/// Callers at work.
pub struct Traffic(Arc<Mutex<Schedule>>);

/// When the next request is due.
struct Schedule {
    next_ns: u64,
    every_ns: u64,
    count: usize,
    stopped: bool,
}

impl Schedule {
    /// The moment and the body of the next request; `None` = no more.
    fn take(&mut self, now_ns: u64) -> Option<(u64, &'static str)> {
        if self.stopped {
            return None;
        }
        if self.next_ns + LATE_NS < now_ns {
            self.next_ns = now_ns;
        }
        let due_ns = self.next_ns;
        self.next_ns += self.every_ns;
        self.count = self.count.wrapping_add(1);
        BODIES.get(self.count % BODIES.len()).map(|body| (due_ns, *body))
    }
}

/// Starts `rate` requests a second.
///
/// # Errors
/// If there is no thread to be had.
pub fn start(gateway: SocketAddr, rate: u32) -> io::Result<Traffic> {
    let schedule = Schedule {
        next_ns: ring::now(),
        every_ns: 1_000_000_000 / u64::from(rate.max(1)),
        count: 0,
        stopped: rate == 0,
    };
    let shared = Arc::new(Mutex::new(schedule));
    // Twice as many as a second's requests: a node that hangs for a second must not hold up the others.
    for at in 0..(2 * u64::from(rate)).min(CALLERS_MAX) {
        let shared = shared.clone();
        std::thread::Builder::new().name(format!("caller-{at}")).spawn(move || caller(gateway, &shared))?;
    }
    Ok(Traffic(shared))
}

impl Traffic {
    /// No more requests begin.
    pub fn stop(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
    }
}

fn caller(gateway: SocketAddr, schedule: &Mutex<Schedule>) {
    let mut connection = None;
    loop {
        let next = schedule.lock().unwrap_or_else(PoisonError::into_inner).take(ring::now());
        let Some((due_ns, body)) = next else { return };
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(ring::now())));
        if schedule.lock().unwrap_or_else(PoisonError::into_inner).stopped {
            return;
        }
        // What went wrong is seen at the Gateway, which counts it; here it only costs the connection.
        connection = ask(connection, gateway, body).unwrap_or(None);
    }
}

/// One request; gives the connection back if it can carry another.
fn ask(kept: Option<TcpStream>, gateway: SocketAddr, body: &str) -> io::Result<Option<TcpStream>> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect_timeout(&gateway, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream
        }
    };
    let head = format!(
        "POST /eth HTTP/1.1\r\nHost: {gateway}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let keep_alive = read_answer(&mut stream)?;
    Ok(keep_alive.then_some(stream))
}

/// Reads an answer to its end; says whether the connection goes on.
fn read_answer(stream: &mut TcpStream) -> io::Result<bool> {
    let (mut buf, mut scanned) = (Vec::new(), 0);
    let mut chunk = [0; 8 << 10];
    let mut head = None;
    loop {
        if head.is_none() {
            head = response_head(&buf, scanned, &LIMITS).map_err(|bad| io::Error::other(bad.words()))?;
            scanned = buf.len();
        }
        if let Some(head) = head {
            let end = match head.framing {
                BodyFraming::Empty => Some(head.head_len as u64),
                BodyFraming::Length(bytes) => Some(bytes.saturating_add(head.head_len as u64)),
                BodyFraming::Chunked | BodyFraming::UntilClose => return Ok(false),
            };
            if end.is_some_and(|end| buf.len() as u64 >= end) {
                return Ok(head.keep_alive);
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => buf.extend_from_slice(chunk.get(..n).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_and_late_ones_left_out() {
        let mut schedule = Schedule { next_ns: 1_000, every_ns: 100, count: 0, stopped: false };
        let due = |schedule: &mut Schedule, now_ns| schedule.take(now_ns).map(|(due_ns, _)| due_ns);
        assert_eq!([due(&mut schedule, 0), due(&mut schedule, 0)], [Some(1_000), Some(1_100)]);
        assert_eq!(due(&mut schedule, 2_000), Some(1_200), "a little late is caught up");
        assert_eq!(due(&mut schedule, 5_000_000_000), Some(5_000_000_000));
        schedule.stopped = true;
        assert_eq!(due(&mut schedule, 0), None);
    }

    #[test]
    fn every_body_is_asked_in_turn() {
        let mut schedule = Schedule { next_ns: 0, every_ns: 1, count: 0, stopped: false };
        let asked: std::collections::HashSet<_> =
            (0..8).filter_map(|_| schedule.take(0)).map(|(_, body)| body).collect();
        assert_eq!(asked.len(), BODIES.len());
    }
}
