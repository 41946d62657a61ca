//! The log's lines about Circuits, rests and chains: shards write them into a journal, and wait for nobody; a thread here says them.

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
    let Incident { endpoint, network, what, for_ns } = incident;
    // Without quotes, as the Endpoint beside it.
    let (network, for_ms) = (network.as_deref().map(tracing::field::display), for_ns / MS);
    match what {
        What::Circuit(transition) => {
            let (to, reason) = (transition.to(), transition.reason());
            match to {
                "open" => tracing::warn!(%endpoint, to, reason, for_ms, "Circuit"),
                _ => tracing::info!(%endpoint, to, reason, for_ms, "Circuit"),
            }
        }
        What::AskedToRest => tracing::info!(%endpoint, reason = "retry_after", for_ms, "Rest"),
        What::Standing { standing, tip, lag } => {
            // Behind what, if nothing is known of it?
            let (tip, lag) = (*tip, tip.map(|_| *lag));
            match standing {
                Standing::Fresh => tracing::info!(%endpoint, network, tip, lag, "Tip: keeps up"),
                Standing::Lagging => tracing::warn!(%endpoint, network, tip, lag, "Tip: lags"),
                Standing::Fork => tracing::warn!(%endpoint, network, tip, lag, "Tip: on a fork"),
                Standing::Unknown => tracing::warn!(%endpoint, network, tip, lag, "Tip: unknown"),
            }
        }
        What::Mismatched => {
            tracing::error!(%endpoint, network, "serves another chain than its configuration says: not used");
        }
        What::Reorg { depth, number } => tracing::warn!(%endpoint, network, depth, number, "Re-org"),
        What::OftenBusy => tracing::info!(%endpoint, reason = "often_busy", for_ms, "Rest"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::journal::Transition;
    use std::io;
    use std::sync::{Mutex, PoisonError};
    use tracing_subscriber::fmt;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the log says about one incident, as text and as JSON, without the time.
    fn lines(network: Option<&str>, what: What) -> (String, serde_json::Value) {
        let journal = Journal::default();
        let [text, json] = [Page::default(), Page::default()];
        let pages = (text.clone(), json.clone());
        let format = || fmt().with_target(false).with_ansi(false).without_time();
        let say = || {
            let incident =
                Incident { endpoint: "geth-1".into(), network: network.map(Into::into), what, for_ns: 7 * MS };
            journal.write(incident);
            drain(&journal);
        };
        tracing::subscriber::with_default(format().with_writer(move || pages.0.clone()).finish(), say);
        let as_json = format().json().flatten_event(true).with_writer(move || pages.1.clone());
        tracing::subscriber::with_default(as_json.finish(), say);
        let read = |page: &Page| String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        (read(&text).trim().to_owned(), serde_json::from_str(&read(&json)).unwrap())
    }

    #[test]
    fn a_change_of_standing_tells_the_tip_how_far_behind_and_of_which_chain() {
        let mainnet = Some("ethereum/mainnet");
        for (standing, line, level) in [
            (Standing::Fresh, "Tip: keeps up", "INFO"),
            (Standing::Lagging, "Tip: lags", "WARN"),
            (Standing::Fork, "Tip: on a fork", "WARN"),
        ] {
            let (text, json) = lines(mainnet, What::Standing { standing, tip: Some(19_000_090), lag: 10 });
            let fields = "endpoint=geth-1 network=ethereum/mainnet tip=19000090 lag=10";
            assert_eq!(text, format!("{level} {line} {fields}"));
            let expected = serde_json::json!({"level": level, "message": line, "endpoint": "geth-1",
                "network": "ethereum/mainnet", "tip": 19_000_090, "lag": 10});
            assert_eq!(json, expected);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let what = What::Standing { standing: Standing::Unknown, tip: None, lag: 3 };
        let (text, json) = lines(Some("acme/mainnet"), what);
        assert_eq!(text, "WARN Tip: unknown endpoint=geth-1 network=acme/mainnet");
        assert!(json["tip"].is_null() && json["lag"].is_null(), "{json}");
        let (text, json) = lines(None, What::Circuit(Transition::Tripped));
        assert!(
            text.ends_with("Circuit endpoint=geth-1 to=\"open\" reason=\"consecutive_failures\" for_ms=7"),
            "{text}"
        );
        assert!(json["network"].is_null(), "{json}");
    }

    #[test]
    fn a_reorg_and_a_node_of_another_chain_say_of_which_chain() {
        let (text, json) = lines(Some("polygon/amoy"), What::Reorg { depth: 2, number: 77 });
        assert_eq!(text, "WARN Re-org endpoint=geth-1 network=polygon/amoy depth=2 number=77");
        assert_eq!((&json["network"], &json["depth"]), (&"polygon/amoy".into(), &2.into()));
        let (text, _) = lines(Some("polygon/amoy"), What::Mismatched);
        assert!(text.starts_with("ERROR serves another chain") && text.contains("network=polygon/amoy"), "{text}");
    }
}
