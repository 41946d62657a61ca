//! 50,000 mixed Calls through a fleet whose chain re-organises and falls back all the time, and whose nodes freeze,
//! fall back, are cut off, or answer from another branch than they say. Every answer is held against the whole
//! history, which only the test knows.
//!
//! `REORGS_SEED=` repeats the dice.

use super::fleet::{Fleet, Plan, fallbacks};
use super::fleet_node::{MARK, TIP, View, hash, read_hash, transaction};
use super::harness::{Client, Metrics, call_body};
use super::storm_node::draw;
use serde_json::Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CALLS: usize = 50_000;
const CALLERS: usize = 4;
const LETTERS: [char; 5] = ['a', 'b', 'c', 'd', 'e'];
/// How long the chain rests between two changes.
const STEP: Duration = Duration::from_millis(200);
/// So many Calls a caller makes before it waits for the next beat: all of them would be over in two seconds.
const BURST: usize = 50;
/// From beat to beat.
const BEAT: Duration = Duration::from_millis(100);

/// What the chain of the network was, from the first node that showed it to the last that did.
struct Era {
    view: View,
    from: Instant,
    until: Option<Instant>,
}

/// What is wrong with a node for a while.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// It stays where it is.
    Frozen,
    /// It fell back, and stays there.
    Fallen,
    /// It mines a branch of its own, one block behind.
    CutOff,
    /// It shows the gateway the chain, and callers a branch of its own. Two blocks behind: of a block that the gateway
    /// has not heard of yet nobody can say that it contradicts the chain.
    TwoFaced,
}

/// The network: its chain, and the nodes' faults.
struct World<'a> {
    fleet: &'a Fleet,
    seed: u64,
    main: View,
    branches: u64,
    faults: [Fault; 5],
    eras: &'a Mutex<Vec<Era>>,
    /// When nodes fell ill.
    shifts: &'a Mutex<Vec<Instant>>,
    changes: [usize; 4],
}

impl World<'_> {
    fn dice(&self, step: u64, what: u64, sides: u64) -> u64 {
        draw(self.seed, step, what, sides)
    }

    fn new_branch(&mut self) -> u64 {
        self.branches += 1;
        self.branches
    }

    fn step(&mut self, step: u64) {
        match step % 9 {
            0 => self.new_faults(step),
            6 => self.faults = [Fault::None; 5],
            _ => {}
        }
        let cut_off = self.faults.contains(&Fault::CutOff);
        // Whoever stays behind on what the others left would have the highest tip, and that is the chain.
        let quiet = self.faults == [Fault::None; 5];
        let depth = 1 + self.dice(step, 1, 4);
        let branch = self.new_branch();
        let mut next = self.main.clone();
        match self.dice(step, 2, 20) {
            // Higher than before, on another branch.
            0..=4 => {
                next.reorg(depth, branch);
                next.mine(1);
                self.changes[1] += 1;
            }
            // As high as before: most nodes decide.
            5 if !cut_off => {
                next.reorg(depth.min(2), branch);
                self.changes[2] += 1;
            }
            // Lower than before.
            6..=9 if quiet => {
                next.rollback(3);
                next.mine(1);
                next.reorg(1, branch);
                self.changes[3] += 1;
            }
            _ => {
                next.mine(1);
                self.changes[0] += 1;
            }
        }
        self.take(next);
    }

    /// The network moves on: one node after the other.
    fn take(&mut self, next: View) {
        self.eras.lock().unwrap().push(Era { view: next.clone(), from: Instant::now(), until: None });
        self.main = next;
        for (at, letter) in LETTERS.into_iter().enumerate() {
            self.fleet.node(letter).set(|state| match self.faults[at] {
                Fault::None => (state.view, state.lie) = (self.main.clone(), None),
                Fault::TwoFaced => {
                    state.view = self.main.clone();
                    state.lie.iter_mut().for_each(|lie| lie.tip = self.main.tip - 2);
                }
                Fault::CutOff => state.view.tip = state.view.tip.max(self.main.tip - 1),
                Fault::Frozen | Fault::Fallen => {}
            });
        }
        let mut eras = self.eras.lock().unwrap();
        let before = eras.len() - 2;
        eras[before].until = Some(Instant::now());
    }

    /// At most two of the four cheaper nodes have one, and the archive none.
    fn new_faults(&mut self, step: u64) {
        self.faults = [Fault::None; 5];
        self.shifts.lock().unwrap().push(Instant::now());
        let kinds = [Fault::Frozen, Fault::Fallen, Fault::CutOff, Fault::TwoFaced];
        for nth in 0..2 {
            let (at, kind) = (self.dice(step, 10 + nth, 4) as usize, kinds[self.dice(step, 20 + nth, 4) as usize]);
            // Two that are cut off could outvote nobody, but they would be two networks.
            if kind == Fault::CutOff && self.faults.contains(&Fault::CutOff) {
                continue;
            }
            let branch = self.new_branch();
            self.faults[at] = kind;
            self.fleet.node(LETTERS[at]).set(|state| {
                (state.view, state.lie) = (self.main.clone(), None);
                match kind {
                    Fault::Fallen => state.view.rollback(5),
                    Fault::CutOff => {
                        state.view.rollback(1);
                        state.view.reorg(2, branch);
                    }
                    Fault::TwoFaced => {
                        let mut lie = self.main.clone();
                        lie.rollback(2);
                        lie.reorg(3, branch);
                        state.lie = Some(lie);
                    }
                    Fault::Frozen | Fault::None => {}
                }
            });
        }
    }
}

/// What an answer says.
enum Told {
    /// Blocks by number and hash.
    Blocks(Vec<(u64, u64)>),
    /// The newest height that the node knew.
    Height(u64),
    /// Nothing that could be wrong, or what its hash asked for.
    Nothing,
}

struct Answered {
    sent: Instant,
    came: Instant,
    told: Told,
    what: String,
}

/// One Call by the dice: its method, its params, and the hash that it names.
fn call(seed: u64, nth: u64, main: &View) -> (&'static str, String, Option<String>) {
    let dice = |what, sides| draw(seed, nth, what, sides);
    let number = main.tip - dice(2, 6);
    let block = if dice(3, 3) == 0 { "\"latest\"".to_owned() } else { format!("\"{number:#x}\"") };
    let own = main.branch(number);
    match dice(1, 10) {
        0..=2 => ("eth_getBlockByNumber", format!("[{block},true]"), None),
        3 => ("eth_getBlockReceipts", format!("[{block}]"), None),
        4 => ("eth_getLogs", format!("[{{\"fromBlock\":\"{:#x}\",\"toBlock\":{block}}}]", number - 3), None),
        5 => ("eth_blockNumber", "[]".to_owned(), None),
        6 | 7 => ("eth_call", "[{},\"latest\"]".to_owned(), None),
        8 => ("eth_getBlockByHash", format!("[\"{}\",true]", hash(own, number)), Some(hash(own, number))),
        _ => {
            let name = transaction(own, number);
            ("eth_getTransactionReceipt", format!("[\"{name}\"]"), Some(hash(own, number)))
        }
    }
}

fn blocks(result: &Value) -> Vec<(u64, u64)> {
    let listed = result.as_array().map(Vec::as_slice);
    let all = listed.unwrap_or(std::slice::from_ref(result));
    let name = |one: &Value| one["blockHash"].as_str().or(one["hash"].as_str()).and_then(read_hash);
    let block = |one: &Value| {
        let (branch, number) = name(one)?;
        let said = one["blockNumber"].as_str().or(one["number"].as_str())?;
        assert_eq!(said, format!("{number:#x}"), "{one}");
        Some((branch, number))
    };
    all.iter().filter_map(block).collect()
}

fn told(method: &str, params: &str, named: Option<String>, answer: &Value) -> Told {
    let result = &answer["result"];
    assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
    match (named, method) {
        (Some(named), _) => {
            let right = result.is_null() || blocks(result) == [read_hash(&named).unwrap()];
            assert!(right, "{method} {params}: {answer}");
            Told::Nothing
        }
        (None, "eth_blockNumber" | "eth_call") => {
            let digits = result.as_str().and_then(|text| text.strip_prefix("0x"));
            Told::Height(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).expect("a height"))
        }
        _ => Told::Blocks(blocks(result)),
    }
}

/// One caller's part.
fn caller(fleet: &Fleet, seed: u64, at: usize, eras: &Mutex<Vec<Era>>) -> Vec<Answered> {
    let mut client: Client = fleet.gateway.connect();
    let began = Instant::now();
    let one = |nth: usize| {
        if nth.is_multiple_of(BURST) {
            let due = began + BEAT * (nth / BURST) as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let main = eras.lock().unwrap().last().unwrap().view.clone();
        let (method, params, named) = call(seed, (nth * CALLERS + at) as u64, &main);
        let sent = Instant::now();
        client.post("/eth", &[MARK, "Ringway-Explain: 1"], call_body("1", method, &params));
        let answer = client.response();
        let came = Instant::now();
        let told = told(method, &params, named, &answer.json());
        let trail = answer.header("Ringway-Trail").unwrap_or_default();
        Answered { sent, came, told, what: format!("{method} {params} by {trail}: {}", answer.body) }
    };
    (0..CALLS / CALLERS).map(one).collect()
}

/// The time as of which the gateway knew every node when a Call began: each node's poll before its `back`-th last one.
/// Polls of a node follow one another, so one that was followed by another had been taken in by then.
fn known(polls: &[Vec<Instant>], sent: Instant, back: usize) -> Option<Instant> {
    let of = |polls: &Vec<Instant>| {
        let before = polls.partition_point(|at| *at < sent);
        before.checked_sub(back).map(|at| polls[at])
    };
    polls.iter().map(of).min().flatten()
}

/// The eras that a moment between these two could be in.
fn during(eras: &[Era], from: Instant, until: Instant) -> impl Iterator<Item = &Era> {
    eras.iter().filter(move |era| era.from <= until && era.until.is_none_or(|end| end >= from))
}

#[derive(Default, Debug)]
struct Sums {
    blocks: usize,
    heights: usize,
    of_an_abandoned_fork: Vec<String>,
    /// The same by what the network knew when the Call began, and not the gateway.
    of_an_old_fork: usize,
    too_old: Vec<String>,
    /// The same.
    older_than_two_blocks: usize,
}

fn judge(answers: &[Answered], eras: &[Era], polls: &[Vec<Instant>], shifts: &[Instant]) -> Sums {
    let mut sums = Sums::default();
    for one in answers {
        let (Some(last), Some(before)) = (known(polls, one.sent, 2), known(polls, one.sent, 3)) else { continue };
        match &one.told {
            Told::Nothing => {}
            Told::Blocks(blocks) => {
                let right = |era: &Era| blocks.iter().all(|block| era.view.has(*block));
                sums.blocks += 1;
                if !during(eras, one.sent, one.came).any(right) {
                    sums.of_an_old_fork += 1;
                    // A block above all that the gateway has heard of contradicts nothing that it knows.
                    let unheard = |era: &Era| blocks.iter().all(|(_, number)| *number > era.view.tip);
                    if !during(eras, last, one.came).any(|era| right(era) || unheard(era)) {
                        let around = during(eras, last - STEP, one.came).map(|era| format!("{:?} ", era.view));
                        sums.of_an_abandoned_fork.push(format!("{} while {}", one.what, around.collect::<String>()));
                    }
                }
            }
            Told::Height(height) => {
                // Lag is measured against the best of the time of the sample, which is a poll old at most.
                let right = |era: &Era| height + 2 >= era.view.tip;
                sums.heights += 1;
                if !during(eras, one.sent, one.came).any(right) {
                    sums.older_than_two_blocks += 1;
                    // Nor can anybody know of a node that fell back just now.
                    let shifted = shifts.iter().any(|at| (before..=one.came).contains(at));
                    if !shifted && !during(eras, before, one.came).any(right) {
                        sums.too_old.push(one.what.clone());
                    }
                }
            }
        }
    }
    sums
}

/// All Calls, while the network lives on.
fn run(fleet: &Fleet, seed: u64, mut world: World<'_>, eras: &Mutex<Vec<Era>>) -> Vec<Answered> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|at| scope.spawn(move || caller(fleet, seed, at, eras))).collect();
        let network = scope.spawn(|| {
            for step in 1.. {
                if over.load(SeqCst) {
                    break;
                }
                world.step(step);
                std::thread::sleep(STEP);
            }
            world.changes
        });
        let answers: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        over.store(true, SeqCst);
        let changes = network.join().unwrap();
        tell(&format!("blocks, re-orgs, at equal height, back: {changes:?}"));
        answers.into_iter().flat_map(|answers| answers.unwrap()).collect()
    })
}

#[test]
fn no_answer_comes_from_a_fork_that_was_abandoned_before_the_last_poll() {
    let seed = std::env::var("REORGS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    let tiers = ["minimal geth", "minimal reth", "full geth", "full nethermind", "archive erigon"];
    // As many attempts as nodes: with fewer, nobody may be left who agrees, and the contract has the highest tip speak.
    let route = "strategy = \"tiered\"\nmax_attempts = 5";
    let fleet = Plan::of(&tiers).interval("50ms").route(route).start();
    let eras = Mutex::new(vec![Era { view: View::default(), from: Instant::now(), until: None }]);
    let shifts = Mutex::default();
    let main = View::default();
    let mut world = World {
        fleet: &fleet,
        seed,
        main,
        branches: 100,
        faults: [Fault::None; 5],
        eras: &eras,
        shifts: &shifts,
        changes: [0; 4],
    };
    // What is asked for below is known by then.
    for _ in 0..3 {
        let mut next = world.main.clone();
        next.mine(6);
        world.take(next);
        fleet.settle();
    }
    let answers = run(&fleet, seed, world, &eras);
    let polls: Vec<Vec<Instant>> = LETTERS.map(|letter| fleet.node(letter).set(|state| state.polled.clone())).into();
    let sums = judge(&answers, &eras.lock().unwrap(), &polls, &shifts.lock().unwrap());
    report(&answers, &sums, &fleet.gateway.metrics(), &eras);
}

/// Prints what the run came to, and holds it to what may be.
fn report(answers: &[Answered], sums: &Sums, metrics: &Metrics, eras: &Mutex<Vec<Era>>) {
    let by_reason = |reason| metrics.sum("ringway_tier_fallbacks_total", &[&format!("reason=\"{reason}\"")]);
    let unresolved = metrics.sum("ringway_fork_unresolved_total", &[]);
    tell(&format!(
        "{} Calls, {} with blocks ({} of a fork that the network had left when they were sent), {} with a height ({} \
         older than two blocks); fallbacks: fork {}, lag {}, unknown tip {}; {} re-orgs; unresolved {unresolved}; of an abandoned \
         fork {}",
        answers.len(),
        sums.blocks,
        sums.of_an_old_fork,
        sums.heights,
        sums.older_than_two_blocks,
        by_reason("fork"),
        by_reason("lag"),
        by_reason("unknown_tip"),
        metrics.sum("ringway_reorgs_total", &[]),
        sums.of_an_abandoned_fork.len(),
    ));
    // The one exception that the contract makes: where no candidate agrees, an answer goes out and is counted. It
    // happens for the length of one poll, when the first node that shows a re-org answers callers from a third branch,
    // and all others are taken to be on a fork until they are polled themselves.
    let wrong = &sums.of_an_abandoned_fork;
    for one in wrong.iter() {
        tell(&one.chars().take(900).collect::<String>());
    }
    assert!(wrong.len() as u64 <= unresolved && unresolved < CALLS as u64 / 1000, "{}: {wrong:#?}", wrong.len());
    assert_eq!(sums.too_old, Vec::<String>::new());
    assert!(answers.len() == CALLS && sums.blocks > CALLS / 3 && sums.heights > CALLS / 5, "{}", answers.len());
    assert_eq!(metrics.calls("ok"), CALLS as u64);
    assert!(by_reason("fork") > 0 && metrics.sum("ringway_reorgs_total", &[]) > 10, "{:#?}", metrics.told());
    assert!(fallbacks(metrics, "minimal", "full", "fork") > 0 && world_is_higher(eras), "{:#?}", metrics.told());
}

fn world_is_higher(eras: &Mutex<Vec<Era>>) -> bool {
    eras.lock().unwrap().last().is_some_and(|era| era.view.tip > TIP)
}

/// Shown with `--nocapture`, and where a run failed.
fn tell(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
