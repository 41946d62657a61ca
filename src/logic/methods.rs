//! What is known about each method by name: its class, and the label under which it is counted.
//!
//! Names match exactly and case-sensitively; a name that stands in no table is [`Class::Unrecognised`].
//! The tables are embedded from `src/logic/methods/*.csv`.

use super::call::Class;
use super::facts::{Clients, Reads, Shows};
use super::snapshot::{Protocol, Tier};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Which table a network's methods stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Ethereum and everything that speaks its JSON-RPC.
    Evm,
    /// TRON.
    Tron,
    /// Solana.
    Solana,
}

impl Family {
    /// The family of a chain by its name, where nothing else is said.
    pub fn of_chain(chain: &str) -> Family {
        match chain {
            "tron" => Family::Tron,
            "solana" => Family::Solana,
            _ => Family::Evm,
        }
    }
}

/// Index of a row in its table; [`Table::other`] stands for every unlisted name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodId(pub u16);

/// One row: the facts about one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// Exact name.
    pub name: Box<str>,
    /// What a repetition would mean.
    pub class: Class,
    /// The capability that serves it (`core`, `debug`, `trace`, ...).
    pub capability: Box<str>,
    /// How it answers HTTP's own methods. JSON-RPC has only `POST`.
    pub verbs: Verbs,
    /// Which clients have it.
    pub clients: Clients,
    /// What of the chain it reads.
    pub reads: Reads,
    /// Where its result shows a block.
    pub shows: Shows,
    /// The lowest tier that may serve it, whatever its arguments say.
    pub tier: Tier,
}

/// What a node does with an HTTP method on a path of TRON's HTTP API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// It answers 405.
    No,
    /// It answers with JSON.
    Yes,
    /// It answers 200 and nothing else.
    Empty,
}

/// Which HTTP methods a row serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verbs {
    /// `GET`.
    pub get: Served,
    /// `POST`.
    pub post: Served,
}

/// A map whose keys are all there when it is made.
pub type ByName<V> = HashMap<Box<str>, V, BuildHasherDefault<NameHasher>>;

/// The rows of one protocol and family, found by name.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Method>,
    by_name: ByName<u16>,
    /// Rows whose name holds a `{…}`, which stands for any one segment of a path.
    templates: Vec<u16>,
}

/// All tables.
#[derive(Debug)]
pub struct Methods {
    evm: Table,
    tron: Table,
    solana: Table,
    tron_http: Table,
}

impl Methods {
    /// The embedded tables.
    pub fn embedded() -> Methods {
        Methods {
            evm: Table::read(include_str!("methods/evm.csv"), &["eth_sendRawTransaction"]),
            // TRON's JSON-RPC declares eth_sendRawTransaction and never takes one, so it has no signed broadcast.
            tron: Table::read(include_str!("methods/tron_jsonrpc.csv"), &[]),
            solana: Table::read(include_str!("methods/solana.csv"), &["sendTransaction"]),
            tron_http: Table::read(
                include_str!("methods/tron_http.csv"),
                &["/wallet/broadcasttransaction", "/wallet/broadcasthex"],
            ),
        }
    }

    /// The table of a protocol and a family.
    pub fn table(&self, protocol: Protocol, family: Family) -> &Table {
        match (protocol, family) {
            (Protocol::TronHttp, _) => &self.tron_http,
            (Protocol::JsonRpc, Family::Evm) => &self.evm,
            (Protocol::JsonRpc, Family::Tron) => &self.tron,
            (Protocol::JsonRpc, Family::Solana) => &self.solana,
        }
    }
}

impl Table {
    fn read(csv: &str, signed_broadcasts: &[&str]) -> Table {
        let rows: Vec<Method> = csv.lines().skip(1).filter_map(|line| row(line, signed_broadcasts)).collect();
        let by_name = rows.iter().zip(0u16..).map(|(row, at)| (row.name.clone(), at)).collect();
        let templates = rows.iter().zip(0u16..).filter(|(row, _)| row.name.contains('{')).map(|(_, at)| at).collect();
        Table { rows, by_name, templates }
    }

    /// The row for an exact name, or [`Table::other`].
    pub fn find(&self, name: &str) -> MethodId {
        match self.by_name.get(name) {
            Some(at) => MethodId(*at),
            None => self.find_template(name),
        }
    }

    /// Reached by unlisted names only.
    #[cold]
    fn find_template(&self, name: &str) -> MethodId {
        let found = self.templates.iter().find(|at| fits(&self.rows[usize::from(**at)].name, name));
        found.map_or(self.other(), |at| MethodId(*at))
    }

    /// The id under which all unlisted names are counted.
    pub fn other(&self) -> MethodId {
        MethodId(self.rows.len() as u16)
    }

    /// The facts of a row; `None` for [`Table::other`].
    pub fn get(&self, id: MethodId) -> Option<&Method> {
        self.rows.get(usize::from(id.0))
    }

    /// The class of a row; unlisted names are unrecognised.
    pub fn class(&self, id: MethodId) -> Class {
        self.get(id).map_or(Class::Unrecognised, |row| row.class)
    }

    /// The label for metrics: the name of a listed method, else `other`.
    pub fn label(&self, id: MethodId) -> &str {
        self.get(id).map_or("other", |row| &row.name)
    }

    /// All rows, in the order of their ids.
    pub fn rows(&self) -> &[Method] {
        &self.rows
    }
}

/// Whether a path is one of a template's: `{…}` stands for one segment, whatever is in it.
fn fits(template: &str, path: &str) -> bool {
    let (mut parts, mut segments) = (template.split('/'), path.split('/'));
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return true,
            (Some(part), Some(segment)) if part == segment || (part.starts_with('{') && !segment.is_empty()) => {}
            _ => return false,
        }
    }
}

fn row(line: &str, signed_broadcasts: &[&str]) -> Option<Method> {
    let mut cells = line.split(',');
    let (name, class, capability) = (cells.next()?, cells.next()?, cells.next()?);
    let class = match class {
        "stateless" | "builder" => Class::Stateless,
        "local" => Class::Local,
        "broadcast" if signed_broadcasts.contains(&name) => Class::SignedBroadcast,
        // Private transactions, bundles, `...Sync` and user operations are no plain broadcasts:
        // a second node would not take them as the same thing.
        "broadcast" | "effect" => Class::Effect,
        _ => return None,
    };
    let (_cost, get, post) = (cells.next(), served(cells.next()), served(cells.next()));
    let verbs = Verbs { get: get.unwrap_or(Served::No), post: post.unwrap_or(Served::Yes) };
    Some(Method {
        name: name.into(),
        class,
        capability: capability.into(),
        verbs,
        clients: Clients::default(),
        reads: Reads::default(),
        shows: Shows::default(),
        tier: Tier::Minimal,
    })
}

fn served(cell: Option<&str>) -> Option<Served> {
    match cell? {
        "yes" => Some(Served::Yes),
        "empty" => Some(Served::Empty),
        _ => Some(Served::No),
    }
}

/// Eight bytes at a time. The keys of a map that uses it are fixed when it is made, so callers can't choose
/// collisions, and looking up what is not there costs no more than looking up what is.
#[derive(Debug, Clone, Default)]
pub struct NameHasher(u64);

/// The golden ratio: odd, with bits everywhere.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl NameHasher {
    #[inline(always)]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(SPREAD);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for NameHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(first), Some(last)) => {
                // All but the last eight as they come, and those once more where they overlap.
                self.mix(word(first) ^ bytes.len() as u64);
                bytes.as_chunks().0.iter().skip(1).for_each(|chunk| self.mix(word(chunk)));
                self.mix(word(last));
            }
            _ => self.mix(bytes.iter().fold(1, |word, byte| word << 8 | u64::from(*byte))),
        }
    }

    /// The end of a text: it has its length already.
    #[inline]
    fn write_u8(&mut self, _: u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn exactly_the_named_methods_are_signed_broadcasts() {
        let methods = Methods::embedded();
        let signed = |protocol, family| {
            let rows = methods.table(protocol, family).rows().iter();
            rows.filter(|row| row.class == Class::SignedBroadcast).map(|row| row.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(signed(Protocol::JsonRpc, Family::Evm), ["eth_sendRawTransaction"]);
        assert_eq!(signed(Protocol::JsonRpc, Family::Solana), ["sendTransaction"]);
        assert!(signed(Protocol::JsonRpc, Family::Tron).is_empty());
        let both = ["/wallet/broadcasthex", "/wallet/broadcasttransaction"];
        assert_eq!(signed(Protocol::TronHttp, Family::Tron), both);
    }

    #[test]
    fn a_chain_has_its_familys_table_and_every_other_one_is_evm() {
        for (chain, family) in
            [("tron", Family::Tron), ("solana", Family::Solana), ("ethereum", Family::Evm), ("Tron", Family::Evm)]
        {
            assert_eq!(Family::of_chain(chain), family, "{chain}");
        }
        let methods = Methods::embedded();
        for (family, own) in
            [(Family::Evm, "eth_feeHistory"), (Family::Solana, "getSlot"), (Family::Tron, "net_listening")]
        {
            let table = methods.table(Protocol::JsonRpc, family);
            let row = table.get(table.find(own)).unwrap();
            assert_eq!((&*row.name, table.label(table.find(own))), (own, own));
            assert_eq!(table.get(table.other()), None);
        }
        let evm = methods.table(Protocol::JsonRpc, Family::Evm);
        assert_eq!(evm.label(evm.find("getSlot")), "other");
    }

    #[test]
    fn every_row_of_the_embedded_tables_is_read() {
        let methods = Methods::embedded();
        for (protocol, family, csv) in [
            (Protocol::JsonRpc, Family::Evm, include_str!("methods/evm.csv")),
            (Protocol::JsonRpc, Family::Tron, include_str!("methods/tron_jsonrpc.csv")),
            (Protocol::JsonRpc, Family::Solana, include_str!("methods/solana.csv")),
            (Protocol::TronHttp, Family::Tron, include_str!("methods/tron_http.csv")),
        ] {
            let table = methods.table(protocol, family);
            assert_eq!(table.rows().len(), csv.lines().count() - 1);
            for (row, at) in table.rows().iter().zip(0..) {
                assert_eq!(table.find(&row.name), MethodId(at));
            }
        }
    }

    #[test]
    fn names_spread_over_a_map() {
        use std::hash::BuildHasher;
        let hashes = |table: &Table| -> Vec<u64> {
            let hasher = BuildHasherDefault::<NameHasher>::default();
            table.rows().iter().map(|row| hasher.hash_one(&row.name)).collect()
        };
        let methods = Methods::embedded();
        let all = hashes(methods.table(Protocol::JsonRpc, Family::Evm));
        // A map takes a bucket from the low bits and a tag from the seven highest.
        let distinct = |of: &dyn Fn(u64) -> u64| all.iter().map(|hash| of(*hash)).collect::<HashSet<_>>().len();
        assert_eq!(distinct(&|hash| hash), all.len());
        assert!(distinct(&|hash| hash % 1_024) > 400, "{}", distinct(&|hash| hash % 1_024));
        assert!(distinct(&|hash| hash >> 57) > 110, "{}", distinct(&|hash| hash >> 57));
    }

    #[test]
    fn names_match_exactly() {
        let methods = Methods::embedded();
        let evm = methods.table(Protocol::JsonRpc, Family::Evm);
        assert_eq!(evm.class(evm.find("eth_call")), Class::Stateless);
        assert_eq!(evm.class(evm.find("eth_newFilter")), Class::Local);
        assert_eq!(evm.class(evm.find("eth_sendTransaction")), Class::Effect);
        assert_eq!(evm.class(evm.find("eth_sendRawTransactionSync")), Class::Effect);
        for other in ["ETH_CALL", "eth_Call", " eth_call", "eth_call ", "", "eth_sendrawtransaction"] {
            assert_eq!(evm.class(evm.find(other)), Class::Unrecognised, "{other:?}");
            assert_eq!(evm.label(evm.find(other)), "other");
        }
    }

    #[test]
    fn a_template_stands_for_one_segment() {
        let methods = Methods::embedded();
        let table = methods.table(Protocol::TronHttp, Family::Tron);
        let label = |path| table.label(table.find(path));
        assert_eq!(label("/v1/accounts/TXYZ"), "/v1/accounts/{address}");
        assert_eq!(label("/v1/accounts/TXYZ/transactions"), "/v1/accounts/{address}/transactions");
        assert_eq!(label("/v1/blocks/latest/events"), "/v1/blocks/latest/events", "an exact name goes first");
        assert_eq!(label("/v1/blocks/7/events"), "/v1/blocks/{number}/events");
        for other in ["/v1/accounts/", "/v1/accounts", "/v1/accounts//transactions", "/v1/accounts/T/other", "/v1/x/T"]
        {
            assert_eq!(label(other), "other", "{other}");
        }
    }

    #[test]
    fn the_verbs_of_a_path_are_those_of_the_facts() {
        let methods = Methods::embedded();
        let table = methods.table(Protocol::TronHttp, Family::Tron);
        let verbs = |path| table.get(table.find(path)).map(|row| (row.verbs.get, row.verbs.post));
        assert_eq!(verbs("/wallet/getnowblock"), Some((Served::Yes, Served::Yes)));
        assert_eq!(verbs("/wallet/broadcasttransaction"), Some((Served::No, Served::Yes)));
        assert_eq!(verbs("/wallet/createtransaction"), Some((Served::Empty, Served::Yes)));
        assert_eq!(verbs("/monitor/getstatsinfo"), Some((Served::Yes, Served::No)));
        let evm = methods.table(Protocol::JsonRpc, Family::Evm);
        assert!(evm.rows().iter().all(|row| (row.verbs.get, row.verbs.post) == (Served::No, Served::Yes)));
    }
}
