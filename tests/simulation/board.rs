//! The Circuits of the simulated world: words moved by `logic::circuit` only, and beside each word a
//! shadow that follows the contract by itself. Where they part, something is wrong.
//!
//! Shards meet here as they do at the shared board: a word is loaded at one moment and swapped at a later
//! one, and other shards may have been there in between.

use ringway::logic::circuit::{Admission, State, Streak, Word};
use ringway::logic::failover::World;
use ringway::logic::snapshot::{CircuitRule, EndpointIx, TARGETS_MAX};
use ringway::logic::units::{MS, Nanos};
use ringway::logic::verdict::CircuitNote;
use std::cell::RefCell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Closed,
    Open,
    Probing { permit: u64 },
}

/// What the contract says that the Circuit is.
#[derive(Debug, Clone, Copy)]
struct Shadow {
    kind: Kind,
    until_ns: Nanos,
    /// The permit's end before it was rounded up to a whole ms.
    permit_end_ns: Nanos,
    /// How often it opened in a row.
    openings: u32,
    /// Failures since the last success.
    failures: u32,
}

/// A permit to probe, as its holder knows it.
#[derive(Debug, Clone, Copy)]
pub struct Permit {
    word: Word,
    number: u64,
}

/// A swap that a shard has prepared and not yet done: the Circuit opens if nobody else was there.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    pub endpoint: EndpointIx,
    old: Word,
    new: Word,
    at_ns: Nanos,
}

/// What a shard saw when it went for the permit.
#[derive(Debug, Clone, Copy)]
pub enum Glimpse {
    /// No permit is needed any more.
    Closed,
    Rejected(Nanos),
    /// Half-open: swap this word.
    HalfOpen(Word),
}

#[derive(Debug)]
struct Circuit {
    rule: CircuitRule,
    word: Word,
    streak: Streak,
    /// One counter a shard.
    successes: Vec<u64>,
    last_success_ns: Option<Nanos>,
    shadow: Shadow,
}

/// What happened to all Circuits, to show that the simulation was there.
#[derive(Debug, Default, Clone, Copy)]
pub struct Passed {
    pub trips: u64,
    pub probes: u64,
    pub races_lost: u64,
    pub closed: u64,
    pub reopened: u64,
    pub returned: u64,
    pub expired: u64,
    pub doublings_most: u32,
    /// Cooldowns that jitter made clearly shorter.
    pub shortened: u64,
}

impl Passed {
    /// Cooldowns within ±10 % are under 97 % in about every third case.
    pub fn objection(&self) -> Option<String> {
        let uniform = self.reopened >= 200 && self.shortened < self.reopened / 10;
        uniform.then(|| format!("cooldowns have no jitter: {} of {} shortened", self.shortened, self.reopened))
    }

    pub fn add(&mut self, other: &Passed) {
        self.trips += other.trips;
        self.probes += other.probes;
        self.races_lost += other.races_lost;
        self.closed += other.closed;
        self.reopened += other.reopened;
        self.returned += other.returned;
        self.expired += other.expired;
        self.shortened += other.shortened;
        self.doublings_most = self.doublings_most.max(other.doublings_most);
    }
}

pub struct Board {
    circuits: Vec<Circuit>,
    permits: u64,
    pub passed: Passed,
    /// Admissions that the machine asked for since they were last taken.
    pub asked: RefCell<Vec<(EndpointIx, Admission)>>,
    /// What did not agree, first.
    wrong: RefCell<Option<String>>,
}

type Checked<T> = Result<T, String>;

impl World for Board {
    fn admission(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        let circuit = &self.circuits[usize::from(endpoint.0)];
        let said = circuit.word.admission(now_ns);
        let right = circuit.shadow.admission(now_ns);
        if said != right {
            let wrong = format!("{endpoint:?} says {said:?}, and it is {right:?} ({:?})", circuit.shadow);
            self.wrong.borrow_mut().get_or_insert(wrong);
        }
        let mut asked = self.asked.borrow_mut();
        asked.push((endpoint, said));
        assert!(asked.len() <= 4 * TARGETS_MAX, "violation: the machine asks without end");
        said
    }
}

impl Board {
    pub fn new(rules: Vec<CircuitRule>, shards: usize) -> Board {
        let shadow = Shadow { kind: Kind::Closed, until_ns: 0, permit_end_ns: 0, openings: 0, failures: 0 };
        let circuit = |rule| Circuit {
            rule,
            word: Word::default(),
            streak: Streak::default(),
            successes: vec![0; shards],
            last_success_ns: None,
            shadow,
        };
        Board {
            circuits: rules.into_iter().map(circuit).collect(),
            permits: 0,
            passed: Passed::default(),
            asked: RefCell::default(),
            wrong: RefCell::default(),
        }
    }

    /// An admission that did not agree with the shadow, if there was one.
    pub fn verdict(&self) -> Checked<()> {
        self.wrong.borrow().clone().map_or(Ok(()), Err)
    }

    /// What the contract says that the Circuit says now.
    pub fn right(&self, endpoint: EndpointIx, now_ns: Nanos) -> Admission {
        self.circuits[usize::from(endpoint.0)].shadow.admission(now_ns)
    }

    pub fn is_closed(&self, endpoint: usize) -> bool {
        matches!(self.circuits[endpoint].word.state(), State::Closed)
    }

    pub fn endpoints(&self) -> usize {
        self.circuits.len()
    }

    /// First half of taking the permit.
    pub fn glimpse(&self, endpoint: EndpointIx, now_ns: Nanos) -> Checked<Glimpse> {
        let circuit = &self.circuits[usize::from(endpoint.0)];
        let said = circuit.word.admission(now_ns);
        if said != circuit.shadow.admission(now_ns) {
            return Err(format!("{endpoint:?} says {said:?}, its shadow {:?}", circuit.shadow));
        }
        Ok(match said {
            Admission::Admit => Glimpse::Closed,
            Admission::Reject { until_ns } => Glimpse::Rejected(until_ns),
            Admission::Probe => Glimpse::HalfOpen(circuit.word),
        })
    }

    /// Second half: swaps the word for the permit, if nobody was faster.
    pub fn take(&mut self, endpoint: EndpointIx, old: Word, until_ns: Nanos, now_ns: Nanos) -> Checked<Option<Permit>> {
        let circuit = &mut self.circuits[usize::from(endpoint.0)];
        if circuit.word != old {
            self.passed.races_lost += 1;
            return Ok(None);
        }
        let shadow = circuit.shadow;
        if shadow.kind == Kind::Closed || shadow.until_ns > now_ns {
            return Err(format!("{endpoint:?}: a permit was given out while {shadow:?}, at {now_ns}"));
        }
        self.permits += 1;
        self.passed.probes += 1;
        circuit.word = old.probe(until_ns);
        let State::Probing { until_ns: until } = circuit.word.state() else {
            return Err(format!("{endpoint:?}: a permit was taken, and it is {:?}", circuit.word.state()));
        };
        within(until, until_ns, until_ns).map_err(|why| format!("{endpoint:?}: the permit's end {why}"))?;
        let kind = Kind::Probing { permit: self.permits };
        circuit.shadow = Shadow { kind, until_ns: until, permit_end_ns: until_ns, ..shadow };
        Ok(Some(Permit { word: circuit.word, number: self.permits }))
    }

    /// What an attempt says about its Endpoint. `split`: a swap that would open the Circuit is handed back,
    /// to be done a little later.
    pub fn note(
        &mut self,
        (endpoint, shard): (EndpointIx, usize),
        note: CircuitNote,
        permit: Option<Permit>,
        (now_ns, jitter): (Nanos, f64),
        split: bool,
    ) -> Checked<Option<Trip>> {
        let circuit = &mut self.circuits[usize::from(endpoint.0)];
        let recently = circuit.last_success_ns.is_some_and(|last| now_ns - last <= circuit.rule.window_ns);
        let failed = match note {
            CircuitNote::Failure => true,
            CircuitNote::FailureIfNoRecentSuccess => !recently,
            CircuitNote::Success | CircuitNote::Nothing => false,
        };
        if note == CircuitNote::Success {
            circuit.successes[shard] += 1;
            circuit.last_success_ns = Some(now_ns);
            circuit.shadow.failures = 0;
        }
        match permit {
            Some(permit) => {
                circuit.probe_ended(permit, failed, note, (now_ns, jitter), &mut self.passed).map(|()| None)
            }
            None if failed => {
                let trip = circuit.failed(endpoint, now_ns, jitter)?;
                match trip {
                    Some(trip) if !split => self.trip(trip).map(|()| None),
                    other => Ok(other),
                }
            }
            None => Ok(None),
        }
        .map_err(|why| format!("{endpoint:?}: {why}"))
    }

    /// Opens a Circuit, unless its word has changed since.
    pub fn trip(&mut self, trip: Trip) -> Checked<()> {
        let circuit = &mut self.circuits[usize::from(trip.endpoint.0)];
        if circuit.word != trip.old {
            return Ok(());
        }
        circuit.word = trip.new;
        let State::Open { until_ns } = trip.new.state() else {
            return Err(format!("tripped, and it is {:?}", trip.new.state()));
        };
        let end_ns = trip.at_ns + circuit.rule.cooldown_ns;
        within(until_ns, end_ns, end_ns).map_err(|why| format!("the first cooldown's end {why}"))?;
        circuit.shadow = Shadow { kind: Kind::Open, until_ns, openings: 1, ..circuit.shadow };
        self.passed.trips += 1;
        Ok(())
    }
}

impl Shadow {
    fn admission(&self, now_ns: Nanos) -> Admission {
        match self.kind {
            Kind::Closed => Admission::Admit,
            Kind::Open | Kind::Probing { .. } if self.until_ns > now_ns => {
                Admission::Reject { until_ns: self.until_ns }
            }
            Kind::Open | Kind::Probing { .. } => Admission::Probe,
        }
    }
}

impl Circuit {
    fn failed(&mut self, endpoint: EndpointIx, now_ns: Nanos, jitter: f64) -> Checked<Option<Trip>> {
        self.streak = self.streak.failed(self.successes.iter().sum());
        self.shadow.failures += 1;
        let (counted, right) = (self.streak.failures(), u64::from(self.shadow.failures));
        if counted != right {
            return Err(format!("{counted} failures in a row, and there were {right}"));
        }
        if right < u64::from(self.rule.consecutive_failures) || self.shadow.kind != Kind::Closed {
            return Ok(None);
        }
        let new = self.word.trip(&self.rule, now_ns, jitter);
        Ok(Some(Trip { endpoint, old: self.word, new, at_ns: now_ns }))
    }

    fn probe_ended(
        &mut self,
        permit: Permit,
        failed: bool,
        note: CircuitNote,
        (now_ns, jitter): (Nanos, f64),
        passed: &mut Passed,
    ) -> Checked<()> {
        let next = match (failed, note) {
            (true, _) => self.word.probe_failed(permit.word, &self.rule, now_ns, jitter),
            (false, CircuitNote::Success) => self.word.probe_succeeded(permit.word, now_ns),
            (false, _) => self.word.probe_returned(permit.word, now_ns),
        };
        let held = self.shadow.kind == Kind::Probing { permit: permit.number };
        let Some(next) = next else {
            passed.expired += 1;
            return match held && now_ns <= self.shadow.permit_end_ns {
                true => Err(format!("the result under a valid permit was ignored at {now_ns}: {:?}", self.shadow)),
                false => Ok(()),
            };
        };
        if !held || now_ns > self.shadow.until_ns {
            return Err(format!("a result under an expired permit counted at {now_ns}: {:?}", self.shadow));
        }
        self.word = next;
        let mut shadow = Shadow { kind: Kind::Open, ..self.shadow };
        match (failed, note, next.state()) {
            (true, _, State::Open { until_ns }) => {
                shadow.openings += 1;
                let longest_ns = self.rule.max_cooldown_ns.max(self.rule.cooldown_ns);
                let doubled = u128::from(self.rule.cooldown_ns) << (shadow.openings - 1).min(40);
                let full_ns = doubled.min(u128::from(longest_ns)) as Nanos;
                let (least, most) = (full_ns / 10 * 9, (full_ns / 10 * 11 + 9).min(longest_ns));
                within(until_ns, now_ns + least.saturating_sub(9), now_ns + most)
                    .map_err(|why| format!("cooldown number {} {why}", shadow.openings))?;
                shadow.until_ns = until_ns;
                passed.reopened += 1;
                passed.shortened += u64::from(until_ns - now_ns < full_ns / 100 * 97);
                passed.doublings_most = passed.doublings_most.max(shadow.openings - 1);
            }
            (false, CircuitNote::Success, State::Closed) => {
                shadow.kind = Kind::Closed;
                shadow.openings = 0;
                self.streak = Streak::default();
                passed.closed += 1;
            }
            (false, CircuitNote::Nothing | CircuitNote::FailureIfNoRecentSuccess, State::Open { until_ns }) => {
                within(until_ns, now_ns, now_ns).map_err(|why| format!("a returned permit {why}"))?;
                shadow.until_ns = until_ns;
                passed.returned += 1;
            }
            (_, _, state) => return Err(format!("a probe ended with {note:?}, and it is {state:?}")),
        }
        self.shadow = shadow;
        Ok(())
    }
}

/// Times in a word are whole ms, rounded up.
fn within(found_ns: Nanos, least_ns: Nanos, most_ns: Nanos) -> Checked<()> {
    let fits = found_ns >= least_ns && found_ns < most_ns + MS;
    fits.then_some(()).ok_or_else(|| format!("is {found_ns}, not within {least_ns}..={most_ns}"))
}
