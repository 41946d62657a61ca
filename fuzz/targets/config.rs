//! Configuration files: every fault has a place inside the text, a Snapshot keeps its bounds, no secret is told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway::config::fault::{ConfigFault, Severity};
use ringway::config::resolve::{Resolved, resolve};
use ringway::config::summary::summary;
use ringway::logic::snapshot::{ATTEMPTS_MAX, Snapshot, Strategy, TARGETS_MAX};

/// What every secret of this environment holds.
const MARK: &str = "Zq9WJ";

/// By the first letter: a secret of several shapes, an ordinary word, or nothing.
fn env(name: &str) -> Option<String> {
    match name.as_bytes().first()? {
        b'S' => Some(format!("{MARK} ; \"'\n\u{e9}")),
        b'U' => Some(format!("http://{MARK}:{MARK}@h.example:8545/v2/{MARK}?k={MARK}")),
        b'B' => Some(format!("Bearer {MARK}.{MARK}")),
        b'T' => Some(format!("{MARK}=/{MARK}+")),
        b'N' => Some("geth-1".to_owned()),
        b'D' => Some("10s".to_owned()),
        b'L' => Some("x".repeat(70_000)),
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if text.contains(MARK) {
        return;
    }
    let Resolved { snapshot, faults, .. } = resolve(&text, &env);
    let stopped = faults.iter().any(|fault| fault.severity == Severity::Fault);
    assert_eq!(snapshot.is_none(), stopped, "{faults:?}");
    assert!(faults.is_sorted_by_key(|fault| (fault.line, fault.column)));
    let seen = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines: Vec<usize> = seen.split('\n').map(|line| line.chars().count()).collect();
    faults.iter().for_each(|fault| told_well(fault, &lines));
    if let Some(snapshot) = snapshot {
        kept(&snapshot);
    }
});

fn told_well(fault: &ConfigFault, lines: &[usize]) {
    let ConfigFault { line, column, path, text, .. } = fault;
    assert!((1..=lines.len()).contains(line), "{fault:?}");
    assert!((1..=lines[line - 1] + 1).contains(column), "{fault:?}");
    assert!(!path.is_empty() && !text.is_empty(), "{fault:?}");
    assert!(text.len() < 2_000 && !text.contains('\n'), "{fault:?}");
    let shown = fault.shown("f").to_string();
    assert!(!shown.contains(MARK), "{shown}");
}

fn kept(snapshot: &Snapshot) {
    let told = format!("{}{snapshot:?}", summary(snapshot));
    assert!(!told.contains(MARK), "{told}");
    assert!(!snapshot.server.listen.is_empty() && snapshot.server.max_request_bytes > 0);
    assert!(snapshot.server.admin.ip().is_loopback() || snapshot.server.admin_token.is_some());
    for gateway in &snapshot.gateways {
        assert!(gateway.path.starts_with('/') && (gateway.path.len() == 1 || !gateway.path.ends_with('/')));
        assert!(gateway.routes[usize::from(gateway.default_route.0)].methods.is_empty());
        assert_eq!(gateway.routes.iter().filter(|route| route.methods.is_empty()).count(), 1);
        for route in &gateway.routes {
            assert!((1..=TARGETS_MAX).contains(&route.targets.len()));
            assert!((1..=ATTEMPTS_MAX.min(snapshot.server.max_attempts)).contains(&route.max_attempts));
            assert!(route.attempt_timeout_ns > 0);
            assert!(route.targets.iter().all(|target| usize::from(target.endpoint.0) < snapshot.endpoints.len()));
            assert!(route.targets.iter().all(|target| target.weight <= 1000));
            let mut endpoints: Vec<u16> = route.targets.iter().map(|target| target.endpoint.0).collect();
            endpoints.sort_unstable();
            endpoints.dedup();
            assert_eq!(endpoints.len(), route.targets.len(), "an Endpoint twice");
            assert_eq!(route.eligible.checked_shr(route.targets.len() as u32).unwrap_or(0), 0);
            if route.strategy == Strategy::Weighted {
                assert!(route.targets.iter().any(|target| target.weight > 0));
            }
        }
    }
    for endpoint in &snapshot.endpoints {
        assert!(endpoint.url.port > 0 && endpoint.url.path_and_query.reveal().starts_with('/'));
        assert!(!endpoint.url.host.is_empty());
        let clean = |text: &str| !text.bytes().any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f);
        assert!(endpoint.headers.iter().all(|(_, value)| clean(value.reveal())));
        assert!(endpoint.url.path_and_query.reveal().bytes().all(|byte| byte.is_ascii_graphic()));
    }
}
