//! How whole CPUs spent their time, in ticks of 10 ms as /proc/stat counts them: also what no process is charged with.

use std::{
    fs,
    io::{self, ErrorKind},
};

/// The fields of a CPU's line, in order, as far as they are told.
const FIELDS: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// The counts of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    number: u32,
    ticks: [u64; FIELDS.len()],
}

impl Core {
    /// What passed since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut ticks = self.ticks;
        for (now, before) in ticks.iter_mut().zip(before.ticks) {
            *now = now.saturating_sub(before);
        }
        Self { number: self.number, ticks }
    }

    /// As an object of JSON.
    pub fn json(&self) -> String {
        let told: Vec<String> =
            FIELDS.iter().zip(self.ticks).map(|(name, ticks)| format!("\"{name}\":{ticks}")).collect();
        format!("{{\"core\":{},{}}}", self.number, told.join(","))
    }
}

/// Reads the counts of the CPUs with these numbers.
pub fn read(numbers: &[u32]) -> io::Result<Vec<Core>> {
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string("/proc/stat")?;
    let found = |number: &u32| {
        find(&text, *number)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("no counts of CPU {number} in /proc/stat")))
    };
    numbers.iter().map(found).collect()
}

fn find(stat: &str, number: u32) -> Option<Core> {
    let name = format!("cpu{number}");
    let line = stat.lines().find(|line| line.split_ascii_whitespace().next() == Some(name.as_str()))?;
    let mut fields = line.split_ascii_whitespace().skip(1);
    let mut ticks = [0; FIELDS.len()];
    for tick in &mut ticks {
        *tick = fields.next()?.parse().ok()?;
    }
    Some(Core { number, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_found_by_its_whole_number() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu11 11 0 0 0 0 0 0 0 0 0\nintr 1\n";
        let one = find(stat, 1).unwrap();
        assert_eq!(one.ticks, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(find(stat, 11).unwrap().ticks[0], 11);
        assert_eq!(find(stat, 2), None);
        assert_eq!(find("cpu0 1 2 3\n", 0), None);
    }

    #[test]
    fn a_difference_is_told_by_name() {
        let core = |user, idle| Core { number: 3, ticks: [user, 0, 0, idle, 0, 0, 0, 0] };
        let json = core(15, 40).since(&core(10, 50)).json();
        let told = r#"{"core":3,"user":5,"nice":0,"system":0,"idle":0,"iowait":0,"irq":0,"softirq":0,"steal":0}"#;
        assert_eq!(json, told);
    }

    #[test]
    fn this_machine_has_a_first_cpu_and_no_last() {
        assert!(read(&[0]).unwrap()[0].ticks.iter().sum::<u64>() > 0);
        assert!(read(&[u32::MAX]).is_err());
        assert_eq!(read(&[]).unwrap(), []);
    }
}
