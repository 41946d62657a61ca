//! Would the checks see a bug? Each bug of `tests/planted/list.rs` and `honesty.rs` is planted in a copy of `src/logic`,
//! compiled alone, and must be caught by the checks that the list names.
//!
//! A bug whose text no longer stands in its file exactly once fails the run, so the list can't rot.
//! `PLANTED=name` runs one bug.

mod planted {
    pub mod honesty;
    pub mod list;
    pub mod scratch;
}

use planted::honesty::HONESTY;
use planted::list::{BUGS, Bug, Catches};
use planted::scratch::{Outcome, Scratch};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// All of them.
fn all() -> impl Iterator<Item = &'static Bug> {
    BUGS.iter().chain(HONESTY)
}

/// As many at a time as there are scratch crates.
const SIDE_BY_SIDE: usize = 2;

#[test]
fn every_planted_bug_is_caught_by_the_checks_that_are_named() {
    let only = std::env::var("PLANTED").ok();
    let bugs: Vec<&Bug> = all().filter(|bug| only.as_deref().is_none_or(|name| name == bug.name)).collect();
    assert!(!bugs.is_empty(), "no planted bug is called {only:?}");
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for at in 0..SIDE_BY_SIDE {
            let (next, wrong, bugs) = (&next, &wrong, &bugs);
            scope.spawn(move || {
                let scratch = Scratch::new(at);
                if at == 0 {
                    note(wrong, "the unmodified copy", sound(&scratch));
                }
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    note(wrong, bug.name, plant(&scratch, bug));
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no thread panicked");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn note(wrong: &Mutex<Vec<String>>, name: &str, result: Result<String, String>) {
    match result {
        Ok(how) => {
            let _ = writeln!(std::io::stderr(), "{name}: {how}");
        }
        Err(why) => wrong.lock().expect("no thread panicked").push(format!("{name}: {why}")),
    }
}

/// Without a bug both checks pass: else every bug would count as caught.
fn sound(scratch: &Scratch) -> Result<String, String> {
    scratch.restore();
    let built = scratch.compile()?;
    for (check, outcome) in [("simulation", built.simulate()), ("unit tests", built.unit_tests())] {
        if let Outcome::Caught(how) = outcome {
            return Err(format!("{check}: {how}"));
        }
    }
    Ok("passes".into())
}

fn plant(scratch: &Scratch, bug: &Bug) -> Result<String, String> {
    scratch.restore();
    scratch.replace(bug)?;
    let built = scratch.compile()?;
    let (simulation, unit_tests) = (built.simulate(), built.unit_tests());
    let (by_simulation, by_unit_tests) = match bug.must {
        Catches::Simulation => (true, false),
        Catches::UnitTests => (false, true),
        Catches::Both => (true, true),
    };
    match (&simulation, &unit_tests) {
        (Outcome::Passed, _) if by_simulation => Err("the simulation did not see it".into()),
        (_, Outcome::Passed) if by_unit_tests => Err("the unit tests did not see it".into()),
        _ => Ok(format!("simulation: {simulation}; unit tests: {unit_tests}")),
    }
}

/// The table for people says what the list says.
#[test]
fn the_table_of_planted_bugs_is_the_list() {
    let readme = include_str!("planted/README.md");
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = all()
        .map(|bug| format!("| `{}` | `{}` | {} | {} |", bug.name, bug.file, bug.breaks, bug.must.words()))
        .collect();
    assert_eq!(rows, expected, "the table should read:\n{}", expected.join("\n"));
    let mut names: Vec<&str> = all().map(|bug| bug.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all().count(), "two planted bugs have one name");
    // Whatever the unit tests see: the machine and the Circuit are the simulation's to watch.
    let watched = |bug: &&Bug| matches!(bug.file, "failover.rs" | "circuit.rs");
    assert!(all().filter(watched).count() >= 14);
}
