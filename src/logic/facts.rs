//! What is known of a method beyond its name: which clients have it, what of the chain it reads, and where its
//! result shows a block.
//!
//! The words that the tables use for it are read here. Where the facts come from: `methods/README.md`.

use super::block::{Asked, BlockRef};

/// A node's software, as far as its methods differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Client {
    /// None of the others: it has `eth`, `net` and `web3`.
    Unknown = 0,
    /// go-ethereum and its forks that say so.
    Geth = 1,
    /// Reth.
    Reth = 2,
    /// Erigon.
    Erigon = 3,
    /// Nethermind.
    Nethermind = 4,
    /// Besu.
    Besu = 5,
}

/// Names that clients have in the tables and say of themselves.
const CLIENT_NAMES: [(&str, Client); 7] = [
    ("geth", Client::Geth),
    ("reth", Client::Reth),
    ("erigon", Client::Erigon),
    ("nethermind", Client::Nethermind),
    ("besu", Client::Besu),
    // Forks of go-ethereum with its methods and a name of their own.
    ("bor", Client::Geth),
    ("coregeth", Client::Geth),
];

impl Client {
    /// All of them, in order.
    pub const ALL: [Client; 6] =
        [Client::Unknown, Client::Geth, Client::Reth, Client::Erigon, Client::Nethermind, Client::Besu];

    /// The word in configuration, tables and what people see.
    pub const fn word(self) -> &'static str {
        match self {
            Client::Unknown => "unknown",
            Client::Geth => "geth",
            Client::Reth => "reth",
            Client::Erigon => "erigon",
            Client::Nethermind => "nethermind",
            Client::Besu => "besu",
        }
    }
}

/// Which client says this of itself in `web3_clientVersion`: what stands before the first `/` is its name.
pub fn client_of(version: &str) -> Client {
    let name = name_in(version);
    let known = CLIENT_NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map_or(Client::Unknown, |(_, client)| *client)
}

/// The name in what a client says of itself.
pub fn name_in(version: &str) -> &str {
    version.split('/').next().unwrap_or_default().trim()
}

/// The names that [`client_of`] knows.
pub fn names_of_clients() -> impl Iterator<Item = &'static str> {
    CLIENT_NAMES.iter().map(|(name, _)| *name)
}

/// A set of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clients(pub u8);

impl Clients {
    /// All of them.
    pub const EVERY: Clients = Clients((1 << Client::ALL.len()) - 1);

    /// Whether a client is in it.
    pub const fn has(self, client: Client) -> bool {
        self.0 >> client as u8 & 1 == 1
    }

    /// The set with one more.
    pub const fn with(self, client: Client) -> Clients {
        Clients(self.0 | 1 << client as u8)
    }

    /// What is in either.
    pub const fn or(self, other: Clients) -> Clients {
        Clients(self.0 | other.0)
    }

    /// Reads `geth|reth`, or `-` for none.
    pub(super) fn read(cell: &str) -> Option<Clients> {
        if cell == "-" {
            return Some(Clients::default());
        }
        cell.split('|').try_fold(Clients::default(), |clients, name| {
            // The first five: a fork has what it is a fork of.
            let known = CLIENT_NAMES.iter().take(5).find(|(known, _)| *known == name);
            known.map(|(_, client)| clients.with(*client))
        })
    }
}

/// What of the chain a method reads, and where in `params` that stands (0 = first).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// Nothing that depends on a height.
    #[default]
    Nothing,
    /// The state at a block, which a number, a tag, a hash, or an object (`blockNumber` or `blockHash`) names.
    State(u8),
    /// The state that a block starts from: traces run it again.
    Trace(u8),
    /// The states at two blocks, the older one at this place and the newer one at the next. Without the newer one:
    /// at that block and at its parent.
    Between(u8),
    /// The state for `eth_callBundle`: Reth takes an object with `stateBlockNumber` at the first place, Erigon the
    /// block at the second.
    Bundle,
    /// Bodies, receipts or headers of a block that is named so.
    Block(u8),
    /// Logs: an object with `fromBlock` and `toBlock`, or `blockHash`, at this place.
    Logs(u8),
    /// The traces of a range: an object with `fromBlock` and `toBlock`.
    TraceRange(u8),
    /// Fee history: the count of blocks stands at the first place, the newest one at the second.
    Fees,
    /// By the hash of a block or a transaction: no height can be told; its `null` is a statement about the past.
    ByHash,
    /// The trace of what a hash names, or what is searched for in past states: no height can be told, and state is
    /// needed.
    TraceByHash,
}

impl Reads {
    /// Whether state is read, and not only bodies, receipts and logs.
    pub const fn state(self) -> bool {
        matches!(
            self,
            Reads::State(_)
                | Reads::Trace(_)
                | Reads::Between(_)
                | Reads::Bundle
                | Reads::TraceRange(_)
                | Reads::TraceByHash
        )
    }

    /// Reads `state@1`, `fees`, or `-` for nothing.
    pub(super) fn read(cell: &str) -> Option<Reads> {
        if let Some((what, place)) = cell.split_once('@') {
            let place = place.parse().ok()?;
            return Some(match what {
                "state" => Reads::State(place),
                "trace" => Reads::Trace(place),
                "between" => Reads::Between(place),
                "block" => Reads::Block(place),
                "logs" => Reads::Logs(place),
                "trace_range" => Reads::TraceRange(place),
                _ => return None,
            });
        }
        Some(match cell {
            "-" => Reads::Nothing,
            "bundle" => Reads::Bundle,
            "fees" => Reads::Fees,
            "hash" => Reads::ByHash,
            "trace_hash" => Reads::TraceByHash,
            _ => return None,
        })
    }
}

/// Where a result shows the number and the hash of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shows {
    /// Nowhere.
    #[default]
    Nothing,
    /// An object with `number` and `hash`.
    Block,
    /// An object with `blockNumber` and `blockHash`.
    Inside,
    /// A list of such objects.
    Listed,
}

impl Shows {
    /// Reads `block`, or `-` for nothing.
    pub(super) fn read(cell: &str) -> Option<Shows> {
        Some(match cell {
            "-" => Shows::Nothing,
            "block" => Shows::Block,
            "inside" => Shows::Inside,
            "listed" => Shows::Listed,
            _ => return None,
        })
    }
}

/// What a Call asks of the past, when nothing could be read of its arguments.
pub const UNREADABLE: Asked = Asked { oldest: BlockRef::Unreadable, newest: BlockRef::Unreadable, span: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_what_stands_before_the_first_slash() {
        for (version, client) in [
            ("Geth/v1.14.12-stable-293a300d/linux-amd64/go1.23.2", Client::Geth),
            ("Geth/my-node/v1.13.4-stable/linux-amd64/go1.21", Client::Geth),
            ("geth", Client::Geth),
            ("reth/v1.1.2-496bf0b/x86_64-unknown-linux-gnu", Client::Reth),
            ("erigon/3.0.2/linux-amd64/go1.23.4", Client::Erigon),
            ("Erigon/v2.60.0-stable-e501b3b0/linux-amd64/go1.20.3", Client::Erigon),
            ("Nethermind/v1.25.4+20b10b35/linux-x64/dotnet8.0.1", Client::Nethermind),
            ("besu/v24.1.2/linux-x86_64/openjdk-java-17", Client::Besu),
            ("bor/v1.10.8-stable-045e5c2c/linux-amd64/go1.16.3", Client::Geth),
            ("CoreGeth/v1.12.21-unstable/linux-amd64/go1.24.4", Client::Geth),
            ("anvil/v1.0.0", Client::Unknown),
            ("", Client::Unknown),
            ("/geth", Client::Unknown),
            ("getho/v1", Client::Unknown),
            ("not geth/v1", Client::Unknown),
        ] {
            assert_eq!(client_of(version), client, "{version}");
        }
        for client in Client::ALL {
            assert_eq!(client_of(client.word()), client);
        }
    }

    #[test]
    fn words_of_the_tables_are_read_and_others_refused() {
        let two = Clients::default().with(Client::Geth).with(Client::Besu);
        assert_eq!(Clients::read("geth|besu"), Some(two));
        assert!(two.has(Client::Besu) && !two.has(Client::Reth) && Clients::EVERY.has(Client::Besu));
        assert_eq!(Clients::read("-"), Some(Clients::default()));
        assert!(["", "geth|", "Geth", "anvil", "bor", "geth reth"].iter().all(|cell| Clients::read(cell).is_none()));
        assert_eq!(Reads::read("trace_range@3"), Some(Reads::TraceRange(3)));
        assert_eq!(Reads::read("trace_hash"), Some(Reads::TraceByHash));
        assert!(["", "state", "state@", "fees@0", "hash@1", "x@1"].iter().all(|cell| Reads::read(cell).is_none()));
        assert_eq!(Shows::read("listed"), Some(Shows::Listed));
        assert!(["", "Block"].iter().all(|cell| Shows::read(cell).is_none()));
    }
}
