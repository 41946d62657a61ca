//! The rules of the house, each a function from the sources to what is wrong with them.

use crate::architecture::source::Source;

/// Most lines of a file outside its tests, and most lines of a function.
pub const FILE_LINES_MAX: usize = 600;
pub const FUNCTION_LINES_MAX: usize = 70;

/// Rooms and their ranks; imports go strictly down. `demo` starts what `boot` builds, and `main` both.
const RANKS: [(&str, u8); 11] = [
    ("logic", 0),
    ("wire", 1),
    ("shared", 1),
    ("config", 1),
    ("net", 2),
    ("ops", 2),
    ("host", 2),
    ("names", 2),
    ("boot", 3),
    ("demo", 4),
    ("main", 5),
];

/// The only files that may hold `unsafe`: four of the product, the harness, whose gateways must end with it, and an
/// allocator that counts.
const UNSAFE_FILES: [&str; 6] = [
    "src/net/executor.rs",
    "src/net/uring.rs",
    "src/net/socket.rs",
    "src/wire/json_simd.rs",
    "tests/allocations/counter.rs",
    "tests/gateway/harness.rs",
];
/// The only file outside `shared` with an atomic: the flag that a signal sets.
const ATOMIC_FILES: [&str; 1] = ["src/boot.rs"];
/// The only file that reads the clock of the data plane.
const RING: &str = "src/net/ring.rs";
/// The interfaces of the kernel that wait, each with the only file that names it.
const DRIVERS: [(&str, &str); 2] = [("io_uring::", "src/net/uring.rs"), ("epoll::", "src/net/epoll.rs")];

const VAGUE_NAMES: [&str; 8] = ["core", "util", "utils", "common", "types", "helpers", "misc", "mod"];

/// What `logic` never touches: clock, fd, thread, atomic, async, unsafe, memory of others.
const NOT_IN_LOGIC: [&str; 23] = [
    "async",
    "await",
    "unsafe",
    "thread",
    "thread_local",
    "atomic",
    "Mutex",
    "RwLock",
    "OnceLock",
    "LazyLock",
    "Rc",
    "Arc",
    "RefCell",
    "Cell",
    "Instant",
    "SystemTime",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "File",
    "OwnedFd",
    "RawFd",
    "libc",
];

pub fn imports_go_down(sources: &[Source]) -> Vec<String> {
    let rank = |room: &str| RANKS.iter().find(|(name, _)| *name == room).map(|(_, rank)| *rank);
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.path != "src/lib.rs") {
        let Some(room) = source.room() else { continue };
        let Some(own) = rank(room) else {
            wrong.push(format!("{}: the room {room} has no rank", source.path));
            continue;
        };
        let roots = ["crate::", "ringway::"];
        for (at, root) in roots.iter().flat_map(|root| source.code.match_indices(root)) {
            let rest = &source.code[at + root.len()..];
            let other: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let here = format!("{}:{}", source.path, source.line(at));
            match rank(&other) {
                _ if other == room => {}
                Some(theirs) if theirs < own => {}
                Some(_) => wrong.push(format!("{here}: {room} imports {other}, which is not below it")),
                None => wrong.push(format!("{here}: `{root}{other}` names no room: import from rooms one by one")),
            }
        }
        let sideways = source.product.match_indices("super::super").filter(|_| source.path.matches('/').count() < 3);
        wrong.extend(
            sideways.map(|(at, _)| format!("{}:{}: name the room, not super::super", source.path, source.line(at))),
        );
    }
    wrong
}

pub fn the_kernel_and_the_clock_have_one_door_each(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_product()) {
        for (name, door) in DRIVERS.iter().filter(|(_, door)| source.path != *door) {
            let named = source.code.match_indices(name);
            // `shared::epoll::` would be somebody else's.
            let own = named.filter(|(at, _)| !source.code[..*at].ends_with("net::"));
            wrong.extend(own.map(|(at, _)| format!("{}:{}: {name} is {door}'s", source.path, source.line(at))));
        }
        if source.path == RING {
            continue;
        }
        if matches!(source.room(), Some("net" | "logic" | "wire" | "shared" | "config")) {
            let clocks = ["Instant::now", "SystemTime::now", "clock_gettime"];
            let reads = clocks.iter().flat_map(|clock| source.product.match_indices(clock));
            wrong.extend(
                reads.map(|(at, _)| format!("{}:{}: only {RING} reads the clock", source.path, source.line(at))),
            );
        }
    }
    wrong
}

pub fn unsafe_is_rare_and_says_why(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for at in Source::words(&source.code, "unsafe") {
            let line = source.line(at);
            let here = format!("{}:{line}", source.path);
            if !UNSAFE_FILES.contains(&source.path.as_str()) {
                wrong.push(format!("{here}: `unsafe` has no place here"));
                continue;
            }
            // The comment and the attributes right above.
            let above = lines[..line - 1].iter().rev().map(|line| line.trim_start());
            let says = |line: &str| line.contains("SAFETY:") || line.contains("# Safety");
            let mut block = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
            if !block.any(says) {
                wrong.push(format!("{here}: `unsafe` without a SAFETY line right before it"));
            }
        }
    }
    wrong
}

pub fn atomics_live_in_shared(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.is_product()) {
        if source.room() == Some("shared") || ATOMIC_FILES.contains(&source.path.as_str()) {
            continue;
        }
        let kinds = ["atomic", "AtomicBool", "AtomicU8", "AtomicU32", "AtomicU64", "AtomicUsize", "AtomicPtr"];
        let first = kinds.iter().flat_map(|kind| Source::words(&source.product, kind)).min();
        wrong.extend(first.map(|at| format!("{}:{}: an atomic outside shared", source.path, source.line(at))));
    }
    wrong
}

pub fn logic_touches_nothing(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources.iter().filter(|source| source.room() == Some("logic")) {
        for word in NOT_IN_LOGIC {
            let found = Source::words(&source.product, word);
            wrong.extend(found.map(|at| format!("{}:{}: `{word}` in logic", source.path, source.line(at))));
        }
        for path in ["std::fs", "std::io", "std::os", "std::process", "std::env", "static mut"] {
            let found = source.product.match_indices(path);
            wrong.extend(found.map(|(at, _)| format!("{}:{}: `{path}` in logic", source.path, source.line(at))));
        }
    }
    wrong
}

pub fn every_file_says_its_job(sources: &[Source], waiting: &[&str]) -> Vec<String> {
    let silent = |source: &&Source| {
        let first = source.text.lines().next().unwrap_or_default();
        first.strip_prefix("//! ").is_none_or(|job| job.trim().chars().count() < 20)
    };
    let judged = sources.iter().filter(|source| !waiting.contains(&source.path.as_str()));
    judged.filter(silent).map(|source| format!("{}: the first line says no job", source.path)).collect()
}

/// What is too long: a file's path, or path and function.
pub fn lengths(sources: &[Source]) -> Vec<(String, usize)> {
    let mut long = Vec::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("tests/")) {
        if source.product_lines() > FILE_LINES_MAX {
            long.push((source.path.clone(), source.product_lines()));
        }
    }
    for source in sources {
        let functions = source.functions().into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(functions.map(|(name, _, lines)| (format!("{}::{name}", source.path), lines)));
    }
    long
}

/// Compares what is too long with what is allowed to be. The list may only shrink: an entry that is larger
/// than the truth is as wrong as one that is missing.
pub fn small(sources: &[Source], allowed: &[(&str, usize)]) -> Vec<String> {
    let long = lengths(sources);
    let listed = |name: &str| allowed.iter().find(|(path, _)| *path == name).map(|(_, lines)| *lines);
    let mut wrong: Vec<String> = long
        .iter()
        .filter(|(name, lines)| listed(name) != Some(*lines))
        .map(|(name, lines)| format!("{name}: {lines} lines, allowed are {:?}", listed(name)))
        .collect();
    let gone = allowed.iter().filter(|(path, _)| !long.iter().any(|(name, _)| name == path));
    wrong.extend(gone.map(|(path, _)| format!("{path} is short now: take it off the list")));
    wrong
}

pub fn names_say_something(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        let parts = source.path.trim_end_matches(".rs").split('/');
        wrong.extend(parts.filter(|part| VAGUE_NAMES.contains(part)).map(|part| format!("{}: `{part}`", source.path)));
        for name in VAGUE_NAMES {
            let declared = source.code.match_indices("mod ").filter(|(at, _)| {
                let rest = &source.code[at + 4..];
                rest.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ';', '{']))
            });
            wrong.extend(declared.map(|(at, _)| format!("{}:{}: mod {name}", source.path, source.line(at))));
        }
    }
    wrong
}

pub fn nothing_is_left_open(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        for open in ["todo!", "unimplemented!", "dbg!", "#[ignore"] {
            let found = source.code.match_indices(open);
            wrong.extend(found.map(|(at, _)| format!("{}:{}: {open}", source.path, source.line(at))));
        }
    }
    wrong
}

/// Every file of a room stands on the floor plan, `src/lib.rs`.
pub fn every_file_is_on_the_floor_plan(sources: &[Source]) -> Vec<String> {
    let Some(plan) = sources.iter().find(|source| source.path == "src/lib.rs") else { return Vec::new() };
    let declared = |name: &str| ["mod ", "pub mod "].iter().any(|word| plan.code.contains(&format!("{word}{name};")));
    let orphan = |source: &&Source| {
        let name = source.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        source.is_product() && !matches!(name, "lib" | "main") && !declared(name)
    };
    sources.iter().filter(orphan).map(|source| format!("{}: not declared in src/lib.rs", source.path)).collect()
}

/// The project speaks of itself: paths of the machines on which it was written mean nothing to a reader.
pub fn no_foreign_words(files: &[(String, String)]) -> Vec<String> {
    // Put together here, so that this file holds none of them.
    let foreign = [concat!("/wo", "rk/"), concat!("/tm", "p/"), concat!("/ho", "me/"), concat!("/ro", "ot/")];
    let mut wrong = Vec::new();
    for (path, text) in files {
        for (line, number) in text.lines().zip(1..) {
            let found = foreign.iter().find(|word| line.contains(*word));
            wrong.extend(found.map(|word| format!("{path}:{number}: {word}")));
        }
    }
    wrong
}
