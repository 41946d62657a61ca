//! The log: structured, one line per incident, never a body, never a secret.
//!
//! Only the control plane writes to it: no shard ever waits for whoever reads the log.

use crate::logic::snapshot::{LogFormat, LogLevel};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Starts logging to standard error.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Packages have words of their own, about names and addresses too: only Ringway's are for people.
    let own = Targets::new().with_target("ringway", level);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    // A second start (tests run several gateways in one process) keeps the first one's settings.
    let _ = match format {
        LogFormat::Text => tracing_subscriber::registry().with(lines.with_ansi(false).with_filter(own)).try_init(),
        LogFormat::Json => {
            tracing_subscriber::registry().with(lines.json().flatten_event(true).with_filter(own)).try_init()
        }
    };
}
