//! What is known about each method by name: its class, and the label under which it is counted.
//!
//! Names match exactly and case-sensitively; a name that stands in no table is [`Class::Unrecognised`].
//! The tables are embedded from `src/logic/methods/*.csv`.

use super::call::Class;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Which table a network's methods stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Ethereum and everything that speaks its JSON-RPC.
    Evm,
    /// TRON (its JSON-RPC).
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

/// Index of a row in its family's table; [`Table::other`] stands for every unlisted name.
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
}

/// The rows of one family, found by name.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Method>,
    by_name: HashMap<Box<str>, u16, BuildHasherDefault<NameHasher>>,
}

/// The tables of all families.
#[derive(Debug)]
pub struct Methods {
    evm: Table,
    tron: Table,
    solana: Table,
}

impl Methods {
    /// The embedded tables.
    pub fn embedded() -> Methods {
        Methods {
            evm: Table::read(include_str!("methods/evm.csv"), "eth_sendRawTransaction"),
            // TRON's JSON-RPC declares eth_sendRawTransaction and never takes one, so it has no signed broadcast.
            tron: Table::read(include_str!("methods/tron_jsonrpc.csv"), ""),
            solana: Table::read(include_str!("methods/solana.csv"), "sendTransaction"),
        }
    }

    /// The table of a family.
    pub fn table(&self, family: Family) -> &Table {
        match family {
            Family::Evm => &self.evm,
            Family::Tron => &self.tron,
            Family::Solana => &self.solana,
        }
    }
}

impl Table {
    fn read(csv: &str, signed_broadcast: &str) -> Table {
        let rows: Vec<Method> = csv.lines().skip(1).filter_map(|line| row(line, signed_broadcast)).collect();
        let by_name = rows.iter().zip(0u16..).map(|(row, at)| (row.name.clone(), at)).collect();
        Table { rows, by_name }
    }

    /// The row for an exact name, or [`Table::other`].
    pub fn find(&self, name: &str) -> MethodId {
        self.by_name.get(name).map_or(self.other(), |at| MethodId(*at))
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

fn row(line: &str, signed_broadcast: &str) -> Option<Method> {
    let mut cells = line.split(',');
    let (name, class, capability) = (cells.next()?, cells.next()?, cells.next()?);
    let class = match class {
        "stateless" | "builder" => Class::Stateless,
        "local" => Class::Local,
        "broadcast" if name == signed_broadcast => Class::SignedBroadcast,
        // Private transactions, bundles, `...Sync` and user operations are no plain broadcasts:
        // a second node would not take them as the same thing.
        "broadcast" | "effect" => Class::Effect,
        _ => return None,
    };
    Some(Method { name: name.into(), class, capability: capability.into() })
}

/// FNV-1a: the keys are fixed at start, so callers can't choose collisions; short names hash in a few ns.
#[derive(Debug, Clone)]
pub struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> Self {
        NameHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        // FNV's high bits are weak on short keys, and the map's control bytes take them.
        self.0 ^ (self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn exactly_the_named_methods_are_signed_broadcasts() {
        let methods = Methods::embedded();
        let signed = |family| {
            let rows = methods.table(family).rows().iter();
            rows.filter(|row| row.class == Class::SignedBroadcast).map(|row| row.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(signed(Family::Evm), ["eth_sendRawTransaction"]);
        assert_eq!(signed(Family::Solana), ["sendTransaction"]);
        assert!(signed(Family::Tron).is_empty());
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
            let table = methods.table(family);
            let row = table.get(table.find(own)).unwrap();
            assert_eq!((&*row.name, table.label(table.find(own))), (own, own));
            assert_eq!(table.get(table.other()), None);
        }
        assert_eq!(methods.table(Family::Evm).label(methods.table(Family::Evm).find("getSlot")), "other");
    }

    #[test]
    fn every_row_of_the_embedded_tables_is_read() {
        let methods = Methods::embedded();
        for (family, csv) in [
            (Family::Evm, include_str!("methods/evm.csv")),
            (Family::Tron, include_str!("methods/tron_jsonrpc.csv")),
            (Family::Solana, include_str!("methods/solana.csv")),
        ] {
            let table = methods.table(family);
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
        let all = hashes(methods.table(Family::Evm));
        // A map takes a bucket from the low bits and a tag from the seven highest.
        let distinct = |of: &dyn Fn(u64) -> u64| all.iter().map(|hash| of(*hash)).collect::<HashSet<_>>().len();
        assert_eq!(distinct(&|hash| hash), all.len());
        assert!(distinct(&|hash| hash % 1_024) > 400, "{}", distinct(&|hash| hash % 1_024));
        assert!(distinct(&|hash| hash >> 57) > 110, "{}", distinct(&|hash| hash >> 57));
    }

    #[test]
    fn names_match_exactly() {
        let methods = Methods::embedded();
        let evm = methods.table(Family::Evm);
        assert_eq!(evm.class(evm.find("eth_call")), Class::Stateless);
        assert_eq!(evm.class(evm.find("eth_newFilter")), Class::Local);
        assert_eq!(evm.class(evm.find("eth_sendTransaction")), Class::Effect);
        assert_eq!(evm.class(evm.find("eth_sendRawTransactionSync")), Class::Effect);
        for other in ["ETH_CALL", "eth_Call", " eth_call", "eth_call ", "", "eth_sendrawtransaction"] {
            assert_eq!(evm.class(evm.find(other)), Class::Unrecognised, "{other:?}");
            assert_eq!(evm.label(evm.find(other)), "other");
        }
    }
}
