//! The first screen: what runs, where it is, and lines to paste.

use super::chain::{self, BLOCK_TIME_S};
use super::fault::{Injection, Kind};
use super::fleet::{Facts, NODES};
use super::setting::{LOGS, SEND, SHARES};
use std::fmt::Write;
use std::net::SocketAddr;

/// What the screen tells.
pub struct Scene<'s> {
    /// Where the Gateway listens.
    pub gateway: SocketAddr,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    /// Where the nodes listen.
    pub nodes: &'s [SocketAddr],
    /// `io_uring` or `epoll`.
    pub driver: &'s str,
    /// Worker threads.
    pub shards: usize,
    /// Seconds since 1970.
    pub now_s: u64,
    /// What is done to the nodes.
    pub faults: &'s [Injection],
    /// Requests a second from inside.
    pub traffic: u32,
    /// What this program is started as.
    pub program: &'s str,
    /// What else must be said first.
    pub notes: &'s [String],
}

/// The text, with a line end after each line.
pub fn screen(scene: &Scene<'_>) -> String {
    let mut out = String::new();
    for note in scene.notes {
        let _ = writeln!(out, "Note: {note}");
    }
    let _ = writeln!(
        out,
        "Ringway {} demo: three simulated nodes and a Gateway in front of them, in one process.\n",
        env!("CARGO_PKG_VERSION")
    );
    what_runs(&mut out, scene);
    to_paste(&mut out, scene);
    what_next(&mut out, scene);
    out
}

fn what_runs(out: &mut String, scene: &Scene<'_>) {
    let Scene { gateway, admin, driver, shards, .. } = scene;
    for ((at, node), address) in NODES.iter().enumerate().zip(scene.nodes) {
        let client = node.client.rsplit_once("-simulated").map_or(node.client, |(client, _)| client);
        let (title, ms) = (if at == 0 { "Nodes" } else { "" }, node.latency.as_millis());
        let url = format!("http://{address}");
        let _ = writeln!(
            out,
            "  {title:<9}{:<10}{client:<15}{:<9}{:<26}{url:<23}{ms} ms",
            node.id,
            node.tier.word(),
            holds(node)
        );
        for fault in scene.faults.iter().filter(|fault| fault.node == node.id) {
            let _ = writeln!(out, "  {:<19}BROKEN: {}, {}", "", fault.kind.does(), fault.when());
        }
    }
    let head = chain::head(scene.now_s);
    let _ =
        writeln!(out, "  {:<9}one for all nodes, made up; block {head} now, a new one every {BLOCK_TIME_S} s", "Chain");
    let _ = writeln!(out, "  {:<9}http://{gateway}/eth   ({shards} shards on {driver})", "Gateway");
    let ids = NODES.map(|node| node.id).join(", then ");
    let shares = SHARES.map(|(id, weight)| format!("{id} {weight}")).join(", ");
    let _ = writeln!(out, "  {:<9}  Route default  tiered: the cheapest node that has it and is up to date", "");
    let _ = writeln!(out, "  {:<9}  Route logs     {LOGS} by weight: {shares}", "");
    let _ = writeln!(out, "  {:<9}  Route send     {SEND} by priority: {ids}", "");
    let _ = writeln!(out, "  {:<9}http://{admin}/metrics   http://{admin}/readyz\n", "Admin");
}

/// What a node has of the past.
fn holds(node: &Facts) -> String {
    let some =
        |blocks: u64, what: &str| if blocks == u64::MAX { format!("all {what}") } else { format!("{blocks} {what}") };
    match node.state_blocks {
        u64::MAX => "everything".into(),
        states => some(states, "states") + ", " + &some(node.history_blocks, "blocks"),
    }
}

/// The pasted lines' command.
fn curl(gateway: SocketAddr, more: &str, body: &str) -> String {
    format!("  curl{more} http://{gateway}/eth -H 'Content-Type: application/json' -d '{body}'")
}

fn to_paste(out: &mut String, scene: &Scene<'_>) {
    let Scene { gateway, admin, program, .. } = scene;
    let newest = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice"},{"jsonrpc":"2.0","id":2,"method":"eth_getLogs","params":[{}]}]"#;
    let old = r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x1111111111111111111111111111111111111111","0xf4240"]}"#;
    let _ = writeln!(out, "Paste into another terminal:\n");
    let _ = writeln!(out, "{}\n{}", curl(*gateway, "", newest), curl(*gateway, "", batch));
    let _ = writeln!(out, "  curl http://{admin}/metrics\n");
    let _ = writeln!(
        out,
        "A balance of long ago, which only the archive has; and why the others are not asked for a trace:\n"
    );
    let _ = writeln!(out, "{}", curl(*gateway, " -i -H 'Ringway-Explain: 1'", old));
    let _ = writeln!(out, "  {program} explain --admin {admin} eth trace_block '[\"0xf4240\"]'\n");
}

fn what_next(out: &mut String, scene: &Scene<'_>) {
    if scene.faults.is_empty() {
        let kinds = Kind::ALL.map(Kind::word).join(", ");
        let _ = writeln!(
            out,
            "To watch a failover, start it with  --fault geth-1=timeout@5-20  (seconds 5 to 20); to watch"
        );
        let _ = writeln!(out, "tips, with  --fault geth-1=frozen@5-20  or  --fault geth-1=fork@5-20.");
        let _ = writeln!(out, "Faults: {kinds}.");
    }
    let _ = match scene.traffic {
        0 => writeln!(out, "No traffic of its own (--traffic 0): each second in which you send something gets a line."),
        rate => writeln!(out, "{rate} Calls a second come from inside (--traffic 0 for none); one line a second:"),
    };
    let _ = writeln!(out, "Calls answered, Calls that failed, mean time, attempts at each node. Ctrl-C ends it.\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_stand_beside_their_nodes_and_notes_come_first() {
        let faults = [Injection::parse("reth-1=slow@5").unwrap()];
        let nodes = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let text = screen(&Scene {
            gateway: nodes[0],
            admin: nodes[1],
            nodes: &nodes,
            driver: "epoll",
            shards: 1,
            now_s: 0,
            faults: &faults,
            traffic: 0,
            program: "ringway",
            notes: &["something".into()],
        });
        assert!(text.starts_with("Note: something\n"));
        let broken = text.lines().position(|line| line.contains("BROKEN: takes 2 s for an answer, from second 5 on"));
        let node = text.lines().position(|line| line.contains("reth-1") && line.contains("full"));
        assert_eq!(broken, node.map(|line| line + 1));
        assert!(
            text.lines()
                .filter(|line| !line.contains("curl") && !line.contains("explain"))
                .all(|line| line.len() <= 100),
            "{text}"
        );
    }
}
