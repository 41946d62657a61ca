//! Starts the built binary with a configuration of a test's own, and ends it.

pub use super::client::{Client, Response, call_body, chunked, notification_body, request};
pub use super::upstream::{
    ClosedPort, FullPort, Gate, HeldPort, PATIENCE, Reply, Seen, Upstream, error_body, result_body,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A configuration: Endpoints `a`, `b`, `c` ... and one Gateway `eth` on `/eth` whose default Route has them all.
pub struct Setup {
    listen: SocketAddr,
    shards: usize,
    server: String,
    sections: String,
    endpoints: Vec<(String, String)>,
    gateway: String,
    route: String,
    targets: Option<String>,
    more: String,
    tron: bool,
}

impl Setup {
    /// Endpoints at these addresses.
    pub fn at(addresses: &[SocketAddr]) -> Setup {
        let ids = ('a'..='z').map(String::from);
        let urls = addresses.iter().map(|address| format!("url = \"http://{address}\"\n"));
        Setup {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            shards: 2,
            server: String::new(),
            sections: String::new(),
            endpoints: ids.zip(urls).collect(),
            gateway: String::new(),
            route: String::new(),
            targets: None,
            more: String::new(),
            tron: false,
        }
    }

    /// All of it speaks TRON's HTTP API; the first Gateway is `tron` on `/tron`.
    pub fn tron(mut self) -> Setup {
        self.tron = true;
        self
    }

    /// Endpoints at these upstreams.
    pub fn of(upstreams: &[&Upstream]) -> Setup {
        Setup::at(&upstreams.iter().map(|upstream| upstream.address).collect::<Vec<_>>())
    }

    /// A port that is known before.
    pub fn listen(mut self, address: SocketAddr) -> Setup {
        self.listen = address;
        self
    }

    /// Another number of shards than two.
    pub fn shards(mut self, shards: usize) -> Setup {
        self.shards = shards;
        self
    }

    /// Lines for `[server]`.
    pub fn server(mut self, lines: &str) -> Setup {
        self.server += &format!("{lines}\n");
        self
    }

    /// Lines for `[circuit]`.
    pub fn circuit(mut self, lines: &str) -> Setup {
        self.sections += &format!("[circuit]\n{lines}\n");
        self
    }

    /// No Circuit ever opens.
    pub fn no_circuit(self) -> Setup {
        self.circuit("consecutive_failures = 4000000000\nmin_samples = 4000000000")
    }

    /// Lines for one `[[endpoint]]`; a line for `url` replaces its own.
    pub fn endpoint(mut self, at: usize, lines: &str) -> Setup {
        let own = &mut self.endpoints[at].1;
        if lines.contains("url =") {
            *own = own.lines().filter(|line| !line.starts_with("url =")).map(|line| format!("{line}\n")).collect();
        }
        *own += &format!("{lines}\n");
        self
    }

    /// Lines for the `[[gateway]]`.
    pub fn gateway(mut self, lines: &str) -> Setup {
        self.gateway += &format!("{lines}\n");
        self
    }

    /// Lines for the default Route.
    pub fn route(mut self, lines: &str) -> Setup {
        self.route += &format!("{lines}\n");
        self
    }

    /// Other targets than all Endpoints in their order.
    pub fn targets(mut self, targets: &str) -> Setup {
        self.targets = Some(targets.to_owned());
        self
    }

    /// Another Gateway: `path` is its id with a slash in front.
    pub fn another(mut self, id: &str, targets: &str, route: &str) -> Setup {
        self.more += &format!(
            "[[gateway]]\nid = \"{id}\"\npath = \"/{id}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n\
             [[gateway.route]]\nid = \"default\"\ntargets = {targets}\n{route}\n"
        );
        self
    }

    /// Whatever stands at the end of the file.
    pub fn raw(mut self, lines: &str) -> Setup {
        self.more += &format!("{lines}\n");
        self
    }

    /// Starts the gateway.
    pub fn start(self) -> Gateway {
        Gateway::start(&self.text())
    }

    /// The configuration as a file.
    pub fn text(&self) -> String {
        let driver = std::env::var("RINGWAY_TEST_DRIVER").unwrap_or_else(|_| "io_uring".into());
        let ids: Vec<String> = self.endpoints.iter().map(|(id, _)| format!("\"{id}\"")).collect();
        let targets = self.targets.clone().unwrap_or_else(|| format!("[{}]", ids.join(", ")));
        let endpoints: String = self
            .endpoints
            .iter()
            .map(|(id, own)| format!("[[endpoint]]\nid = \"{id}\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n{own}"))
            .collect();
        let text = format!(
            "[server]\nlisten = [\"{}\"]\nadmin = \"127.0.0.1:0\"\nshards = {}\ndriver = \"{driver}\"\n{}\n\
             [log]\nformat = \"json\"\n{}\n{endpoints}\n\
             [[gateway]]\nid = \"eth\"\npath = \"/eth\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n{}\
             [[gateway.route]]\nid = \"default\"\ntargets = {targets}\n{}\n{}",
            self.listen, self.shards, self.server, self.sections, self.gateway, self.route, self.more
        );
        match self.tron {
            true => text
                .replace("id = \"eth\"\npath = \"/eth\"", "id = \"tron\"\npath = \"/tron\"")
                .replace("chain = \"ethereum\"", "chain = \"tron\"\nprotocol = \"tron-http\""),
            false => text,
        }
    }
}

#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Log {
    /// The first line that holds `text`; `None` if the process ended, or took too long.
    fn wait_for(&self, text: &str) -> Option<String> {
        let found = |lines: &[String]| lines.iter().find(|line| line.contains(text)).cloned();
        let lines = self.lines.lock().unwrap();
        let waiting = |state: &mut (Vec<String>, bool)| found(&state.0).is_none() && !state.1;
        let (lines, _) = self.changed.wait_timeout_while(lines, PATIENCE, waiting).unwrap();
        found(&lines.0)
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap().0.join("\n")
    }
}

/// A running gateway; it ends with the test.
pub struct Gateway {
    child: Child,
    /// The data plane.
    pub listen: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
    log: Arc<Log>,
    folder: PathBuf,
    over: bool,
}

impl Gateway {
    /// Starts one with this configuration.
    pub fn start(config: &str) -> Gateway {
        Gateway::start_by(Command::new(env!("CARGO_BIN_EXE_ringway")), config)
    }

    /// Starts one that may have so many files open.
    pub fn start_with_open_files(most: usize, config: &str) -> Gateway {
        Gateway::start_by(with_open_files(most), config)
    }

    fn start_by(mut command: Command, config: &str) -> Gateway {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ringway-gateway-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("ringway.toml");
        std::fs::write(&file, config).unwrap();
        command.args(["serve", "--config"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = end_with_us(&mut command).spawn().unwrap();
        let log = Arc::new(Log::default());
        let (stderr, writer) = (child.stderr.take().unwrap(), log.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                writer.lines.lock().unwrap().0.push(line);
                writer.changed.notify_all();
            }
            writer.lines.lock().unwrap().1 = true;
            writer.changed.notify_all();
        });
        let Some(line) = log.wait_for("\"serving\"") else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the gateway did not start:\n{}\n{config}", log.text());
        };
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = |key: &str| {
            line[key].as_str().and_then(|text| text.split(',').next()?.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        Gateway { child, listen: address("listen"), admin: address("admin"), log, folder, over: false }
    }

    /// A connection to the data plane.
    pub fn connect(&self) -> Client {
        Client::connect(self.listen)
    }

    /// Posts a body to `/eth` over a connection of its own.
    #[track_caller]
    pub fn post(&self, body: impl AsRef<[u8]>) -> Response {
        self.post_to("/eth", body)
    }

    /// Posts a body over a connection of its own.
    #[track_caller]
    pub fn post_to(&self, path: &str, body: impl AsRef<[u8]>) -> Response {
        let mut client = self.connect();
        client.post(path, &[], body);
        client.response()
    }

    /// Makes a Call with id 1 to `/eth`.
    #[track_caller]
    pub fn call(&self, method: &str, params: &str) -> Response {
        self.post(call_body("1", method, params))
    }

    /// `GET` on the admin port.
    #[track_caller]
    pub fn admin_get(&self, target: &str, headers: &[&str]) -> Response {
        let host = if headers.iter().any(|field| field.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
        let fields: String = headers.iter().map(|field| format!("{field}\r\n")).collect();
        let mut client = Client::connect(self.admin);
        client.send(format!("GET {target} HTTP/1.1\r\n{host}{fields}\r\n"));
        client.response()
    }

    /// `POST` on the admin port, with no fields but these and a length.
    #[track_caller]
    pub fn admin_post(&self, target: &str, headers: &[&str], body: &str) -> Response {
        let fields: String = headers.iter().map(|field| format!("{field}\r\n")).collect();
        let mut client = Client::connect(self.admin);
        client.send(format!("POST {target} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()));
        client.response()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All metrics as of now.
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let page = self.admin_get("/metrics", &[]);
        assert_eq!(page.status, 200, "{page:?}");
        Metrics::parse(&page.body)
    }

    /// Waits until the metrics are as a test wants them.
    #[track_caller]
    pub fn wait_for_metrics(&self, what: &str, done: impl Fn(&Metrics) -> bool) -> Metrics {
        let until = Instant::now() + PATIENCE;
        loop {
            let metrics = self.metrics();
            if done(&metrics) {
                return metrics;
            }
            assert!(Instant::now() < until, "waited in vain for {what}: {:#?}\n{}", metrics.told(), self.log());
            std::thread::yield_now();
        }
    }

    /// Everything that it has logged so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits for a line of the log.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        assert!(self.log.wait_for(text).is_some(), "no {text:?} in the log:\n{}", self.log());
    }

    /// Writes another configuration, asks for a reload, and waits until it was taken or refused: whether it was taken.
    #[track_caller]
    pub fn reload(&self, setup: &Setup) -> bool {
        self.reload_text(&setup.text())
    }

    /// The same for a text that is no whole configuration.
    #[track_caller]
    pub fn reload_text(&self, config: &str) -> bool {
        let counts = || {
            let log = self.log();
            (log.matches("\"reloaded\"").count(), log.matches("reload refused").count())
        };
        let before = counts();
        std::fs::write(self.folder.join("ringway.toml"), config).unwrap();
        self.signal(rustix::process::Signal::HUP);
        let until = Instant::now() + PATIENCE;
        while counts() == before {
            assert!(Instant::now() < until, "no word about the reload:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        // Shards look once a tick; whoever wants to see the new Snapshot waits for what it shows.
        counts().0 > before.0
    }

    /// Asks it to leave.
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends a signal. The child was not waited for, so the number is still its own.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it has left.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.over = true;
                return status;
            }
            assert!(Instant::now() < until, "it does not leave:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The binary, allowed to have so many files open.
pub fn with_open_files(most: usize) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_ringway")]);
    command
}

/// A test run that is killed runs no destructors: the kernel ends its gateways.
#[allow(unsafe_code)]
fn end_with_us(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and takes two numbers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A bug that cost only one connection must not go by unseen.
        let panics = !std::thread::panicking() && self.log().contains("panicked");
        if !self.over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        assert!(!panics, "a task of the gateway panicked:\n{}", self.log());
    }
}

/// What `/metrics` told: each line's name with labels, and its value.
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
        };
        Metrics(lines.map(pair).collect())
    }

    /// What is worth reading in a failure.
    pub fn told(&self) -> Vec<String> {
        let lines = self.0.iter().filter(|(line, value)| **value != 0.0 && !line.contains("_bucket"));
        lines.map(|(line, value)| format!("{line} {value}")).collect()
    }

    /// The sum over all lines of this name whose labels hold all of these.
    pub fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        let named = self.0.iter().filter(|(line, _)| line.split('{').next() == Some(name));
        named.filter(|(line, _)| labels.iter().all(|label| line.contains(label))).map(|(_, value)| *value as u64).sum()
    }

    /// Calls that ended so.
    pub fn calls(&self, outcome: &str) -> u64 {
        self.sum("ringway_calls_total", &[&format!("outcome=\"{outcome}\"")])
    }

    /// Attempts at an Endpoint that ended so; an empty outcome = all of them.
    pub fn attempts(&self, endpoint: &str, outcome: &str) -> u64 {
        let endpoint = format!("endpoint=\"{endpoint}\"");
        match outcome {
            "" => self.sum("ringway_attempts_total", &[&endpoint]),
            _ => self.sum("ringway_attempts_total", &[&endpoint, &format!("outcome=\"{outcome}\"")]),
        }
    }

    /// A value by Endpoint.
    pub fn of(&self, name: &str, endpoint: &str) -> u64 {
        self.sum(name, &[&format!("endpoint=\"{endpoint}\"")])
    }
}

/// Shares the work between threads; the first that fails fails the test.
pub fn in_threads<T: Sync>(threads: usize, all: &[T], work: impl Fn(usize, &T) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || {
                let own = all.iter().enumerate().filter(|(at, _)| at % threads == thread);
                own.for_each(|(at, one)| work(at, one));
            });
        }
    });
}
