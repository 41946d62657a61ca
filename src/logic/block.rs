//! A block as headers and Calls name it.

/// A hash of 32 bytes.
pub type Hash = [u8; 32];

/// What a tracker reads of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Height.
    pub number: u64,
    /// Its own hash.
    pub hash: Hash,
    /// Its parent's.
    pub parent: Hash,
    /// Seconds since 1970.
    pub timestamp_s: u64,
}

/// A block as an argument names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockRef {
    /// By height.
    Number(u64),
    /// `latest`, and what is not written: nodes take it so.
    #[default]
    Latest,
    /// `pending`.
    Pending,
    /// `safe`.
    Safe,
    /// `finalized`.
    Finalized,
    /// `earliest`.
    Earliest,
    /// By hash: no height can be told from it.
    Hash,
    /// Something else: a node will say what is wrong with it.
    Unreadable,
}

/// What a Call asks of the chain's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// The lowest block that is read, but for `span`.
    pub oldest: BlockRef,
    /// The highest one.
    pub newest: BlockRef,
    /// So many blocks below `oldest` are read too: a history of fees counts back from a block that only a node can
    /// give a number.
    pub span: u64,
}
