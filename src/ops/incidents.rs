//! The log's lines about Circuits and rests: shards write them into a journal, and wait for nobody; a thread here says them.

use crate::logic::chain::Standing;
use crate::logic::units::MS;
use crate::shared::journal::{Incident, Journal, What};
use crate::shared::snapshot_cell::World;
use std::sync::Arc;
use std::time::Duration;

/// How long a line may wait.
const EVERY: Duration = Duration::from_millis(100);

/// Says what is in the journal for as long as the process lives.
pub fn start(world: &Arc<World>) -> std::io::Result<()> {
    // One journal goes through all Snapshots.
    let journal = world.live.load().board.journal().clone();
    std::thread::Builder::new().name("incidents".into()).spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            drain(&journal);
        }
    })?;
    Ok(())
}

/// Says everything that is in the journal now.
pub fn drain(journal: &Journal) {
    while let Some(incident) = journal.take() {
        say(&incident);
    }
}

fn say(incident: &Incident) {
    let Incident { endpoint, what, for_ns } = incident;
    let for_ms = for_ns / MS;
    match what {
        What::Circuit(transition) => {
            let (to, reason) = (transition.to(), transition.reason());
            match to {
                "open" => tracing::warn!(%endpoint, to, reason, for_ms, "Circuit"),
                _ => tracing::info!(%endpoint, to, reason, for_ms, "Circuit"),
            }
        }
        What::AskedToRest => tracing::info!(%endpoint, reason = "retry_after", for_ms, "Rest"),
        What::Standing(Standing::Fresh) => tracing::info!(%endpoint, "Tip: keeps up"),
        What::Standing(Standing::Lagging) => tracing::warn!(%endpoint, "Tip: lags"),
        What::Standing(Standing::Fork) => tracing::warn!(%endpoint, "Tip: on a fork"),
        What::Standing(Standing::Unknown) => tracing::warn!(%endpoint, "Tip: unknown"),
        What::Mismatched => tracing::error!(%endpoint, "serves another chain than its configuration says: not used"),
        What::Reorg { depth, number } => tracing::warn!(%endpoint, depth, number, "Re-org"),
        What::OftenBusy => tracing::info!(%endpoint, reason = "often_busy", for_ms, "Rest"),
    }
}
