//! Is the house as its plan says? Scans the sources for what no compiler checks: which room may touch what,
//! and how large things may grow. Each rule is also shown a small source that breaks it.

mod architecture {
    pub mod rules;
    pub mod shared_memory;
    pub mod source;
}

use architecture::rules;
use architecture::source::{Source, files};
use std::path::Path;

/// Files over 600 lines outside tests, and functions (`path::name`) over 70, with their lines now. It may
/// only shrink: who makes one shorter lowers its number here or takes it off.
const ALLOWED_LENGTHS: &[(&str, usize)] = &[];

/// Files that wait for their content, and so have no job to name. Take a file off once it has one.
const WITHOUT_JOB: &[&str] = &["loadtest/src/main.rs", "src/demo/node.rs"];

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = files(root, &["src", "tests", "bench", "loadtest/src"], &[".rs"]);
    assert!(found.len() > 40, "only {} sources were found", found.len());
    found.iter().map(|(path, text)| Source::new(path, text)).collect()
}

fn holds(rule: impl Fn(&[Source]) -> Vec<String>) {
    let wrong = rule(&sources());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rule objects to this text at this path, `times` times.
fn sees(rule: impl Fn(&[Source]) -> Vec<String>, path: &str, text: &str, times: usize) {
    let wrong = rule(&[Source::new(path, text)]);
    assert_eq!(wrong.len(), times, "{path}: {text:?}: {wrong:?}");
}

#[test]
fn imports_go_strictly_down_by_rank() {
    let rule = rules::imports_go_down;
    holds(rule);
    sees(rule, "src/logic/a.rs", "use crate::wire::json;", 1);
    sees(rule, "src/wire/a.rs", "use crate::shared::counters;", 1);
    sees(rule, "src/ops/a.rs", "use crate::net::ring;", 1);
    sees(rule, "src/net/a.rs", "fn f() { crate::ops::log::say() }", 1);
    sees(rule, "src/net/a.rs", "use crate::{logic::call, ops::log};", 1);
    sees(rule, "src/net/a.rs", "use super::super::ops;", 1);
    sees(rule, "src/boot.rs", "use crate::demo::run;", 1);
    sees(rule, "src/attic/a.rs", "", 1);
    sees(rule, "src/net/a.rs", "use crate::wire::json; use crate::net::b; use crate::shared::c; // crate::ops", 0);
}

#[test]
fn the_kernel_and_the_clock_have_one_door_each() {
    let rule = rules::the_kernel_and_the_clock_have_one_door_each;
    holds(rule);
    sees(rule, "src/net/a.rs", "use io_uring::IoUring;", 1);
    sees(rule, "src/boot.rs", "use io_uring::IoUring;", 1);
    sees(rule, "src/net/stream.rs", "rustix::event::epoll::create(flags)", 1);
    sees(rule, "src/net/stream.rs", "use crate::net::epoll::Epoll;", 0);
    sees(rule, "src/net/uring.rs", "use io_uring::IoUring; fn now() { Instant::now(); }", 1);
    sees(rule, "src/shared/a.rs", "let now = std::time::Instant::now();", 1);
    sees(rule, "src/config/a.rs", "let now = SystemTime::now();", 1);
    sees(rule, "src/net/ring.rs", "fn now() { Instant::now(); }", 0);
    sees(rule, "src/ops/a.rs", "let now = Instant::now();", 0);
}

#[test]
fn unsafe_stands_in_few_files_and_says_why() {
    let rule = rules::unsafe_is_rare_and_says_why;
    holds(rule);
    sees(rule, "src/net/pool.rs", "// SAFETY: no.\nunsafe { f() }", 1);
    sees(rule, "tests/a.rs", "unsafe { f() }", 1);
    sees(rule, "src/net/uring.rs", "let x = 1;\nunsafe { f() }", 1);
    sees(rule, "src/net/uring.rs", "// SAFETY: far away.\nlet x = 1;\nunsafe { f() }", 1);
    sees(rule, "src/net/uring.rs", "// SAFETY: the fd\n// is open.\n#[inline]\nunsafe { f() }", 0);
    sees(rule, "src/net/pool.rs", "// unsafe\nlet x = \"unsafe\"; let y = unsafe_code;", 0);
}

#[test]
fn atomics_live_in_shared_only() {
    let rule = rules::atomics_live_in_shared;
    holds(rule);
    sees(rule, "src/net/a.rs", "use std::sync::atomic::AtomicU64;", 1);
    sees(rule, "src/ops/a.rs", "static FLAG: AtomicBool = x;", 1);
    sees(rule, "src/shared/a.rs", "use std::sync::atomic::AtomicU64;", 0);
    sees(rule, "src/boot.rs", "use std::sync::atomic::AtomicBool;", 0);
}

#[test]
fn logic_has_no_clock_fd_thread_atomic_async_or_unsafe() {
    let rule = rules::logic_touches_nothing;
    holds(rule);
    for text in [
        "async fn f() {}",
        "use std::thread;",
        "use std::sync::Mutex;",
        "use std::fs;",
        "fn f() { unsafe { g() } }",
        "let now = Instant::now();",
        "use std::cell::RefCell;",
    ] {
        sees(rule, "src/logic/a.rs", text, 1);
    }
    sees(rule, "src/logic/a.rs", "// no async\n#[cfg(test)]\nmod tests { use std::cell::RefCell; }\n", 0);
}

#[test]
fn every_file_starts_with_its_job() {
    let rule = |sources: &[Source]| rules::every_file_says_its_job(sources, &[]);
    holds(|sources| rules::every_file_says_its_job(sources, WITHOUT_JOB));
    sees(rule, "src/net/a.rs", "use std::fmt;", 1);
    sees(rule, "src/net/a.rs", "//! Sockets.\n", 1);
    sees(rule, "src/net/a.rs", "\n//! Sockets, and what happens when they break.\n", 1);
    sees(rule, "src/net/a.rs", "//! Sockets, and what happens when they break.\n", 0);
}

#[test]
fn files_and_functions_stay_small() {
    let rule = |sources: &[Source]| rules::small(sources, &[]);
    holds(|sources| rules::small(sources, ALLOWED_LENGTHS));
    let lines = |count: usize| "    let a = '{';\n".repeat(count);
    sees(rule, "src/net/a.rs", &format!("fn f() {{\n{}}}\n", lines(69)), 1);
    sees(rule, "src/net/a.rs", &format!("fn f() {{\n{}}}\n", lines(68)), 0);
    sees(rule, "src/net/a.rs", &"// a line\n".repeat(601), 1);
    sees(rule, "src/net/a.rs", &"// a line\n".repeat(600), 0);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}\n{}}}\n", lines(400), "\n".repeat(300));
    sees(rule, "src/net/a.rs", &format!("{}{tests}", "// a line\n".repeat(590)), 0);
    sees(rule, "src/net/a.rs", &format!("{}{tests}", "// a line\n".repeat(610)), 1);
    let long = Source::new("src/net/a.rs", &"// a line\n".repeat(610));
    assert_eq!(rules::small(&[long], &[("src/net/a.rs", 611)]).len(), 1, "the list says more than is true");
    assert_eq!(rules::small(&[], &[("src/net/a.rs", 611)]).len(), 1, "the list names what is short now");
}

#[test]
fn names_say_what_is_inside() {
    let rule = rules::names_say_something;
    holds(rule);
    sees(rule, "src/net/util.rs", "", 1);
    sees(rule, "src/common/a.rs", "", 1);
    sees(rule, "src/net/mod.rs", "", 1);
    sees(rule, "src/lib.rs", "pub mod helpers { }", 1);
    sees(rule, "src/lib.rs", "pub mod utilities;", 0);
}

#[test]
fn nothing_is_left_open() {
    let rule = rules::nothing_is_left_open;
    holds(rule);
    sees(rule, "src/net/a.rs", "fn f() { todo!() } fn g() { unimplemented!() } fn h() { dbg!(1) }", 3);
    sees(rule, "tests/a.rs", "#[test]\n#[ignore]\nfn f() {}", 1);
    sees(rule, "src/net/a.rs", "// todo! \nlet x = \"dbg!\";", 0);
}

#[test]
fn every_file_is_on_the_floor_plan() {
    holds(rules::every_file_is_on_the_floor_plan);
    let plan = || Source::new("src/lib.rs", "pub mod net { pub mod ring; } // pub mod pool;");
    let file = |path| Source::new(path, "");
    assert_eq!(rules::every_file_is_on_the_floor_plan(&[plan(), file("src/net/pool.rs")]).len(), 1);
    assert_eq!(rules::every_file_is_on_the_floor_plan(&[plan(), file("src/net/ring.rs")]).len(), 0);
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = ["src", "tests", "bench", "loadtest/src", "config", "Cargo.toml", "clippy.toml", "README.md", ".ci"];
    let endings = [".rs", ".toml", ".md", ".sh", ".yml", ".yaml", ".csv"];
    let present: Vec<&str> = places.into_iter().filter(|place| root.join(place).exists()).collect();
    let found = files(root, &present, &endings);
    let wrong = rules::no_foreign_words(&found);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let planted = [("a.rs".to_owned(), format!("// see {}x/y", concat!("/wo", "rk/")))];
    assert_eq!(rules::no_foreign_words(&planted).len(), 1);
}

#[test]
fn comments_and_strings_are_no_code() {
    let text = r##"let a = "fn x() { \" }"; let b = r#"un"safe"#; let c = '"'; let d = '\''; /* { /* } */ { */ fn e<'a>() {}"##;
    let source = Source::new("src/net/a.rs", text);
    assert_eq!(source.code.len(), text.len());
    let left: String = source.code.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(left, "let a = ; let b = ; let c = ; let d = ; fn e<'a>() {}");
    assert_eq!(source.functions(), [("e".to_owned(), 1, 1)]);
}
