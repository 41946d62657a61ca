//! `GET /metrics`: the sums over all shards in Prometheus' text format.

use crate::logic::circuit::State;
use crate::logic::fault::{Outcome, Reason};
use crate::logic::snapshot::EndpointIx;
use crate::logic::units::Nanos;
use crate::ops::metrics_tiers;
use crate::shared::counters::{BUCKETS_NS, Cell, DurationSum, EndpointCells, Handshakes, REFUSED, ShardCells};
use crate::shared::journal::Transition;
use crate::shared::memory::Memory;
use crate::shared::snapshot_cell::Live;
use crate::shared::unlisted;
use std::fmt::Write;

/// All metrics as of now.
pub fn encode(live: &Live, memory: &Memory, now_ns: Nanos) -> String {
    let mut out = String::with_capacity(16 << 10);
    calls(&mut out, live);
    attempts(&mut out, live);
    handshakes(&mut out, live);
    circuits(&mut out, live);
    rests(&mut out, live, now_ns);
    metrics_tiers::encode(&mut out, live, now_ns);
    process(&mut out, live, memory);
    let name = "ringway_unlisted_methods_total";
    family(&mut out, name, "counter", "Calls whose method no table has: the names are at /v1/methods/unlisted.");
    let _ = writeln!(out, "{name} {}", unlisted::total(&live.counters.unlisted));
    out
}

pub(super) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label value: ids and method names hold nothing to escape, but a label must never break the format.
pub(super) fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn calls(out: &mut String, live: &Live) {
    family(out, "ringway_calls_total", "counter", "Calls by how they ended; route is empty if none was reached.");
    for_each_route(live, |gateway, route, at, row| {
        let table = live.snapshot.gateways[at].table(&live.snapshot.methods);
        for method in live.method_ids(at) {
            let shards = || live.counters.routes[at][row].iter().filter_map(|shard| shard.method(method));
            if shards().next().is_none() {
                continue;
            }
            for outcome in Outcome::ALL {
                let count: u64 = shards().map(|cells| cells.get(outcome)).sum();
                if count > 0 {
                    let (method, outcome) = (label(table.label(method)), outcome.word());
                    let _ = writeln!(
                        out,
                        "ringway_calls_total{{gateway=\"{gateway}\",route=\"{route}\",method=\"{method}\",outcome=\"{outcome}\"}} {count}"
                    );
                }
            }
        }
    });
    let name = "ringway_call_duration_seconds";
    family(
        out,
        name,
        "histogram",
        "From the last byte of a request (of a batch: from a member's turn) to the end of its last attempt.",
    );
    for_each_route(live, |gateway, route, at, row| {
        let mut sum = DurationSum::default();
        live.counters.routes[at][row].iter().for_each(|shard| shard.durations.sum_into(&mut sum));
        histogram(out, name, &format!("gateway=\"{gateway}\",route=\"{route}\""), &sum);
    });
}

pub(super) fn for_each_route(live: &Live, mut each: impl FnMut(&str, &str, usize, usize)) {
    for (at, gateway) in live.snapshot.gateways.iter().enumerate() {
        let ids = gateway.routes.iter().map(|route| &*route.id).chain([""]);
        for (row, route) in ids.enumerate() {
            each(&label(&gateway.id), &label(route), at, row);
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: &str, sum: &DurationSum) {
    let mut count = 0;
    for (at, bucket) in sum.buckets.iter().enumerate() {
        count += bucket;
        let bound = BUCKETS_NS.get(at).map_or("+Inf".to_owned(), |ns| seconds(*ns));
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
    }
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {count}", seconds(sum.sum_ns));
}

/// Exact decimal seconds, without the noise of a binary fraction.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Name, kind, help, and where its value is.
type Gauge = (&'static str, &'static str, &'static str, fn(&EndpointCells) -> u64);

fn attempts(out: &mut String, live: &Live) {
    family(out, "ringway_attempts_total", "counter", "Attempts by Endpoint and by what came of them.");
    for_each_endpoint(live, |id, cells| {
        let mut line = |outcome: &str, count: u64| {
            if count > 0 || outcome == "ok" {
                let _ = writeln!(out, "ringway_attempts_total{{endpoint=\"{id}\",outcome=\"{outcome}\"}} {count}");
            }
        };
        line("ok", cells().map(EndpointCells::ok_count).sum());
        for reason in Reason::ALL {
            line(reason.word(), cells().map(|shard| shard.failed_count(reason)).sum());
        }
    });
    let name = "ringway_attempt_duration_seconds";
    family(out, name, "histogram", "From the start of an attempt, connect included, to its last byte or its failure.");
    for_each_endpoint(live, |id, cells| {
        let mut sum = DurationSum::default();
        cells().for_each(|shard| shard.durations.sum_into(&mut sum));
        histogram(out, name, &format!("endpoint=\"{id}\""), &sum);
    });
    family(out, "ringway_lookups_total", "counter", "Own look-ups of a signed transaction after an ambiguous attempt.");
    for_each_endpoint(live, |id, cells| {
        let (found, not_found): (u64, u64) =
            (cells().map(|c| c.found.get()).sum(), cells().map(|c| c.not_found.get()).sum());
        let _ = writeln!(out, "ringway_lookups_total{{endpoint=\"{id}\",outcome=\"found\"}} {found}");
        let _ = writeln!(out, "ringway_lookups_total{{endpoint=\"{id}\",outcome=\"not_found\"}} {not_found}");
    });
    let gauges: [Gauge; 3] = [
        ("ringway_endpoint_connections", "gauge", "Connections to an Endpoint that are open.", |c| c.connections.get()),
        ("ringway_endpoint_connects_total", "counter", "Connections to an Endpoint that were opened.", |c| {
            c.connected.get()
        }),
        (
            "ringway_stale_connections_total",
            "counter",
            "Pooled connections that were dead on use and replaced within the attempt.",
            |c| c.replaced.get(),
        ),
    ];
    for (name, kind, help, value) in gauges {
        family(out, name, kind, help);
        for_each_endpoint(live, |id, cells| {
            let _ = writeln!(out, "{name}{{endpoint=\"{id}\"}} {}", cells().map(value).sum::<u64>());
        });
    }
}

type Handshook = (&'static str, fn(&Handshakes) -> u64);
const HANDSHAKES: [Handshook; 3] =
    [("full", |c| c.full.get()), ("resumed", |c| c.resumed.get()), ("failed", |c| c.failed.get())];

/// TLS on both sides.
fn handshakes(out: &mut String, live: &Live) {
    let name = "ringway_endpoint_tls_handshakes_total";
    family(out, name, "counter", "TLS handshakes with an Endpoint; resumed = shortened by a ticket.");
    let speak_it = live.snapshot.endpoints.iter().zip(&live.counters.endpoints).filter(|(one, _)| one.url.https);
    for (endpoint, shards) in speak_it {
        for (outcome, count) in HANDSHAKES {
            let (id, count) = (label(&endpoint.id), shards.iter().map(|cells| count(&cells.handshakes)).sum::<u64>());
            let _ = writeln!(out, "{name}{{endpoint=\"{id}\",outcome=\"{outcome}\"}} {count}");
        }
    }
    let name = "ringway_client_tls_handshakes_total";
    family(out, name, "counter", "TLS handshakes with callers; resumed = shortened by a ticket.");
    for (outcome, count) in HANDSHAKES {
        let count: u64 = live.counters.shards.iter().map(|cells| count(&cells.handshakes)).sum();
        let _ = writeln!(out, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
}

fn for_each_endpoint<'l>(
    live: &'l Live,
    mut each: impl FnMut(&str, &dyn Fn() -> Box<dyn Iterator<Item = &'l EndpointCells> + 'l>),
) {
    for (endpoint, shards) in live.snapshot.endpoints.iter().zip(&live.counters.endpoints) {
        each(&label(&endpoint.id), &|| Box::new(shards.iter().map(|shard| &**shard)));
    }
}

pub(super) fn ids(live: &Live) -> impl Iterator<Item = (String, EndpointIx)> {
    live.snapshot.endpoints.iter().zip(0u16..).map(|(endpoint, at)| (label(&endpoint.id), EndpointIx(at)))
}

fn circuits(out: &mut String, live: &Live) {
    family(out, "ringway_circuit_state", "gauge", "0 = closed, 1 = open, 2 = half-open (a probe is under way).");
    for (id, at) in ids(live) {
        let state = match live.board.state(at) {
            State::Closed | State::HeldClosed { .. } => 0,
            State::Open { .. } | State::HeldOpen { .. } => 1,
            State::Probing { .. } => 2,
        };
        let _ = writeln!(out, "ringway_circuit_state{{endpoint=\"{id}\"}} {state}");
    }
    family(out, "ringway_circuit_transitions_total", "counter", "Changes of a Circuit's state, with their reason.");
    for (id, at) in ids(live) {
        for transition in Transition::ALL {
            let count = live.board.transitions(at, transition);
            let (to, reason) = (transition.to(), transition.reason());
            let _ = writeln!(
                out,
                "ringway_circuit_transitions_total{{endpoint=\"{id}\",to=\"{to}\",reason=\"{reason}\"}} {count}"
            );
        }
    }
}

fn rests(out: &mut String, live: &Live, now_ns: Nanos) {
    family(
        out,
        "ringway_rests_total",
        "counter",
        "Times that an Endpoint was left alone for a while because it was busy.",
    );
    for (id, at) in ids(live) {
        let _ = writeln!(out, "ringway_rests_total{{endpoint=\"{id}\"}} {}", live.board.rests(at));
    }
    family(out, "ringway_endpoint_resting", "gauge", "1 while an Endpoint is left alone because it was busy.");
    for (id, at) in ids(live) {
        let resting = u8::from(live.board.rests_until_ns(at, now_ns).is_some());
        let _ = writeln!(out, "ringway_endpoint_resting{{endpoint=\"{id}\"}} {resting}");
    }
}

fn process(out: &mut String, live: &Live, memory: &Memory) {
    let sum =
        |cell: fn(&ShardCells) -> &Cell| -> u64 { live.counters.shards.iter().map(|shard| cell(shard).get()).sum() };
    family(out, "ringway_connections", "gauge", "Connections that are open, by side.");
    let upstream: u64 =
        live.counters.endpoints.iter().flat_map(|shards| shards.iter()).map(|c| c.connections.get()).sum();
    let _ = writeln!(out, "ringway_connections{{side=\"client\"}} {}", sum(|shard| &shard.clients));
    let _ = writeln!(out, "ringway_connections{{side=\"upstream\"}} {upstream}");
    family(
        out,
        "ringway_buffered_bytes",
        "gauge",
        "Bytes of large bodies that are held, as max_buffered_bytes counts them.",
    );
    let _ = writeln!(out, "ringway_buffered_bytes {}", memory.held());
    family(out, "ringway_accepted_connections_total", "counter", "Client connections that were accepted.");
    let _ = writeln!(out, "ringway_accepted_connections_total {}", sum(|shard| &shard.accepted));
    let name = "ringway_proxy_header_refused_total";
    family(out, name, "counter", "Connections of trusted proxies that did not begin with a PROXY header.");
    let _ = writeln!(out, "{name} {}", sum(|shard| &shard.proxy_refused));
    family(out, "ringway_http_refused_total", "counter", "HTTP requests that never became a Call, by status.");
    for status in REFUSED {
        let count: u64 = live.counters.shards.iter().map(|shard| shard.refused_count(status)).sum();
        let _ = writeln!(out, "ringway_http_refused_total{{status=\"{status}\"}} {count}");
    }
    family(out, "ringway_task_panics_total", "counter", "Tasks that panicked; each cost its connection, and is a bug.");
    let _ = writeln!(out, "ringway_task_panics_total {}", sum(|shard| &shard.panics));
    family(out, "ringway_dns_lookups_total", "counter", "Look-ups of the host names of Endpoints.");
    let names = &live.counters.names;
    for (outcome, count) in [("ok", names.ok.get()), ("failed", names.failed.get())] {
        let _ = writeln!(out, "ringway_dns_lookups_total{{outcome=\"{outcome}\"}} {count}");
    }
    family(out, "ringway_log_dropped_total", "counter", "Lines about Circuits and rests that the log had no room for.");
    let _ = writeln!(out, "ringway_log_dropped_total {}", live.board.journal().dropped());
    family(out, "ringway_build_info", "gauge", "Always 1; the labels say what runs.");
    let _ = writeln!(out, "ringway_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds(5_000), "0.000005");
        assert_eq!(seconds(2_500_000_000), "2.5");
        assert_eq!(seconds(120_000_000_000), "120");
        assert_eq!(seconds(0), "0");
    }

    #[test]
    fn labels_never_break_the_format() {
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    #[test]
    fn buckets_are_cumulative() {
        let mut sum = DurationSum::default();
        sum.buckets[0] = 2;
        sum.buckets[23] = 1;
        sum.sum_ns = 7;
        let mut out = String::new();
        histogram(&mut out, "x", "a=\"b\"", &sum);
        assert!(out.contains("x_bucket{a=\"b\",le=\"0.000005\"} 2\n"));
        assert!(out.contains("x_bucket{a=\"b\",le=\"120\"} 2\n"));
        assert!(out.contains("x_bucket{a=\"b\",le=\"+Inf\"} 3\n"));
        assert!(out.ends_with("x_sum{a=\"b\"} 0.000000007\nx_count{a=\"b\"} 3\n"));
    }
}
