//! What the file means: text and environment in, a whole Snapshot or all faults at once out.

use super::endpoint::Endpoints;
use super::family::Families;
use super::fault::{ConfigFault, Faults, Severity};
use super::file::{View, parse};
use super::gateway::{Context, gateways};
use super::known_names;
use super::machine::{self, Machine};
use super::network::networks;
use super::own_methods;
use super::schema::ROOT;
use super::server::{circuit, server};
use super::tls::Files;
use crate::logic::snapshot::{RESTART_KEYS, Snapshot};

/// Largest configuration file.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// The outcome of reading a configuration.
#[derive(Debug)]
pub struct Resolved {
    /// `None` if there is any fault.
    pub snapshot: Option<Snapshot>,
    /// Faults and warnings, by position.
    pub faults: Vec<ConfigFault>,
    /// Line and column of each of [`RESTART_KEYS`]; of `[server]` for one that is not written.
    restart_keys: Vec<(usize, usize)>,
}

impl Resolved {
    fn refused(faults: Faults<'_>) -> Resolved {
        Resolved { snapshot: None, faults: faults.sorted(), restart_keys: Vec::new() }
    }

    /// That a reload can't take this file, because it changes these of [`RESTART_KEYS`].
    pub fn only_by_restart(&self, keys: &[&str]) -> Vec<ConfigFault> {
        let stated = RESTART_KEYS.iter().zip(&self.restart_keys).filter(|(key, _)| keys.contains(key));
        let fault = |(key, &(line, column)): (&&str, &(usize, usize))| ConfigFault {
            severity: Severity::Fault,
            line,
            column,
            path: format!("server.{key}"),
            text: "can't be changed by a reload; restart, or put it back".to_owned(),
        };
        stated.map(fault).collect()
    }
}

/// [`resolve_with`] of a file's bytes.
pub fn resolve_bytes(
    bytes: &[u8],
    env: &dyn Fn(&str) -> Option<String>,
    files: Files<'_>,
    machine: Option<&Machine>,
) -> Resolved {
    let broken_at = match std::str::from_utf8(bytes) {
        Ok(text) => return resolve_with(text, env, files, machine),
        Err(error) => error.valid_up_to(),
    };
    let text = bytes.get(..broken_at).and_then(|good| std::str::from_utf8(good).ok()).unwrap_or_default();
    let mut faults = Faults::new(text);
    faults.syntax(text.len(), "here is a byte that is no UTF-8; save the file as UTF-8".to_owned());
    Resolved::refused(faults)
}

/// Reads a configuration file's text; `env` answers `${NAME}`. Files that it names are taken as the process sees them.
pub fn resolve(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Resolved {
    resolve_with(text, env, &|name| std::fs::read(name), None)
}

/// [`resolve`], with `files` to read the files that the text names, and with warnings of what a sound file asks for
/// and `machine` has not.
pub fn resolve_with(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    files: Files<'_>,
    machine: Option<&Machine>,
) -> Resolved {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut faults = Faults::new(text);
    if text.len() > FILE_BYTES_MAX {
        faults.syntax(0, "the file is larger than 4 MiB; make it smaller".to_owned());
        return Resolved::refused(faults);
    }
    let tree = parse(text, &mut faults);
    let top = View::top(&tree, ROOT, env);
    top.check(&mut faults);
    let server = server(&top, files, &mut faults);
    let base = circuit(&top.table("circuit"), None, &mut faults);
    let families = Families::read(&top, &mut faults);
    let endpoints = Endpoints::read(&top, base, &families, files, &mut faults);
    let methods = own_methods::methods(&top, &mut faults);
    known_names::warn(&top, &endpoints, &families, &methods, &mut faults);
    let max_attempts = server.max_attempts;
    let context = Context { endpoints: &endpoints, families: &families, methods: &methods, max_attempts };
    let gateways = gateways(&top, &context, &mut faults);
    let networks = networks(&top, &endpoints, &gateways, &mut faults);
    let snapshot = (!faults.any()).then(|| Snapshot::new(server, endpoints.valid, gateways, networks, methods));
    if let (Some(snapshot), Some(machine)) = (&snapshot, machine) {
        machine::warn(&top, snapshot, machine, &mut faults);
    }
    let typed = top.table("server");
    let restart_keys = RESTART_KEYS.iter().map(|key| faults.position(typed.at_of(key))).collect();
    Resolved { snapshot, faults: faults.sorted(), restart_keys }
}

/// How the tests of this room look at a file: `«` marks where the fault is to be seen.
#[cfg(test)]
pub(super) mod probe {
    use super::{Resolved, resolve};
    use crate::config::fault::Severity;
    use crate::logic::snapshot::Snapshot;

    /// A file without faults, to be changed by a test.
    pub const SOUND: &str = include_str!("probe.toml");

    /// Reads a file in an environment that has only `KEY`.
    pub fn read(text: &str) -> Resolved {
        resolve(text, &|name| (name == "KEY").then(|| "s3cret-of-env".to_owned()))
    }

    /// [`SOUND`] with one change.
    #[track_caller]
    pub fn with(from: &str, to: &str) -> String {
        assert_eq!(SOUND.matches(from).count(), 1, "{from:?} must be in probe.toml once");
        SOUND.replace(from, to)
    }

    /// The Snapshot of a file that has no fault.
    #[track_caller]
    pub fn sound(text: &str) -> Snapshot {
        let resolved = read(text);
        resolved.snapshot.unwrap_or_else(|| panic!("{:#?}", resolved.faults))
    }

    /// Asserts that the only fault is at the mark, for this key, with these words.
    #[track_caller]
    pub fn faulty(marked: &str, path: &str, says: &[&str]) {
        only(marked, path, says, Severity::Fault);
    }

    /// Asserts that the only finding is a warning at the mark, for this key, with these words.
    #[track_caller]
    pub fn warned(marked: &str, path: &str, says: &[&str]) {
        only(marked, path, says, Severity::Warning);
    }

    #[track_caller]
    fn only(marked: &str, path: &str, says: &[&str], severity: Severity) {
        let (before, after) = marked.split_once('«').expect("a mark");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        let resolved = read(&format!("{before}{after}"));
        let [found] = resolved.faults.as_slice() else { panic!("not exactly one: {:#?}", resolved.faults) };
        assert_eq!((found.line, found.column, found.path.as_str()), (line, column, path), "{found:?}");
        assert_eq!(found.severity, severity, "{found:?}");
        assert_eq!(resolved.snapshot.is_none(), severity == Severity::Fault);
        for word in says {
            assert!(found.text.contains(word), "{:?} does not say {word:?}", found.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::probe::{SOUND, faulty, read, sound, with};
    use super::*;
    use crate::config::fault::Severity;
    use crate::logic::snapshot::{Strategy, Tier};
    use proptest::prelude::{Strategy as Generate, *};

    const URL: &str = r#"url = "http://10.0.0.1:8545""#;

    #[test]
    fn a_sound_file_makes_a_whole_snapshot() {
        whole(&sound(SOUND));
    }

    #[test]
    fn the_minimal_example_is_taken_without_a_word() {
        let resolved = read(include_str!("../../config/minimal.toml"));
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.expect("no fault");
        assert_eq!((snapshot.endpoints.len(), snapshot.gateways.len()), (2, 1));
    }

    #[test]
    fn the_providers_example_is_taken_without_a_word_and_shows_every_place_for_a_key() {
        let mut text = include_str!("../../config/providers.toml").to_owned();
        for key in ["INFURA_KEY", "NOWNODES_KEY", "DRPC_KEY"] {
            assert!(text.contains(&format!("{key}=… ")), "{key} is in the line to try");
            text = text.replace(&format!("${{{key}}}"), "${KEY}");
        }
        let resolved = read(&text);
        assert_eq!(resolved.faults, []);
        let endpoints = resolved.snapshot.expect("no fault").endpoints;
        let up: Vec<_> = endpoints.iter().map(|endpoint| endpoint.url.path_and_query.reveal().to_owned()).collect();
        assert_eq!(up, ["/v3/s3cret-of-env", "/", "/ogrpc?network=ethereum&dkey=s3cret-of-env"]);
        let headers: Vec<_> = endpoints.iter().flat_map(|endpoint| &endpoint.headers).collect();
        assert!(headers.len() == 1 && &*headers[0].0 == "api-key" && headers[0].1.reveal() == "s3cret-of-env");
        assert!(endpoints.iter().all(|endpoint| endpoint.url.https && endpoint.gzip && endpoint.budget.is_some()));
    }

    #[test]
    fn the_fleet_example_is_taken_without_a_word_and_has_every_tier() {
        let resolved = read(include_str!("../../config/fleet.toml"));
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.expect("no fault");
        whole(&snapshot);
        let of = |tier| snapshot.endpoints.iter().filter(|endpoint| endpoint.tier == tier).count();
        assert_eq!(Tier::ALL.map(of), [2, 2, 2]);
        assert!(snapshot.gateways[0].routes.iter().all(|route| route.strategy == Strategy::Tiered));
        // What it types of the network is what would count without it.
        let start = "[[network]]";
        let (head, rest) = include_str!("../../config/fleet.toml").split_once(start).expect("a network");
        let (_, rest) = rest.split_once("[[endpoint]]").expect("Endpoints");
        assert_eq!(sound(&format!("{head}[[endpoint]]{rest}")).networks, snapshot.networks);
    }

    #[test]
    fn the_tron_example_is_taken_without_a_word_and_lets_no_key_pass() {
        let text = include_str!("../../config/tron.toml").replace("${TRON_KEY}", "${KEY}");
        let resolved = read(&text);
        assert_eq!(resolved.faults, []);
        let snapshot = resolved.snapshot.expect("no fault");
        let gateway = &snapshot.gateways[0];
        let table = gateway.table(&snapshot.methods);
        for (row, admittance) in table.rows().iter().zip(&gateway.listed) {
            let is_closed = matches!(admittance, crate::logic::snapshot::Admittance::Closed(_));
            let takes_keys = row.class == crate::logic::call::Class::Effect || row.name.contains("scanshielded");
            assert_eq!(is_closed, takes_keys, "{}", row.name);
        }
    }

    #[test]
    fn a_file_without_a_gateway_is_no_configuration() {
        faulty("«", "gateway", &["there is none", "[[gateway]]"]);
        faulty("«# nothing\n[server]\n", "gateway", &["there is none"]);
    }

    #[test]
    fn all_faults_of_a_file_come_at_once_and_in_order() {
        let text = r#"[server]
lisen = []
max_batch = 0
admin = "0.0.0.0:1"
[[endpoint]]
id = "a"
url = "ftp://x"
[[gateway]]
id = "g"
path = "g"
chain = "c"
network = "n"
[[gateway.route]]
id = "r"
targets = ["b"]
max_attempts = 11
"#;
        let found: Vec<_> = read(text).faults.into_iter().map(|fault| (fault.line, fault.path)).collect();
        let expected = [
            (2, "server.lisen"),
            (3, "server.max_batch"),
            (4, "server.admin"),
            (5, "endpoint[a].chain"),
            (5, "endpoint[a].network"),
            (7, "endpoint[a].url"),
            (10, "gateway[g].path"),
            (15, "gateway[g].route[r].targets[0]"),
            (16, "gateway[g].route[r].max_attempts"),
        ];
        assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn faults_of_syntax_come_with_the_others_and_make_no_false_ones() {
        let text = with(URL, "url = http://s3cret").replace("shards = 2", "shards = -1");
        let found = read(&text).faults;
        let seen: Vec<_> = found.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(seen, ["server.shards", "toml"], "{found:#?}");
        assert!(found[1].text.contains("must be quoted"));
        faulty("[server]\nshards = 1\n«shards = 2\n", "toml", &["written above already"]);
        faulty("[server«\nshards = 1\n", "toml", &["expected `]`"]);
        faulty("[server]\nadmin_token = \"s3cret«\n", "toml", &["expected `\"`"]);
    }

    #[test]
    fn one_slip_is_one_fault() {
        faulty(&with(URL, "url = \"http://10.0.0.1:8545«"), "toml", &["expected `\"`"]);
        faulty(&SOUND.replacen("[[gateway]]", "[[gateway]«", 1), "toml", &["expected `]`"]);
        let open = "targets = [{ endpoint = \"geth-1\", weight = 3 «]\nmax_attempts = 3\nversion = 2\n";
        let text = with(r#"targets = ["geth-1", "geth-2"]"#, open);
        faulty(&text, "toml", &["expected `,`"]);
    }

    #[test]
    fn a_byte_that_is_no_utf_8_has_its_place() {
        let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        for (bytes, line, column) in [
            (&b"[server]\nshards = 1 # \xc3\xa9\xff\n"[..], 2, 15),
            (b"\xff\xfe[\0", 1, 1),
            (b"[server]\n\xe2\x82", 2, 1),
        ] {
            let resolved = resolve_bytes(bytes, &|_| None, &no_files, None);
            let [fault] = resolved.faults.as_slice() else { panic!("{resolved:?}") };
            assert_eq!((fault.line, fault.column, fault.path.as_str()), (line, column, "toml"));
            assert!(fault.text.contains("save the file as UTF-8") && resolved.snapshot.is_none());
        }
        assert!(resolve_bytes(SOUND.as_bytes(), &|_| None, &no_files, None).snapshot.is_some());
    }

    #[test]
    fn keys_that_need_a_restart_are_refused_where_they_stand() {
        let resolved = read(&with("shards = 2", "\n  shards = 2\nmax_batch = 3"));
        let faults = resolved.only_by_restart(&["max_connections", "shards", "no_key"]);
        let line = SOUND[..SOUND.find("shards = 2").unwrap()].matches('\n').count() + 2;
        let places: Vec<_> = faults.iter().map(|fault| (fault.path.as_str(), fault.line, fault.column)).collect();
        let server = SOUND[..SOUND.find("[server]").unwrap()].matches('\n').count() + 1;
        assert_eq!(places, [("server.shards", line, 12), ("server.max_connections", server, 1)]);
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_change_nothing() {
        sound(&format!("\u{feff}{}", SOUND.replace('\n', "\r\n")));
        faulty(&with("shards = 2", "shards = «-1").replace('\n', "\r\n"), "server.shards", &["from 0 to 1024"]);
    }

    #[test]
    fn secrets_are_in_no_fault_and_no_debug() {
        let everywhere = [
            with(URL, r#"url = "http://u:s3cret@h:s3cret/s3cret?s3cret#s3cret""#),
            with(URL, r#"url = "s3cret://\ns3cret""#),
            with(URL, r#"url = ["s3cret"]"#),
            with(URL, r#"url = "${KEY}""#),
            with(
                "enabled = true",
                r#"headers = { "s3cret é" = "x", Host = "s3cret", Y = "s3cret\n", Z = ["s3cret"] }"#,
            ),
            with("shards = 2", r#"admin_token = "s3cret ""#),
            with("shards = 2", "admin = \"${KEY}\"\nlisten = [\"${KEY}\"]\ndriver = \"${KEY}\""),
            with("shards = 2", "header_timeout = \"${KEY}\"\nmax_request_bytes = \"${KEY}\"\n\"s3cret \" = 1"),
            with(r#"path = "/eth""#, "path = \"${KEY}\"\nhosts = [\"s3cret/${KEY}\"]\nexpose = [\"${KEY}\"]"),
            with(r#"id = "geth-1""#, r#"id = "s3cret ${KEY}""#),
            with(URL, r#"url = s3cret "s3cret"#),
            with(URL, r#"url = "s3cret"#),
        ];
        for text in everywhere {
            let resolved = read(&text);
            assert!(resolved.snapshot.is_none(), "{text}");
            assert!(!format!("{:?}", resolved.faults).contains("s3cret"), "{:#?}", resolved.faults);
        }
        let url = "url = \"http://s3cret:s3cret@10.0.0.1:8545/s3cret\"\nheaders = { X = \"s3cret\" }";
        let snapshot = sound(&with(URL, url).replace("shards = 2", "admin_token = \"s3cret\""));
        let seen =
            format!("{:?} {:?} {}", snapshot.server, snapshot.endpoints, super::super::summary::summary(&snapshot));
        assert!(!seen.contains("s3cret"), "{seen}");
    }

    #[test]
    fn variables_are_replaced_in_every_text() {
        let text = with(r#"path = "/eth""#, r#"path = "/${KEY}""#).replace("\"geth-1\"", "\"${KEY}\"");
        let snapshot = sound(&text);
        assert_eq!(&*snapshot.gateways[0].path, "/s3cret-of-env");
        assert_eq!(&*snapshot.endpoints[0].id, "s3cret-of-env");
        let missing = ["NO_KEY is not set", "set it where ringway is started"];
        faulty(&with(r#"path = "/eth""#, r#"path = «"/${NO_KEY}""#), "gateway[eth].path", &missing);
        let headers = with("enabled = true", r#"headers = { X-Key = «"${NO_KEY}" }"#);
        faulty(&headers, "endpoint[geth-1].headers.X-Key", &missing);
        faulty(&with("shards = 2", r#"listen = [«"${NO_KEY}"]"#), "server.listen[0]", &missing);
        let targets = with(r#"targets = ["geth-1", "geth-2"]"#, r#"targets = ["geth-1", «"${NO_KEY}"]"#);
        faulty(&targets, "gateway[eth].route[default].targets[1]", &missing);
    }

    #[test]
    fn a_file_too_large_is_refused_before_it_is_read() {
        let resolved = read(&"#".repeat(FILE_BYTES_MAX + 1));
        assert!(resolved.snapshot.is_none() && resolved.faults[0].text.contains("4 MiB"));
    }

    #[test]
    fn no_depth_overflows_the_stack() {
        let keys = vec!["a"; 79].join(".");
        for text in [
            format!("a = {}", "[".repeat(100_000)),
            format!("a = {}", "{a=".repeat(100_000)),
            format!("{} = 1", vec!["a"; 100_000].join(".")),
            format!("[{}]", vec!["a"; 100_000].join(".")),
            format!("[{keys}]\n{keys} = {}1{}", format!("{{{keys}=").repeat(79), "}".repeat(79)),
            format!("[[{keys}]]\n{keys} = {}1{}", format!("[{{{keys}=").repeat(39), "}]".repeat(39)),
        ] {
            assert!(read(&text).faults.iter().any(|fault| fault.severity == Severity::Fault));
        }
    }

    const PIECES: &[&str] = &[
        "[server]\n",
        "[[endpoint]]\n",
        "[[gateway]]\n",
        "[[gateway.route]]\n",
        "[[network]]\n",
        "[endpoint]\n",
        "id = ",
        "url = ",
        "chain = ",
        "network = ",
        "targets = ",
        "methods = ",
        "headers = ",
        "circuit = ",
        "path = ",
        "listen = ",
        "max_attempts = ",
        "attempt_timeout = ",
        "strategy = ",
        "tier = ",
        "capabilities = ",
        "state_blocks = ",
        "max_lag = ",
        "poll_interval = ",
        "\"weighted\"\n",
        "\"tiered\"\n",
        "\"a\"\n",
        "\"${KEY}\"\n",
        "\"${\"\n",
        "[\"a\", \"b\"]\n",
        "[{ endpoint = \"a\", weight = 0 }]\n",
        "{ a = 1 }\n",
        "\"http://a\"\n",
        "\"/\"\n",
        "-1\n",
        "1e9\n",
        "0xFF\n",
        "99999999999999999999\n",
        "inf\n",
        "1979-05-27\n",
        "true\n",
        "[",
        "]",
        "{",
        "}",
        "=",
        "\n",
        "é",
        "'''",
        "\"",
        "#",
        ",",
        ".",
    ];

    fn pieces() -> impl Generate<Value = String> {
        proptest::collection::vec(proptest::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
    }

    /// What the rest of the product takes for granted.
    fn whole(snapshot: &Snapshot) {
        assert!(!snapshot.server.listen.is_empty() && !snapshot.gateways.is_empty());
        let facts = |chain: &str, network: &str| {
            snapshot.networks.iter().filter(|facts| (&*facts.chain, &*facts.network) == (chain, network)).count()
        };
        for endpoint in &snapshot.endpoints {
            assert_eq!(facts(&endpoint.chain, &endpoint.network), 1, "{endpoint:?}");
            assert!(endpoint.state_blocks > 0 && endpoint.history_blocks > 0, "{endpoint:?}");
        }
        for gateway in &snapshot.gateways {
            assert_eq!(facts(&gateway.chain, &gateway.network), 1, "{gateway:?}");
            let defaults = gateway.routes.iter().filter(|route| route.methods.is_empty()).count();
            let default = &gateway.routes[usize::from(gateway.default_route.0)];
            assert!(defaults == 1 && default.methods.is_empty(), "{gateway:?}");
            assert_eq!(gateway.listed.len(), gateway.table(&snapshot.methods).rows().len() + 1);
            for route in &gateway.routes {
                assert!(!route.targets.is_empty() && (1..=10).contains(&route.max_attempts) && route.version > 0);
                assert!(route.eligible.checked_shr(route.targets.len() as u32).unwrap_or(0) == 0);
                for (target, bit) in route.targets.iter().zip(0..) {
                    let endpoint = &snapshot.endpoints[usize::from(target.endpoint.0)];
                    let fits =
                        endpoint.enabled && (&endpoint.chain, &endpoint.network) == (&gateway.chain, &gateway.network);
                    let counts = route.strategy == Strategy::Priority || target.weight > 0;
                    assert_eq!(route.eligible >> bit & 1 == 1, fits && counts, "{route:?}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn no_text_panics(text in prop_oneof![pieces(), "\\PC{0,60}", any::<String>()]) {
            let resolved = read(&text);
            let any = resolved.faults.iter().any(|fault| fault.severity == Severity::Fault);
            prop_assert_eq!(resolved.snapshot.is_none(), any);
        }

        #[test]
        fn no_mutation_of_a_sound_file_panics(
            at in 0..SOUND.len(),
            cut in 0..40usize,
            put in prop_oneof![pieces(), "[ -~]{0,3}"],
        ) {
            let end = (at + cut).min(SOUND.len());
            if let (Some(before), Some(after)) = (SOUND.get(..at), SOUND.get(end..)) {
                let text = format!("{before}{put}{after}");
                let resolved = read(&text);
                if let Some(snapshot) = &resolved.snapshot {
                    whole(snapshot);
                }
                for fault in resolved.faults {
                    prop_assert!(fault.line >= 1 && fault.line <= text.matches('\n').count() + 1);
                    prop_assert!(fault.column >= 1 && !fault.path.is_empty() && !fault.text.is_empty());
                }
            }
        }
    }
}
