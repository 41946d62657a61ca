//! `POST /v1/circuits/{endpoint}`: an operator holds a Circuit open or closed for a time, or lets it go.

use crate::logic::circuit::{Forced, State};
use crate::logic::snapshot::EndpointIx;
use crate::logic::units::{self, Nanos, SECOND};
use crate::ops::admin::Page;
use crate::shared::snapshot_cell::Live;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// How long a Circuit is held where nothing is said: long enough to look around, short enough to be forgotten.
const HELD_FOR: &str = "10m";
/// The longest hold. Who wants an Endpoint out for good sets `enabled = false`.
const HELD_FOR_MAX_NS: Nanos = 7 * 24 * 3_600 * SECOND;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    action: Action,
    #[serde(rename = "for")]
    held_for: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Open,
    Close,
    Auto,
}

#[derive(Serialize)]
struct Told<'a> {
    endpoint: &'a str,
    circuit: Shown,
}

/// A Circuit as people read it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Shown {
    state: &'static str,
    reason: Option<&'static str>,
    until: Option<String>,
}

/// Does what the body asks for, and shows the Circuit as it is then.
pub(super) fn force(id: &str, body: &[u8], live: &Live, now_ns: Nanos) -> Page {
    let Some(at) = live.endpoint(id) else {
        return Page::error(404, "not_found", "no Endpoint has this id");
    };
    // A list of values in the order of the members would be taken too.
    let is_object = body.trim_ascii_start().starts_with(b"{");
    let wish: Wish = match serde_json::from_slice(if is_object { body } else { b"{}" }) {
        Ok(wish) => wish,
        Err(error) => {
            let right = r#"send {"action": "open" | "close" | "auto", "for": "10m"}"#;
            return Page::error(400, "invalid_body", &format!("{right}: {error}"));
        }
    };
    let forced = match wish.action {
        Action::Open => Forced::Open,
        Action::Close => Forced::Closed,
        Action::Auto => Forced::Auto,
    };
    if forced == Forced::Auto && wish.held_for.is_some() {
        return Page::error(400, "invalid_body", "`for` belongs to open and close: auto lets go at once");
    }
    let held_for_ns = match units::duration(wish.held_for.as_deref().unwrap_or(HELD_FOR)) {
        Ok(ns) if (1..=HELD_FOR_MAX_NS).contains(&ns) => ns,
        Ok(_) => return Page::error(400, "invalid_body", "`for` must be more than 0 and at most \"168h\""),
        Err(error) => return Page::error(400, "invalid_body", &format!("for: {}", error.0)),
    };
    let endpoint = EndpointIx(at as u16);
    live.board.force(endpoint, forced, now_ns.saturating_add(held_for_ns), now_ns);
    let circuit = shown(live.board.state(endpoint), now_ns, SystemTime::now());
    Page::of(200, &Told { endpoint: &live.snapshot.endpoints[at].id, circuit })
}

/// The one word for a state, where there is room for no more.
pub(super) fn word(state: State, now_ns: Nanos) -> &'static str {
    match (shown(state, now_ns, SystemTime::UNIX_EPOCH), state) {
        (Shown { state: "open", .. }, State::HeldOpen { .. }) => "held_open",
        (Shown { reason: Some(_), .. }, State::HeldClosed { .. }) => "held_closed",
        (Shown { state, .. }, _) => state,
    }
}

/// What a state is called, and when it ends by itself. `now_ns` and `now` are the same moment on two clocks.
fn shown(state: State, now_ns: Nanos, now: SystemTime) -> Shown {
    let (state, reason, until_ns) = match state {
        State::Closed => ("closed", None, None),
        State::HeldClosed { until_ns } if until_ns <= now_ns => ("closed", None, None),
        State::HeldClosed { until_ns } => ("closed", Some("operator"), Some(until_ns)),
        State::HeldOpen { until_ns } if until_ns > now_ns => ("open", Some("operator"), Some(until_ns)),
        State::Open { until_ns } if until_ns > now_ns => ("open", None, Some(until_ns)),
        State::Probing { until_ns } if until_ns > now_ns => ("half_open", None, Some(until_ns)),
        // The next Call probes.
        State::HeldOpen { .. } | State::Open { .. } | State::Probing { .. } => ("half_open", None, None),
    };
    let wall = |until_ns: Nanos| {
        let until = now.checked_add(Duration::from_nanos(until_ns.saturating_sub(now_ns)))?;
        let until = jiff::Timestamp::try_from(until).ok()?;
        until.round(jiff::Unit::Millisecond).ok().map(|until| until.to_string())
    };
    Shown { state, reason, until: until_ns.and_then(wall) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_shown_with_their_end_on_the_wall_clock() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let all = [
            (State::Closed, ("closed", None, None)),
            (State::HeldClosed { until_ns: 9 * SECOND }, ("closed", Some("operator"), Some("2023-11-14T22:13:24Z"))),
            (State::HeldClosed { until_ns: 5 * SECOND }, ("closed", None, None)),
            (State::HeldOpen { until_ns: 6 * SECOND }, ("open", Some("operator"), Some("2023-11-14T22:13:21Z"))),
            (State::HeldOpen { until_ns: 5 * SECOND }, ("half_open", None, None)),
            (State::Open { until_ns: 5_250_000_000 }, ("open", None, Some("2023-11-14T22:13:20.25Z"))),
            (State::Open { until_ns: SECOND }, ("half_open", None, None)),
            (State::Probing { until_ns: 7 * SECOND }, ("half_open", None, Some("2023-11-14T22:13:22Z"))),
        ];
        for (state, (name, reason, until)) in all {
            let right = Shown { state: name, reason, until: until.map(str::to_owned) };
            assert_eq!(shown(state, 5 * SECOND, now), right, "{state:?}");
            let held = if reason.is_some() { format!("held_{name}") } else { name.to_owned() };
            assert_eq!(word(state, 5 * SECOND), held, "{state:?}");
        }
    }
}
