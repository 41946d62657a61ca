//! Where the host names of Endpoints are now: a thread of its own asks the DNS, and shards see only addresses.

use crate::logic::names::{Family, HostName, TTL_MAX_NS, Told};
use crate::logic::snapshot::{Endpoint, Snapshot};
use crate::logic::units::{MS, Nanos, SECOND};
use crate::names::system::System;
use crate::shared::snapshot_cell::{Live, World};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// So long a start or a reload waits for the first look-ups.
pub const FIRST_NS: Nanos = 2 * SECOND;
/// One look-up of a host takes no longer.
const LOOK_UP_NS: Nanos = 5 * SECOND;
/// How often the files of the system are looked at.
const FILES_NS: Nanos = SECOND;
/// A look-up that never said anything is given up after so long.
const LOST_NS: Nanos = 2 * LOOK_UP_NS;

/// The thread that looks up; it ends with this.
pub struct Names(UnboundedSender<Event>);

/// Addresses by host name.
type Table = HashMap<Box<str>, Vec<IpAddr>>;

enum Event {
    /// This Snapshot is about to be live: where are its hosts?
    Ask(Arc<Snapshot>, mpsc::Sender<Table>),
    /// What a look-up brought.
    Found {
        host: Box<str>,
        generation: u64,
        v6: Family,
        v4: Family,
    },
    End,
}

impl Names {
    /// Starts looking after the host names of whatever is live. When this returns, they have been looked up once, or
    /// it took too long; then their addresses come later.
    ///
    /// # Errors
    /// If the thread can't be had.
    pub fn start(world: Arc<World>) -> io::Result<Names> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (sender, events) = unbounded_channel();
        let (own, live) = (sender.clone(), world.live.load_full());
        std::thread::Builder::new().name("names".into()).spawn(move || {
            let keeper = Keeper::new(world, own);
            runtime.block_on(keeper.run(events));
        })?;
        let names = Names(sender);
        // Put in place by the thread itself: what comes from here might be older by then.
        names.ask(&live.snapshot);
        Ok(names)
    }

    /// The addresses of each Endpoint of a Snapshot that is about to be live. Waits for names that are new, but not
    /// for long; what is not known by then comes later.
    pub fn addresses(&self, snapshot: &Arc<Snapshot>, before: &Live) -> Vec<Vec<SocketAddr>> {
        let table = self.ask(snapshot);
        let known = |host: &str| table.get(host).cloned().filter(|known| !known.is_empty());
        let kept = |host: &str| {
            let at = before.snapshot.endpoints.iter().position(|endpoint| *endpoint.url.host == *host)?;
            Some(before.addresses.get(at)?.iter().map(SocketAddr::ip).collect())
        };
        addresses(snapshot, |_, host| known(host).or_else(|| kept(host)).unwrap_or_default())
    }

    fn ask(&self, snapshot: &Arc<Snapshot>) -> Table {
        if snapshot.endpoints.iter().all(|endpoint| literal(&endpoint.url.host).is_some()) {
            return Table::new();
        }
        let (answer, answered) = mpsc::channel();
        let _ = self.0.send(Event::Ask(snapshot.clone(), answer));
        // The thread answers in time by itself; the slack is for a machine that is busy.
        answered.recv_timeout(Duration::from_nanos(FIRST_NS + SECOND)).unwrap_or_default()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.0.send(Event::End);
    }
}

/// A host that is an address needs no look-up.
fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

/// The addresses that are known without asking anybody.
pub fn without_asking(snapshot: &Snapshot) -> Vec<Vec<SocketAddr>> {
    addresses(snapshot, |_, _| Vec::new())
}

/// The addresses of each Endpoint, by its position and host.
fn addresses(snapshot: &Snapshot, of: impl Fn(usize, &str) -> Vec<IpAddr>) -> Vec<Vec<SocketAddr>> {
    let endpoints = snapshot.endpoints.iter().enumerate();
    let one = |(at, endpoint): (usize, &Endpoint)| {
        let url = &endpoint.url;
        let found = literal(&url.host).map_or_else(|| of(at, &url.host), |address| vec![address]);
        found.into_iter().map(|address| SocketAddr::new(address, url.port)).collect()
    };
    endpoints.map(one).collect()
}

/// One name in the thread's care.
struct Kept {
    name: HostName,
    /// Endpoints that are there, for the log.
    endpoints: String,
    /// A look-up is under way since then.
    since_ns: Option<Nanos>,
}

/// Somebody who waits.
struct Asked {
    snapshot: Arc<Snapshot>,
    until_ns: Nanos,
    answer: mpsc::Sender<Table>,
}

struct Keeper {
    world: Arc<World>,
    names: HashMap<Box<str>, Kept>,
    asked: Vec<Asked>,
    system: System,
    followed: Option<Arc<Snapshot>>,
    changed: bool,
    files_ns: Nanos,
    started: Instant,
    events: UnboundedSender<Event>,
}

impl Keeper {
    fn new(world: Arc<World>, events: UnboundedSender<Event>) -> Keeper {
        let system = System::read(&world.live.load().snapshot.server.resolvers, 0);
        Keeper {
            world,
            names: HashMap::new(),
            asked: Vec::new(),
            system,
            followed: None,
            changed: false,
            files_ns: FILES_NS,
            started: Instant::now(),
            events,
        }
    }

    fn now_ns(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        loop {
            let wait_ns = self.turn();
            match timeout(Duration::from_nanos(wait_ns), events.recv()).await {
                Ok(Some(Event::Ask(snapshot, answer))) => {
                    self.reckon_with(&snapshot);
                    self.asked.push(Asked { snapshot, until_ns: self.now_ns() + FIRST_NS, answer });
                }
                Ok(Some(Event::Found { host, generation, v6, v4 })) => {
                    if generation == self.system.generation {
                        self.found(&host, v6, v4);
                    }
                }
                Ok(Some(Event::End) | None) => return,
                Err(_) => {}
            }
        }
    }

    /// Does what is due; says how long nothing will be.
    fn turn(&mut self) -> Nanos {
        self.follow();
        if self.names.is_empty() && self.asked.is_empty() {
            return TTL_MAX_NS;
        }
        let now_ns = self.now_ns();
        if self.files_ns <= now_ns {
            self.files_ns = now_ns + FILES_NS;
            if self.system.is_old() {
                let resolvers = self.system.resolvers.clone();
                self.renew(&resolvers);
            }
        }
        let due = |kept: &Kept| kept.since_ns.map_or(kept.name.due_ns(), |since_ns| since_ns + LOST_NS);
        let ripe: Vec<Box<str>> =
            self.names.iter().filter(|(_, kept)| due(kept) <= now_ns).map(|(host, _)| host.clone()).collect();
        for host in ripe {
            if self.names.get(&host).is_some_and(|kept| kept.since_ns.is_some()) {
                self.found(&host, Family::Failed, Family::Failed);
            } else {
                self.look_up(host, now_ns);
            }
        }
        self.publish();
        self.answer(now_ns);
        let next_ns = self.names.values().map(due).chain(self.asked.iter().map(|asked| asked.until_ns)).min();
        next_ns.unwrap_or(u64::MAX).min(self.files_ns).saturating_sub(now_ns).max(MS)
    }

    /// After a reload: names that nobody uses any more are forgotten.
    fn follow(&mut self) {
        let live = self.world.live.load_full();
        if self.followed.as_ref().is_some_and(|followed| Arc::ptr_eq(followed, &live.snapshot)) {
            return;
        }
        self.followed = Some(live.snapshot.clone());
        self.reckon_with(&live.snapshot);
        let waited_for: Vec<Arc<Snapshot>> = self.asked.iter().map(|asked| asked.snapshot.clone()).collect();
        let used = |host: &str| {
            let mut snapshots = waited_for.iter().chain([&live.snapshot]);
            snapshots.any(|snapshot| snapshot.endpoints.iter().any(|endpoint| *endpoint.url.host == *host))
        };
        self.names.retain(|host, _| used(host));
        self.changed = true;
    }

    /// Takes the hosts and the DNS servers of a Snapshot.
    fn reckon_with(&mut self, snapshot: &Snapshot) {
        if self.system.resolvers != snapshot.server.resolvers {
            self.renew(&snapshot.server.resolvers);
        }
        let mut endpoints: HashMap<&str, Vec<&str>> = HashMap::new();
        for endpoint in snapshot.endpoints.iter().filter(|endpoint| literal(&endpoint.url.host).is_none()) {
            endpoints.entry(&endpoint.url.host).or_default().push(&endpoint.id);
        }
        for (host, ids) in endpoints {
            let endpoints = ids.join(",");
            match self.names.get_mut(host) {
                Some(kept) => kept.endpoints = endpoints,
                None => {
                    let kept = Kept { name: HostName::default(), endpoints, since_ns: None };
                    self.names.insert(host.into(), kept);
                }
            }
        }
    }

    /// Reads the system's files anew, and looks everything up again.
    fn renew(&mut self, resolvers: &[SocketAddr]) {
        self.system = System::read(resolvers, self.system.generation + 1);
        for kept in self.names.values_mut() {
            kept.since_ns = None;
            kept.name.hurry();
        }
    }

    fn look_up(&mut self, host: Box<str>, now_ns: Nanos) {
        if let Some(kept) = self.names.get_mut(&host) {
            kept.since_ns = Some(now_ns);
        }
        if let Some((v6, v4)) = self.system.at_home(&host) {
            return self.found(&host, v6, v4);
        }
        let Some(resolver) = self.system.resolver.clone() else {
            return self.found(&host, Family::Failed, Family::Failed);
        };
        let (events, generation) = (self.events.clone(), self.system.generation);
        tokio::spawn(async move {
            let whole = timeout(Duration::from_nanos(LOOK_UP_NS), resolver.addresses(&host)).await;
            let (v6, v4) = whole.unwrap_or((Family::Failed, Family::Failed));
            let _ = events.send(Event::Found { host, generation, v6, v4 });
        });
    }

    fn found(&mut self, host: &str, v6: Family, v4: Family) {
        let now_ns = self.now_ns();
        let Some(kept) = self.names.get_mut(host) else { return };
        kept.since_ns = None;
        let known = [&v6, &v4].iter().any(|family| matches!(family, Family::Known(..)));
        let nobody = [&v6, &v4].iter().any(|family| **family == Family::Failed);
        let told = kept.name.feed(v6, v4, now_ns);
        let cells = &self.world.live.load().counters.names;
        if known {
            cells.ok.add(1)
        } else {
            cells.failed.add(1)
        }
        self.changed |= known;
        let endpoints = &kept.endpoints;
        match told {
            Told::Nothing => {}
            Told::Failing => {
                let reason = if nobody { "no answer from the DNS" } else { "the DNS knows no address of it" };
                let left = kept.name.addresses().len();
                tracing::warn!(endpoints, reason, addresses_kept = left, "a host name can't be looked up");
            }
            Told::Recovered => tracing::info!(endpoints, "a host name can be looked up again"),
        }
    }

    /// Puts the addresses in place, if they are others than before.
    fn publish(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let shards = self.world.shards;
        let names = &self.names;
        self.world.change(|before| {
            let kept = |at: usize| before.addresses.get(at).into_iter().flatten().map(SocketAddr::ip).collect();
            let known =
                |host: &str| names.get(host).map(|kept| kept.name.addresses()).filter(|known| !known.is_empty());
            let now = addresses(&before.snapshot, |at, host| known(host).unwrap_or_else(|| kept(at)));
            (now != before.addresses).then(|| Live::new(before.snapshot.clone(), now, shards, Some(before)))
        });
    }

    /// Answers who waits for names that have been looked up, or has waited long enough.
    fn answer(&mut self, now_ns: Nanos) {
        let names = &self.names;
        self.asked.retain(|asked| {
            let hosts = || asked.snapshot.endpoints.iter().filter_map(|endpoint| names.get(&endpoint.url.host));
            if now_ns < asked.until_ns && hosts().any(|kept| !kept.name.asked()) {
                return true;
            }
            let _ = asked.answer.send(names.iter().map(|(host, kept)| (host.clone(), kept.name.addresses())).collect());
            false
        });
    }
}
