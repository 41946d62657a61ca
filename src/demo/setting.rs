//! The configuration of the demo: a text like any other, read and started like any other.

use super::fleet::NODES;
use crate::boot::Failure;
use crate::config::resolve::resolve;
use crate::logic::snapshot::Snapshot;
use std::fmt::Write;
use std::net::SocketAddr;

/// The methods of the weighted Route.
pub const READS: &str = "eth_call, eth_getLogs";
/// Their shares, in the order of the nodes.
pub const SHARES: [u16; 3] = [1, 2, 1];

/// What the text depends on.
pub struct Places<'p> {
    /// Port of the Gateway.
    pub port: u16,
    /// Port of metrics and health.
    pub admin_port: u16,
    /// `auto`, `io_uring` or `epoll`.
    pub driver: &'p str,
    /// Where the nodes listen.
    pub nodes: &'p [SocketAddr],
}

/// The text.
pub fn text(places: &Places<'_>) -> String {
    let Places { port, admin_port, driver, nodes } = places;
    let mut out = format!(
        "\
[server]
listen = [\"127.0.0.1:{port}\"]     # where callers come
admin = \"127.0.0.1:{admin_port}\"        # /metrics, /readyz, /healthz
driver = \"{driver}\"
shards = 2                       # plenty for a demo; left out, it is one per CPU

[log]
level = \"warn\"

[circuit]                        # quick to open and to close, so that it can be watched
consecutive_failures = 3
cooldown = \"3s\"
max_cooldown = \"6s\"

"
    );
    for (node, address) in NODES.iter().zip(*nodes) {
        let _ = writeln!(
            out,
            "\
[[endpoint]]                     # {} tier
id = \"{}\"
chain = \"ethereum\"
network = \"demo\"
url = \"http://{address}\"
max_connections = 64
",
            node.tier, node.id
        );
    }
    let ids = NODES.map(|node| format!("\"{}\"", node.id)).join(", ");
    let methods: Vec<String> = READS.split(", ").map(|method| format!("\"{method}\"")).collect();
    let _ = write!(
        out,
        "\
[[gateway]]                      # POST http://127.0.0.1:{port}/eth
id = \"eth\"
path = \"/eth\"
chain = \"ethereum\"
network = \"demo\"

[[gateway.route]]                # everything else: the first node, and the next where it can't
id = \"default\"
strategy = \"priority\"
targets = [{ids}]
attempt_timeout = \"1s\"

[[gateway.route]]                # these methods are spread over all nodes
id = \"reads\"
methods = [{}]
strategy = \"weighted\"
targets = [
",
        methods.join(", ")
    );
    for (node, weight) in NODES.iter().zip(SHARES) {
        let _ = writeln!(out, "  {{ endpoint = \"{}\", weight = {weight} }},", node.id);
    }
    out.push_str("]\nattempt_timeout = \"1s\"\n");
    out
}

/// The text for somebody who wants to start from it.
pub fn example() -> String {
    let nodes = [18_541, 18_542, 18_543].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let places = Places { port: 8545, admin_port: 9545, driver: "auto", nodes: &nodes };
    format!(
        "\
# What `ringway demo` runs on. To start from it: save it as ringway.toml and give each [[endpoint]] the url of
# a node of yours (the demo's own nodes listen on free ports, chosen anew each time).
# Judge it:  ringway check ringway.toml
# Serve it:  ringway serve --config ringway.toml

{}",
        text(&places)
    )
}

/// What the text means.
///
/// # Errors
/// If something is wrong with it.
pub fn snapshot(text: &str) -> Result<Snapshot, Failure> {
    let resolved = resolve(text, &|_| None);
    let faults: Vec<String> = resolved.faults.iter().map(|fault| fault.shown("demo").to_string()).collect();
    resolved.snapshot.ok_or_else(|| Failure(faults.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_taken_without_a_word() {
        let resolved = resolve(&example(), &|_| None);
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.unwrap();
        assert_eq!(snapshot.endpoints.len(), NODES.len());
        assert_eq!(snapshot.gateways[0].routes.len(), 2);
    }

    #[test]
    fn a_fault_in_it_is_told() {
        let Err(failure) = snapshot("[server]\nlisten = [\"nowhere\"]\n") else { panic!("taken") };
        assert!(failure.0.contains("demo:2:"), "{}", failure.0);
    }
}
