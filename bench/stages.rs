//! What does each stage of a plain Call cost? Runs them one by one, with the functions and inputs of `net`.
//!
//! `cargo run --release -p ringway-bench` times them: CPU time of the thread, medians of rounds. With `--count` each
//! runs a fixed number of times inside [`counted`], for `bench/stages`, which has valgrind count there.

mod stopwatch;

use ringway::logic::chain::Standing;
use ringway::logic::circuit::Admission;
use ringway::logic::facts::Client;
use ringway::logic::failover::{Action, CallMachine, Event, Finish, World as _, weighted};
use ringway::logic::fault::Outcome;
use ringway::logic::routing::{Entrances, plan};
use ringway::logic::snapshot::{EndpointIx, Gateway, GatewayIx, Protocol, Route, Server, Snapshot, Tier};
use ringway::logic::tiers::Requirement;
use ringway::logic::units::{MS, Nanos, SECOND};
use ringway::logic::verdict::{Body, CircuitNote, Response, Verdict, judge};
use ringway::names::keeper;
use ringway::net::buffers::{Buffers, HEADROOM};
use ringway::net::client_head;
use ringway::net::exchange::Answer;
use ringway::net::reply::{self, Frame};
use ringway::net::upstream;
use ringway::shared::outlook::Outlook;
use ringway::shared::snapshot_cell::Live;
use ringway::shared::tip_board::Told;
use ringway::wire::block_args::asked;
use ringway::wire::http1::{HEADERS_MAX, HeadLimits};
use ringway::wire::http1_request::{Framing, request_head};
use ringway::wire::http1_response::{BodyFraming, response_head};
use ringway::wire::http1_write::{AnswerCoding, Head, RequestWriter};
use ringway::wire::jsonrpc::{Checked, Message, check, parse, request_len, write_request};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{self, Write};

/// Runs of each stage under `--count`, and of those with long texts.
const COUNTED: u32 = 1_000;
const COUNTED_LONG: u32 = 50;

/// A Gateway of three Routes; Endpoints are added to it.
const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]
admin = "127.0.0.1:0"
[[gateway]]
id = "eth"
path = "/eth"
chain = "ethereum"
network = "mainnet"
[[gateway.route]]
id = "default"
targets = ["n0", "n1"]
[[gateway.route]]
id = "shares"
methods = ["eth_getLogs"]
strategy = "weighted"
targets = [{ endpoint = "n0", weight = 5 }, { endpoint = "n1", weight = 3 }, { endpoint = "n2", weight = 2 }]
[[gateway.route]]
id = "many"
methods = ["eth_getBlockByNumber"]
targets = [ALL]
[[gateway.route]]
id = "many-shares"
methods = ["eth_getBlockByHash"]
strategy = "weighted"
targets = [ALL]
[[gateway.route]]
id = "tiers"
methods = ["eth_getBalance"]
strategy = "tiered"
targets = ["n0", "n1", "n2"]
[[gateway.route]]
id = "tiers-10"
methods = ["eth_getCode"]
strategy = "tiered"
targets = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]
"#;
/// As many Endpoints as a Route may have.
const ENDPOINTS: usize = 100;
const PARAMS: &str = r#"[{"to":"0xdac17f958d2ee523a2206206994597c13d831ec7","data":"0x70a082310000000000000000000000006e0d01a76c3cf4288372a29124a26d4353ee51be"},"latest"]"#;
const ID: u64 = 1_000_083;
const NOW_NS: Nanos = 3_600 * SECOND;
const A: EndpointIx = EndpointIx(0);
/// The newest block of all nodes.
const TIP: u64 = 27_000_000;
/// As `net::upstream` has them.
const HEAD_LIMITS: HeadLimits = HeadLimits { bytes: 64 << 10, headers: HEADERS_MAX };

/// One stage: says whether it did its work.
struct Stage {
    name: &'static str,
    times: u32,
    run: Box<dyn FnMut() -> bool>,
}

fn stage(name: &'static str, run: impl FnMut() -> bool + 'static) -> Stage {
    Stage { name, times: COUNTED, run: Box::new(run) }
}

/// What all stages work with; it lives as long as the process.
struct Setting {
    live: Live,
    entrances: Entrances,
    template: Box<[u8]>,
    buffers: Buffers,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl Setting {
    fn new() -> Setting {
        let all: Vec<String> = (0..ENDPOINTS).map(|at| format!("\"n{at}\"")).collect();
        let mut config = CONFIG.replace("ALL", &all.join(", "));
        for at in 0..ENDPOINTS {
            let place = "chain = \"ethereum\"\nnetwork = \"mainnet\"";
            let _ =
                write!(config, "[[endpoint]]\nid = \"n{at}\"\n{place}\nurl = \"http://127.0.0.1:{}/\"\n", 18_000 + at);
            let _ = writeln!(config, "tier = \"{}\"", Tier::ALL[at % 3].word());
        }
        let snapshot = ringway::config::resolve::resolve(&config, &|_| None).snapshot.expect("a valid file");
        let known = keeper::without_asking(&snapshot);
        let live = Live::new(snapshot, known, 1, None);
        let chain = live.tips.network_of(A).expect("a network");
        chain.set_best(Some(TIP));
        for tips in (0..ENDPOINTS).filter_map(|at| live.tips.endpoint(EndpointIx(at as u16))) {
            let told =
                Told { standing: Standing::Fresh, tip: TIP, client: Client::Geth, identified: true, mismatched: false };
            tips.tell(told, 0, NOW_NS + SECOND);
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"eth_call","params":{PARAMS}}}"#).into_bytes();
        let head = format!(
            "POST /eth HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Setting {
            entrances: Entrances::new(&live.snapshot.gateways),
            template: upstream::template(&live.snapshot.endpoints[0]),
            buffers: Buffers::default(),
            request: [head.as_bytes(), &body].concat(),
            body,
            live,
        }
    }

    fn snapshot(&self) -> &Snapshot {
        &self.live.snapshot
    }

    fn server(&self) -> &Server {
        &self.snapshot().server
    }

    fn gateway(&self) -> &Gateway {
        &self.snapshot().gateways[0]
    }
}

fn main() -> io::Result<()> {
    let setting: &'static Setting = Box::leak(Box::new(Setting::new()));
    let mut stages = incoming(setting);
    stages.extend(decisions(setting));
    stages.extend(outgoing(setting));
    for stage in &mut stages {
        assert!((stage.run)(), "{} did not do its work", stage.name);
    }
    let mut out = io::stdout().lock();
    if std::env::args().nth(1).as_deref() == Some("--count") {
        // The loop itself, which is taken off.
        stages.insert(0, stage("nothing", || black_box(true)));
        for Stage { name, times, run } in &mut stages {
            (0..*times / 10).for_each(|_| assert!(run()));
            assert_eq!(counted(run, *times), *times, "{name} did not do its work");
            writeln!(out, "{name} {times}")?;
        }
        return Ok(());
    }
    for Stage { name, run, .. } in &mut stages {
        let (middle, least, most) = stopwatch::many(run);
        writeln!(out, "{name} {middle:.1} {least:.1} {most:.1}")?;
    }
    Ok(())
}

/// How often a stage said that it did its work. Whoever counts instructions counts in here.
#[inline(never)]
fn counted(run: &mut dyn FnMut() -> bool, times: u32) -> u32 {
    let mut done = 0;
    for _ in 0..times {
        done += u32::from(run());
    }
    done
}

/// From the caller's bytes to a Call (`net::client_http`).
fn incoming(setting: &'static Setting) -> Vec<Stage> {
    let limits = client_head::limits(setting.server());
    let (request, body) = (&*setting.request, &*setting.body);
    let head_len = request.len() - body.len();
    vec![
        stage("parse-head", move || {
            let head = black_box(request_head(black_box(request), 0, &limits));
            head.is_ok_and(|head| {
                head.is_some_and(|head| {
                    head.path == "/eth"
                        && head.head_len == head_len
                        && head.framing == Framing::Length(body.len() as u64)
                })
            })
        }),
        stage("parse-call", move || {
            let parsed = black_box(parse(black_box(body), setting.server().max_batch));
            matches!(parsed, Ok(Message::Single(Ok(call))) if call.method == "eth_call" && call.params.is_some())
        }),
    ]
}

/// What `logic` and the board say (`net::client_head`, `net::exchange`).
fn decisions(setting: &'static Setting) -> Vec<Stage> {
    let (gateway, board) = (setting.gateway(), &setting.live.board);
    let table = gateway.table(&setting.snapshot().methods);
    let route_of = |name: &str| {
        let planned = plan(gateway, table, name).1.expect("a method that is offered");
        (&gateway.routes[usize::from(planned.route.0)], planned.class, planned.method)
    };
    let (route, class, method) = route_of("eth_call");
    let [shares, many, many_shares] =
        ["eth_getLogs", "eth_getBlockByNumber", "eth_getBlockByHash"].map(|name| route_of(name).0);
    let targets = [route, shares, many, many_shares].map(|route| route.targets.len());
    assert_eq!(targets, [2, 3, ENDPOINTS, ENDPOINTS], "the Routes of the configuration");
    let cells = (&setting.live.counters.endpoints[0][0], &setting.live.counters.routes[0][0][0]);
    vec![
        stage("admit", move || {
            let found = black_box(setting.entrances.find(black_box("/eth"), black_box(Some("127.0.0.1"))));
            let admitted = black_box(board.admission(black_box(A), NOW_NS)) == Admission::Admit;
            let begun = board.begin(black_box(A), false, NOW_NS, NOW_NS + 10 * SECOND);
            found == Some(GatewayIx(0)) && admitted && black_box(begun) == Ok(None)
        }),
        stage("plan", move || {
            let (found, planned) = black_box(plan(black_box(gateway), table, black_box("eth_call")));
            found == method && planned.is_ok_and(|planned| planned.class == class)
        }),
        stage("pick", move || first(black_box(route), setting, class) == Some(A)),
        stage("pick-100", move || first(black_box(many), setting, class) == Some(A)),
        by_weight("pick-weighted", shares),
        by_weight("pick-weighted-100", many_shares),
        stage("machine", move || {
            let mut machine = CallMachine::new(black_box(route), class, false, None);
            let action = machine.next(route, board, NOW_NS, &mut || 7);
            let attempted = matches!(black_box(action), Action::Attempt { endpoint: A, probe: false, .. });
            machine.feed(black_box(Event::Judged(Verdict::Final)));
            attempted && machine.next(route, board, NOW_NS, &mut || 7) == Action::Finish(Finish::Reply)
        }),
        by_tier("tiers", setting, "eth_getBalance"),
        by_tier("tiers-10", setting, "eth_getCode"),
        stage("judge", move || {
            let response = Response { status: 200, retry_after_ns: None, body: Body::Result };
            black_box(judge(gateway.family, black_box(&response))) == (Verdict::Final, CircuitNote::Success)
        }),
        stage("account", move || {
            board.answered(black_box(A), 0, NOW_NS);
            board.note(black_box(A), 0, black_box(CircuitNote::Success), None, NOW_NS, 42);
            cells.0.answered(black_box(MS));
            cells.1.called(black_box(method), black_box(Outcome::Ok), black_box(MS));
            true
        }),
    ]
}

/// The first choice of a weighted Route. The draws walk over all targets: which one it is decides what it costs.
fn by_weight(name: &'static str, route: &'static Route) -> Stage {
    let mut draw = 0u64;
    stage(name, move || {
        draw = draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let chosen = black_box(weighted(black_box(route), route.eligible, draw));
        chosen.is_some_and(|at| usize::from(at) < route.targets.len())
    })
}

/// What a Call needs, and where a tiered Route sends it: all of it that a Route without tiers does not do, and the choice.
fn by_tier(name: &'static str, setting: &'static Setting, method: &'static str) -> Stage {
    const CHEAPEST: &str = r#"["0xdac17f958d2ee523a2206206994597c13d831ec7","latest"]"#;
    let (gateway, table) = (setting.gateway(), setting.gateway().table(&setting.snapshot().methods));
    let planned = plan(gateway, table, method).1.expect("a method that is offered");
    let route = &gateway.routes[usize::from(planned.route.0)];
    let chain = setting.live.tips.network_of(A).expect("a network");
    stage(name, move || {
        let row = table.get(black_box(planned.method)).expect("a row");
        let past = asked(row.reads, Some(black_box(CHEAPEST.as_bytes())));
        let need = Requirement::of(row.reads, Some(row.tier), past, chain.best(), 64);
        let outlook = Outlook::new(&setting.live, gateway, planned.method, method);
        let mut machine = CallMachine::new(black_box(route), planned.class, false, None);
        machine.needs(need);
        let action = machine.next(route, &outlook, NOW_NS, &mut || 7);
        matches!(black_box(action), Action::Attempt { endpoint: A, probe: false, .. })
    })
}

/// Where a Call goes first.
fn first(route: &Route, setting: &Setting, class: ringway::logic::call::Class) -> Option<EndpointIx> {
    let mut machine = CallMachine::new(route, class, false, None);
    match black_box(machine.next(route, &setting.live.board, NOW_NS, &mut || 7)) {
        Action::Attempt { endpoint, .. } => Some(endpoint),
        _ => None,
    }
}

/// The request to a node, and its answer on the way back (`net::upstream`, `net::exchange`, `net::reply`).
fn outgoing(setting: &'static Setting) -> Vec<Stage> {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        result(120).len(),
        result(120)
    )
    .into_bytes();
    let length = result(120).len() as u64;
    let check = |name, size| {
        let text = result(size).into_bytes();
        let times = if size > 10_000 { COUNTED_LONG } else { COUNTED };
        let run = move || {
            let checked = black_box(check(black_box(&text), ID));
            matches!(checked, Checked::Result(value) if value.len() == size)
        };
        Stage { times, ..stage(name, run) }
    };
    vec![
        stage("write-request", move || write_up(setting)),
        stage("read-head", move || {
            let head = black_box(response_head(black_box(&answer), 0, &HEAD_LIMITS));
            matches!(head, Ok(Some(head)) if head.status == 200 && head.framing == BodyFraming::Length(length))
        }),
        check("check-120", 120),
        check("check-2k", 2_048),
        check("check-100k", 100_000),
        write_down(setting),
    ]
}

/// As `net::upstream` writes a request, into a buffer that comes back.
fn write_up(setting: &Setting) -> bool {
    let (id, params) = (Some(black_box(ID)), Some(black_box(PARAMS.as_bytes())));
    let body_bytes = request_len(id, "eth_call", params);
    let head = RequestWriter { template: &setting.template, body_bytes, traceparent: None };
    let mut out = setting.buffers.take(head.bytes() + body_bytes);
    head.write(&mut out);
    write_request(&mut out, id, black_box("eth_call"), params);
    let good = out.len() == head.bytes() + setting.body.len() && out.ends_with(b"\"latest\"]}");
    setting.buffers.give(black_box(out));
    good
}

/// The answer around the node's own bytes: its head stands in front of the value, which keeps its place.
fn write_down(setting: &'static Setting) -> Stage {
    let text = result(120);
    let mut buf = vec![0; HEADROOM + 80];
    buf.extend_from_slice(text.as_bytes());
    let at = HEADROOM + 80 + text.find("\"0x").expect("the value");
    let value = at..buf.len() - 1;
    // As a caller's own: at 7 bytes it's as long as those of `bench/instructions`.
    let id = ID.to_string().into_bytes();
    let mut held = Some(buf);
    stage("write-answer", move || {
        let made = reply::made_request_id(black_box(0x1234_5678_9abc_def0));
        let frame = Frame {
            keep_alive: true,
            http11: true,
            head_only: false,
            request_id: std::str::from_utf8(&made).unwrap_or_default(),
            cors: None,
            coding: AnswerCoding::Fixed,
            extra: b"",
            protocol: Protocol::JsonRpc,
        };
        let Some(buf) = held.take() else { return false };
        let answer = Answer::Node { buf, value: value.clone(), is_error: false };
        let reply = black_box(reply::single(&setting.buffers, frame, black_box(&id), answer));
        let good = reply.buf[reply.from..].starts_with(b"HTTP/1.1 200 OK\r\n") && reply.buf.ends_with(b"\"}");
        held = Some(reply.buf);
        good
    })
}

/// A node's answer whose result is so many bytes long: a word, or logs.
fn result(size: usize) -> String {
    let mut value = String::new();
    if size < 1_000 {
        let _ = write!(value, "\"0x{}\"", "5e".repeat(size / 2 - 2));
    } else {
        value.push('[');
        let entry = format!(
            "{{\"address\":\"0x{a}\",\"topics\":[\"0x{t}\",\"0x{t}\"],\"data\":\"0x{t}\",\"blockNumber\":\"0x1312d00\",\"logIndex\":\"0x2a\",\"removed\":false}},",
            a = "c7".repeat(20),
            t = "3b".repeat(32)
        );
        while value.len() + entry.len() + 3 < size {
            value.push_str(&entry);
        }
        let left = size - value.len() - 3;
        let _ = write!(value, "\"{}\"]", "5".repeat(left));
    }
    assert_eq!(value.len(), size, "the size that was asked for");
    format!(r#"{{"jsonrpc":"2.0","id":{ID},"result":{value}}}"#)
}
