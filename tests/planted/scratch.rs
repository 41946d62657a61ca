//! A crate that holds nothing but a copy of `src/logic` and the simulation: a bug compiles in a second there.

use crate::planted::list::Bug;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Calls of the simulation for one bug.
const CALLS: &str = "150000";
/// A check takes some seconds at most.
const PATIENCE: Duration = Duration::from_secs(20);

const MANIFEST: &str = r#"[workspace]

[package]
name = "ringway"
version = "0.0.0"
edition = "2024"
autotests = false

# The machine's own assertions are off: what catches a bug here is a check from outside.
[profile.test]
opt-level = 1
debug = false
debug-assertions = false
overflow-checks = true
incremental = true
lto = "off"
"#;

pub struct Scratch {
    folder: PathBuf,
}

/// What was compiled: the executable with both checks in it.
pub struct Built(PathBuf);

/// What a check said.
pub enum Outcome {
    Passed,
    Caught(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("did not see it"),
            Outcome::Caught(how) => write!(f, "{how}"),
        }
    }
}

impl Scratch {
    /// The scratch crate number `at`, with a target folder of its own, so that two compile side by side.
    pub fn new(at: usize) -> Scratch {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("planted-{at}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::create_dir_all(folder.join("src")).expect("the scratch folder can be made");
        write(&folder.join("Cargo.toml"), MANIFEST);
        let simulation = part_of_a_crate(&read(&source.join("tests/simulation.rs")));
        write(&folder.join("src/lib.rs"), &(floor_plan(&read(&source.join("src/lib.rs"))) + &simulation));
        copy(&source.join("tests/simulation"), &folder.join("src/simulation"));
        let scratch = Scratch { folder };
        scratch.restore();
        scratch
    }

    /// Makes the copy of `src/logic` equal to the original again.
    pub fn restore(&self) {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/logic"), &self.folder.join("src/logic"));
    }

    /// Plants a bug.
    pub fn replace(&self, bug: &Bug) -> Result<(), String> {
        let path = self.folder.join("src/logic").join(bug.file);
        let text = read(&path);
        let found = text.matches(bug.old).count();
        if found != 1 {
            return Err(format!("its text stands {found} times in {}: bring the list up to date", bug.file));
        }
        write(&path, &text.replacen(bug.old, bug.new, 1));
        Ok(())
    }

    /// Compiles everything, once for both checks.
    pub fn compile(&self) -> Result<Built, String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--offline", "--lib", "--no-run", "--message-format=json"]).current_dir(&self.folder);
        // Nothing of the outer run may leak in.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_INCREMENTAL"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_TARGET_DIR", self.folder.join("target"));
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        let said = text(&output.stdout);
        if !output.status.success() {
            return Err(format!("does not compile:\n{said}{}", text(&output.stderr)));
        }
        executable(&said).map(Built).ok_or_else(|| "cargo names no executable".into())
    }
}

impl Built {
    pub fn simulate(&self) -> Outcome {
        run(&self.0, &["--exact", "no_call_ends_wrongly_over_many_seeds"])
    }

    pub fn unit_tests(&self) -> Outcome {
        run(&self.0, &["logic::"])
    }
}

/// The executable that cargo made, from its messages: one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    })
}

/// Runs one check. A bug may also be an endless loop: then the check is ended, and has seen it.
fn run(program: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(arguments).env("SIM_CALLS", CALLS).env_remove("SIM_SEED").env("RUST_BACKTRACE", "0");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a check can be started");
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (done, ended) = mpsc::channel();
    let reader = thread::spawn(move || {
        // What goes to stderr is little, so the order can't block.
        let said = drain(stdout) + &drain(stderr);
        let _ = done.send(());
        said
    });
    let endless = ended.recv_timeout(PATIENCE).is_err();
    if endless {
        let _ = child.kill();
    }
    let status = child.wait().expect("a check ends");
    let said = reader.join().expect("the reader ends");
    match (endless, status.success()) {
        (true, _) => Outcome::Caught(format!("no end within {PATIENCE:?}")),
        (false, true) => Outcome::Passed,
        (false, false) => Outcome::Caught(complaint(&said)),
    }
}

fn drain(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    text(&bytes)
}

/// The line that names the broken rule, or the tests that failed.
fn complaint(said: &str) -> String {
    let violation = said.lines().find_map(|line| line.split_once("violation: ").map(|(_, rule)| rule.to_owned()));
    let failed = said.lines().filter_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"));
    violation.unwrap_or_else(|| failed.collect::<Vec<_>>().join(", "))
}

/// The part of `src/lib.rs` that declares `logic`.
fn floor_plan(whole: &str) -> String {
    let from = whole.find("pub mod logic {").expect("src/lib.rs declares logic");
    let length = whole[from..].find("\n}").expect("the declaration ends");
    format!("//! `logic` alone.\n{}\n}}\n", &whole[from..from + length])
}

/// The simulation as a part of the crate that it is about, and no crate of its own: each bug is compiled once then.
fn part_of_a_crate(simulation: &str) -> String {
    let code: Vec<&str> = simulation.lines().filter(|line| !line.starts_with("//!")).collect();
    format!("extern crate self as ringway;\n{}\n", code.join("\n"))
}

/// Copies a folder, and touches no file that is the same: what did not change is not compiled again.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    for entry in fs::read_dir(from).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy(&path, &target),
            false => write(&target, &read(&path)),
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
