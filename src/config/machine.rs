//! What a file asks for and this machine has not: warnings, because the file may be meant for another one.

use super::fault::Faults;
use super::file::View;
use crate::logic::open_files::OpenFiles;
use crate::logic::snapshot::{Driver, Listen, Server, Snapshot};

/// Memory that a ring may take of RLIMIT_MEMLOCK on kernels that count it there.
const RING_BYTES: u64 = 256 << 10;

/// What a machine has to offer, as far as a file can ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Files that the process may have open: the hard limit, which is ours to use up.
    pub open_files: u64,
    /// Bytes that the process may lock, where rings count as locked (kernels before 5.12).
    pub memlock: Option<u64>,
    /// CPUs that the process may run on.
    pub cpus: usize,
    /// CPUs that the cgroup pays for, rounded up; as many as there are where it sets no quota.
    pub quota: usize,
    /// Shards where the file leaves it open.
    pub shards: usize,
    /// Connections that may wait to be accepted, per listener, and how many we ask for.
    pub backlog: (u64, u64),
    /// The lowest port that the process may listen on.
    pub lowest_port: u16,
    /// Why io_uring is not to be had.
    pub no_uring: Option<String>,
}

/// Warns of everything in a sound file that the machine can't give.
pub(super) fn warn(top: &View<'_>, snapshot: &Snapshot, machine: &Machine, faults: &mut Faults<'_>) {
    let (view, server) = (top.table("server"), &snapshot.server);
    let mut warn = |name: &str, text: String| faults.warn(view.at_of(name), view.path_of(name), text);
    let shards = if server.shards == 0 { machine.shards } else { server.shards };
    let found = [
        ("max_connections", open_files(&OpenFiles::wanted(snapshot, shards), machine.open_files)),
        ("shards", too_many_shards(server, machine)),
        ("driver", driver(server, machine)),
        ("driver", memlock(server, shards, machine)),
        ("listen", backlog(machine)),
        ("admin", closed_port(server.admin.port(), machine)),
    ];
    for (name, text) in found {
        if let Some(text) = text {
            warn(name, text);
        }
    }
    for (position, address) in server.listen.iter().enumerate() {
        let Listen::Tcp(address) = address else { continue };
        if let Some(text) = closed_port(address.port(), machine) {
            let at = view.texts("listen").get(position).map_or(view.at_of("listen"), |typed| typed.at);
            faults.warn(at, format!("{}[{position}]", view.path_of("listen")), text);
        }
    }
}

/// What to say where not all connections can be open at once.
pub fn open_files(wanted: &OpenFiles, limit: u64) -> Option<String> {
    let all = wanted.sum();
    let OpenFiles { callers, upstream, own } = wanted;
    (all > limit).then(|| {
        let fit = wanted.callers_within(limit);
        format!(
            "{callers} connections of callers, up to {upstream} to Endpoints and {own} other files are {all}, and this \
             process may have {limit} open: only {fit} callers are let in at once; raise the limit (ulimit -n {all}, \
             LimitNOFILE={all} of systemd, --ulimit nofile={all} of docker), or lower max_connections"
        )
    })
}

fn too_many_shards(server: &Server, machine: &Machine) -> Option<String> {
    let Machine { cpus, quota, .. } = machine;
    let text = match server.shards {
        0 => return None,
        shards if shards > *cpus => format!("more shards than the {cpus} CPUs that this process may run on"),
        shards if shards > *quota => format!("more shards than the {quota} CPUs that the cgroup pays for (cpu.max)"),
        _ => return None,
    };
    Some(format!("{text}: they take turns, and each waits for the others; write {}, or 0", machine.shards))
}

fn driver(server: &Server, machine: &Machine) -> Option<String> {
    let why = machine.no_uring.as_deref()?;
    match server.driver {
        Driver::Epoll => None,
        Driver::Auto => Some(format!("io_uring is not to be had on this machine, so it would run on epoll: {why}")),
        Driver::IoUring => Some(format!(
            "io_uring is not to be had on this machine, so it would not start: {why}; or write \"auto\" or \"epoll\""
        )),
    }
}

fn memlock(server: &Server, shards: usize, machine: &Machine) -> Option<String> {
    let (limit, wanted) = (machine.memlock?, (shards as u64).saturating_mul(RING_BYTES));
    (server.driver != Driver::Epoll && limit < wanted).then(|| {
        format!(
            "this kernel counts rings as locked memory (5.12 and newer don't), {shards} of them take up to {wanted} \
             bytes, and this process may lock {limit}; raise the limit (ulimit -l, LimitMEMLOCK= of systemd)"
        )
    })
}

fn backlog(machine: &Machine) -> Option<String> {
    let (allowed, wanted) = machine.backlog;
    (allowed < wanted).then(|| {
        format!(
            "up to {wanted} connections per shard may wait to be accepted, and this machine lets {allowed}: in a burst \
             callers wait a second and more; raise it (sysctl net.core.somaxconn={wanted})"
        )
    })
}

fn closed_port(port: u16, machine: &Machine) -> Option<String> {
    (port != 0 && port < machine.lowest_port).then(|| {
        format!(
            "this process may not listen on ports below {}, so it would not start: give it CAP_NET_BIND_SERVICE \
             (setcap, AmbientCapabilities= of systemd), or use a higher port",
            machine.lowest_port
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, with};
    use super::super::resolve::resolve_with;
    use crate::config::tls::Files;

    const NO_FILES: Files<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
    use super::*;
    use crate::config::fault::Severity;

    fn roomy() -> Machine {
        Machine {
            open_files: 1_000_000,
            memlock: None,
            cpus: 8,
            quota: 8,
            shards: 8,
            backlog: (4_096, 4_096),
            lowest_port: 0,
            no_uring: None,
        }
    }

    /// Asserts that the only finding is a warning at the mark, for this key, with these words.
    #[track_caller]
    fn warned(machine: &Machine, marked: &str, path: &str, says: &[&str]) {
        let (before, after) = marked.split_once('«').expect("a mark");
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        let resolved = resolve_with(&format!("{before}{after}"), &|_| None, NO_FILES, Some(machine));
        let [found] = resolved.faults.as_slice() else { panic!("not exactly one: {:#?}", resolved.faults) };
        assert_eq!((found.severity, resolved.snapshot.is_some()), (Severity::Warning, true));
        let place = (before.matches('\n').count() + 1, column, path);
        assert_eq!((found.line, found.column, found.path.as_str()), place, "{found:?}");
        says.iter().for_each(|word| assert!(found.text.contains(word), "{:?} does not say {word:?}", found.text));
    }

    #[test]
    fn a_machine_with_enough_of_everything_is_not_mentioned() {
        assert_eq!(resolve_with(SOUND, &|_| None, NO_FILES, Some(&roomy())).faults, []);
        let faulty = with("shards = 2", "shards = \"2\"");
        let poor = Machine { open_files: 10, ..roomy() };
        let found = resolve_with(&faulty, &|_| None, NO_FILES, Some(&poor)).faults;
        assert!(found.len() == 1 && found[0].severity == Severity::Fault, "what is wrong comes first: {found:?}");
    }

    #[test]
    fn files_that_do_not_suffice() {
        let few = Machine { open_files: 1_024, ..roomy() };
        let text = with("shards = 2", "shards = 2\nmax_connections = «5000\nmax_inflight = 50");
        // 5000 + 2 × 50 + 64 + 2 × 9.
        let says =
            ["5000 connections of callers, up to 100 to Endpoints", "5182", "may have 1024", "only 842", "ulimit"];
        warned(&few, &text, "server.max_connections", &says);
        let exact = Machine { open_files: 5_182, ..roomy() };
        assert_eq!(resolve_with(&text.replace('«', ""), &|_| None, NO_FILES, Some(&exact)).faults, []);
        let unwritten = SOUND.replacen("[server]", "«[server]", 1);
        warned(&few, &unwritten, "server.max_connections", &["100000 connections"]);
    }

    #[test]
    fn shards_that_are_too_many() {
        let text = with("shards = 2", "shards = «9");
        warned(&roomy(), &text, "server.shards", &["the 8 CPUs that this process may run on", "write 8, or 0"]);
        let thrifty = Machine { quota: 3, shards: 3, ..roomy() };
        let text = with("shards = 2", "shards = «4");
        warned(&thrifty, &text, "server.shards", &["the 3 CPUs that the cgroup pays for", "write 3, or 0"]);
    }

    #[test]
    fn a_blocked_ring() {
        let blocked = Machine { no_uring: Some("EPERM".to_owned()), ..roomy() };
        warned(&blocked, &with("shards = 2", "driver = «\"auto\""), "server.driver", &["on epoll: EPERM"]);
        let text = with("shards = 2", "driver = «\"io_uring\"");
        warned(&blocked, &text, "server.driver", &["would not start: EPERM", "\"auto\""]);
        let old = Machine { memlock: Some(65_536), ..roomy() };
        warned(&old, &with("shards = 2", "driver = «\"auto\"\nshards = 1"), "server.driver", &["65536", "ulimit -l"]);
        for machine in [&blocked, &old] {
            assert_eq!(
                resolve_with(&with("shards = 2", "driver = \"epoll\""), &|_| None, NO_FILES, Some(machine)).faults,
                []
            );
        }
    }

    #[test]
    fn listeners_that_would_not_do() {
        let short = Machine { backlog: (128, 4_096), ..roomy() };
        warned(&short, &with("shards = 2", "listen = «[\"127.0.0.1:1\"]"), "server.listen", &["lets 128", "somaxconn"]);
        let plain = Machine { lowest_port: 1_024, ..roomy() };
        let text = with("shards = 2", "listen = [\"127.0.0.1:1024\", «\"[::1]:443\"]");
        warned(&plain, &text, "server.listen[1]", &["below 1024", "CAP_NET_BIND_SERVICE"]);
        warned(&plain, &with("shards = 2", "admin = «\"127.0.0.1:80\""), "server.admin", &["below 1024"]);
        assert_eq!(
            resolve_with(&with("shards = 2", "admin = \"127.0.0.1:0\""), &|_| None, NO_FILES, Some(&plain)).faults,
            []
        );
    }
}
