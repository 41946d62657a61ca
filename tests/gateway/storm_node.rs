//! Nodes that fail at random, and write down what they did with each operation that they read whole.

use super::upstream::{read_request, reset, response};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A number below `below`, from a seed and what it is for: the same in every run.
pub fn draw(seed: u64, one: u64, other: u64, below: u64) -> u64 {
    let mut mixed = seed ^ one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for _ in 0..3 {
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (mixed ^ (mixed >> 32)) % below
}

/// What a node did with an operation that it read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Ran it, and gave this result.
    Ran(String),
    /// Gave an error with this code that is the answer to the caller.
    Failed(i64),
    /// May have run it; its answer was lost or worthless.
    Lost(&'static str),
    /// Said that it did not run it.
    Refused,
}

impl What {
    /// The operation may have had its effect.
    pub fn may_have_run(&self) -> bool {
        *self != What::Refused
    }

    /// The result that was given.
    pub fn answer(&self) -> Option<&String> {
        match self {
            What::Ran(result) => Some(result),
            _ => None,
        }
    }
}

/// What all nodes write down.
pub struct Ledger {
    seed: u64,
    steps: Mutex<HashMap<u64, Vec<(usize, What)>>>,
    faults: Mutex<BTreeMap<&'static str, u64>>,
    cuts: AtomicU64,
    busy: AtomicU64,
}

impl Ledger {
    /// An empty one.
    pub fn new(seed: u64) -> Arc<Ledger> {
        Arc::new(Ledger {
            seed,
            steps: Mutex::default(),
            faults: Mutex::default(),
            cuts: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        })
    }

    /// By operation: where it was read whole, in this order, and what became of it there.
    pub fn steps(&self) -> HashMap<u64, Vec<(usize, What)>> {
        self.steps.lock().unwrap().clone()
    }

    /// How often each fault was made.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().unwrap().clone()
    }

    /// Connections that were closed with, perhaps, a request on its way or half read.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(SeqCst)
    }

    /// Operations that a node is busy with.
    pub fn busy(&self) -> u64 {
        self.busy.load(SeqCst)
    }

    fn fault(&self, fault: &'static str) {
        *self.faults.lock().unwrap().entry(fault).or_default() += 1;
    }

    fn cut(&self, fault: &'static str) {
        self.cuts.fetch_add(1, SeqCst);
        self.fault(fault);
    }
}

/// A node that fails at random.
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Node {
    /// Starts one.
    pub fn start(at: usize, ledger: &Arc<Ledger>) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let (ledger, over) = (ledger.clone(), stopped.clone());
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                if over.load(SeqCst) {
                    return;
                }
                let ledger = ledger.clone();
                std::thread::spawn(move || serve(stream, at, connection as u64, &ledger));
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

fn serve(mut stream: TcpStream, at: usize, connection: u64, ledger: &Ledger) {
    let _ = stream.set_nodelay(true);
    let mut buf = VecDeque::new();
    for nth in 0.. {
        // Before a request, by the connection's own dice.
        match draw(ledger.seed, connection << 8 | nth, 100 + at as u64, 100) {
            0..=2 if nth == 0 => {
                std::thread::sleep(Duration::from_millis(1));
                ledger.cut("reset before reading");
                return reset(&stream);
            }
            3..=5 => {
                let mut some = vec![0; 20 + connection as usize % 150];
                let read = stream.read(&mut some).unwrap_or(0);
                if read > 0 {
                    ledger.cut("reset while reading");
                }
                return reset(&stream);
            }
            6..=9 if nth > 0 => return ledger.cut("idle connection closed"),
            10..=11 if nth > 0 => {
                std::thread::sleep(Duration::from_millis(connection % 3));
                return ledger.cut("idle connection closed late");
            }
            _ => {}
        }
        let Some((_, body)) = read_request(&mut stream, &mut buf) else { return };
        ledger.busy.fetch_add(1, SeqCst);
        let goes_on = act(&mut stream, at, &body, ledger);
        ledger.busy.fetch_sub(1, SeqCst);
        if !goes_on {
            return;
        }
    }
}

/// Does what the dice of this operation at this node say; `false` = the connection is over.
fn act(stream: &mut TcpStream, at: usize, body: &[u8], ledger: &Ledger) -> bool {
    let call: serde_json::Value = serde_json::from_slice(body).unwrap();
    let token: u64 = call["params"][0].as_str().unwrap().parse().unwrap();
    let id = &call["id"];
    let result = format!("{at}-{token}");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{result}"}}"#);
    let error = |code: i64| format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#);
    let json = |status: u16, body: &str| response(status, &["Content-Type: application/json"], body);
    let html = |status: u16, headers: &[&str]| response(status, headers, "<html>no</html>");
    let whole = json(200, &answer);
    let (half_head, half_body) = (whole.len() - answer.len() - 9, whole.len() - 7);
    let (lost, refused) = (What::Lost, What::Refused);
    // The fault, what it means, what is written, and how the connection ends.
    let (fault, what, bytes, end) = match draw(ledger.seed, token, 200 + at as u64, 100) {
        0..=1 => ("hang", lost("hang"), String::new(), End::Hang),
        2..=3 => ("reset", lost("reset"), String::new(), End::Reset),
        4..=5 => ("close", lost("close"), String::new(), End::Close),
        6..=7 => ("half a head", lost("half a head"), whole[..half_head].to_owned(), End::Close),
        8..=9 => ("half a body", lost("half a body"), whole[..half_body].to_owned(), End::Close),
        10 => ("half a body, reset", lost("half a body, reset"), whole[..half_body].to_owned(), End::Reset),
        11 => ("half a body, hang", lost("half a body, hang"), whole[..half_body].to_owned(), End::Hang),
        12 => ("garbage", lost("garbage"), "\u{1}\u{2}garbage\r\n\r\n".to_owned(), End::Close),
        13 => ("200 with text", lost("200 with text"), html(200, &[]), End::Open),
        14..=15 => {
            let wrong = answer.replacen(&format!("\"id\":{id}"), "\"id\":4503599627370495", 1);
            ("wrong id", lost("wrong id"), json(200, &wrong), End::Open)
        }
        16..=17 => ("500", lost("500"), html(500, &[]), End::Open),
        18 => ("502", lost("502"), html(502, &[]), End::Close),
        19..=20 => ("503", lost("503"), html(503, &[]), End::Open),
        21 => ("504", lost("504"), html(504, &[]), End::Open),
        22..=24 => ("503 with Retry-After", refused, html(503, &["Retry-After: 0"]), End::Open),
        25..=27 => ("429", refused, html(429, &["Retry-After: 0"]), End::Open),
        28..=29 => ("403", refused, html(403, &[]), End::Open),
        30..=31 => ("301", refused, html(301, &["Location: http://127.0.0.1:1/"]), End::Close),
        32..=33 => ("400", refused, html(400, &[]), End::Open),
        34..=36 => ("503 with an error", What::Failed(-32099), json(503, &error(-32099)), End::Open),
        37..=38 => ("500 with -32603", What::Failed(-32603), json(500, &error(-32603)), End::Open),
        39..=43 => ("an error", What::Failed(3), json(200, &error(3)), End::Open),
        44..=45 => ("an answer, then the end", What::Ran(result), whole, End::Close),
        _ => ("an answer", What::Ran(result), whole, End::Open),
    };
    ledger.fault(fault);
    // Written down before the answer can arrive anywhere.
    ledger.steps.lock().unwrap().entry(token).or_default().push((at, what));
    let wrote = stream.write_all(bytes.as_bytes()).is_ok();
    match end {
        End::Open => wrote,
        End::Close => false,
        End::Reset => {
            reset(stream);
            false
        }
        End::Hang => {
            let mut chunk = [0; 4096];
            while matches!(stream.read(&mut chunk), Ok(n) if n > 0) {}
            false
        }
    }
}

enum End {
    Open,
    Close,
    Reset,
    Hang,
}
