//! Secrets of Endpoints reach the Endpoint, and nothing and nobody else; keys of callers reach nobody.
//!
//! Secrets are planted wherever one can stand, every failure is provoked, and every byte that comes out (answers,
//! the admin port, the log at its most talkative, what is printed) is searched for them.

use super::harness::{ClosedPort, FullPort, Gateway, Reply, Response, Seen, Setup, Upstream, call_body};
use std::process::{Command, Output};

/// Each is planted in one place; the base64 ones are what the `Authorization` of a URL's user-info is made of.
const SECRETS: [&str; 9] = [
    "pathsecret0123",
    "querysecret0123",
    "usersecret",
    "passsecret",
    "headersecret0123",
    "dXNlcnNlY3JldDpwYXNzc2VjcmV0",
    "admintokensecret",
    "callerkeysecret",
    "envsecret",
];

#[track_caller]
fn assert_none(text: &str, what: &str) {
    for secret in SECRETS {
        // In no spelling that a log or JSON could make of it either.
        let percent = secret.bytes().fold(String::new(), |sum, byte| sum + &format!("%{byte:02x}"));
        for spelling in [secret.to_owned(), percent] {
            let found = text.to_ascii_lowercase().contains(&spelling.to_ascii_lowercase());
            assert!(!found, "{secret} in {what}: {text}");
        }
    }
}

#[track_caller]
fn clean(answer: Response, what: &str) -> Response {
    assert_none(&answer.head, what);
    assert_none(&answer.body, what);
    answer
}

/// Where an Endpoint is, with a secret in each place that can hold one.
fn secret(address: impl std::fmt::Display) -> String {
    format!(
        "url = \"http://usersecret:passsecret@{address}/v3/pathsecret0123/x?key=querysecret0123&b=%20\"\n\
         headers = {{ X-Provider-Key = \"headersecret0123\" }}\n\
         connect_timeout = \"100ms\""
    )
}

/// What a node can do with a Call.
const KINDS: [&str; 21] = [
    "ok", "500", "500json", "503", "403", "401", "429", "302", "308", "404", "400", "405", "413", "html", "odd id",
    "over", "bad head", "cut", "close", "reset", "hang",
];

/// A node that tells everything that it was sent to whoever can be made to listen.
fn gossip(seen: &Seen) -> Reply {
    let all = format!("{}{}", seen.head.replace("\r\n", " "), seen.text().replace('"', "'"));
    let page = format!("<html><h1>{all}</h1></html>");
    let length = page.len();
    let kind = KINDS.into_iter().find(|kind| seen.holds(&format!("\"{kind}\""))).unwrap_or("ok");
    match kind {
        "ok" => Reply::result(seen, "1"),
        "500json" => Reply::json(500, &format!("{{\"error\":\"{all}\"}}")),
        "302" | "308" => Reply::http(kind.parse().unwrap(), &[&format!("Location: http://x{}", seen.line())], &page),
        "429" => Reply::http(429, &["Retry-After: 1"], &page),
        "html" => Reply::http(200, &["Content-Type: text/html"], &page),
        "odd id" => Reply::json(200, &format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{all}\",\"result\":\"{all}\"}}")),
        "over" => Reply::http(200, &[], &all.repeat(100)),
        "bad head" => Reply::raw(format!("HTTP/1.1 xyz {all}\r\n\r\n")).then_close(),
        "cut" => Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", length + 1)).then_close(),
        "close" => Reply::close(),
        "reset" => Reply::reset(),
        "hang" => Reply::hang(),
        status => Reply::http(status.parse().unwrap(), &["Content-Type: text/html"], &page),
    }
}

/// A gateway before nodes that gossip, refuse, are silent, have no address, or speak no TLS.
fn guarded(gossiping: &[&Upstream; 3], closed: &ClosedPort, full: &FullPort, token: &str) -> Setup {
    let addresses = [
        gossiping[0].address,
        gossiping[1].address,
        closed.address,
        full.address,
        closed.address,
        gossiping[2].address,
    ];
    let own = |id: &str, target: &str| {
        format!(
            "[[gateway]]\nid = \"{id}\"\npath = \"/{id}\"\nchain = \"tron\"\nnetwork = \"mainnet\"\nprotocol = \"tron-http\"\n[[gateway.route]]\nid = \"default\"\ntargets = [\"{target}\"]\n"
        )
    };
    let tron = format!(
        "[[endpoint]]\nid = \"t\"\nchain = \"tron\"\nnetwork = \"mainnet\"\nprotocol = \"tron-http\"\n{}\n{}",
        secret(gossiping[0].address),
        own("tron", "t")
    );
    let mut setup = Setup::at(&addresses).server(token).server("explain = \"all\"\nmax_response_bytes = \"16KiB\"");
    for (at, address) in addresses.iter().enumerate() {
        let place = if at == 4 { "no-such-host.invalid:1".to_owned() } else { address.to_string() };
        let scheme = if at == 5 { "https://" } else { "http://" };
        setup = setup.endpoint(at, &secret(place).replace("http://", scheme));
    }
    setup
        .circuit("consecutive_failures = 8\ncooldown = \"1ms\"")
        .route("attempt_timeout = \"150ms\"\nmax_attempts = 10")
        .gateway("cors = { origins = [\"https://app.example\"] }")
        .another("two", "[\"a\", \"b\"]", "attempt_timeout = \"150ms\"")
        .another("refused", "[\"c\"]", "")
        .another("silent", "[\"d\"]", "")
        .another("nameless", "[\"e\"]", "")
        .another("untrusted", "[\"f\"]", "")
        .raw(&tron)
}

/// The whole configuration, with the log at its most talkative.
fn talkative(setup: &Setup) -> String {
    setup.text().replace("format = \"json\"", "format = \"json\"\nlevel = \"trace\"")
}

const KEYS: [&str; 5] = [
    "Ringway-Explain: 1",
    "X-Api-Key: callerkeysecret",
    "Authorization: Bearer callerkeysecret",
    "TRON-PRO-API-KEY: callerkeysecret",
    "Origin: https://app.example",
];

/// Every failure that a node can have, and every refusal that Ringway makes itself.
fn ask_everything(gateway: &Gateway) {
    let mut client = gateway.connect();
    for path in ["/eth", "/two", "/refused", "/silent", "/nameless", "/untrusted"] {
        // Elsewhere the node makes no difference.
        let kinds = if path == "/two" { &KINDS[..] } else { &KINDS[..1] };
        for (method, kind) in ["eth_call", "eth_sendTransaction"].iter().flat_map(|m| kinds.iter().map(move |k| (m, k)))
        {
            let body = call_body("1", method, &format!("[\"{kind}\"]"));
            client.post(path, &KEYS, &body);
            let one = clean(client.response(), &format!("{path} {method} {kind}"));
            assert!(one.header("Ringway-Attempts").is_some(), "{one:?}");
            client.post(path, &KEYS, format!("[{body},{body}]"));
            clean(client.response(), &format!("a batch, {path} {method} {kind}"));
        }
    }
    for refused in [
        "POST /eth/callerkeysecret HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
        "GET /eth?callerkeysecret HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /eth HTTP/1.1\r\nHost: h\r\nX callerkeysecret: 1\r\nAuthorization: callerkeysecret\r\n\r\n",
        "POST /callerkeysecret HTTP/1.1\r\nHost: callerkeysecret\r\nContent-Length: x\r\n\r\n",
        "POST /eth HTTP/1.1\r\nHost: h\r\nContent-Type: callerkeysecret\r\nContent-Length: 0\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        clean(gateway.connect().send(refused).response(), refused);
    }
    // Its name is told on the admin port, by contract: no key may stand there.
    let body = "{\"callerkeysecret\":1,\"id\":1,\"method\":\"admin_whatever\"}";
    let closed = clean(gateway.post(body), "a method that is closed");
    assert!(!closed.body.contains("admin_whatever"), "{closed:?}");
    clean(gateway.post("[1,\"callerkeysecret\""), "no JSON");
    for (target, kind) in
        [("wallet/getnowblock", "400"), ("wallet/getaccount", "405"), ("no/api", "x"), ("net/x", "500")]
    {
        let mut client = gateway.connect();
        client.post(&format!("/tron/{target}"), &KEYS, format!("[\"{kind}\"]"));
        clean(client.response(), &format!("tron {target} {kind}"));
    }
}

/// Every page of the admin port, by whoever may and whoever may not.
fn ask_the_operator(gateway: &Gateway, token: bool) {
    let bearer = ["Host: localhost", "Authorization: Bearer admintokensecret", "Content-Type: application/json"];
    let wrong = ["Host: localhost", "Authorization: Bearer callerkeysecret", "Content-Type: application/json"];
    let pages = [
        "/",
        "/metrics",
        "/healthz",
        "/readyz",
        "/readyz?gateway=eth",
        "/readyz?gateway=callerkeysecret",
        "/callerkeysecret",
        "/v1/endpoints",
        "/v1/endpoints/a",
        "/v1/gateways",
        "/v1/gateways/eth/routes/default",
        "/v1/methods/unlisted",
        "/v1/openapi.json",
        "/v1/circuits/a",
        "/v1/explain",
        "/v1/reload",
    ];
    let wishes = [
        "{\"action\":\"open\",\"for\":\"1ms\"}",
        "{\"action\":\"sideways\"",
        "{\"action\":\"open\",\"for\":\"x\"}",
        "{\"gateway\":\"eth\",\"call\":{\"id\":1,\"method\":\"eth_call\",\"params\":[]}}",
        "",
    ];
    for page in pages {
        for headers in [&bearer, &wrong] {
            let answer = clean(gateway.admin_get(page, headers), page);
            assert!(!token || headers == &bearer || page != "/metrics" || answer.status == 401, "{answer:?}");
            for wish in wishes {
                let answer = gateway.admin_post(page, headers, wish);
                clean(answer, &format!("POST {page} {wish}"));
            }
        }
    }
    clean(gateway.admin_post("/v1/circuits/callerkeysecret", &bearer, wishes[0]), "an Endpoint that is not there");
}

#[test]
fn every_byte_that_comes_out_is_free_of_them() {
    let [first, second] = [Upstream::start(gossip), Upstream::start(gossip)];
    let third = Upstream::greeting(b"HTTP/1.1 400 usersecret\r\n\r\n", gossip);
    let (closed, full) = (ClosedPort::new(), FullPort::new());
    let token = "admin_token = \"admintokensecret\"";
    let setup = || guarded(&[&first, &second, &third], &closed, &full, token);
    let mut gateway = Gateway::start(&talkative(&setup()));
    ask_everything(&gateway);
    ask_the_operator(&gateway, true);
    // Each way in which a file can be wrong where a secret stands, and one that needs a restart.
    let good = talkative(&setup());
    let place = "@127.0.0.1:";
    for (from, to) in [
        (place, "@127.0.0.1:1x"),
        (place, "@[::1"),
        ("http://usersecret", "ftp://usersecret"),
        ("pathsecret0123/x", "pathsecret0123/ x"),
        ("querysecret0123&b=%20\"", "querysecret0123&b=%20"),
        ("\"headersecret0123\"", "\"headersecret0123\\n\""),
        ("\"headersecret0123\"", "headersecret0123"),
        ("X-Provider-Key = ", "\"X headersecret0123\" = "),
        ("\"admintokensecret\"", "\"admintokensecret"),
        ("\"admintokensecret\"", "\"admintokensecret \u{e9}\""),
        ("\"admintokensecret\"", "[\"admintokensecret\"]"),
        ("shards = 2", "shards = 1"),
    ] {
        let faulty = good.replace(from, to);
        assert_ne!(faulty, good, "{from}");
        assert!(!gateway.reload_text(&faulty), "{to}");
    }
    assert!(gateway.reload_text(&good.replace("/v3/", "/v4/")));
    ask_everything(&gateway);
    let went_up = first.seen();
    assert!(went_up.iter().all(|seen| !seen.head.contains("callerkeysecret")), "keys of callers stay here");
    let seen = went_up.iter().find(|seen| seen.holds("eth_call")).unwrap();
    assert!(seen.head.starts_with("POST /v3/pathsecret0123/x?key=querysecret0123&b=%20 HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.header("host"), Some(first.address.to_string()));
    assert_eq!(seen.header("authorization").as_deref(), Some("Basic dXNlcnNlY3JldDpwYXNzc2VjcmV0"));
    assert_eq!(seen.header("x-provider-key").as_deref(), Some("headersecret0123"));
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
    let log = gateway.log();
    assert_none(&log, "the log");
    for word in ["stopped", "reload refused", "\"Circuit\"", "a host name can't be looked up"] {
        assert!(log.contains(word), "the log says nothing of {word:?}: {log}");
    }
}

#[test]
fn without_a_token_the_admin_port_is_as_silent() {
    let [first, second] = [Upstream::start(gossip), Upstream::start(gossip)];
    let third = Upstream::greeting(b"HTTP/1.1 400 usersecret\r\n\r\n", gossip);
    let (closed, full) = (ClosedPort::new(), FullPort::new());
    let gateway =
        Gateway::start(&talkative(&guarded(&[&first, &second, &third], &closed, &full, "metrics_public = true")));
    ask_the_operator(&gateway, false);
    assert_none(&gateway.log(), "the log");
}

fn said(run: &Output) -> String {
    String::from_utf8([run.stdout.as_slice(), &run.stderr].concat()).unwrap()
}

fn ringway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringway"))
}

#[test]
fn what_is_printed_about_a_file_is_free_of_them() {
    let folder = std::env::temp_dir().join(format!("ringway-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ringway.toml");
    let node = Upstream::answering("1");
    let good =
        Setup::of(&[&node]).server("admin_token = \"${SECRET_OF_ENV}\"").endpoint(0, &secret(node.address)).text();
    std::fs::write(&file, &good).unwrap();
    let run = ringway().arg("check").arg(&file).env("SECRET_OF_ENV", "envsecret").output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert!(said(&run).contains("eth"), "{}", said(&run));
    assert_none(&said(&run), "the summary");

    let faulty = "[[endpoint]]\nid = \"a\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\nenabeld = true\n\
                  url = \"http://usersecret:passsecret@127.0.0.1:1x/pathsecret0123?querysecret0123\"\n\
                  headers = { X-Key = \"headersecret0123\\n\", Host = \"${SECRET_OF_ENV}\" }\n\
                  connect_timeout = \"${SECRET_OF_ENV}\"\nweigth = \"${SECRET_OF_ENV}\"\n";
    for text in [faulty.to_owned(), faulty.replace("0123\\n\"", "0123"), faulty.replace("url = \"", "url = ")] {
        std::fs::write(&file, &text).unwrap();
        for arguments in [&["check"][..], &["serve", "--config"]] {
            let run = ringway().args(arguments).arg(&file).env("SECRET_OF_ENV", "envsecret").output().unwrap();
            assert_eq!(run.status.code(), Some(1));
            assert!(said(&run).contains("enabeld") && said(&run).contains("url"), "{}", said(&run));
            assert_none(&said(&run), "the faults");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
