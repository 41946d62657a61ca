//! Units that people type (`"250ms"`, `"1MiB"`) and the numbers the product uses.

/// Nanoseconds on the monotonic clock of this process, or a length of time in nanoseconds.
/// Names say which: `now_ns`, `attempt_timeout_ns`.
pub type Nanos = u64;

/// One millisecond in [`Nanos`].
pub const MS: Nanos = 1_000_000;
/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;
/// Shares are in parts of a million.
pub const MILLION: u32 = 1_000_000;

/// Why a duration or a size could not be read; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUnit(pub String);

/// Reads a duration: a whole or decimal number and one of `ns us ms s m h`.
pub fn duration(text: &str) -> Result<Nanos, BadUnit> {
    let wrong = || BadUnit(format!("`{text}` is not a duration; write one like \"250ms\", \"10s\" or \"2m\""));
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => MS,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return Err(wrong()),
    };
    scaled(number, scale).ok_or_else(wrong)
}

/// Reads a size in bytes: a whole or decimal number and one of `B KB MB GB KiB MiB GiB`, or a bare number.
pub fn size(text: &str) -> Result<u64, BadUnit> {
    let wrong = || BadUnit(format!("`{text}` is not a size; write one like \"16KiB\", \"1MiB\" or \"1GiB\""));
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    scaled(number, scale).ok_or_else(wrong)
}

/// Writes a duration the way a person would type it.
pub fn show_duration(ns: Nanos) -> String {
    match ns {
        0 => "0s".to_owned(),
        n if n.is_multiple_of(60 * SECOND) => format!("{}m", n / (60 * SECOND)),
        n if n.is_multiple_of(SECOND) => format!("{}s", n / SECOND),
        n if n.is_multiple_of(MS) => format!("{}ms", n / MS),
        n if n.is_multiple_of(1_000) => format!("{}us", n / 1_000),
        n => format!("{n}ns"),
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then_some((number, unit.trim()))
}

fn scaled(number: &str, scale: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    // 2^63: far beyond any meant value, and safely inside u64.
    (value.is_finite() && (0.0..9.2e18).contains(&value)).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_type_them() {
        for (text, ns) in
            [("250ms", 250 * MS), ("10s", 10 * SECOND), ("2m", 120 * SECOND), ("1.5s", 1_500 * MS), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(ns), "{text}");
        }
        for text in ["", "10", "s", "-1s", "10 parsecs", "1..2s", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_as_people_type_them() {
        for (text, bytes) in [("16KiB", 16_384), ("1MiB", 1 << 20), ("0", 0), ("1.5KiB", 1_536), ("2MB", 2_000_000)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1XB", "-1", "1e3"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_unit_has_its_scale() {
        for (text, ns) in [
            ("7ns", 7),
            ("7us", 7_000),
            ("7µs", 7_000),
            ("7ms", 7_000_000),
            ("7s", 7_000_000_000),
            ("7m", 420_000_000_000),
            ("7h", 25_200_000_000_000),
            (" 7 s ", 7_000_000_000),
            ("9.1e18ns", 0),
        ] {
            assert_eq!(duration(text).unwrap_or(0), ns, "{text}");
        }
        for (text, bytes) in [
            ("7", 7),
            ("7B", 7),
            ("7KB", 7_000),
            ("7kB", 7_000),
            ("7MB", 7_000_000),
            ("7GB", 7_000_000_000),
            ("7KiB", 7_168),
            ("7MiB", 7_340_032),
            ("7GiB", 7_516_192_768),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_duration_is_shown_in_the_largest_unit_that_is_whole() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_500, "1500ns"),
            (2_000, "2us"),
            (250 * MS, "250ms"),
            (1_500 * MS, "1500ms"),
            (90 * SECOND, "90s"),
            (3_600 * SECOND, "60m"),
        ] {
            assert_eq!(show_duration(ns), text);
        }
    }

    #[test]
    fn what_is_too_large_for_any_clock_is_no_duration() {
        assert!(duration("9000000000.5s").is_ok());
        for text in ["9300000000.5s", "18446744073709551615.5h", "18446744073709551616ns", "18446744073709551615s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shown_duration_reads_back() {
        for ns in [0, 1, 1_500, 250 * MS, SECOND, 90 * SECOND, 120 * SECOND] {
            assert_eq!(duration(&show_duration(ns)), Ok(ns));
        }
    }
}
