//! Peers that speak TLS badly, on both sides: nobody else notices, nothing is believed, nothing is left behind.

use super::harness::{Gateway, Reply, Setup, Upstream, call_body, request};
use super::pki::{Authority, Files, Front, TlsClient};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const READ: &str = "eth_call";
/// Bad connections of each kind.
const EACH: usize = 60;

/// Dice that a seed repeats.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// What a man in the middle does to the bytes of one direction.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Nothing,
    /// Changes one byte of so many.
    Flips(usize),
    /// Leaves out the end, and closes.
    Cuts(usize),
    /// Sends a piece twice.
    Doubles(usize),
    /// Puts in a record of its own.
    Inserts(usize),
}

/// Carries bytes in one direction, and does one harm to them.
fn carry(mut from: TcpStream, mut to: TcpStream, harm: Harm, mut dice: Dice, harms: &AtomicUsize) {
    let (mut buf, mut seen) = ([0; 4_096], 0);
    while let Ok(count @ 1..) = from.read(&mut buf) {
        let mut piece = buf[..count].to_vec();
        let here = |at: usize| (seen..seen + count).contains(&at).then(|| at - seen);
        let hit = match harm {
            Harm::Nothing => None,
            Harm::Flips(at) | Harm::Cuts(at) | Harm::Doubles(at) | Harm::Inserts(at) => here(at),
        };
        seen += count;
        if let Some(at) = hit {
            harms.fetch_add(1, Ordering::Relaxed);
            match harm {
                Harm::Nothing => {}
                Harm::Flips(_) => piece[at] ^= 1 << dice.below(8),
                Harm::Cuts(_) => {
                    let _ = to.write_all(&piece[..at]);
                    break;
                }
                Harm::Doubles(_) => piece.extend(piece.clone()),
                Harm::Inserts(_) => {
                    let kind = 20 + dice.below(5) as u8;
                    let body = dice.bytes(40);
                    piece.splice(at..at, [&[kind, 3, 3, 0, 40][..], &body].concat());
                }
            }
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A man in the middle before an address, who harms each connection in another way.
struct Middle {
    address: SocketAddr,
    harms: Arc<AtomicUsize>,
    /// What is done to the next connection: towards the address, and back.
    next: Arc<Mutex<(Harm, Harm)>>,
}

impl Middle {
    fn before(target: SocketAddr) -> Middle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (harms, next) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new((Harm::Nothing, Harm::Nothing))));
        let (counted, chosen) = (harms.clone(), next.clone());
        std::thread::spawn(move || {
            for (nth, outer) in listener.incoming().map_while(Result::ok).enumerate() {
                let Ok(inner) = TcpStream::connect(target) else { return };
                let (up, back) = *chosen.lock().unwrap();
                let pairs = [(&outer, &inner, up), (&inner, &outer, back)];
                for (from, to, harm) in pairs {
                    let (from, to, counted) = (from.try_clone().unwrap(), to.try_clone().unwrap(), counted.clone());
                    let dice = Dice(nth as u64 * 2 + 0x9e37_79b9);
                    std::thread::spawn(move || carry(from, to, harm, dice, &counted));
                }
            }
        });
        Middle { address, harms, next }
    }
}

fn harms(dice: &mut Dice, most: usize) -> Vec<Harm> {
    let kinds = [Harm::Flips, Harm::Cuts, Harm::Doubles, Harm::Inserts];
    (0..EACH).map(|nth| kinds[nth % kinds.len()](dice.below(most))).collect()
}

fn files(gateway: &Gateway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count()
}

fn rss_kib(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As many files as before, and not much more memory.
fn assert_nothing_left(gateway: &Gateway, files_before: usize, rss_before: usize) {
    let until = std::time::Instant::now() + super::harness::PATIENCE;
    while files(gateway) > files_before {
        assert!(std::time::Instant::now() < until, "{} files, {files_before} before", files(gateway));
        std::thread::sleep(Duration::from_millis(5));
    }
    let rss = rss_kib(gateway);
    assert!(rss < rss_before + (24 << 10), "{rss} KiB, {rss_before} before");
}

#[test]
fn callers_that_speak_it_badly_reach_no_node_and_leave_nothing_behind() {
    let (node, authority, pems) = (Upstream::answering("1"), Authority::new(), Files::new());
    let own = authority.sign(&["localhost"]);
    let (cert, key) = (pems.write("cert.pem", &own.cert), pems.write("key.pem", &own.key));
    let server = format!("tls = {{ cert = \"{cert}\", key = \"{key}\" }}\nheader_timeout = \"2s\"");
    let gateway = Setup::of(&[&node]).server(&server).start();
    let client = TlsClient::new(&authority, None, rustls::ALL_VERSIONS);
    let body = call_body("1", READ, "[]");
    let whole = format!("{}{body}", request("/eth", &["Connection: close"], body.len()));
    let ask = |address: SocketAddr| -> Option<String> {
        let mut stream = client.connect(address);
        stream.write_all(whole.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok().map(|_| answer)
    };
    assert!(ask(gateway.listen).unwrap().contains("\"result\":1"));
    let (files_before, rss_before) = (files(&gateway), rss_kib(&gateway));
    let mut dice = Dice(7);
    // Bytes that are no TLS, or only look like it.
    for nth in 0..2 * EACH {
        let mut stream = TcpStream::connect(gateway.listen).unwrap();
        let count = dice.below(600);
        let mut bytes = dice.bytes(count);
        if nth % 2 == 0 {
            let length = (dice.below(20_000) as u16).to_be_bytes();
            bytes.splice(0..0, [22, 3, 1 + (nth % 3) as u8, length[0], length[1], 1]);
        }
        let _ = stream.write_all(&bytes);
        if nth % 3 == 0 {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
    // Real callers with somebody in between.
    let middle = Middle::before(gateway.listen);
    let answered = AtomicUsize::new(0);
    for harm in harms(&mut dice, 900) {
        for pair in [(harm, Harm::Nothing), (Harm::Nothing, harm)] {
            *middle.next.lock().unwrap() = pair;
            if let Some(answer) = ask(middle.address) {
                assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\"result\":1}"), "{harm:?}: {answer}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    assert!(middle.harms.load(Ordering::Relaxed) > EACH, "too few met their byte");
    assert!(answered.load(Ordering::Relaxed) < 2 * EACH, "all were answered: nothing was harmed");
    // Whatever reached the node was the one Call, to the byte.
    assert!(node.seen().iter().all(|seen| seen.json()["method"] == READ));
    assert!(ask(gateway.listen).unwrap().contains("\"result\":1"));
    assert_nothing_left(&gateway, files_before + 2, rss_before);
}

#[test]
fn endpoints_that_speak_it_badly_are_never_believed_and_leave_nothing_behind() {
    let large = "x".repeat(40_000);
    let answer = format!("\"{large}\"");
    let expected = answer.clone();
    let node = Upstream::start(move |seen| Reply::result(seen, &answer));
    let spare = Upstream::answering("2");
    let (authority, pems) = (Authority::new(), Files::new());
    let front = Front::start(authority.sign(&["localhost"]).server(None), node.address);
    let middle = Middle::before(front.address);
    let ca = pems.write("ca.pem", &authority.pem());
    let gateway = Setup::of(&[&spare, &spare])
        .endpoint(0, &format!("url = \"https://localhost:{}\"\ntls = {{ ca = \"{ca}\" }}", middle.address.port()))
        .no_circuit()
        .route("attempt_timeout = \"500ms\"")
        .shards(1)
        .start();
    let (files_before, rss_before) = (files(&gateway), rss_kib(&gateway));
    let mut dice = Dice(11);
    let (mut whole, mut spared) = (0, 0);
    for harm in harms(&mut dice, 44_000) {
        for pair in [(harm, Harm::Nothing), (Harm::Nothing, harm)] {
            *middle.next.lock().unwrap() = pair;
            let answer = gateway.call(READ, "[]");
            assert_eq!(answer.status, 200, "{harm:?}: {answer:?}");
            match answer.result().as_str() {
                "2" => spared += 1,
                other => {
                    assert!(other == expected, "{harm:?}: something else");
                    whole += 1;
                }
            }
            // The next one has a connection of its own.
            front.hang_up();
        }
    }
    assert!(whole > 0 && spared > EACH / 2, "{whole} whole, {spared} spared");
    assert_nothing_left(&gateway, files_before + 4, rss_before);
}
