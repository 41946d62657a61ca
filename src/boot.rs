//! From a configuration file to a running gateway: the only file that knows all rooms.

use crate::config::fault::Severity;
use crate::config::resolve::{Resolved, resolve};
use crate::logic::snapshot::{Driver, Snapshot};
use crate::net::ring::{self, Kind, Ring};
use crate::net::shard;
use crate::ops::{admin, log};
use crate::shared::snapshot_cell::{Live, Phase, World};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that wait in the kernel to be accepted, per listener.
const BACKLOG: i32 = 4096;
/// A port that a former process has just left is busy for some ms.
const BIND_PATIENCE: Duration = Duration::from_millis(500);

/// Why a gateway did not start, or how it ended; the text is for people.
#[derive(Debug)]
pub struct Failure(pub String);

/// Reads and judges a configuration file. Prints nothing.
///
/// # Errors
/// If the file can't be read.
pub fn read(path: &str) -> Result<Resolved, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    Ok(resolve(&text, &|name| std::env::var(name).ok()))
}

/// The lines that tell what is wrong with a file, and whether anything is.
pub fn report(path: &str, resolved: &Resolved) -> (Vec<String>, bool) {
    let lines = resolved.faults.iter().map(|fault| fault.shown(path).to_string()).collect();
    (lines, resolved.faults.iter().any(|fault| fault.severity == Severity::Fault))
}

/// A gateway that serves.
pub struct Running {
    /// What its shards share.
    pub world: Arc<World>,
    /// Where the data plane listens.
    pub listen: Vec<SocketAddr>,
    /// Where the admin port listens.
    pub admin: SocketAddr,
    /// What its shards run on.
    pub driver: Kind,
    shards: Vec<std::thread::JoinHandle<()>>,
}

/// Starts a gateway; it serves when this returns.
///
/// # Errors
/// If an address can't be bound, or no driver can be had.
pub fn start(snapshot: Snapshot) -> Result<Running, Failure> {
    let server = snapshot.server.clone();
    let cpus = allowed_cpus();
    let shards = if server.shards == 0 { default_shards(cpus.len()) } else { server.shards };
    raise_open_files(server.max_connections);
    let driver = choose_driver(server.driver)?;
    let listen = bind_all(&server.listen, shards)?;
    let admin_listener =
        TcpListener::bind(server.admin).map_err(|error| Failure(format!("admin {}: {error}", server.admin)))?;
    let addresses = resolve_names(&snapshot);
    let world = World::new(Live::new(snapshot, addresses, shards), shards);
    let bound: Vec<SocketAddr> = listen.iter().filter_map(|(at, _)| *at).collect();
    let admin = admin_listener.local_addr().map_err(|error| Failure(format!("admin: {error}")))?;
    admin::start(admin_listener, world.clone(), ring::now).map_err(|error| Failure(format!("admin: {error}")))?;
    let mut per_shard: Vec<Vec<TcpListener>> = (0..shards).map(|_| Vec::new()).collect();
    for (_, sockets) in listen {
        per_shard.iter_mut().zip(sockets).for_each(|(own, socket)| own.push(socket));
    }
    let (ready, started) = std::sync::mpsc::channel();
    let mut threads = Vec::new();
    for (index, sockets) in per_shard.into_iter().enumerate() {
        let (world, ready, cpu) = (world.clone(), ready.clone(), cpus.get(index % cpus.len().max(1)).copied());
        let body = move || {
            if let Some(cpu) = cpu {
                ring::pin(cpu);
            }
            // Made here: a ring belongs to the thread that submits to it.
            let ring = if driver == Kind::IoUring { Ring::io_uring() } else { Ring::epoll() };
            let _ = ready.send(ring.as_ref().map(|_| ()).map_err(ToString::to_string));
            if let Ok(ring) = ring {
                shard::run(index, world, ring, sockets);
            }
        };
        let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(body);
        threads.push(thread.map_err(|error| Failure(format!("shard {index}: {error}")))?);
    }
    drop(ready);
    for result in started.iter().take(shards) {
        result.map_err(|error| Failure(format!("a shard could not make its ring: {error}")))?;
    }
    let running = Running { world, listen: bound, admin, driver, shards: threads };
    running.wait_until_accepting();
    Ok(running)
}

impl Running {
    fn wait_until_accepting(&self) {
        let patience = Instant::now() + Duration::from_secs(5);
        let accepting = || {
            let live = self.world.live.load();
            live.counters.shards.iter().all(|shard| shard.accepting.get() == 1)
        };
        while !accepting() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until all shards have drained, or `grace` is over. `false` = something was cut off.
    pub fn join(self, grace: Option<Duration>) -> bool {
        let until = grace.map(|grace| Instant::now() + grace);
        for thread in self.shards {
            while !thread.is_finished() {
                if until.is_some_and(|until| Instant::now() >= until) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.join().is_err() {
                tracing::error!("a shard panicked");
                return false;
            }
        }
        true
    }

    /// Whether a shard has ended although nobody asked it to.
    pub fn lost_a_shard(&self) -> bool {
        self.shards.iter().any(std::thread::JoinHandle::is_finished)
    }
}

/// `ringway serve`: runs until SIGTERM or SIGINT, drains, and gives the exit code.
///
/// # Errors
/// If the gateway can't start.
pub fn serve(path: &str) -> Result<u8, Failure> {
    let resolved = read(path)?;
    let (lines, faulty) = report(path, &resolved);
    lines.iter().for_each(|line| eprintln!("{line}"));
    let Some(snapshot) = resolved.snapshot.filter(|_| !faulty) else { return Ok(1) };
    let server = snapshot.server.clone();
    log::start(server.log_format, server.log_level);
    let signals = Signals::install()?;
    let running = start(snapshot)?;
    announce(&running, server.driver);
    let asked = signals.wait(|| running.lost_a_shard());
    if !asked {
        tracing::error!("a shard ended by itself; leaving, so that whoever supervises can start anew");
        return Ok(70);
    }
    let lifecycle = &running.world.lifecycle;
    lifecycle.advance(Phase::Leaving);
    tracing::info!(delay_ms = server.shutdown_delay_ns / 1_000_000, "leaving: readiness says no");
    std::thread::sleep(Duration::from_nanos(server.shutdown_delay_ns));
    lifecycle.advance(Phase::Draining);
    tracing::info!(grace_ms = server.shutdown_grace_ns / 1_000_000, "draining");
    if !running.join(Some(Duration::from_nanos(server.shutdown_grace_ns))) {
        tracing::warn!("shutdown_grace is over: what was still in flight is cut off");
    }
    tracing::info!("stopped");
    Ok(0)
}

fn announce(running: &Running, wanted: Driver) {
    let listen: Vec<String> = running.listen.iter().map(ToString::to_string).collect();
    let driver = match running.driver {
        Kind::IoUring => "io_uring",
        Kind::Epoll => "epoll",
    };
    if running.driver == Kind::Epoll && wanted == Driver::Auto {
        tracing::warn!("io_uring is not to be had here (blocked by the kernel or the container): running on epoll");
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = listen.join(","),
        admin = %running.admin,
        shards = running.world.shards,
        driver,
        "serving"
    );
}

fn choose_driver(wanted: Driver) -> Result<Kind, Failure> {
    // A ring made and dropped on a thread of its own tells whether the kernel lets us.
    let uring = || std::thread::spawn(|| Ring::io_uring().map(drop)).join();
    match wanted {
        Driver::Epoll => Ok(Kind::Epoll),
        Driver::Auto => Ok(if matches!(uring(), Ok(Ok(()))) { Kind::IoUring } else { Kind::Epoll }),
        Driver::IoUring => match uring() {
            Ok(Ok(())) => Ok(Kind::IoUring),
            Ok(Err(error)) => Err(Failure(format!(
                "io_uring is not to be had here: {error}; set driver = \"auto\" or \"epoll\", or allow io_uring_setup"
            ))),
            Err(_) => Err(Failure("io_uring is not to be had here".into())),
        },
    }
}

type Bound = (Option<SocketAddr>, Vec<TcpListener>);

fn bind_all(addresses: &[SocketAddr], shards: usize) -> Result<Vec<Bound>, Failure> {
    addresses
        .iter()
        .map(|address| bind(*address, shards).map_err(|error| Failure(format!("listen {address}: {error}"))))
        .collect()
}

/// One listener per shard on one address; port 0 is chosen once.
fn bind(address: SocketAddr, shards: usize) -> io::Result<Bound> {
    let patience = Instant::now() + BIND_PATIENCE;
    // Without SO_REUSEPORT first: two gateways that share a port by accident would each get half of the traffic.
    let alone = loop {
        match listener(address, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other?,
        }
    };
    let address = alone.local_addr()?;
    drop(alone);
    let sockets = (0..shards).map(|_| listener(address, true)).collect::<io::Result<Vec<_>>>()?;
    Ok((Some(address), sockets))
}

fn listener(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.nonblocking(),
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The addresses of all Endpoints, looked up once, before any shard runs: a shard never waits for DNS.
fn resolve_names(snapshot: &Snapshot) -> Vec<Vec<SocketAddr>> {
    let look_up = |endpoint: &crate::logic::snapshot::Endpoint| {
        let found = (&*endpoint.url.host, endpoint.url.port).to_socket_addrs();
        match found {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                tracing::warn!(endpoint = %endpoint.id, %error, "its host name is unknown; attempts fail until a restart");
                Vec::new()
            }
        }
    };
    snapshot.endpoints.iter().map(look_up).collect()
}

/// The CPUs that this process may run on.
fn allowed_cpus() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("");
    cpu_list(list)
}

/// Reads `0-3,8,10-11`.
fn cpu_list(list: &str) -> Vec<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

/// One shard per CPU, but no more than the cgroup's quota pays for, rounded up.
fn default_shards(cpus: usize) -> usize {
    let quota = std::fs::read_to_string("/sys/fs/cgroup/cpu.max").ok().and_then(|text| quota(&text));
    cpus.min(quota.unwrap_or(usize::MAX)).max(1)
}

/// Reads `150000 100000` (two CPUs, rounded up) or `max 100000` (no quota).
fn quota(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<usize>().ok()?, words.next()?.parse::<usize>().ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

/// A client connection needs an fd, and so does each upstream one.
fn raise_open_files(max_connections: usize) {
    let (soft, hard) = match rlimit::Resource::NOFILE.get() {
        Ok(limits) => limits,
        Err(_) => return,
    };
    let wanted = (2 * max_connections as u64 + 1024).min(hard);
    if soft < wanted {
        let _ = rlimit::Resource::NOFILE.set(wanted, hard);
    }
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals(Arc<std::sync::atomic::AtomicBool>);

impl Signals {
    /// From now on the process does not end by itself.
    pub(crate) fn install() -> Result<Signals, Failure> {
        let asked = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            // A second one ends the process at once, for whoever has no patience.
            signal_hook::flag::register_conditional_shutdown(signal, 130, asked.clone())
                .and_then(|_| signal_hook::flag::register(signal, asked.clone()))
                .map_err(|error| Failure(format!("signals: {error}")))?;
        }
        Ok(Signals(asked))
    }

    /// Whether there was one.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Waits; `false` = `lost` came before any signal.
    fn wait(&self, lost: impl Fn() -> bool) -> bool {
        loop {
            if self.asked() {
                return true;
            }
            if lost() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_and_quotas() {
        assert_eq!(cpu_list(" 0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpu_list("0"), [0]);
        assert_eq!(cpu_list(""), Vec::<usize>::new());
        assert_eq!(quota("150000 100000\n"), Some(2));
        assert_eq!(quota("50000 100000"), Some(1));
        assert_eq!(quota("max 100000"), None);
    }

    #[test]
    fn a_taken_port_is_an_error_and_not_shared() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = bind(taken.local_addr().unwrap(), 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let (address, sockets) = bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_eq!(sockets.len(), 2);
        assert!(sockets.iter().all(|socket| socket.local_addr().ok() == address));
    }
}
