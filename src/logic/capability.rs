//! Does an Endpoint have this method? By what its client is known for, by what its configuration adds and takes away,
//! and by the namespaces that the node itself says it offers.
//!
//! Asked for each candidate of a tiered Call, so a listed method costs a bit or two. What a configuration says is laid
//! out over the rows of a table when a Snapshot is made.

use super::facts::{Client, Clients};
use super::methods::{ByName, Method, MethodId, Table};
use super::snapshot::Endpoint;

/// What stands before the first `_` of a method's name; empty where there is none.
pub fn namespace(name: &str) -> &str {
    name.split_once('_').map_or("", |(namespace, _)| namespace)
}

/// The namespaces of a table's rows, each with an index and the clients that have a row of it.
#[derive(Debug, Default)]
pub struct Namespaces(ByName<(u8, Clients)>);

impl Namespaces {
    /// The index of what has no namespace, or one too many; no node is ever taken to lack it.
    pub const NONE: u8 = 63;

    pub(super) fn of(rows: &[Method]) -> Namespaces {
        let mut namespaces = Namespaces::default();
        rows.iter().for_each(|row| namespaces.add(row));
        namespaces
    }

    pub(super) fn add(&mut self, row: &Method) {
        let namespace = namespace(&row.name);
        let next = u8::try_from(self.0.len()).unwrap_or(Self::NONE).min(Self::NONE);
        let next = if namespace.is_empty() { Self::NONE } else { next };
        let (_, clients) = self.0.entry(namespace.into()).or_insert((next, Clients::default()));
        *clients = clients.or(row.clients);
    }

    /// The index of a namespace, at most [`Namespaces::NONE`].
    pub fn index(&self, namespace: &str) -> u8 {
        self.0.get(namespace).map_or(Self::NONE, |(index, _)| *index)
    }

    /// All of them, in no order; what has none is the empty one.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// Which clients have a row of a namespace.
    pub fn clients(&self, namespace: &str) -> Clients {
        self.0.get(namespace).map_or(Clients::default(), |(_, clients)| *clients)
    }

    /// The namespaces that a node does not offer, as bits by index, from the modules that it names in `rpc_modules`.
    ///
    /// A node that does not name `eth` there has told nothing: every one has it.
    pub fn lacking<'m>(&self, modules: impl IntoIterator<Item = &'m str>) -> u64 {
        let mut offered = 1 << Self::NONE;
        let mut has_eth = false;
        for module in modules {
            has_eth |= module.eq_ignore_ascii_case("eth");
            // Few, and asked for seldom: some nodes write them in capitals.
            let known = self.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case(module));
            known.for_each(|(_, (index, _))| offered |= 1 << index);
        }
        if has_eth { !offered } else { 0 }
    }
}

/// Whether one of the bits that [`Namespaces::lacking`] gave is that of a namespace.
pub fn is_lacking(bits: u64, namespace: u8) -> bool {
    bits.checked_shr(u32::from(namespace)).is_some_and(|bits| bits & 1 == 1)
}

/// What an Endpoint can do, as far as its configuration says.
#[derive(Debug)]
pub struct Capable {
    /// Rows that it has whatever its client is, one bit each; empty if there are none.
    added: Box<[u64]>,
    /// Rows that it has not.
    removed: Box<[u64]>,
    /// Ids from here on are of no row.
    rows: usize,
    /// Namespaces and methods, as configured: for names that are no row.
    capabilities: Box<[Box<str>]>,
    without: Box<[Box<str>]>,
    /// The clients that unlisted methods of a namespace are sent to.
    by_namespace: ByName<Clients>,
}

impl Capable {
    /// Lays out what the configuration of `endpoint` says about the rows of `table`.
    pub fn new(table: &Table, endpoint: &Endpoint) -> Capable {
        let (capabilities, without) = (&endpoint.capabilities, &endpoint.without);
        let bits = |wanted: bool| -> Box<[u64]> {
            let mut words = vec![0u64; table.rows().len().div_ceil(64)];
            for (at, row) in table.rows().iter().enumerate() {
                if said(row, capabilities, without) == Some(wanted)
                    && let Some(word) = words.get_mut(at / 64)
                {
                    *word |= 1 << (at % 64);
                }
            }
            // Nothing to look at is quicker than zeros.
            if words.iter().all(|word| *word == 0) { Box::default() } else { words.into() }
        };
        let of_clients = table.namespaces().0.iter().filter(|(_, (_, clients))| clients.0 != 0);
        Capable {
            added: bits(true),
            removed: bits(false),
            rows: table.rows().len(),
            capabilities: capabilities.as_slice().into(),
            without: without.as_slice().into(),
            by_namespace: of_clients.map(|(name, (_, clients))| (name.clone(), *clients)).collect(),
        }
    }

    /// Whether it has a method; `clients` are those of the row, and `name` is looked at only where there is no row.
    #[inline]
    pub fn serves(&self, row: MethodId, clients: Clients, name: &str, client: Client) -> bool {
        if usize::from(row.0) >= self.rows {
            return self.serves_unlisted(name, client);
        }
        (clients.has(client) && !has(&self.removed, row)) || has(&self.added, row)
    }

    #[cold]
    fn serves_unlisted(&self, name: &str, client: Client) -> bool {
        let by_client = || self.by_namespace.get(namespace(name)).is_some_and(|clients| clients.has(client));
        told(name, &self.capabilities, &self.without).unwrap_or_else(by_client)
    }

    /// As [`Capable::serves`], of a node that says that it lacks these namespaces: bits of [`Namespaces::lacking`],
    /// and the index of the method's own. What the configuration adds is not taken away so.
    #[inline]
    pub fn serves_but(
        &self,
        row: MethodId,
        clients: Clients,
        name: &str,
        client: Client,
        (namespace, lacking): (u8, u64),
    ) -> bool {
        self.serves(row, clients, name, client) && (!is_lacking(lacking, namespace) || self.adds(row, name))
    }

    /// Whether its configuration says that it has a method.
    pub fn adds(&self, row: MethodId, name: &str) -> bool {
        match usize::from(row.0) < self.rows {
            true => has(&self.added, row),
            false => told(name, &self.capabilities, &self.without) == Some(true),
        }
    }
}

#[inline]
fn has(bits: &[u64], row: MethodId) -> bool {
    bits.get(usize::from(row.0 / 64)).is_some_and(|word| word >> (row.0 % 64) & 1 == 1)
}

/// What a configuration says about a name: a method counts before its namespace, and what is taken away before what
/// is added.
fn told(name: &str, capabilities: &[Box<str>], without: &[Box<str>]) -> Option<bool> {
    let listed = |list: &[Box<str>], word: &str| list.iter().any(|entry| **entry == *word);
    for word in [name, namespace(name)] {
        if listed(without, word) {
            return Some(false);
        }
        if listed(capabilities, word) {
            return Some(true);
        }
    }
    None
}

/// The same about a row, which may need a capability of its own.
fn said(row: &Method, capabilities: &[Box<str>], without: &[Box<str>]) -> Option<bool> {
    let Some(needs) = &row.needs else { return told(&row.name, capabilities, without) };
    if capabilities.contains(&row.name) && !without.contains(&row.name) {
        return Some(true);
    }
    let given = capabilities.contains(needs) && !without.contains(needs);
    match told(&row.name, capabilities, without) {
        _ if !given => Some(false),
        // A method that only the configuration knows: the capability is all that it takes.
        None if row.clients == Clients::EVERY => Some(true),
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::Class;
    use super::super::methods::{Family, Methods};
    use super::super::own_methods::OwnMethod;
    use super::super::snapshot::{Protocol, tests::snapshot};
    use super::*;
    use Client::{Besu, Erigon, Geth, Nethermind, Reth, Unknown};

    fn methods() -> Methods {
        let mut methods = Methods::embedded();
        for (name, capability) in [
            ("acme_getThing", Some("acme")),
            ("other_getThing", None),
            ("eth_getThing", None),
            ("eth_getOddThing", Some("odd")),
            ("eth_getCode", Some("code")),
        ] {
            let own = OwnMethod {
                protocol: Protocol::JsonRpc,
                name: name.into(),
                class: Some(Class::Stateless),
                tier: None,
                capability: capability.map(Into::into),
            };
            methods.extend(&own).unwrap();
        }
        methods
    }

    /// Which clients an Endpoint with this configuration has a method of.
    fn served(capabilities: &[&str], without: &[&str], name: &str) -> Vec<Client> {
        let methods = methods();
        let table = methods.table(Protocol::JsonRpc, Family::Evm);
        let capable = capable(table, capabilities, without);
        let id = table.find(name);
        let clients = table.get(id).map(|row| row.clients).unwrap_or_default();
        Client::ALL.into_iter().filter(|client| capable.serves(id, clients, name, *client)).collect()
    }

    fn capable(table: &Table, capabilities: &[&str], without: &[&str]) -> Capable {
        let mut endpoint = snapshot().endpoints.remove(0);
        endpoint.capabilities = capabilities.iter().map(|word| (*word).into()).collect();
        endpoint.without = without.iter().map(|word| (*word).into()).collect();
        Capable::new(table, &endpoint)
    }

    #[test]
    fn a_listed_method_is_served_by_the_clients_that_have_it() {
        assert_eq!(served(&[], &[], "eth_call"), Client::ALL);
        assert_eq!(served(&[], &[], "ots_hasCode"), [Erigon]);
        assert_eq!(served(&[], &[], "trace_block"), [Reth, Erigon, Nethermind, Besu]);
        assert_eq!(served(&[], &[], "txpool_status"), [Geth, Reth]);
        assert_eq!(served(&[], &[], "alchemy_getTokenBalances"), []);
    }

    #[test]
    fn an_unlisted_method_is_served_by_the_clients_with_its_namespace() {
        assert_eq!(served(&[], &[], "eth_newThing"), Client::ALL);
        assert_eq!(served(&[], &[], "ots_newThing"), [Erigon]);
        assert_eq!(served(&[], &[], "debug_newThing"), [Geth, Reth, Erigon, Nethermind, Besu]);
        assert_eq!(served(&[], &[], "trace_newThing"), [Reth, Erigon, Nethermind, Besu]);
        for name in ["nobody_knows", "newThing", "", "_", "ETH_newThing"] {
            assert_eq!(served(&[], &[], name), [], "{name}");
        }
    }

    #[test]
    fn configuration_adds_and_takes_away_namespaces_and_methods() {
        assert_eq!(served(&["ots"], &[], "ots_hasCode"), Client::ALL);
        assert_eq!(served(&["ots_hasCode"], &[], "ots_hasCode"), Client::ALL);
        assert_eq!(served(&["ots_hasCode"], &[], "ots_getBlockDetails"), [Erigon]);
        assert_eq!(served(&["alchemy"], &[], "alchemy_getTokenBalances"), Client::ALL);
        assert_eq!(served(&["acme2"], &[], "acme2_x"), Client::ALL);
        assert_eq!(served(&["acme2_x"], &[], "acme2_x"), Client::ALL);
        assert_eq!(served(&["acme2_x"], &[], "acme2_y"), []);
        assert_eq!(served(&[], &["debug"], "debug_traceCall"), []);
        assert_eq!(served(&[], &["debug"], "debug_newThing"), []);
        assert_eq!(served(&[], &["debug_traceCall"], "debug_traceCall"), []);
        assert_eq!(served(&[], &["debug_traceCall"], "debug_traceTransaction"), [Geth, Reth, Erigon, Nethermind, Besu]);
        // A method counts before its namespace.
        assert_eq!(served(&["debug_traceCall"], &["debug"], "debug_traceCall"), Client::ALL);
        assert_eq!(served(&["debug"], &["debug_traceCall"], "debug_traceCall"), []);
        assert_eq!(served(&["debug_newThing"], &["debug"], "debug_newThing"), Client::ALL);
        assert_eq!(served(&["debug"], &["debug"], "debug_traceCall"), []);
    }

    #[test]
    fn methods_of_ones_own_go_where_their_capability_is() {
        assert_eq!(served(&[], &[], "acme_getThing"), []);
        assert_eq!(served(&["acme"], &[], "acme_getThing"), Client::ALL);
        assert_eq!(served(&["acme_getThing"], &[], "acme_getThing"), Client::ALL);
        assert_eq!(served(&["acme"], &["acme_getThing"], "acme_getThing"), []);
        assert_eq!(served(&["acme"], &["acme"], "acme_getThing"), []);
        // Without a capability it is as an unlisted one of its namespace.
        assert_eq!(served(&[], &[], "other_getThing"), []);
        assert_eq!(served(&["other"], &[], "other_getThing"), Client::ALL);
        assert_eq!(served(&[], &[], "eth_getThing"), Client::ALL);
        // Its namespace is not enough for one with a capability.
        assert_eq!(served(&["eth"], &[], "eth_getOddThing"), []);
        assert_eq!(served(&["odd"], &[], "eth_getOddThing"), Client::ALL);
        // A known method with a capability of one's own needs both.
        assert_eq!(served(&[], &[], "eth_getCode"), []);
        assert_eq!(served(&["code"], &[], "eth_getCode"), Client::ALL);
        assert_eq!(served(&["code"], &["eth"], "eth_getCode"), []);
    }

    #[test]
    fn what_a_node_does_not_offer_is_taken_away_unless_the_configuration_adds_it() {
        let methods = methods();
        let table = methods.table(Protocol::JsonRpc, Family::Evm);
        let plain = capable(table, &[], &[]);
        let added = capable(table, &["trace", "nobody"], &[]);
        let lacking = table.namespaces().lacking(["Eth", "net", "rpc", "web3", "Debug", "unheard"]);
        let asks = |capable: &Capable, name: &str, lacking| {
            let id = table.find(name);
            let clients = table.get(id).map(|row| row.clients).unwrap_or_default();
            let namespace = table.namespaces().index(namespace(name));
            capable.serves_but(id, clients, name, Erigon, (namespace, lacking))
        };
        for (name, plainly) in [
            ("eth_call", true),
            ("debug_traceCall", true),
            ("net_version", true),
            ("trace_block", false),
            ("trace_newThing", false),
            ("ots_hasCode", false),
        ] {
            assert_eq!(asks(&plain, name, lacking), plainly, "{name}");
            assert!(asks(&plain, name, 0), "{name}");
            assert_eq!(asks(&added, name, lacking), plainly || name.starts_with("trace"), "{name}");
        }
        assert!(asks(&added, "nobody_knows", lacking));
        assert_eq!(table.namespace_of(table.find("eth_call")), table.namespaces().index("eth"));
        assert_eq!(table.namespace_of(table.other()), Namespaces::NONE);
        // What does not even name `eth`, or nothing at all, says nothing.
        for silent in [&[][..], &["net", "web3"], &["methods"]] {
            assert_eq!(table.namespaces().lacking(silent.iter().copied()), 0);
        }
    }

    #[test]
    fn any_number_of_namespaces_has_indexes_that_fit() {
        let methods = Methods::embedded();
        let row = methods.table(Protocol::JsonRpc, Family::Evm).rows()[0].clone();
        let rows: Vec<Method> = (0..300).map(|n| Method { name: format!("n{n}_x").into(), ..row.clone() }).collect();
        let namespaces = Namespaces::of(&rows);
        for n in 0..300 {
            assert_eq!(namespaces.index(&format!("n{n}")), n.min(63) as u8);
        }
        let lacking = namespaces.lacking(["eth", "n1"]);
        assert!(is_lacking(lacking, 0) && !is_lacking(lacking, 1));
        assert!(!is_lacking(lacking, 63) && !is_lacking(u64::MAX, 64));
        let evm = methods.table(Protocol::JsonRpc, Family::Evm).namespaces();
        assert_eq!(evm.0.values().filter(|(index, _)| *index == Namespaces::NONE).count(), 1, "only what has none");
        assert!(evm.clients("web3").has(Unknown) && !evm.clients("trace").has(Unknown));
    }
}
