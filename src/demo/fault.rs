//! What can be done to a simulated node from the command line, and when.

use super::fleet::{self, NODES};

/// How a node misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It takes requests and never answers.
    Timeout,
    /// Its port is closed.
    Refuse,
    /// It resets the connection on each request.
    Reset,
    /// It answers HTTP 500.
    Error,
    /// It answers HTTP 429.
    Busy,
    /// It answers with an id that was not asked.
    WrongId,
    /// It takes two seconds.
    Slow,
    /// It answers with a web page.
    Html,
    /// Its chain stands still.
    Frozen,
    /// It shows blocks of its own.
    Fork,
}

impl Kind {
    /// All kinds, in the order of the help text.
    pub const ALL: [Kind; 10] = [
        Kind::Timeout,
        Kind::Refuse,
        Kind::Reset,
        Kind::Error,
        Kind::Busy,
        Kind::WrongId,
        Kind::Slow,
        Kind::Html,
        Kind::Frozen,
        Kind::Fork,
    ];

    /// The word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Timeout => "timeout",
            Kind::Refuse => "refuse",
            Kind::Reset => "reset",
            Kind::Error => "error",
            Kind::Busy => "busy",
            Kind::WrongId => "wrong-id",
            Kind::Slow => "slow",
            Kind::Html => "html",
            Kind::Frozen => "frozen",
            Kind::Fork => "fork",
        }
    }

    /// What the node does, after its name.
    pub const fn does(self) -> &'static str {
        match self {
            Kind::Timeout => "accepts requests and never answers",
            Kind::Refuse => "refuses connections",
            Kind::Reset => "resets its connections",
            Kind::Error => "answers HTTP 500",
            Kind::Busy => "answers HTTP 429 (busy)",
            Kind::WrongId => "answers with wrong ids",
            Kind::Slow => "takes 2 s for an answer",
            Kind::Html => "answers with web pages",
            Kind::Frozen => "stands still: it sees no new blocks",
            Kind::Fork => "goes its own way: other blocks than the others",
        }
    }
}

/// One `--fault NAME=KIND[@FROM[-TO]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// Which node.
    pub node: &'static str,
    /// What it does.
    pub kind: Kind,
    /// From this second on.
    pub from_s: u64,
    /// Until this second, or until the end.
    pub to_s: Option<u64>,
}

impl Injection {
    /// Reads one; the error is for people, and names what would be right.
    pub fn parse(text: &str) -> Result<Injection, String> {
        let shape = "write NAME=KIND, like geth-1=timeout, geth-1=timeout@5 or geth-1=timeout@5-20";
        let (name, rest) = text.split_once('=').ok_or_else(|| format!("no `=`; {shape}"))?;
        let (kind, times) = rest.split_once('@').map_or((rest, None), |(kind, times)| (kind, Some(times)));
        let node = fleet::known(name).ok_or_else(|| {
            let names = NODES.map(|node| node.id).join(", ");
            format!("there is no node `{name}`; the nodes are {names}")
        })?;
        let kind = Kind::ALL.into_iter().find(|known| known.word() == kind).ok_or_else(|| {
            let kinds = Kind::ALL.map(Kind::word).join(", ");
            format!("there is no fault `{kind}`; the faults are {kinds}")
        })?;
        let (from_s, to_s) = match times {
            None => (0, None),
            Some(times) => window(times)?,
        };
        Ok(Injection { node: node.id, kind, from_s, to_s })
    }

    fn active(&self, second: u64) -> bool {
        self.from_s <= second && self.to_s.is_none_or(|to| second < to)
    }

    /// The words for when it happens.
    pub fn when(&self) -> String {
        match (self.from_s, self.to_s) {
            (0, None) => "all the time".into(),
            (from, None) => format!("from second {from} on"),
            (from, Some(to)) => format!("from second {from} to {to}"),
        }
    }
}

fn window(times: &str) -> Result<(u64, Option<u64>), String> {
    let second = |text: &str| {
        let number = text.parse::<u32>().map_err(|_| format!("`{text}` is no number of seconds, like 5"))?;
        Ok::<u64, String>(number.into())
    };
    let Some((from, to)) = times.split_once('-') else { return Ok((second(times)?, None)) };
    let (from, to) = (second(from)?, second(to)?);
    if to <= from {
        return Err(format!("it would end at second {to}, but start at {from}"));
    }
    Ok((from, Some(to)))
}

/// What a node does at this second: of several the last one that was given.
pub fn at(faults: &[Injection], node: &str, second: u64) -> Option<Kind> {
    faults.iter().rev().find(|fault| fault.node == node && fault.active(second)).map(|fault| fault.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Injection {
        Injection::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_kind_is_read_by_its_word() {
        for kind in Kind::ALL {
            let read = parse(&format!("reth-1={}", kind.word()));
            assert_eq!(read, Injection { node: "reth-1", kind, from_s: 0, to_s: None });
        }
    }

    #[test]
    fn times_bound_it() {
        assert_eq!((parse("geth-1=slow@7").from_s, parse("geth-1=slow@7").to_s), (7, None));
        assert_eq!((parse("geth-1=slow@7-9").from_s, parse("geth-1=slow@7-9").to_s), (7, Some(9)));
        let faults = [parse("geth-1=error"), parse("geth-1=busy@2-4")];
        let seen: Vec<_> = (0..6).map(|second| at(&faults, "geth-1", second)).collect();
        let (error, busy) = (Some(Kind::Error), Some(Kind::Busy));
        assert_eq!(seen, [error, error, busy, busy, error, error]);
        assert_eq!(at(&faults, "reth-1", 3), None);
    }

    #[test]
    fn a_wrong_one_is_told_what_would_be_right() {
        for (text, words) in [
            ("geth-1", "geth-1=timeout@5-20"),
            ("geth=timeout", "geth-1, reth-1, erigon-1"),
            ("geth-1=explode", "timeout, refuse, reset, error, busy, wrong-id, slow, html, frozen, fork"),
            ("geth-1=", "timeout, refuse"),
            ("geth-1=timeout@", "no number of seconds"),
            ("geth-1=timeout@-5", "no number of seconds"),
            ("geth-1=timeout@1-x", "`x` is no number"),
            ("geth-1=timeout@99999999999", "no number of seconds"),
            ("geth-1=timeout@9-9", "end at second 9, but start at 9"),
        ] {
            let error = Injection::parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
