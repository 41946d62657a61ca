//! What this machine has to offer: CPUs, limits, and sockets to listen on.

use crate::config::machine::Machine;
use crate::logic::snapshot::Listen;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Connections that wait in the kernel to be accepted, per listener.
const BACKLOG: i32 = 4096;
/// A port that a former process has just left is busy for some ms, on a busy machine for some hundred.
const BIND_PATIENCE: Duration = Duration::from_secs(3);

/// One address as it was bound, with a socket for each shard.
pub type Bound = (Listen, Vec<OwnedFd>);

/// Listeners for all shards on all addresses.
///
/// # Errors
/// The address that can't be had, and why.
pub fn bind_all(listen: &[Listen], shards: usize) -> Result<Vec<Bound>, String> {
    let bind = |one: &Listen| match one {
        Listen::Tcp(address) => bind(*address, shards).map(|(address, sockets)| (Listen::Tcp(address), sockets)),
        Listen::Unix(path) => bind_unix(path, shards).map(|sockets| (one.clone(), sockets)),
    };
    listen.iter().map(|one| bind(one).map_err(|error| format!("listen {one}: {error}"))).collect()
}

/// One socket on one file, which all shards accept from. What a former process has left there is replaced; what
/// somebody serves is not.
fn bind_unix(path: &str, shards: usize) -> io::Result<Vec<OwnedFd>> {
    let made = || socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM.nonblocking(), None);
    let address = socket2::SockAddr::unix(path)?;
    let socket = made()?;
    let patience = Instant::now() + BIND_PATIENCE;
    while let Err(error) = socket.bind(&address) {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let refused = made()?.connect(&address).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        match is_socket {
            true if refused => std::fs::remove_file(path)?,
            // A ring that has just died holds its sockets for some ms more.
            true if Instant::now() < patience => std::thread::sleep(Duration::from_millis(10)),
            _ => return Err(error),
        }
    }
    socket.listen(BACKLOG)?;
    let more = (1..shards).map(|_| socket.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
    Ok([socket.into()].into_iter().chain(more).collect())
}

/// Takes the files of Unix sockets away, so that nobody connects to them any more; `made` says which were this
/// process's own.
pub fn remove_sockets(made: &[SocketFile]) {
    for (path, inode) in made {
        if inode_of(path) == *inode {
            let _ = std::fs::remove_file(&**path);
        }
    }
}

/// A Unix socket's path, and which file it was when it was made.
pub type SocketFile = (Box<str>, u64);

/// The Unix sockets among these.
pub fn socket_files(listen: &[Listen]) -> Vec<SocketFile> {
    let file = |one: &Listen| match one {
        Listen::Unix(path) => Some((path.clone(), inode_of(path))),
        Listen::Tcp(_) => None,
    };
    listen.iter().filter_map(file).collect()
}

/// Which file a path is; 0 = none.
fn inode_of(path: &str) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |file| file.ino())
}

/// One listener per shard on one address; port 0 is chosen once.
fn bind(address: SocketAddr, shards: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    let patience = Instant::now() + BIND_PATIENCE;
    // Without SO_REUSEPORT first: two gateways that share a port by accident would each get half of the traffic.
    // It never listens: whoever connected to it would be reset a moment later.
    let alone = loop {
        match bound(address, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other?,
        }
    };
    let address = alone.local_addr()?.as_socket().unwrap_or(address);
    drop(alone);
    let sockets = (0..shards).map(|_| bound(address, true)).collect::<io::Result<Vec<_>>>()?;
    // All are bound before the first listens: connections that one gets must not be reset by another's failure.
    sockets.iter().try_for_each(|socket| socket.listen(BACKLOG))?;
    Ok((address, sockets.into_iter().map(OwnedFd::from).collect()))
}

fn bound(address: SocketAddr, shared: bool) -> io::Result<socket2::Socket> {
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
    Ok(socket)
}

/// Reads a regular file of at most so many bytes and one more: a pipe would be waited for for ever, a device has no end.
///
/// # Errors
/// As opening and reading say; `InvalidInput` for what is no regular file.
pub fn read_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
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
pub fn default_shards(cpus: usize) -> usize {
    cpus.min(paid_cpus()).max(1)
}

/// The CPUs that the cgroup's quota pays for, rounded up.
fn paid_cpus() -> usize {
    let quota = std::fs::read_to_string("/sys/fs/cgroup/cpu.max").ok().and_then(|text| quota(&text));
    quota.unwrap_or(usize::MAX)
}

/// Everything that a configuration may ask of this machine; `no_uring` says why io_uring is not to be had.
pub fn machine(no_uring: Option<String>) -> Machine {
    let cpus = allowed_cpus().len().max(1);
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let lowest = number("/proc/sys/net/ipv4/ip_unprivileged_port_start").and_then(|port| u16::try_from(port).ok());
    let wanted = u64::from(BACKLOG.unsigned_abs());
    Machine {
        open_files: rlimit::Resource::NOFILE.get().map_or(u64::MAX, |(_, hard)| hard),
        memlock: rings_are_locked().then(|| rlimit::Resource::MEMLOCK.get().map_or(u64::MAX, |(_, hard)| hard)),
        cpus,
        quota: cpus.min(paid_cpus()).max(1),
        shards: default_shards(cpus),
        backlog: (number("/proc/sys/net/core/somaxconn").unwrap_or(wanted), wanted),
        lowest_port: if may_bind_low_ports() { 0 } else { lowest.unwrap_or(1_024) },
        no_uring,
    }
}

/// Why the kernel gives no ring, in words that say what to do.
pub fn why_no_uring(error: &io::Error) -> String {
    let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let words = match (error.kind(), sysctl.trim()) {
        (_, "2") => "switched off for everybody (sysctl kernel.io_uring_disabled=0 allows it)",
        (io::ErrorKind::PermissionDenied, "1") => {
            "for a group only (put this user into kernel.io_uring_group, or set kernel.io_uring_disabled=0)"
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "blocked, probably by a seccomp profile (allow io_uring_setup, _enter, _register)"
        }
        (io::ErrorKind::OutOfMemory, _) => "too little memory may be locked (ulimit -l, LimitMEMLOCK= of systemd)",
        (io::ErrorKind::Unsupported, _) => "the kernel has none (5.11 or newer is needed)",
        _ => "the kernel refuses",
    };
    format!("{words}: {error}")
}

/// Whether rings count towards RLIMIT_MEMLOCK: kernels before 5.12.
fn rings_are_locked() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel(&release).is_some_and(|version| version < (5, 12))
}

/// Reads `6.1.0-13-amd64`.
fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether this process has CAP_NET_BIND_SERVICE.
fn may_bind_low_ports() -> bool {
    const NET_BIND_SERVICE: u64 = 1 << 10;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & NET_BIND_SERVICE != 0)
}

/// Reads `150000 100000` (two CPUs, rounded up) or `max 100000` (no quota).
fn quota(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<usize>().ok()?, words.next()?.parse::<usize>().ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

/// Raises what is ours to raise, up to the hard limits: open files, and locked memory where rings need it. Gives how
/// many files may be open then.
pub fn raise_limits(open_files: u64) -> u64 {
    if rings_are_locked()
        && let Ok((_, hard)) = rlimit::Resource::MEMLOCK.get()
    {
        let _ = rlimit::Resource::MEMLOCK.set(hard, hard);
    }
    let Ok((soft, hard)) = rlimit::Resource::NOFILE.get() else { return u64::MAX };
    let wanted = open_files.min(hard);
    match soft < wanted && rlimit::Resource::NOFILE.set(wanted, hard).is_ok() {
        true => wanted,
        false => soft,
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
        assert_eq!(
            [kernel("6.1.0-13-amd64\n"), kernel("5.4"), kernel("5"), kernel("x")],
            [Some((6, 1)), Some((5, 4)), None, None]
        );
    }

    #[test]
    fn a_refused_ring_comes_with_what_to_do() {
        let why = |code| why_no_uring(&io::Error::from_raw_os_error(code));
        assert!(why(38).contains("5.11 or newer"), "{}", why(38));
        assert!(why(12).contains("ulimit -l"), "{}", why(12));
        assert!(why(1).contains("seccomp") || why(1).contains("io_uring_disabled"), "{}", why(1));
        assert!(why(22).contains("the kernel refuses"), "{}", why(22));
    }

    #[test]
    fn a_taken_port_is_an_error_and_not_shared() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = bind(taken.local_addr().unwrap(), 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let (address, sockets) = bind("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        assert_eq!(sockets.len(), 2);
        let bound = |socket: &OwnedFd| socket2::SockRef::from(socket).local_addr().ok()?.as_socket();
        assert!(sockets.iter().all(|socket| bound(socket) == Some(address)));
    }

    #[test]
    fn only_what_ends_is_read() {
        let error = read_file(Path::new("/dev/zero"), 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(read_file(Path::new("/"), 10).is_err() && read_file(Path::new("/no such file"), 10).is_err());
        assert_eq!(read_file(Path::new("/proc/self/exe"), 10).unwrap().len(), 11);
    }

    #[test]
    fn a_socket_that_nobody_serves_is_replaced_and_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("ringway-host-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s").to_str().unwrap().to_owned();
        let made = bind_unix(&path, 3).unwrap();
        assert_eq!(made.len(), 3);
        assert_eq!(bind_unix(&path, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse, "somebody serves it");
        drop(made);
        let old = inode_of(&path);
        let anew = bind_unix(&path, 1).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_ne!(inode_of(&path), 0);
        remove_sockets(&[(path.clone().into(), old + 1_000_000)]);
        assert!(inode_of(&path) != 0, "another process' file stays");
        remove_sockets(&socket_files(&[Listen::Unix(path.clone().into())]));
        assert_eq!(inode_of(&path), 0);
        drop(anew);
        std::fs::write(&path, "a file of somebody's").unwrap();
        assert!(bind_unix(&path, 1).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a file of somebody's");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
