//! A front between a gateway and a node, in user space: it delays, drips, cuts, and falls silent.

use crate::harness::PATIENCE;
use crate::upstream::reset;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What befalls one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weather {
    /// Bytes pass as they come.
    Clear,
    /// Each piece comes later.
    Delay,
    /// A byte at a time.
    Drip,
    /// After so many bytes of requests both sides see a reset.
    ResetByRequest,
    /// After so many bytes of answers both sides see a reset.
    ResetByAnswer,
    /// After so many bytes of answers the gateway sees their end; what it sends still arrives.
    HalfClose,
    /// The connection is accepted, and nothing else ever happens.
    Silent,
}

impl Weather {
    /// All that is bad.
    pub const BAD: [Weather; 6] = [
        Weather::Delay,
        Weather::Drip,
        Weather::ResetByRequest,
        Weather::ResetByAnswer,
        Weather::HalfClose,
        Weather::Silent,
    ];
}

/// A front that decides for each connection what befalls it.
pub struct Front {
    /// Where the gateway finds it.
    pub address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    node: SocketAddr,
    seed: u64,
    dark: AtomicBool,
    calm: AtomicBool,
    /// What the gateway has open, and whatever ended since.
    open: Mutex<Vec<TcpStream>>,
    /// Directions that have not come to their end.
    running: AtomicUsize,
    befell: Mutex<BTreeMap<Weather, usize>>,
}

impl Front {
    /// Starts one in front of a node.
    pub fn start(node: SocketAddr, seed: u64) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, held) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
        let (dark, calm) = (AtomicBool::new(false), AtomicBool::new(false));
        let (open, running, befell) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        let shared = Arc::new(Shared { node, seed, dark, calm, open, running, befell });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for (nth, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                accepting.begin(stream, nth as u64);
            }
        });
        Front { address, listener: held, shared }
    }

    /// All connections are lost, and until it is over new ones are silent.
    pub fn darken(&self, dark: bool) {
        self.shared.dark.store(dark, SeqCst);
        self.cut();
    }

    /// All connections are lost; new ones are let through.
    pub fn calm_down(&self) {
        self.shared.calm.store(true, SeqCst);
        self.cut();
    }

    fn cut(&self) {
        self.shared.open.lock().unwrap().drain(..).for_each(|stream| reset(&stream));
    }

    /// How many connections had which weather.
    pub fn befell(&self) -> BTreeMap<Weather, usize> {
        self.shared.befell.lock().unwrap().clone()
    }

    /// Waits until what was on its way has arrived: the gateway has to have closed its connections.
    pub fn wait_for_the_end(&self) {
        let until = Instant::now() + PATIENCE;
        while self.shared.running.load(SeqCst) > 0 {
            assert!(Instant::now() < until, "connections that never end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl Shared {
    fn draw(&self, one: u64, other: u64, below: u64) -> u64 {
        crate::storm_node::draw(self.seed, one, other, below)
    }

    fn begin(self: &Arc<Shared>, gateway: TcpStream, nth: u64) {
        let weather = match self.draw(nth, 0, 100) {
            _ if self.calm.load(SeqCst) => Weather::Clear,
            _ if self.dark.load(SeqCst) => Weather::Silent,
            at @ 0..60 => Weather::BAD[at as usize / 10],
            _ => Weather::Clear,
        };
        *self.befell.lock().unwrap().entry(weather).or_default() += 1;
        // An answer takes about 150 bytes, a request 300.
        let upto = |below: u64| self.draw(nth, 1, below) as usize;
        let (up, down) = match weather {
            Weather::ResetByRequest => (upto(3_000), usize::MAX),
            Weather::ResetByAnswer | Weather::HalfClose => (usize::MAX, upto(1_500)),
            // Even good ones end, so that the weather changes.
            _ if !self.calm.load(SeqCst) => (usize::MAX, 1_000 + upto(2_000)),
            _ => (usize::MAX, usize::MAX),
        };
        self.running.fetch_add(2, SeqCst);
        self.open.lock().unwrap().push(gateway.try_clone().unwrap());
        let node = TcpStream::connect(self.node).unwrap();
        for (from, to, limit, is_answer) in [(&gateway, &node, up, false), (&node, &gateway, down, true)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let _ = to.set_nodelay(true);
            let pipe = Pipe { from, to, weather, limit, is_answer, delay: Duration::from_millis(1 + upto(12) as u64) };
            let shared = self.clone();
            std::thread::spawn(move || {
                pipe.run();
                shared.running.fetch_sub(1, SeqCst);
            });
        }
    }
}

/// One direction of a connection.
struct Pipe {
    from: TcpStream,
    to: TcpStream,
    weather: Weather,
    limit: usize,
    is_answer: bool,
    delay: Duration,
}

impl Pipe {
    fn run(mut self) {
        let (mut chunk, mut passed) = (vec![0; 16 << 10], 0);
        while let Ok(read @ 1..) = self.from.read(&mut chunk) {
            if self.weather == Weather::Silent {
                continue;
            }
            if self.weather == Weather::Delay {
                std::thread::sleep(self.delay);
            }
            let pass = read.min(self.limit - passed);
            passed += pass;
            if !self.pass(&chunk[..pass]) || passed == self.limit {
                break;
            }
        }
        let cut = passed == self.limit;
        match self.weather {
            Weather::ResetByRequest | Weather::ResetByAnswer if cut => {
                reset(&self.to);
                reset(&self.from);
            }
            // What the node says now is lost, and it may go on hearing.
            Weather::HalfClose if cut && self.is_answer => {
                let _ = self.to.shutdown(Shutdown::Write);
                while matches!(self.from.read(&mut chunk), Ok(1..)) {}
            }
            _ => {
                let _ = self.to.shutdown(Shutdown::Write);
                if cut {
                    let _ = self.from.shutdown(Shutdown::Both);
                }
            }
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> bool {
        match self.weather {
            Weather::Drip => bytes.iter().all(|byte| self.to.write_all(&[*byte]).is_ok()),
            _ => self.to.write_all(bytes).is_ok(),
        }
    }
}
