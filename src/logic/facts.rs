//! What is known of a method beyond its name: which clients have it, what of the chain it reads, and where its
//! result shows a block.

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

/// A set of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clients(pub u8);

impl Clients {
    /// Whether a client is in it.
    pub const fn has(self, client: Client) -> bool {
        self.0 >> client as u8 & 1 == 1
    }

    /// The set with one more.
    pub const fn with(self, client: Client) -> Clients {
        Clients(self.0 | 1 << client as u8)
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
    /// The trace of what a hash names: no height can be told, and state is needed.
    TraceByHash,
}

impl Reads {
    /// Whether state is read, and not only bodies, receipts and logs.
    pub const fn state(self) -> bool {
        matches!(self, Reads::State(_) | Reads::Trace(_) | Reads::TraceRange(_) | Reads::TraceByHash)
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

/// What a Call asks of the past, when nothing could be read of its arguments.
pub const UNREADABLE: Asked = Asked { oldest: BlockRef::Unreadable, newest: BlockRef::Unreadable, span: 0 };
