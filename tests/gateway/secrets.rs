//! Secrets of Endpoints reach the Endpoint, and nothing and nobody else.

use super::harness::{ClosedPort, Reply, Setup, Upstream, call_body};

const SECRETS: [&str; 6] =
    ["pathsecret", "querysecret", "usersecret", "passsecret", "headersecret", "dXNlcnNlY3JldDpwYXNzc2VjcmV0"];

fn assert_none(text: &str, what: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {what}: {text}");
    }
}

#[test]
fn they_reach_the_endpoint_and_nobody_else() {
    let node = Upstream::start(|seen| match seen.json()["params"][0].as_str().unwrap() {
        "ok" => Reply::result(seen, "1"),
        "500" => Reply::json(500, "no"),
        "403" => Reply::json(403, &format!("bad key in {}", seen.head)),
        "429" => Reply::http(429, &["Retry-After: 1"], &seen.head),
        "302" => Reply::http(302, &["Location: http://x/pathsecret"], ""),
        "bad" => Reply::raw(format!("HTTP/1.1 xyz {}\r\n\r\n", seen.head)).then_close(),
        _ => Reply::close(),
    });
    let closed = ClosedPort::new();
    let secret = |address: std::net::SocketAddr| {
        format!(
            "url = \"http://usersecret:passsecret@{address}/v3/pathsecret/x?key=querysecret&b=%20\"\n\
             headers = {{ X-Provider-Key = \"headersecret\" }}"
        )
    };
    let mut gateway = Setup::of(&[&node, &node])
        .server("metrics_public = true")
        .raw("")
        .circuit("consecutive_failures = 6\ncooldown = \"1ms\"")
        .endpoint(0, &secret(node.address))
        .endpoint(1, &secret(closed.address))
        .start();
    let mut client = gateway.connect();
    for method in ["eth_call", "eth_sendTransaction"] {
        for kind in ["ok", "500", "403", "429", "302", "bad", "close"] {
            let answer = client.ask(call_body("1", method, &format!("[\"{kind}\"]")));
            assert_none(&answer.head, kind);
            assert_none(&answer.body, kind);
        }
    }
    let seen = &node.seen()[0];
    assert!(seen.head.starts_with("POST /v3/pathsecret/x?key=querysecret&b=%20 HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.header("host"), Some(node.address.to_string()));
    assert_eq!(seen.header("authorization").as_deref(), Some("Basic dXNlcnNlY3JldDpwYXNzc2VjcmV0"));
    assert_eq!(seen.header("x-provider-key").as_deref(), Some("headersecret"));
    for path in ["/metrics", "/healthz", "/readyz", "/readyz?gateway=eth", "/nothing", "/v1/endpoints"] {
        let page = gateway.admin_get(path, &[]);
        assert_none(&page.head, path);
        assert_none(&page.body, path);
    }
    for text in ["GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"] {
        let answer = client.send(text).response();
        assert_none(&format!("{answer:?}"), text);
    }
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
    assert_none(&gateway.log(), "the log");
    gateway.wait_for_log("stopped");
}

#[test]
fn a_faulty_file_is_refused_without_them() {
    let folder = std::env::temp_dir().join(format!("ringway-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ringway.toml");
    let text = "[[endpoint]]\nid = \"a\"\nchain = \"ethereum\"\nnetwork = \"mainnet\"\nenabeld = true\n\
                url = \"http://usersecret:passsecret@127.0.0.1:1x/pathsecret?querysecret\"\n\
                headers = { X-Key = \"headersecret\\n\" }\n";
    std::fs::write(&file, text).unwrap();
    for arguments in [&["check"][..], &["serve", "--config"]] {
        let run =
            std::process::Command::new(env!("CARGO_BIN_EXE_ringway")).args(arguments).arg(&file).output().unwrap();
        assert_eq!(run.status.code(), Some(1));
        let said = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        assert!(said.contains("enabeld") && said.contains("enabled") && said.contains("url"), "{said}");
        assert_none(&said, "the faults");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
