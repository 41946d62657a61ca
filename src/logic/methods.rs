//! What is known about each method by name: its class, and the label under which it is counted.
//!
//! Names match exactly and case-sensitively; a name that stands in no table is [`Class::Unrecognised`].
//! The tables are embedded from `src/logic/methods/*.csv`; what a configuration adds to them is in `own_methods`.

use super::call::Class;
use super::capability::{Namespaces, namespace};
use super::facts::{Client, Clients, Reads, Shows};
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
    /// What an Endpoint must be configured to have, whatever its client is known for.
    pub needs: Option<Box<str>>,
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
    pub(super) rows: Vec<Method>,
    pub(super) by_name: ByName<u16>,
    /// Rows whose name holds a `{…}`, which stands for any one segment of a path.
    templates: Vec<u16>,
    pub(super) namespaces: Namespaces,
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

    /// All tables of a protocol.
    pub(super) fn of_protocol(&mut self, protocol: Protocol) -> Vec<&mut Table> {
        match protocol {
            Protocol::TronHttp => vec![&mut self.tron_http],
            Protocol::JsonRpc => vec![&mut self.evm, &mut self.tron, &mut self.solana],
        }
    }
}

impl Table {
    fn read(csv: &str, signed_broadcasts: &[&str]) -> Table {
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let rows: Vec<Method> = lines.filter_map(|line| row(&columns, line, signed_broadcasts)).collect();
        let by_name = rows.iter().zip(0u16..).map(|(row, at)| (row.name.clone(), at)).collect();
        let templates = rows.iter().zip(0u16..).filter(|(row, _)| row.name.contains('{')).map(|(_, at)| at).collect();
        let namespaces = Namespaces::of(&rows);
        Table { rows, by_name, templates, namespaces }
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

    /// The namespaces of its rows.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The index of a row's namespace.
    pub fn namespace_of(&self, id: MethodId) -> u8 {
        self.get(id).map_or(Namespaces::NONE, |row| self.namespaces.index(namespace(&row.name)))
    }

    /// Whether an id means the same method in both, so that what was counted under it may be counted on.
    pub fn has_the_rows_of(&self, other: &Table) -> bool {
        let both = self.rows.iter().zip(&other.rows);
        self.rows.len() == other.rows.len() && both.into_iter().all(|(one, two)| one.name == two.name)
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

/// Reads a line by the names of its columns; those that a table has not say nothing.
fn row(columns: &[&str], line: &str, signed_broadcasts: &[&str]) -> Option<Method> {
    let cells: Vec<&str> = line.split(',').collect();
    let cell = |name: &str| cells.get(columns.iter().position(|column| *column == name)?).copied();
    let name = cell("method")?;
    let class = match cell("class")? {
        "stateless" | "builder" => Class::Stateless,
        "local" => Class::Local,
        "broadcast" if signed_broadcasts.contains(&name) => Class::SignedBroadcast,
        // Private transactions, bundles, `...Sync` and user operations are no plain broadcasts:
        // a second node would not take them as the same thing.
        "broadcast" | "effect" => Class::Effect,
        _ => return None,
    };
    let (get, post) = (served(cell("get")), served(cell("post")));
    let verbs = Verbs { get: get.unwrap_or(Served::No), post: post.unwrap_or(Served::Yes) };
    let clients = match cell("clients").map(Clients::read) {
        // A client that nobody knows has what every node has.
        Some(clients) if matches!(namespace(name), "eth" | "net" | "web3") => clients?.with(Client::Unknown),
        Some(clients) => clients?,
        // Where nothing is known about clients, no client is a reason not to ask.
        None => Clients::EVERY,
    };
    Some(Method {
        name: name.into(),
        class,
        capability: cell("capability")?.into(),
        verbs,
        clients,
        reads: cell("reads").map_or(Some(Reads::Nothing), Reads::read)?,
        shows: cell("shows").map_or(Some(Shows::Nothing), Shows::read)?,
        tier: Tier::Minimal,
        needs: None,
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

    /// Rows of the EVM table that a client has, that only read, and whose answer no height changes.
    const WITHOUT_A_HEIGHT: [&str; 11] = [
        "debug_chainConfig",
        "debug_seedHash",
        "erigon_blockNumber",
        "erigon_forks",
        "eth_baseFee",
        "eth_blobBaseFee",
        "eth_blockNumber",
        "eth_chainId",
        "eth_config",
        "eth_gasPrice",
        "eth_maxPriorityFeePerGas",
    ];

    fn evm() -> Table {
        let Methods { evm, .. } = Methods::embedded();
        evm
    }

    #[track_caller]
    fn facts<'t>(table: &'t Table, name: &str) -> &'t Method {
        table.get(table.find(name)).unwrap_or_else(|| panic!("{name} is no row"))
    }

    #[test]
    fn each_row_that_only_reads_says_what_it_reads_or_is_known_to_read_nothing() {
        let table = evm();
        for row in table.rows() {
            let asked = ["eth", "debug", "trace", "ots", "erigon"].contains(&namespace(&row.name));
            let known = Client::ALL.iter().skip(1).any(|client| row.clients.has(*client));
            if asked && known && row.class == Class::Stateless {
                let none = row.reads == Reads::Nothing;
                assert_eq!(none, WITHOUT_A_HEIGHT.contains(&&*row.name), "{}", row.name);
            }
        }
        assert!(WITHOUT_A_HEIGHT.iter().all(|name| table.find(name) != table.other()));
    }

    #[test]
    fn only_what_reads_a_block_shows_one_and_uncles_are_none() {
        let table = evm();
        let mut shown = 0;
        for row in table.rows().iter().filter(|row| row.shows != Shows::Nothing) {
            assert!(row.reads != Reads::Nothing && row.class == Class::Stateless, "{}", row.name);
            // An uncle has the number of a block of the chain and another hash, and a simulated block has neither.
            let no_block = ["ncle", "imulate", "Raw", "Count"];
            assert!(!no_block.iter().any(|word| row.name.contains(word)), "{}", row.name);
            shown += 1;
        }
        assert!(shown > 20, "{shown}");
        for (name, shows) in [
            ("eth_getBlockByNumber", Shows::Block),
            ("eth_getTransactionReceipt", Shows::Inside),
            ("eth_getBlockReceipts", Shows::Listed),
            ("eth_getLogs", Shows::Listed),
            ("trace_block", Shows::Listed),
            ("erigon_getLogsByHash", Shows::Nothing),
        ] {
            assert_eq!(facts(&table, name).shows, shows, "{name}");
        }
    }

    #[test]
    fn block_arguments_stand_where_nodes_look_for_them() {
        let table = evm();
        for (name, reads) in [
            ("eth_call", Reads::State(1)),
            ("eth_getStorageAt", Reads::State(2)),
            ("eth_getProof", Reads::State(2)),
            ("trace_call", Reads::State(2)),
            ("trace_callMany", Reads::State(1)),
            ("trace_block", Reads::Trace(0)),
            ("debug_traceBlockByNumber", Reads::Trace(0)),
            ("debug_traceTransaction", Reads::TraceByHash),
            ("eth_getBlockByNumber", Reads::Block(0)),
            ("eth_getLogs", Reads::Logs(0)),
            ("trace_filter", Reads::TraceRange(0)),
            ("eth_feeHistory", Reads::Fees),
            ("eth_getTransactionReceipt", Reads::ByHash),
            ("eth_blockNumber", Reads::Nothing),
        ] {
            assert_eq!(facts(&table, name).reads, reads, "{name}");
        }
    }

    #[test]
    fn clients_have_what_they_are_known_for() {
        let table = evm();
        let has = |name| -> Vec<&str> {
            let clients = facts(&table, name).clients;
            Client::ALL.into_iter().filter(|client| clients.has(*client)).map(Client::word).collect()
        };
        assert_eq!(has("eth_call"), ["unknown", "geth", "reth", "erigon", "nethermind", "besu"]);
        assert_eq!(has("eth_getHeaderByNumber"), ["unknown", "geth", "reth", "nethermind"]);
        assert_eq!(has("eth_sendUserOperation"), ["unknown"]);
        assert_eq!(has("txpool_status"), ["geth", "reth"]);
        assert_eq!(has("txpool_inspect"), ["geth", "reth"]);
        assert_eq!(has("txpool_content"), ["geth", "reth", "erigon", "nethermind"]);
        assert_eq!(has("trace_block"), ["reth", "erigon", "nethermind", "besu"]);
        assert_eq!(has("trace_simulateV1"), ["nethermind"]);
        assert_eq!(has("debug_traceCall"), ["geth", "reth", "erigon", "nethermind", "besu"]);
        assert!(has("alchemy_getTokenBalances").is_empty());
        for row in table.rows() {
            let only = |client| Clients(row.clients.0 & !Clients::default().with(client).0) == Clients::default();
            match namespace(&row.name) {
                "erigon" | "ots" => assert!(only(Client::Erigon), "{}", row.name),
                "trace" => assert!(!row.clients.has(Client::Geth), "{}", row.name),
                "eth" | "net" | "web3" => assert!(row.clients.has(Client::Unknown), "{}", row.name),
                _ => {}
            }
            let basic = matches!(namespace(&row.name), "eth" | "net" | "web3");
            assert_eq!(row.clients.has(Client::Unknown), basic, "{}", row.name);
        }
        let methods = Methods::embedded();
        let solana = methods.table(Protocol::JsonRpc, Family::Solana);
        assert!(solana.rows().iter().all(|row| row.clients == Clients::EVERY && row.reads == Reads::Nothing));
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let table =
            Table::read("cost,class,method,capability,post\ncheap,local,a_b,core,empty\nx,odd,c_d,core,no\n", &[]);
        let [row] = table.rows() else { panic!("{table:?}") };
        assert_eq!((&*row.name, row.class, row.verbs.post), ("a_b", Class::Local, Served::Empty));
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
