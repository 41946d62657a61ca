//! A decision as `/v1/explain` tells it, as a table for people.

use serde_json::Value;
use std::fmt::Write;

/// The head of the table.
const HEAD: [&str; 7] = ["#", "ENDPOINT", "FIRST", "CIRCUIT", "TIP", "LAG", "NOTE"];

/// What the columns mean that do not say it themselves.
const LEGEND: &str = "# = the order of asking while each one fails, FIRST = how likely it is the first\n";

/// Of whom it can't be said yet whether it has a method.
const UNHEARD: &str = "client not known yet: until then it is taken to have eth, net and web3 alone";

/// The table; `None` if the text is no such decision. `call` is the JSON text of what was asked about.
pub fn table(json: &str, call: &str) -> Option<String> {
    let told: Value = serde_json::from_str(json).ok()?;
    let call: Value = serde_json::from_str(call).unwrap_or_default();
    let name = ["path", "method"].iter().find_map(|key| call[key].as_str()).unwrap_or_default();
    let (gateway, class) = (told["gateway"].as_str()?, told["class"].as_str()?);
    let mut out = String::new();
    // Escaped: a name may hold what a terminal would obey.
    let _ = writeln!(out, "Call      {} to Gateway {gateway}", name.escape_debug());
    if let (Some(route), Some(strategy)) = (told["route"].as_str(), told["strategy"].as_str()) {
        let attempts = match told["max_attempts"].as_u64()? {
            1 => "1 attempt".to_owned(),
            most => format!("at most {most} attempts"),
        };
        let _ = writeln!(out, "Route     {route}: {strategy}, {attempts}");
    }
    let _ = writeln!(out, "class     {class}: {}", repetition(class));
    let needs = needs(&told["requirement"]);
    if !needs.is_empty() {
        let _ = writeln!(out, "needs     {}", needs.join(", "));
    }
    if let Some(refused) = refusal(&told["refused"]) {
        let _ = writeln!(out, "refused   {refused}");
    }
    let targets = told["targets"].as_array()?;
    if targets.is_empty() {
        return Some(out);
    }
    let mut rows: Vec<[String; 7]> = targets.iter().map(row).collect();
    // As they would be asked, and then those that would not.
    rows.sort_by_key(|row| row[0].parse::<u64>().unwrap_or(u64::MAX));
    out.push('\n');
    lines(&mut out, &rows);
    let kept = targets.iter().filter(|target| target["kept"] == true).count() as u64;
    out.push('\n');
    out.push_str(LEGEND);
    if told["max_attempts"].as_u64().is_some_and(|most| most < kept) {
        out.push_str(
            "More targets than attempts: the last ones are asked only if an earlier one is left out by then.\n",
        );
    }
    if told["strategy"] == "tiered" && targets.iter().all(|target| target["tip"].is_null()) {
        out.push_str("No tip is known: nobody counts as behind, and how deep a block's number lies can't be told.\n");
    }
    Some(out)
}

/// What the class means after a failure.
fn repetition(class: &str) -> &'static str {
    match class {
        "stateless" => "after any failure the next Endpoint is asked",
        "signed_broadcast" => "after any failure the next Endpoint gets the same bytes",
        "local" | "effect" => "the next Endpoint is asked only if it was certainly not executed",
        _ => "in no method table; the next Endpoint is asked only if it was certainly not executed",
    }
}

fn needs(requirement: &Value) -> Vec<String> {
    let text = |key: &str, before: &str| requirement[key].as_str().map(|word| format!("{before}{word}"));
    let height = requirement["height"].as_u64().map(|height| format!("block {height}"));
    let tier = text("tier", "at least tier ");
    [tier, text("capability", "capability "), height].into_iter().flatten().collect()
}

fn refusal(refused: &Value) -> Option<String> {
    let (code, message) = (refused["code"].as_i64()?, refused["message"].as_str()?);
    let reason = refused["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(format!("{code}{reason}: {message}"))
}

fn row(target: &Value) -> [String; 7] {
    let number = |key: &str| target[key].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    let text = |key: &str| target[key].as_str().unwrap_or("-").to_owned();
    let first = match target["probability"].as_f64() {
        Some(share) if share > 0.0 => format!("{:.1} %", share * 100.0),
        _ => "-".to_owned(),
    };
    let kept = target["kept"] == true;
    let note = target["reason"].as_str().map(|reason| {
        let does = if kept { "" } else { "left out, " };
        match (reason, kept, target["client_known"].as_bool()) {
            // One that is known and lacks the method is another matter than one that may have it.
            ("capability", false, Some(false)) => format!("left out, {UNHEARD}"),
            _ => format!("{does}{reason}: {}", meaning(reason, kept)),
        }
    });
    let note = note.unwrap_or_default();
    [number("order"), text("endpoint"), first, text("circuit"), number("tip"), number("lag"), note]
}

/// What a reason means.
fn meaning(reason: &str, kept: bool) -> &'static str {
    match (reason, kept) {
        ("disabled", _) => "it has enabled = false",
        ("mismatch", _) => "it serves another chain, network or protocol",
        ("weight", _) => "its weight is 0",
        ("circuit", true) => "its Circuit is half-open, and this Call is no good probe",
        ("circuit", false) => "its Circuit is open, or its probe is under way",
        ("rest", _) => "it said that it is busy, and rests",
        ("budget", _) => "its own rps are used up",
        ("capability", true) => "it said of late that it lacks the method",
        ("capability", false) => "its software lacks the method",
        ("tier", _) => "it does not hold blocks that old, or its tier is too low",
        ("height", _) => "it has not got the block yet",
        ("lag", _) => "it is behind the best tip",
        ("fork", _) => "it is on a fork",
        ("unknown_tip", _) => "nothing is known of its newest block",
        _ => "",
    }
}

fn lines(out: &mut String, rows: &[[String; 7]]) {
    let head = HEAD.map(str::to_owned);
    let all = || [&head].into_iter().chain(rows);
    let mut widths = [0; 7];
    for row in all() {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }
    for row in all() {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Numbers stand under their last digits.
            let _ = match at {
                0 | 2 | 4 | 5 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_a_table_in_the_order_of_asking() {
        let target = |endpoint: &str, kept: bool, reason: Value, order: Value, probability: f64, tip: Value| {
            serde_json::json!({"endpoint": endpoint, "kept": kept, "reason": reason, "order": order,
                "probability": probability, "circuit": if kept { "closed" } else { "open" }, "tip": tip, "lag": tip.as_u64().map(|tip| 19_000_100 - tip)})
        };
        let none = || Value::Null;
        let told = serde_json::json!({
            "gateway": "eth", "route": "default", "strategy": "tiered", "class": "stateless",
            "requirement": {"tier": "full", "capability": "core", "height": 18_999_000},
            "endpoint_free": false, "max_attempts": 2, "refused": null,
            "targets": [
                target("down", false, "circuit".into(), none(), 0.0, none()),
                target("late", true, "lag".into(), 2.into(), 0.0, 19_000_090.into()),
                target("geth-1", true, none(), 1.into(), 0.75, 19_000_100.into()),
                target("geth-2", true, none(), 1.into(), 0.25, 19_000_100.into()),
            ],
        });
        let right = "\
Call      eth_getBalance to Gateway eth
Route     default: tiered, at most 2 attempts
class     stateless: after any failure the next Endpoint is asked
needs     at least tier full, capability core, block 18999000

#  ENDPOINT   FIRST  CIRCUIT       TIP  LAG  NOTE
1  geth-1    75.0 %  closed   19000100    0
1  geth-2    25.0 %  closed   19000100    0
2  late           -  closed   19000090   10  lag: it is behind the best tip
-  down           -  open            -    -  left out, circuit: its Circuit is open, or its probe is under way

# = the order of asking while each one fails, FIRST = how likely it is the first
More targets than attempts: the last ones are asked only if an earlier one is left out by then.
";
        assert_eq!(table(&told.to_string(), r#"{"method":"eth_getBalance"}"#).as_deref(), Some(right));
    }

    #[test]
    fn a_refusal_has_its_reason_and_no_table() {
        let told = r#"{"gateway":"eth","route":null,"strategy":null,"class":"effect","requirement":{"tier":null,
            "capability":"admin","height":null},"endpoint_free":false,"max_attempts":null,"targets":[],
            "refused":{"code":-32601,"reason":"not_exposed","message":"Method not available on this Gateway"}}"#;
        let right = r"Call      admin_\u{1b}x to Gateway eth
class     effect: the next Endpoint is asked only if it was certainly not executed
needs     capability admin
refused   -32601 (not_exposed): Method not available on this Gateway
";
        assert_eq!(table(told, r#"{"method":"admin_\u001bx"}"#).as_deref(), Some(right));
    }

    #[test]
    fn whose_client_nobody_has_heard_of_is_told_from_who_lacks_the_method() {
        let target = |endpoint: &str, client_known: Option<bool>| {
            let mut target = serde_json::json!({"endpoint": endpoint, "kept": false, "reason": "capability",
                "order": null, "probability": 0.0, "circuit": "closed", "tip": null, "lag": null});
            if let Some(known) = client_known {
                target["client_known"] = known.into();
            }
            target
        };
        let told = serde_json::json!({
            "gateway": "eth", "route": "default", "strategy": "tiered", "class": "stateless", "max_attempts": 3,
            "requirement": {"tier": null, "capability": "trace", "height": null}, "endpoint_free": false,
            "refused": {"code": -32050, "reason": null, "message": "No usable Endpoint for this method"},
            "targets": [
                target("silent", Some(false)),
                target("geth", None),
            ],
        });
        let table = table(&told.to_string(), r#"{"method":"trace_block"}"#).unwrap();
        let line = |endpoint: &str| table.lines().find(|line| line.contains(endpoint)).unwrap_or_default();
        let (unheard, lacks) =
            ("left out, client not known yet: ", "left out, capability: its software lacks the method");
        assert!(line("silent").contains(unheard) && !line("silent").contains("lacks"), "{table}");
        assert!(line("geth ").ends_with(lacks), "{table}");
        assert!(table.ends_with(
            "No tip is known: nobody counts as behind, and how deep a block's number lies can't be told.\n"
        ));
    }

    #[test]
    fn what_is_no_decision_is_no_table() {
        for odd in ["", "[]", "{}", r#"{"gateway":"eth"}"#, "null", r#"{"gateway":1,"class":2,"targets":[]}"#] {
            assert_eq!(table(odd, "{}"), None, "{odd}");
        }
    }
}
