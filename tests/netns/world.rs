//! Network namespaces: one for a test and all that it starts, and one for each host that it wants beside it.
//!
//! They have no names. Whoever holds one is this process, so that they end with it however it ends.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

/// Set inside the user namespace that a test without root starts itself in.
const INSIDE: &str = "RINGWAY_NETNS_INSIDE";

/// Runs the body of a test inside a network of its own, in which only the loopback interface is up. Threads and
/// processes that it starts are inside too.
///
/// Without the right to do so the test starts itself once more as root of a user namespace. Where that isn't to be had
/// either, it says so and is left out; with `CI` set it fails.
pub fn world<F: FnOnce() + Send + 'static>(body: F) {
    match Space::new() {
        Ok(space) => space.run(|| {
            ip("link set lo up");
            body();
        }),
        Err(why) => once_more::<F>(&why),
    }
}

/// Starts this very test in a user namespace: the closure that is its body bears its name.
fn once_more<F>(why: &str) {
    let name = std::any::type_name::<F>().split("::").filter(|part| !part.contains('{')).skip(1);
    let name = name.collect::<Vec<_>>().join("::");
    if std::env::var_os(INSIDE).is_some() || !user_namespaces() {
        assert!(std::env::var_os("CI").is_none_or(|set| set.is_empty()), "{name}: {why}, and CI leaves nothing out");
        eprintln!("left out: {name}: {why}");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-rnm", "--"]).arg(std::env::current_exe().unwrap()).args(["--exact", &name, "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && told[0].contains(" 1 passed"), "{}{}", told[0], told[1]);
    eprintln!("{}", told[1]);
}

fn user_namespaces() -> bool {
    let tried = Command::new("unshare").args(["-rnm", "true"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// A network namespace.
struct Space(File);

impl Space {
    /// Makes one. The process that made it ends at once; the handle keeps it.
    fn new() -> Result<Space, String> {
        ip_tool().ok_or("there is no `ip` (iproute2)")?;
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", "echo made; read end"]).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|error| format!("there is no `unshare` (util-linux): {error}"))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let space = match line.as_str() {
            "made\n" => Ok(Space(File::open(format!("/proc/{}/ns/net", child.id())).unwrap())),
            _ => Err("network namespaces are not to be had: neither as root nor as a user".to_owned()),
        };
        drop(child.stdin.take());
        child.wait().unwrap();
        space
    }

    /// Runs this inside, on a thread of its own.
    fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                body()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Another host, at the far end of a cable of its own.
pub struct Host {
    space: Space,
    at: u8,
}

impl Host {
    /// Host `at` has 10.77.`at`.2 on its interface `far`, and sees this side as 10.77.`at`.1 on `near`*at*. This side
    /// knows its hardware address for good, so that no look-up of addresses stands between a test and its packets.
    pub fn new(at: u8) -> Host {
        let host = Host { space: Space::new().unwrap_or_else(|why| panic!("{why}")), at };
        let far = format!("/proc/{}/fd/{}", std::process::id(), host.space.0.as_raw_fd());
        ip(&format!("link add near{at} address 02:00:00:00:{at:02x}:01 type veth peer name far netns {far}"));
        ip(&format!("addr add 10.77.{at}.1/24 dev near{at}"));
        ip(&format!("link set near{at} up"));
        host.ip(&format!("link set far address {}", host.hardware()));
        host.ip(&format!("addr add 10.77.{at}.2/24 dev far"));
        host.ip("link set lo up");
        host.ip("link set far up");
        host.hears();
        host
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.at, 2)
    }

    /// A listener there.
    pub fn listen(&self) -> TcpListener {
        let address = SocketAddr::from((IpAddr::V4(self.address()), 0));
        self.space.run(|| TcpListener::bind(address).unwrap())
    }

    /// `ip` with these arguments, over there.
    pub fn ip(&self, arguments: &str) {
        self.space.run(|| ip(arguments));
    }

    /// The cable is cut: packets of both sides vanish, and nobody is told.
    pub fn cut(&self) {
        self.ip("link set far down");
    }

    /// The cable is mended.
    pub fn mend(&self) {
        self.ip("link set far up");
    }

    /// What this side sends goes to hardware that isn't there, and vanishes; what the host sends arrives.
    pub fn deaf(&self) {
        self.neighbour("02:00:00:00:00:ff");
    }

    /// What this side sends arrives again.
    pub fn hears(&self) {
        self.neighbour(&self.hardware());
    }

    /// What the host sends to this side vanishes; what this side sends arrives.
    pub fn mute(&self) {
        self.ip(&format!("route add blackhole 10.77.{}.1", self.at));
    }

    /// What the host sends arrives again.
    pub fn speaks(&self) {
        self.ip(&format!("route del blackhole 10.77.{}.1", self.at));
    }

    fn hardware(&self) -> String {
        format!("02:00:00:00:{:02x}:02", self.at)
    }

    fn neighbour(&self, hardware: &str) {
        ip(&format!("neigh replace {} lladdr {hardware} dev near{} nud permanent", self.address(), self.at));
    }
}

/// Runs `ip` with these arguments on this side.
pub fn ip(arguments: &str) {
    let output = Command::new(ip_tool().unwrap()).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Users don't always have `/sbin` in their path.
fn ip_tool() -> Option<&'static str> {
    ["ip", "/usr/sbin/ip", "/sbin/ip"].into_iter().find(|tool| {
        let version = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}
