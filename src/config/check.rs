//! Each key of the file against the table of keys: known, of the right kind, within bounds, built, not missing.

use super::fault::{Faults, nearest, quoted};
use super::file::View;
use super::schema::{Built, Key, Kind, Lit};
use super::value::{Plain, read, stated, wants};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

impl<'t> View<'t> {
    /// Reports all that is wrong with the keys of this table and of the tables in it.
    pub(super) fn check(&self, faults: &mut Faults<'_>) {
        for (key, value) in self.table.into_iter().flatten() {
            match self.keys.iter().find(|known| known.name == key.get_ref().as_ref()) {
                Some(known) => self.check_value(known, key.span().start, value, faults),
                None => self.unknown(key, faults),
            }
        }
        for key in self.keys {
            if let (Lit::Required(example), false) = (key.default, self.typed(key.name) || self.misspelled(key.name)) {
                let text = format!("is missing; write it, like {} = {example}", key.name);
                faults.missing(self.at, self.path_of(key.name), text);
            }
        }
    }

    /// Whether an unknown key stands here that was probably meant to be this one, so that the one fault is enough.
    pub(super) fn misspelled(&self, name: &str) -> bool {
        let unknown = |typed: &str| self.keys.iter().all(|known| known.name != typed);
        let mut typed = self.table.into_iter().flatten().map(|(key, _)| key.get_ref().as_ref());
        typed.any(|typed| unknown(typed) && nearest(typed, self.keys.iter().map(|key| key.name)) == Some(name))
    }

    fn unknown(&self, key: &Spanned<Cow<'_, str>>, faults: &mut Faults<'_>) {
        let typed = key.get_ref().as_ref();
        let path = if self.path.is_empty() { "toml" } else { self.path.as_str() };
        let (path, shown) = match quoted(typed) {
            Some(shown) => (self.path_of(typed), shown),
            None => (path.to_owned(), "here".to_owned()),
        };
        let text = match nearest(typed, self.keys.iter().map(|key| key.name)) {
            Some(near) => format!("unknown key {shown}; did you mean `{near}`?"),
            None => {
                let built = self.keys.iter().filter(|key| matches!(key.built, Built::Yes));
                let known: Vec<&str> = built.map(|key| key.name).collect();
                format!("unknown key {shown}; known here: {}", known.join(", "))
            }
        };
        // After a header that could not be read, the keys below it seem to be tables at the top.
        match self.path.as_str() {
            "" => faults.missing(key.span().start, path, text),
            _ => faults.fault(key.span().start, path, text),
        }
    }

    fn check_value(&self, key: &'static Key, key_at: usize, value: &'t Spanned<DeValue<'t>>, faults: &mut Faults<'_>) {
        let (at, path) = (value.span().start, self.path_of(key.name));
        let plain = match (key.kind, value.get_ref()) {
            (Kind::Table(_), DeValue::Table(_)) => {
                self.table(key.name).check(faults);
                Plain::Unused
            }
            (Kind::Table(_), DeValue::Array(_)) => {
                return faults.fault(at, path, format!("must be one table; write [{}] once", self.path_of(key.name)));
            }
            (Kind::Tables(_), DeValue::Array(items)) => {
                self.check_tables(key, items, faults);
                Plain::Unused
            }
            (Kind::Tables(_), _) => {
                let text = format!("must be written in double brackets: [[{}]]", header(&path));
                // After a header that could not be read, a table seems to stand alone.
                return faults.missing(at, path, text);
            }
            (Kind::Targets(keys), DeValue::Array(items)) => {
                self.check_targets(&path, keys, items, faults);
                Plain::Unused
            }
            (Kind::Fields, DeValue::Table(table)) => {
                self.check_fields(&path, table, faults);
                Plain::Unused
            }
            (Kind::Texts, DeValue::Array(items)) => {
                // Each element by itself: reading the list would stop at the first that is wrong.
                for (position, item) in items.iter().enumerate() {
                    if let Err(wrong) = read(Kind::Text, item, self.env) {
                        faults.fault(wrong.at, format!("{path}[{position}]"), wrong.text);
                    }
                }
                read(key.kind, value, self.env).unwrap_or(Plain::Unused)
            }
            _ => match read(key.kind, value, self.env) {
                Ok(plain) => plain,
                Err(wrong) => return faults.fault(wrong.at, path, wrong.text),
            },
        };
        if let Built::Later(harmless) = key.built {
            self.check_later(key, harmless, &plain, value.get_ref(), (key_at, path), faults);
        }
    }

    fn check_later(
        &self,
        key: &Key,
        harmless: Lit,
        plain: &Plain,
        value: &DeValue<'_>,
        (at, path): (usize, String),
        faults: &mut Faults<'_>,
    ) {
        let empty = match value {
            DeValue::Table(table) => table.is_empty(),
            DeValue::Array(items) => items.is_empty(),
            _ => false,
        };
        match stated(key.kind, harmless) {
            _ if empty => {}
            Some(nothing) if nothing == *plain => {}
            Some(_) => {
                let text = format!("not built yet; remove it, or write {} = {}", key.name, shown(harmless));
                faults.fault(at, path, text);
            }
            None => faults.fault(at, path, "not built yet; remove it"),
        }
    }

    fn check_tables(&self, key: &'static Key, items: &[Spanned<DeValue<'t>>], faults: &mut Faults<'_>) {
        for item in items.iter().filter(|item| !matches!(item.get_ref(), DeValue::Table(_))) {
            let path = self.path_of(key.name);
            let text = format!("must hold tables only; write each as [[{}]]", header(&path));
            faults.fault(item.span().start, path, text);
        }
        for view in self.tables(key.name) {
            view.check(faults);
        }
    }

    fn check_targets(
        &self,
        path: &str,
        keys: &'static [Key],
        items: &'t [Spanned<DeValue<'t>>],
        faults: &mut Faults<'_>,
    ) {
        for (position, item) in items.iter().enumerate() {
            let (at, path) = (item.span().start, format!("{path}[{position}]"));
            match item.get_ref() {
                DeValue::Table(table) => {
                    View { path, at, table: Some(table), keys, env: self.env }.check(faults);
                }
                DeValue::String(_) => {
                    if let Err(wrong) = read(Kind::Name, item, self.env) {
                        faults.fault(wrong.at, path, wrong.text);
                    }
                }
                _ => faults.fault(at, path, wants(Kind::Targets(keys))),
            }
        }
    }

    fn check_fields(&self, path: &str, table: &DeTable<'_>, faults: &mut Faults<'_>) {
        for (key, value) in table {
            let path = quoted(key.get_ref()).map_or(path.to_owned(), |_| format!("{path}.{}", key.get_ref()));
            if let Err(wrong) = read(Kind::Text, value, self.env) {
                faults.fault(wrong.at, path, wrong.text);
            }
        }
    }
}

/// A path as a header names it: `gateway.route` for `gateway[eth].route`.
fn header(path: &str) -> String {
    path.split('[').map(|part| part.split_once(']').map_or(part, |(_, after)| after)).collect()
}

/// A stated value as it would be typed.
pub(super) fn shown(lit: Lit) -> String {
    match lit {
        Lit::Absent => String::new(),
        Lit::Required(example) => example.to_owned(),
        Lit::Flag(flag) => flag.to_string(),
        Lit::Count(number) => number.to_string(),
        Lit::Ratio(number) => number.to_owned(),
        Lit::Text(text) => format!("\"{text}\""),
        Lit::Texts(list) => format!("{list:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::{SOUND, faulty, read, sound, warned, with};

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        faulty(&with("shards = 2", "«lisen = []"), "server.lisen", &["unknown key `lisen`", "did you mean `listen`?"]);
        faulty(&with("[server]", "[«sever]"), "sever", &["did you mean `server`?"]);
        faulty(&with("shards = 2", "«colour = 1"), "server.colour", &["known here: listen, admin,"]);
        faulty(&with("shards = 2", "\n[circuit]\n«cool-down = \"1s\""), "circuit.cool-down", &["`cooldown`"]);
        let weight = with("weight = 3", "«wieght = 3");
        faulty(&weight, "gateway[eth].route[heavy].targets[0].wieght", &["`weight`"]);
        faulty(
            &with("enabled = true", "circuit = { «cooldwn = \"1s\" }"),
            "endpoint[geth-1].circuit.cooldwn",
            &["`cooldown`"],
        );
        faulty(&with("shards = 2", "«\"a secret key\" = 1"), "server", &["unknown key here"]);
    }

    #[test]
    fn a_known_key_that_is_not_built_yet_is_refused_by_name() {
        for (line, path) in [
            ("[log]\n«sample = 10", "log.sample"),
            ("[«websocket]\nmax_inflight = 1", "websocket"),
            ("[«limits]\nip.json_rpc = { rps = 1 }", "limits"),
            ("[[«account]]\nid = \"a\"", "account"),
            ("[[«app]]\nid = \"a\"", "app"),
            ("[[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n«network_id = 1", "network[0].network_id"),
            (
                "[[network]]\nchain = \"ethereum\"\nnetwork = \"mainnet\"\n«genesis_hash = \"0x00\"",
                "network[0].genesis_hash",
            ),
        ] {
            faulty(&with("shards = 2", line), path, &["not built yet; remove it"]);
        }
        for (line, key) in [("«ws_url = \"ws://h\"", "ws_url"), ("«filter_tag = \"a1b2c3d4\"", "filter_tag")] {
            faulty(&with("enabled = true", line), &format!("endpoint[geth-1].{key}"), &["not built yet; remove it"]);
        }
        for (line, key) in [
            ("«auth = \"required\"", "auth"),
            ("«endpoint_free = [\"static\"]", "endpoint_free"),
            ("«cache = \"64MiB\"", "cache"),
            ("«share_inflight = [\"eth_call\"]", "share_inflight"),
        ] {
            let text = with("path = \"/eth\"", &format!("path = \"/eth\"\n{line}"));
            faulty(&text, &format!("gateway[eth].{key}"), &["not built yet; remove it"]);
        }
        let sampled = with("shards = 2", "[log]\n«sample = 10");
        faulty(&sampled, "log.sample", &["or write sample = 0"]);
    }

    #[test]
    fn a_key_that_is_not_built_yet_may_ask_for_nothing() {
        let gateway = "auth = \"none\"\nendpoint_free = []\ncache = \"0\"\nshare_inflight = []\npath = \"/eth\"";
        let text = with("shards = 2", "[log]\nsample = 0\n[websocket]\n[limits]").replace("path = \"/eth\"", gateway);
        assert_eq!(read(&text).faults, []);
        sound(&text.replace("cache = \"0\"", "cache = 0"));
    }

    #[test]
    fn a_key_that_is_not_built_yet_is_still_of_one_kind() {
        faulty(
            &with("shards = 2", "compression = «\"no\""),
            "server.compression",
            &["must be true or false", "without quotes"],
        );
        faulty(&with("enabled = true", "warm = «\"0\""), "endpoint[geth-1].warm", &["whole number"]);
        faulty(&with("shards = 2", "trusted_proxies = «\"\""), "server.trusted_proxies", &["must be a list"]);
    }

    #[test]
    fn wrong_kinds_and_bounds_say_what_is_right() {
        for (typed, key, says) in [
            ("max_batch = «0", "max_batch", "at least 1"),
            ("max_batch = «\"5\"", "max_batch", "without quotes"),
            ("max_batch = «1.5", "max_batch", "whole number"),
            ("batch_concurrency = «0", "batch_concurrency", "at least 1"),
            ("max_headers = «0", "max_headers", "from 1 to 256"),
            ("max_headers = «257", "max_headers", "from 1 to 256"),
            ("max_inflight = «99999999999999999999", "max_inflight", "whole number"),
            ("shards = «-1", "shards", "from 0 to 1024"),
            ("max_response_bytes = «\"0\"", "max_response_bytes", "from 1B"),
            ("max_response_bytes = «0", "max_response_bytes", "from 1B"),
            ("max_request_bytes = «\"1 XB\"", "max_request_bytes", "\"16KiB\""),
            ("max_request_bytes = «\"2000GiB\"", "max_request_bytes", "1024GiB"),
            ("header_timeout = «\"0s\"", "header_timeout", "above 0"),
            ("header_timeout = «10", "header_timeout", "\"250ms\""),
            ("idle_timeout = «\"9000h\"", "idle_timeout", "at most a year"),
            ("metrics_public = «1", "metrics_public", "true or false"),
            ("listen = «\"127.0.0.1:1\"", "listen", "must be a list"),
            ("listen = [«1]", "listen[0]", "text in quotes"),
            ("driver = «\"iouring\"", "driver", "did you mean \"io_uring\"?"),
            ("driver = «\"kqueue\"", "driver", "\"auto\", \"io_uring\" or \"epoll\""),
            ("admin = «[]", "admin", "text in quotes"),
        ] {
            faulty(&with("shards = 2", typed), &format!("server.{key}"), &[says]);
        }
        sound(&with("shards = 2", "shutdown_delay = \"0s\"\nshutdown_grace = \"0s\"\nmax_request_bytes = 4096"));
        for ratio in ["«2.0", "«0", "«0.0", "«-1", "«nan"] {
            let text = with("shards = 2", &format!("[circuit]\nfailure_ratio = {ratio}"));
            faulty(&text, "circuit.failure_ratio", &["above 0 and up to 1", "0.5"]);
        }
        let own = with("enabled = true", "circuit = { min_samples = «0 }");
        faulty(&own, "endpoint[geth-1].circuit.min_samples", &["at least 1"]);
        let text = with("shards = 2", "[log]\nlevel = «\"warning\"");
        faulty(&text, "log.level", &["must be \"error\", \"warn\", \"info\", \"debug\" or \"trace\""]);
    }

    #[test]
    fn memory_that_holds_no_answer_is_warned_of() {
        let path = "server.max_buffered_bytes";
        warned(&with("shards = 2", "max_buffered_bytes = «\"64MiB\""), path, &["never find room"]);
        let text = with("shards = 2", "max_response_bytes = «\"2GiB\"");
        warned(&text, "server.max_response_bytes", &["below max_response_bytes"]);
        sound(&with("shards = 2", "max_buffered_bytes = \"64MiB\"\nmax_response_bytes = \"16MiB\""));
    }

    #[test]
    fn every_wrong_element_of_a_list_is_reported() {
        let text = with("shards = 2", "listen = [1, \"${NO_A}\", \"${NO_B}\"]");
        let found: Vec<_> = read(&text).faults.into_iter().map(|fault| fault.path).collect();
        assert!(
            found.iter().map(String::as_str).eq(["server.listen[0]", "server.listen[1]", "server.listen[2]"]),
            "{found:?}"
        );
    }

    #[test]
    fn a_missing_key_is_named_with_an_example() {
        for (line, path, says) in [
            ("url = \"http://10.0.0.1:8545\"\n", "endpoint[geth-1].url", "url = \"http://"),
            ("path = \"/eth\"\n", "gateway[eth].path", "path = \"/eth\""),
            ("id = \"eth\"\n", "gateway[0].id", "id = \"eth\""),
            ("id = \"heavy\"\n", "gateway[eth].route[1].id", "id = \"default\""),
            ("targets = [\"geth-1\", \"geth-2\"]\n", "gateway[eth].route[default].targets", "targets = [\"geth-1\"]"),
        ] {
            let text = with(line, "");
            let found = read(&text).faults;
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!(found[0].path, path);
            assert!(found[0].text.contains("is missing; write it, like") && found[0].text.contains(says), "{found:?}");
            assert!(text.lines().nth(found[0].line - 1).is_some_and(|line| line.starts_with("[[")), "{found:?}");
        }
        for key in ["chain = \"ethereum\"", "network = \"mainnet\""] {
            let text = SOUND.replacen(key, "", 1);
            assert!(read(&text).faults.iter().any(|fault| fault.text.contains(&format!("like {key}"))));
        }
    }

    #[test]
    fn brackets_are_put_right() {
        let one = with("[server]", "«[[server]]");
        faulty(&one, "server", &["write [server] once"]);
        let text = "«[gateway]\nid = \"a\"\n";
        faulty(text, "gateway", &["double brackets: [[gateway]]"]);
        faulty("gateway = «3", "gateway", &["double brackets: [[gateway]]"]);
        faulty("gateway = [«3]", "gateway", &["write each as [[gateway]]"]);
        let text = with("[[gateway.route]]\nid = \"heavy\"", "").split("[[gateway.route]]").next().map(str::to_owned);
        let one = format!("{}«[gateway.route]\nid = \"default\"", text.expect("before"));
        faulty(&one, "gateway[eth].route", &["double brackets: [[gateway.route]]"]);
        faulty(&with("shards = 2", "listen = «\"127.0.0.1:1\""), "server.listen", &["in brackets, like [\"a\"]"]);
    }

    #[test]
    fn a_misspelled_key_is_one_fault_and_not_a_missing_one_too() {
        faulty(&with("url = \"http://10.0.0.1:8545\"", "«ulr = \"http://h\""), "endpoint[geth-1].ulr", &["`url`"]);
        let routes = SOUND.replace("[[gateway.route]]", "[[gateway.routes]]").replacen(".routes", ".«routes", 1);
        faulty(&routes, "gateway[eth].routes", &["did you mean `route`?"]);
        let gateways = SOUND.replacen("[[gateway", "[[«gatway", 1).replace("[[gateway", "[[gatway");
        faulty(&gateways, "gatway", &["did you mean `gateway`?"]);
        let endpoints = SOUND.replacen("[[endpoint", "[[«endpont", 1).replace("[[endpoint", "[[endpont");
        faulty(&endpoints, "endpont", &["did you mean `endpoint`?"]);
    }
}
