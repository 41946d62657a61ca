//! `ringway demo`: not written yet.

/// Options of the demo.
#[derive(Debug, clap::Args)]
pub struct Options {}

/// Runs it.
///
/// # Errors
/// Always, so far.
pub fn run(_: &Options) -> Result<u8, crate::boot::Failure> {
    Err(crate::boot::Failure("the demo is not written yet".into()))
}
