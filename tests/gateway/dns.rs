//! A DNS server that says what a test wants, over UDP.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it does with questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// Answers them.
    Answering,
    /// Says SERVFAIL.
    Failing,
    /// Says nothing.
    Silent,
    /// Its socket is closed.
    Closed,
}

struct Script {
    names: HashMap<String, (Vec<IpAddr>, u32)>,
    mood: Mood,
    asked: Vec<String>,
    over: bool,
}

/// The server; it ends with the test.
pub struct Dns {
    /// Where it listens.
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

const A: u16 = 1;
const AAAA: u16 = 28;

impl Dns {
    /// Starts one that knows no name.
    pub fn start() -> Dns {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let script = Script { names: HashMap::new(), mood: Mood::Answering, asked: Vec::new(), over: false };
        let script = Arc::new(Mutex::new(script));
        let own = script.clone();
        std::thread::spawn(move || serve(socket, &own));
        Dns { address, script }
    }

    /// From now on the name has these addresses; an answer turns them round each time.
    pub fn says(&self, name: &str, addresses: &[&str], ttl_s: u32) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.script.lock().unwrap().names.insert(name.to_owned(), (addresses, ttl_s));
    }

    /// From now on it behaves so.
    pub fn is(&self, mood: Mood) {
        self.script.lock().unwrap().mood = mood;
    }

    /// How often this name was asked for.
    pub fn asked_for(&self, name: &str) -> usize {
        self.script.lock().unwrap().asked.iter().filter(|asked| *asked == name).count()
    }

    /// The line of `[server]` that makes a gateway ask here.
    pub fn setting(&self) -> String {
        format!("resolvers = [\"{}\"]", self.address)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        if let Ok(mut script) = self.script.lock() {
            script.over = true;
        }
    }
}

fn serve(socket: UdpSocket, script: &Mutex<Script>) {
    let address = socket.local_addr().unwrap();
    let mut socket = Some(socket);
    let mut question = [0; 2048];
    loop {
        let (over, mood) = {
            let script = script.lock().unwrap();
            (script.over, script.mood)
        };
        if over {
            return;
        }
        if mood == Mood::Closed {
            socket = None;
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let Ok(open) = socket.take().map_or_else(|| UdpSocket::bind(address), Ok) else { continue };
        open.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        if let Ok((length, peer)) = open.recv_from(&mut question)
            && let Some(answer) = answer(&question[..length], &mut script.lock().unwrap())
        {
            let _ = open.send_to(&answer, peer);
        }
        socket = Some(open);
    }
}

/// RFC 1035, section 4.1: header, question, and answers that point at its name.
fn answer(question: &[u8], script: &mut Script) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    while *question.get(at)? != 0 {
        let length = usize::from(question[at]);
        labels.push(String::from_utf8_lossy(question.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    let end = at + 5;
    let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
    let name = labels.join(".");
    script.asked.push(name.clone());
    let (mood, found) = (script.mood, script.names.get_mut(&name));
    let code = match (mood, &found) {
        (Mood::Silent | Mood::Closed, _) => return None,
        (Mood::Failing, _) => 2,
        (Mood::Answering, None) => 3,
        (Mood::Answering, Some(_)) => 0,
    };
    let mut records = Vec::new();
    if let (0, Some((addresses, ttl_s))) = (code, found) {
        if !addresses.is_empty() {
            addresses.rotate_left(1);
        }
        for address in addresses.iter() {
            let (own, bytes) = match address {
                IpAddr::V4(v4) => (A, v4.octets().to_vec()),
                IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
            };
            if own == kind {
                let record =
                    [&[0xc0, 12][..], &own.to_be_bytes(), &[0, 1], &ttl_s.to_be_bytes(), &[0, bytes.len() as u8]];
                records.push([record.concat(), bytes].concat());
            }
        }
    }
    let header = [&question[..2], &[0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]].concat();
    Some([&header, question.get(12..end)?, &records.concat()].concat())
}
