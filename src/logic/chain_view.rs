//! PLACEHOLDER
/// How an Endpoint's chain stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Standing {
    /// Nothing is known of its tip.
    #[default]
    Unknown = 0,
    /// It keeps up.
    Fresh = 1,
    /// It is more than `max_lag` behind.
    Lagging = 2,
    /// It is on a fork.
    Fork = 3,
}
