//! From a configuration file to a running gateway: the only file that knows all rooms.

use crate::config::admin_door::{self, AdminDoor};
use crate::config::fault::Severity;
use crate::config::machine::{self, Machine};
use crate::config::resolve::{Resolved, resolve_bytes};
use crate::config::tls;
use crate::host;
use crate::logic::open_files::OpenFiles;
use crate::logic::snapshot::{Driver, Endpoint, Listen, Snapshot};
use crate::logic::versions;
use crate::names::keeper::{self, Names};
use crate::net::ring::{self, Kind, Ring};
use crate::net::shard;
use crate::ops::{admin, incidents, log};
use crate::shared::snapshot_cell::{Live, Phase, World};
use crate::wire::tls_config;
use rustls::ServerConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So long a start waits for the first polls of Endpoints: one that is dead must not keep the others from serving.
const TRACKED_WITHIN: Duration = Duration::from_secs(1);

/// Why a gateway did not start, or how it ended; the text is for people.
#[derive(Debug)]
pub struct Failure(pub String);

/// Reads and judges a configuration file. Prints nothing.
///
/// # Errors
/// If the file can't be read.
pub fn read(path: &str) -> Result<Resolved, Failure> {
    read_on(path, None)
}

/// The same, with warnings of what would hurt on this machine.
///
/// # Errors
/// If the file can't be read.
pub fn read_here(path: &str) -> Result<Resolved, Failure> {
    host::raise_limits(0);
    read_on(path, Some(&host::machine(no_uring())))
}

fn read_on(path: &str, machine: Option<&Machine>) -> Result<Resolved, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_owned();
    let files = |file: &str| host::read_file(&folder.join(file), tls::PEM_BYTES_MAX);
    let resolved = resolve_bytes(&bytes, &|name| std::env::var(name).ok(), &files, machine);
    let needs_roots = |endpoint: &Endpoint| endpoint.url.https && endpoint.tls.roots.is_empty();
    if resolved.snapshot.iter().any(|snapshot| snapshot.endpoints.iter().any(needs_roots)) {
        // Read here once, and not by a shard.
        tls_config::machine_roots();
    }
    Ok(resolved)
}

/// Where the admin port is whose gateway was started with this file, and its token.
///
/// # Errors
/// If the file can't be read, or does not say it.
pub fn admin_door(path: &str) -> Result<AdminDoor, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    admin_door::admin_door(&text, &|name| std::env::var(name).ok()).map_err(|why| Failure(format!("{path}:{why}")))
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
    pub listen: Vec<Listen>,
    /// The sockets among them that are files.
    files: Vec<host::SocketFile>,
    /// Where the admin port listens.
    pub admin: SocketAddr,
    /// What its shards run on.
    pub driver: Kind,
    names: Names,
    shards: Vec<std::thread::JoinHandle<()>>,
}

/// Starts a gateway; it serves when this returns.
///
/// # Errors
/// If an address can't be bound, or no driver can be had.
pub fn start(snapshot: Snapshot) -> Result<Running, Failure> {
    let server = snapshot.server.clone();
    let cpus = host::allowed_cpus();
    let shards = if server.shards == 0 { host::default_shards(cpus.len()) } else { server.shards };
    let callers_max = fit_open_files(&snapshot, shards);
    let driver = choose_driver(server.driver)?;
    let listen = host::bind_all(&server.listen, shards).map_err(Failure)?;
    let admin_listener =
        TcpListener::bind(server.admin).map_err(|error| Failure(format!("admin {}: {error}", server.admin)))?;
    let known = keeper::without_asking(&snapshot);
    let tls = serving_tls(&snapshot, None).map_err(Failure)?;
    let world = World::new(Live { tls, ..Live::new(snapshot, known, shards, None) }, shards);
    let names = Names::start(world.clone()).map_err(|error| Failure(format!("names: {error}")))?;
    let bound: Vec<Listen> = listen.iter().map(|(at, _)| at.clone()).collect();
    let admin = admin_listener.local_addr().map_err(|error| Failure(format!("admin: {error}")))?;
    admin::start(admin_listener, world.clone(), ring::now).map_err(|error| Failure(format!("admin: {error}")))?;
    incidents::start(&world).map_err(|error| Failure(format!("incidents: {error}")))?;
    let mut per_shard: Vec<Vec<OwnedFd>> = (0..shards).map(|_| Vec::new()).collect();
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
                shard::run(index, world, ring, sockets, callers_max.div_ceil(shards).max(1));
            }
        };
        let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(body);
        threads.push(thread.map_err(|error| Failure(format!("shard {index}: {error}")))?);
    }
    drop(ready);
    for result in started.iter().take(shards) {
        result.map_err(|error| Failure(format!("a shard could not make its ring: {error}")))?;
    }
    let files = host::socket_files(&bound);
    let running = Running { world, files, listen: bound, admin, driver, names, shards: threads };
    running.wait_until_accepting();
    running.wait_until_tracked();
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

    /// Gives trackers a moment to find out who is who: before that, what only some software has is nobody's.
    fn wait_until_tracked(&self) {
        let patience = Instant::now() + TRACKED_WITHIN;
        while !self.world.live.load().tips.all_polled() && Instant::now() < patience {
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

/// `ringway serve`: runs until SIGTERM or SIGINT, drains, and gives the exit code. SIGHUP reloads.
///
/// # Errors
/// If the gateway can't start.
pub fn serve(path: &str) -> Result<u8, Failure> {
    let resolved = read(path)?;
    let (lines, faulty) = report(path, &resolved);
    let Some(snapshot) = resolved.snapshot.filter(|_| !faulty) else {
        // There is no log yet: how it shall look stands in the file.
        lines.iter().for_each(|line| eprintln!("{line}"));
        return Ok(1);
    };
    let server = snapshot.server.clone();
    log::start(server.log_format, server.log_level);
    lines.iter().for_each(|line| tracing::warn!("{line}"));
    let signals = Signals::install()?.with_reload()?;
    let running = start(snapshot)?;
    announce(&running, server.driver);
    loop {
        match signals.wait(|| running.lost_a_shard()) {
            Asked::Reload => match reload(path, &running) {
                Ok(warnings) => {
                    warnings.iter().for_each(|line| tracing::warn!("{line}"));
                    tracing::info!(file = path, "reloaded");
                }
                Err(reasons) => {
                    reasons.iter().for_each(|line| tracing::error!("{line}"));
                    tracing::error!(file = path, "reload refused: nothing changed");
                }
            },
            Asked::Nothing => {
                tracing::error!("a shard ended by itself; leaving, so that whoever supervises can start anew");
                return Ok(70);
            }
            Asked::Stop => break,
        }
    }
    leave(running)
}

fn leave(running: Running) -> Result<u8, Failure> {
    let live = running.world.live.load_full();
    let server = &live.snapshot.server;
    running.world.lifecycle.advance(Phase::Leaving);
    tracing::info!(delay_ms = server.shutdown_delay_ns / 1_000_000, "leaving: readiness says no");
    std::thread::sleep(Duration::from_nanos(server.shutdown_delay_ns));
    // A socket in the file system has nobody behind it from now on.
    host::remove_sockets(&running.files);
    running.world.lifecycle.advance(Phase::Draining);
    tracing::info!(grace_ms = server.shutdown_grace_ns / 1_000_000, "draining");
    if !running.join(Some(Duration::from_nanos(server.shutdown_grace_ns))) {
        tracing::warn!("shutdown_grace is over: what was still in flight is cut off");
    }
    incidents::drain(live.board.journal());
    tracing::info!("stopped");
    Ok(0)
}

/// Builds and validates the file's Snapshot whole, and swaps it in. Gives the warnings.
///
/// # Errors
/// What is wrong; then nothing has changed.
pub fn reload(path: &str, running: &Running) -> Result<Vec<String>, Vec<String>> {
    let mut resolved = read(path).map_err(|failure| vec![failure.0])?;
    let (lines, faulty) = report(path, &resolved);
    let Some(mut snapshot) = resolved.snapshot.take().filter(|_| !faulty) else { return Err(lines) };
    let Running { world, names, .. } = running;
    let before = world.live.load_full();
    let restart = before.snapshot.server.needs_restart(&snapshot.server);
    if !restart.is_empty() {
        let refused = resolved.only_by_restart(&restart);
        return Err(refused.iter().map(|fault| fault.shown(path).to_string()).collect());
    }
    // Only a reload changes the Snapshot, and there is one at a time; addresses may change at any time.
    versions::carry_over(&before.snapshot, &mut snapshot);
    let tls = serving_tls(&snapshot, Some(&before)).map_err(|why| vec![format!("{path}: {why}")])?;
    let snapshot = Arc::new(snapshot);
    let addresses = names.addresses(&snapshot, &before);
    world.change(|before| Some(Live { tls, ..Live::new(snapshot, addresses, world.shards, Some(before)) }));
    Ok(lines)
}

/// TLS towards callers, if the Snapshot has it. Sessions of before can be taken up again, unless somebody else
/// decides now who may call: a ticket stands for a certificate that was looked at then.
fn serving_tls(snapshot: &Snapshot, before: Option<&Live>) -> Result<Option<Arc<ServerConfig>>, String> {
    let Some(tls) = &snapshot.server.tls else { return Ok(None) };
    let same_callers = |before: &&Live| {
        before.snapshot.server.tls.as_ref().is_some_and(|before| before.client_roots == tls.client_roots)
    };
    let kept = before.filter(same_callers).and_then(|before| before.tls.as_ref()).map(|tls| tls.ticketer.clone());
    let tickets = kept.map_or_else(tls_config::tickets, Ok);
    let config = tickets.and_then(|tickets| tls_config::server(tls, tickets));
    config.map(Some).map_err(|error| format!("server.tls: {error}"))
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

/// How many callers may be connected at once: all that the file says, or those for whom there are files to open.
/// Without this bound a full table of files would keep Endpoints from being reached, and cost every caller.
fn fit_open_files(snapshot: &Snapshot, shards: usize) -> usize {
    let wanted = OpenFiles::wanted(snapshot, shards);
    let open_files = host::raise_limits(wanted.sum());
    if let Some(text) = machine::open_files(&wanted, open_files) {
        tracing::warn!("server.max_connections: {text}");
    }
    usize::try_from(wanted.callers_within(open_files)).unwrap_or(usize::MAX)
}

/// Why io_uring is not to be had. A ring made and dropped on a thread of its own tells.
fn no_uring() -> Option<String> {
    match std::thread::spawn(|| Ring::io_uring().map(drop)).join() {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(host::why_no_uring(&error)),
        Err(_) => Some("making one panicked".to_owned()),
    }
}

fn choose_driver(wanted: Driver) -> Result<Kind, Failure> {
    match wanted {
        Driver::Epoll => Ok(Kind::Epoll),
        Driver::Auto => Ok(if no_uring().is_none() { Kind::IoUring } else { Kind::Epoll }),
        Driver::IoUring => match no_uring() {
            None => Ok(Kind::IoUring),
            Some(why) => {
                Err(Failure(format!("io_uring is not to be had here: {why}; or set driver = \"auto\" or \"epoll\"")))
            }
        },
    }
}

/// SIGTERM, SIGINT and SIGHUP.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// What somebody asked for.
enum Asked {
    Stop,
    Reload,
    Nothing,
}

impl Signals {
    pub(crate) fn install() -> Result<Signals, Failure> {
        let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let failed = |error: io::Error| Failure(format!("signals: {error}"));
        for signal in [SIGTERM, SIGINT] {
            // A second one ends the process at once, for whoever has no patience.
            flag::register_conditional_shutdown(signal, 130, stop.clone()).map_err(failed)?;
            flag::register(signal, stop.clone()).map_err(failed)?;
        }
        Ok(Signals { stop, reload })
    }

    /// SIGHUP asks for a reload; without this it ends the process, as it does when a terminal goes away.
    fn with_reload(self) -> Result<Signals, Failure> {
        let failed = |error: io::Error| Failure(format!("signals: {error}"));
        flag::register(SIGHUP, self.reload.clone()).map_err(failed)?;
        Ok(self)
    }

    /// Whether the process was asked to stop.
    pub(crate) fn asked(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Waits for a signal, or until `lost` says that something is gone.
    fn wait(&self, lost: impl Fn() -> bool) -> Asked {
        loop {
            if self.asked() {
                return Asked::Stop;
            }
            if self.reload.swap(false, Relaxed) {
                return Asked::Reload;
            }
            if lost() {
                return Asked::Nothing;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
