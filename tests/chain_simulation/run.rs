//! One scenario on a virtual clock: polls with jitter, latency and losses, and missing headers read one by one.

use super::node::{Answer, Node, Trouble};
use super::oracle::{Counts, Oracle};
use super::tree::{Ms, Tree};
use crate::random::Random;
use ringway::logic::chain::{Chain, FILLS_MAX, Rules};
use ringway::logic::units::MS;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const POLL_MS: Ms = 1_000;
/// In this time at the end nothing goes wrong.
const QUIET_MS: Ms = 14_000;

pub struct Violation(pub String);

enum What {
    Poll,
    Newest(Answer),
    Missing(u64, Answer),
}

struct Event {
    node: usize,
    poll: u64,
    what: What,
}

pub struct Run {
    random: Random,
    tree: Tree,
    nodes: Vec<Node>,
    chain: Chain,
    queue: BinaryHeap<Reverse<(Ms, usize)>>,
    events: Vec<Option<Event>>,
    polls: Vec<(u64, usize)>,
    length_ms: Ms,
    /// In a million requests so many are lost.
    lost: f64,
    oracle: Oracle,
    story: String,
}

impl Run {
    pub fn new(seed: u64) -> Run {
        let mut random = Random::new(seed);
        let block_ms = random.pick(&[250, 2_000, 12_000]);
        let length_ms = if block_ms == 12_000 { 90_000 } else { 45_000 };
        let quiet_ms = length_ms - QUIET_MS;
        let mut tree = Tree::grow(&mut random, block_ms, length_ms, quiet_ms);
        let count = random.between(3, 7) as usize;
        let healthy = count.div_ceil(2).max(2);
        let mut lies = false;
        let mut nodes = vec![];
        for at in 0..count {
            let trouble = if at < healthy { Trouble::None } else { trouble(&mut random, block_ms, &mut lies) };
            nodes.push(Node::new(&mut random, &mut tree, block_ms, quiet_ms, trouble));
        }
        let lost = random.pick(&[0.0, 0.0, 0.02, 0.1]);
        let max_lag = 2_000u64.div_ceil(block_ms).max(2);
        let rules = Rules { poll_interval_ns: POLL_MS * MS, max_lag };
        let troubles: Vec<_> = nodes.iter().map(|node| (node.trouble, node.from, node.to)).collect();
        let story = format!("blocks of {block_ms} ms, lost {lost}, {troubles:?}");
        let oracle = Oracle::new(count, max_lag, lost == 0.0);
        let mut run = Run {
            chain: Chain::new(count, rules),
            queue: BinaryHeap::new(),
            events: vec![],
            polls: vec![(0, 0); count],
            random,
            tree,
            nodes,
            length_ms,
            lost,
            oracle,
            story,
        };
        for node in 0..count {
            let phase = run.random.below(POLL_MS);
            run.at(phase, Event { node, poll: 0, what: What::Poll });
        }
        run
    }

    fn at(&mut self, when: Ms, event: Event) {
        self.events.push(Some(event));
        self.queue.push(Reverse((when, self.events.len() - 1)));
    }

    pub fn through(&mut self) -> Result<Counts, Violation> {
        while let Some(Reverse((now, index))) = self.queue.pop() {
            if now > self.length_ms {
                break;
            }
            let event = self.events[index].take().unwrap();
            let (node, name) = (event.node, event.what.name());
            self.happens(now, event).map_err(|wrong| self.violation(now, node, name, &wrong))?;
        }
        let ended = self.oracle.ended(&mut self.chain);
        ended.map_err(|wrong| self.violation(self.length_ms, 0, "end", &wrong))
    }

    fn violation(&self, now: Ms, node: usize, name: &str, wrong: &str) -> Violation {
        Violation(format!("{wrong}; at {now} ms, node {node}, {name}; {}", self.story))
    }

    fn happens(&mut self, now: Ms, event: Event) -> Result<(), String> {
        let Event { node, poll, what } = event;
        let now_ns = now * MS;
        match what {
            What::Poll => {
                let next = now + POLL_MS - 100 + self.random.below(200);
                self.at(next, Event { node, poll, what: What::Poll });
                self.polls[node] = (self.polls[node].0 + 1, 0);
                let asked = now + self.random.between(10, 50);
                let answer = self.nodes[node].newest(&self.tree, asked, &mut self.random);
                let answered = asked + self.random.between(10, 50);
                let poll = self.polls[node].0;
                if !self.is_lost() {
                    self.at(answered, Event { node, poll, what: What::Newest(answer) });
                }
                return self.oracle.check(&self.tree, &self.nodes, &self.chain, now, false);
            }
            _ if poll != self.polls[node].0 => return Ok(()),
            What::Newest(Answer::Nothing) => return Ok(()),
            What::Newest(Answer::Lie(header)) => {
                let heard = self.chain.heard(node, &header, now_ns);
                heard.map_err(|nonsense| format!("a lie that fits is refused: {nonsense:?}"))?;
                self.oracle.lied(node, now);
            }
            What::Newest(Answer::Block(block)) => {
                let heard = self.chain.heard(node, &self.tree.header(block), now_ns);
                heard.map_err(|nonsense| format!("refused: {nonsense:?}"))?;
                self.oracle.heard(&self.tree, node, block, now, &self.chain)?;
            }
            What::Missing(number, Answer::Nothing) => {
                self.chain.unfilled(node, number);
                self.oracle.unread(node);
            }
            What::Missing(_, Answer::Lie(header)) => {
                let _ = self.chain.filled(node, &header, now_ns);
            }
            What::Missing(_, Answer::Block(block)) => {
                let filled = self.chain.filled(node, &self.tree.header(block), now_ns);
                filled.map_err(|nonsense| format!("a header is refused: {nonsense:?}"))?;
                self.oracle.filled(&self.tree, node, block);
            }
        }
        self.read_missing(node, now)?;
        self.oracle.check(&self.tree, &self.nodes, &self.chain, now, true)
    }

    fn read_missing(&mut self, node: usize, now: Ms) -> Result<(), String> {
        let (poll, reads) = self.polls[node];
        let Some(number) = self.chain.missing(node).filter(|_| reads < FILLS_MAX) else { return Ok(()) };
        self.polls[node].1 += 1;
        let asked = now + self.random.between(10, 50);
        let lost = self.is_lost();
        let answer = self.nodes[node].at(&self.tree, number, asked, &mut self.random);
        // Who lied about its newest block goes on to lie in this poll.
        let honest = matches!(answer, Answer::Block(_)) && self.oracle.lies(node);
        let answer = if lost || honest { Answer::Nothing } else { answer };
        let answered = asked + self.random.between(10, 50);
        self.at(answered, Event { node, poll, what: What::Missing(number, answer) });
        Ok(())
    }

    fn is_lost(&mut self) -> bool {
        self.random.unit() < self.lost
    }
}

impl What {
    fn name(&self) -> &'static str {
        match self {
            What::Poll => "poll",
            What::Newest(_) => "newest",
            What::Missing(..) => "missing",
        }
    }
}

/// One liar at most: two that agree can't be told from two honest ones.
fn trouble(random: &mut Random, block_ms: Ms, lies: &mut bool) -> Trouble {
    match random.below(7) {
        0 => Trouble::None,
        1 => Trouble::Frozen,
        2 => Trouble::RolledBack(random.between(1, 30)),
        3 => Trouble::Away,
        4 if !*lies => {
            *lies = true;
            let ahead = random.pick(&[100, 150, 300, 100_000]) + random.below(40);
            Trouble::Lies(ahead, random.once_in(2))
        }
        // On a fast chain the way back takes longer than it stays.
        5 if block_ms >= 2_000 => Trouble::Flips,
        _ => Trouble::Partitioned,
    }
}
