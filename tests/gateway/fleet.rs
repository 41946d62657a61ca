//! A fleet of scripted nodes behind one tiered Route, and what a Call did there: the nodes it reached, in order.

use super::fleet_node::{Journal, MARK, Node};
use super::harness::{Gateway, Metrics, Response, Setup, call_body};

/// A fleet before its gateway is started.
pub struct Plan {
    /// `a`, `b`, `c` ...
    pub nodes: Vec<Node>,
    journal: Journal,
    tiers: Vec<String>,
    lines: Vec<String>,
    weights: Vec<u32>,
    interval: &'static str,
    network: String,
    gateway: String,
    circuit: String,
    route: String,
    more: String,
}

impl Plan {
    /// Nodes of these tiers and clients: `"minimal geth"`.
    pub fn of(nodes: &[&str]) -> Plan {
        let journal = Journal::default();
        let words =
            |one: &&str| one.split_once(' ').map(|(tier, client)| (tier.to_owned(), client.to_owned())).unwrap();
        let words: Vec<(String, String)> = nodes.iter().map(words).collect();
        let start = |(letter, (_, client)): (char, &(String, String))| {
            Node::start(letter, &format!("{client}/v1.2.3/linux"), &journal)
        };
        Plan {
            nodes: ('a'..='z').zip(&words).map(start).collect(),
            tiers: words.iter().map(|(tier, _)| tier.clone()).collect(),
            lines: vec![String::new(); words.len()],
            weights: vec![1; words.len()],
            interval: "150ms",
            network: String::new(),
            gateway: String::new(),
            circuit: "consecutive_failures = 4000000000\nmin_samples = 4000000000".to_owned(),
            route: "strategy = \"tiered\"".to_owned(),
            more: String::new(),
            journal,
        }
    }

    /// How often nodes are polled; at the start all are at once.
    pub fn interval(mut self, interval: &'static str) -> Plan {
        self.interval = interval;
        self
    }

    /// Lines for one `[[endpoint]]`.
    pub fn lines(mut self, at: usize, lines: &str) -> Plan {
        self.lines[at] += &format!("{lines}\n");
        self
    }

    /// The targets' weights.
    pub fn weights(mut self, weights: &[u32]) -> Plan {
        self.weights = weights.to_vec();
        self
    }

    /// Other weights from the next reload on.
    pub fn reweigh(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
    }

    /// Lines for the `[[network]]`.
    pub fn network(mut self, lines: &str) -> Plan {
        self.network += &format!("{lines}\n");
        self
    }

    /// Lines for the `[[gateway]]`.
    pub fn gateway(mut self, lines: &str) -> Plan {
        self.gateway += &format!("{lines}\n");
        self
    }

    /// Other rules for Circuits than that they never open.
    pub fn circuit(mut self, lines: &str) -> Plan {
        self.circuit = lines.to_owned();
        self
    }

    /// Another default Route.
    pub fn route(mut self, lines: &str) -> Plan {
        self.route = lines.to_owned();
        self
    }

    /// Lines at the end of the file.
    pub fn more(mut self, lines: &str) -> Plan {
        self.more += &format!("{lines}\n");
        self
    }

    /// The configuration.
    pub fn setup(&self) -> Setup {
        let nodes: Vec<&super::harness::Upstream> = self.nodes.iter().map(|node| &node.upstream).collect();
        let target = |(letter, weight): (char, &u32)| format!("{{ endpoint = \"{letter}\", weight = {weight} }}");
        let targets: Vec<String> = ('a'..='z').zip(&self.weights).map(target).collect();
        let mut setup = Setup::of(&nodes)
            .targets(&format!("[{}]", targets.join(", ")))
            .circuit(&self.circuit)
            .gateway(&self.gateway)
            .route(&self.route)
            .raw(&self.more)
            .raw(&format!(
                "[[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\npoll_interval = \"{}\"\n{}",
                self.interval, self.network
            ));
        for (at, (tier, lines)) in self.tiers.iter().zip(&self.lines).enumerate() {
            setup = setup.endpoint(at, &format!("tier = \"{tier}\"\n{lines}"));
        }
        setup
    }

    /// Starts the gateway, and waits until it knows every node's tip.
    pub fn start(self) -> Fleet {
        let fleet = self.start_blind();
        // Who is never drawn is not tracked.
        let all = fleet.plan.weights.iter().filter(|weight| **weight > 0).count() as u64;
        fleet.gateway.wait_for_metrics("every node's tip", |metrics| {
            metrics.sum("ringway_endpoint_standing", &["standing=\"unknown\""]) == 0
                && metrics.sum("ringway_endpoint_standing", &[]) == all
                && all > 0
        });
        fleet
    }

    /// Starts the gateway.
    pub fn start_blind(self) -> Fleet {
        Fleet { gateway: self.setup().start(), plan: self }
    }
}

/// A running fleet.
pub struct Fleet {
    /// The gateway.
    pub gateway: Gateway,
    /// What it was started with.
    pub plan: Plan,
}

impl Fleet {
    /// The nodes.
    pub fn node(&self, letter: char) -> &Node {
        &self.plan.nodes[letter as usize - 'a' as usize]
    }

    /// Makes one Call over a connection of its own, one at a time.
    #[track_caller]
    pub fn call(&self, method: &str, params: &str) -> Response {
        let mut client = self.gateway.connect();
        client.post("/eth", &[MARK], call_body("1", method, params));
        client.response()
    }

    /// The letters of the nodes that callers' Calls reached since `before`.
    pub fn reached(&self, before: usize) -> String {
        self.plan.journal.lock().unwrap()[before..].iter().map(|one| one.node).collect()
    }

    /// How many Calls have reached a node so far.
    pub fn so_far(&self) -> usize {
        self.plan.journal.lock().unwrap().len()
    }

    /// How many Calls of callers a node was sent.
    pub fn count(&self, letter: char) -> usize {
        self.plan.journal.lock().unwrap().iter().filter(|one| one.node == letter).count()
    }

    /// The nodes that one Call reached, in order, and what its caller was told.
    #[track_caller]
    pub fn ask(&self, method: &str, params: &str) -> (String, Response) {
        let before = self.so_far();
        let answer = self.call(method, params);
        (self.reached(before), answer)
    }

    /// The nodes that one Call reached, in order; its answer must be a result.
    #[track_caller]
    pub fn path(&self, method: &str, params: &str) -> String {
        let (path, answer) = self.ask(method, params);
        assert!(answer.json().get("result").is_some(), "{method} {params} by {path}: {answer:?}");
        path
    }

    /// Waits until the gateway says so of an Endpoint.
    #[track_caller]
    pub fn wait_for(&self, letter: char, standing: &str) {
        let labels = [format!("endpoint=\"{letter}\""), format!("standing=\"{standing}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        self.gateway.wait_for_metrics(&format!("{letter} to be {standing}"), |metrics| {
            metrics.sum("ringway_endpoint_standing", &labels) == 1
        });
    }

    /// Waits until the gateway knows this tip of an Endpoint.
    #[track_caller]
    pub fn wait_for_tip(&self, letter: char, tip: u64) {
        self.gateway.wait_for_metrics(&format!("{letter} to be at {tip}"), |metrics| {
            metrics.of("ringway_endpoint_tip", &letter.to_string()) == tip
        });
    }

    /// Waits until an Endpoint's own sample says that it is so far behind.
    #[track_caller]
    pub fn wait_for_lag(&self, letter: char, blocks: u64) {
        self.gateway.wait_for_metrics(&format!("{letter} to be {blocks} behind"), |metrics| {
            metrics.of("ringway_endpoint_lag_blocks", &letter.to_string()) == blocks
        });
    }

    /// Waits until each node's own tip is known.
    #[track_caller]
    pub fn settle(&self) {
        for (letter, node) in ('a'..='z').zip(&self.plan.nodes) {
            self.wait_for_tip(letter, node.set(|state| state.view.tip));
        }
    }
}

/// Fallbacks from one tier to another for a reason.
pub fn fallbacks(metrics: &Metrics, from: &str, to: &str, reason: &str) -> u64 {
    let labels = [format!("from=\"{from}\""), format!("to=\"{to}\""), format!("reason=\"{reason}\"")];
    metrics.sum("ringway_tier_fallbacks_total", &[&labels[0], &labels[1], &labels[2]])
}

/// All fallbacks.
pub fn all_fallbacks(metrics: &Metrics) -> u64 {
    metrics.sum("ringway_tier_fallbacks_total", &[])
}

/// Calls of a method that a tier served.
pub fn decisions(metrics: &Metrics, method: &str, tier: &str) -> u64 {
    let labels = [format!("method=\"{method}\""), format!("tier=\"{tier}\"")];
    metrics.sum("ringway_routing_decisions_total", &[&labels[0], &labels[1]])
}
