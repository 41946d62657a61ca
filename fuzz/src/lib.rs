//! The oracles of the fuzz targets: second readings that share no code with the gateway's.
//!
//! They are written for plainness, not for speed, and they judge: valid or not, framed how, saying what. A
//! target compares, so a difference is a fault of one of the two.

pub mod chunks;
pub mod http_head;
pub mod http_walk;
pub mod json;

/// The first `N` bytes of an input choose the settings; the rest is what is read.
pub fn settings<const N: usize>(data: &[u8]) -> Option<(&[u8; N], &[u8])> {
    data.split_first_chunk()
}
