//! The log: structured, one line per incident, never a body, never a secret.
//!
//! Only the control plane writes to it: no shard ever waits for whoever reads the log.

use crate::logic::snapshot::{LogFormat, LogLevel};
use tracing::Level;

/// Starts logging to standard error.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // A second start (tests run several gateways in one process) keeps the first one's settings.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
