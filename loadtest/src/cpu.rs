//! How much CPU time other processes used: the sum over all their threads, as the scheduler counted it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, ErrorKind},
};

/// The counts of some processes at one time.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    threads: BTreeMap<(u32, u32), Run>,
    user_ticks: u64,
    system_ticks: u64,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    on_cpu_ns: u64,
    waited_ns: u64,
}

/// What was used between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time ready to run without a CPU: what else ran on the machine.
    pub waited_ns: u64,
    /// User time, in ticks of 10 ms.
    pub user_ticks: u64,
    /// Kernel time, in ticks of 10 ms.
    pub system_ticks: u64,
    /// Threads at the end.
    pub threads: usize,
    /// Threads that ended in between: their time is lost, so `on_cpu_ns` is too low.
    pub threads_lost: usize,
}

impl Snapshot {
    /// Reads the counts of the given processes.
    pub fn of(pids: &[u32]) -> io::Result<Self> {
        let mut snapshot = Self::default();
        for pid in pids.iter().copied().collect::<BTreeSet<u32>>() {
            snapshot.add(pid)?;
        }
        Ok(snapshot)
    }

    /// What was used since `before`.
    pub fn since(&self, before: &Self) -> Used {
        let mut used = Used {
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            threads: self.threads.len(),
            ..Used::default()
        };
        for (thread, run) in &self.threads {
            let (on_cpu, waited) = before.threads.get(thread).map_or((0, 0), |run| (run.on_cpu_ns, run.waited_ns));
            used.on_cpu_ns += run.on_cpu_ns.saturating_sub(on_cpu);
            used.waited_ns += run.waited_ns.saturating_sub(waited);
        }
        used.threads_lost = before.threads.keys().filter(|thread| !self.threads.contains_key(thread)).count();
        used
    }

    fn add(&mut self, pid: u32) -> io::Result<()> {
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let entry = entry?;
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match fs::read_to_string(entry.path().join("schedstat")) {
                Ok(text) => {
                    self.threads.insert((pid, tid), run(&text).ok_or_else(|| unreadable("schedstat"))?);
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (user, system) = ticks(&stat).ok_or_else(|| unreadable("stat"))?;
        self.user_ticks += user;
        self.system_ticks += system;
        Ok(())
    }
}

/// The thread ended while we looked: before its file was opened, or between that and reading it.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn unreadable(file: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("cannot read the counts in /proc/PID/{file}"))
}

/// Reads `schedstat`: time on CPU, time waiting, time slices.
fn run(schedstat: &str) -> Option<Run> {
    let mut fields = schedstat.split_ascii_whitespace();
    Some(Run { on_cpu_ns: fields.next()?.parse().ok()?, waited_ns: fields.next()?.parse().ok()? })
}

/// Reads user and system time of `stat`, where the name in brackets may hold anything.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{process, sync::mpsc::channel, thread, time::Instant};

    use super::*;

    #[test]
    fn work_on_any_thread_is_counted() {
        let (begin, begun) = channel::<()>();
        let (done, finished) = channel();
        let worker = thread::spawn(move || {
            begun.recv().unwrap();
            let start = Instant::now();
            let mut sum = 0u64;
            while start.elapsed().as_millis() < 60 {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
            done.send(sum).unwrap();
            // Stays until the second look: a thread that is gone is a lost one.
            let _ = begun.recv();
        });
        let before = Snapshot::of(&[process::id()]).unwrap();
        begin.send(()).unwrap();
        finished.recv().unwrap();
        let used = Snapshot::of(&[process::id(), process::id()]).unwrap().since(&before);
        drop(begin);
        worker.join().unwrap();
        // Other tests may run, and the machine may be busy: the least that it must show.
        assert!(used.on_cpu_ns > 1_000_000, "{used:?}");
        assert!(used.threads >= 2, "{used:?}");
    }

    #[test]
    fn a_thread_that_ends_is_lost_and_a_new_one_counts_whole() {
        let run = |on_cpu_ns| Run { on_cpu_ns, waited_ns: 1 };
        let of = |threads: &[(u32, u64)]| Snapshot {
            threads: threads.iter().map(|(tid, ns)| ((1, *tid), run(*ns))).collect(),
            ..Snapshot::default()
        };
        let used = of(&[(1, 150), (3, 7)]).since(&of(&[(1, 100), (2, 50)]));
        assert_eq!((used.on_cpu_ns, used.waited_ns), (57, 1));
        assert_eq!((used.threads, used.threads_lost), (2, 1));
    }

    #[test]
    fn a_name_with_brackets_and_blanks_is_skipped() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 55 66 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some((55, 66)));
    }

    #[test]
    fn threads_may_end_while_they_are_looked_at() {
        let (stop, stopped) = channel::<()>();
        let churn = thread::spawn(move || {
            while stopped.try_recv().is_err() {
                thread::spawn(|| {}).join().unwrap();
            }
        });
        for _ in 0..2000 {
            Snapshot::of(&[process::id()]).unwrap();
        }
        stop.send(()).unwrap();
        churn.join().unwrap();
    }

    #[test]
    fn no_process_is_an_error() {
        assert!(Snapshot::of(&[u32::MAX]).is_err());
    }
}
