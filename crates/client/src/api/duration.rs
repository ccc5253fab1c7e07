//! Durations in the form in which clients write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in milliseconds, written `30s`, `250ms`, `5m` or `1h`. Only 0 needs no unit: a bare
/// `30` could mean seconds or milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(
    value_type = String,
    max_length = 14,
    pattern = "^(?:0+|[0-9]{1,12}(?:ms|s|m|h))$",
    description = "A duration: a number and its unit, which is ms, s, m or h. Only 0 needs no unit."
))]
pub struct Millis(pub u64);

/// Error for a text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is a number without a unit.
    #[error("{0} has no unit: write {0}ms or {0}s")]
    NoUnit(u64),
    /// The text is no number with a known unit, or the duration is too large.
    #[error("not a duration: write a number and its unit, such as 30s or 250ms; units are ms, s, m and h")]
    Malformed,
}

impl FromStr for Millis {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let count: u64 = digits.parse().map_err(|_| DurationError::Malformed)?;
        let unit_ms: u64 = match unit {
            "" => return Millis::without_unit(count),
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(DurationError::Malformed),
        };
        count.checked_mul(unit_ms).map(Millis).ok_or(DurationError::Malformed)
    }
}

/// Converts to whole milliseconds. A time that `u64` cannot hold becomes `u64::MAX`.
impl From<Duration> for Millis {
    fn from(time: Duration) -> Millis {
        Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Millis {
    fn without_unit(count: u64) -> Result<Millis, DurationError> {
        if count == 0 { Ok(Millis(0)) } else { Err(DurationError::NoUnit(count)) }
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 && self.0.is_multiple_of(1_000) {
            write!(f, "{}s", self.0 / 1_000)
        } else {
            write!(f, "{}ms", self.0)
        }
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MillisVisitor;

        impl Visitor<'_> for MillisVisitor {
            type Value = Millis;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\" or \"250ms\"")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Millis, E> {
                Millis::without_unit(count).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(MillisVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, DurationError>) {
        assert_eq!(text.parse().map(|Millis(ms)| ms), expected, "{text:?}");
    }

    #[test]
    fn a_duration_is_a_number_with_a_unit() {
        check("0", Ok(0));
        check("0s", Ok(0));
        check("250ms", Ok(250));
        check("30s", Ok(30_000));
        check("5m", Ok(300_000));
        check("1h", Ok(3_600_000));
        for bad in [
            "",
            "s",
            "ms",
            "-1",
            "+1",
            "1.5s",
            " 1",
            "1 s",
            "1S",
            "1d",
            "30sec",
            "18446744073709551616",
            "9999999999999999h",
        ] {
            check(bad, Err(DurationError::Malformed));
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_refused_with_both_readings() {
        check("30", Err(DurationError::NoUnit(30)));
        assert_eq!(DurationError::NoUnit(30).to_string(), "30 has no unit: write 30ms or 30s");
        let refused = serde_json::from_str::<Millis>("30").unwrap_err().to_string();
        assert!(refused.starts_with("30 has no unit: write 30ms or 30s"), "{refused}");
    }

    #[test]
    fn json_has_durations_as_texts() {
        assert_eq!(serde_json::from_str::<Millis>("\"30s\"").unwrap(), Millis(30_000));
        assert_eq!(serde_json::from_str::<Millis>("0").unwrap(), Millis(0));
        for bad in ["-1", "1.5", "\"soon\"", "\"30\"", "1500", "null", "true"] {
            assert!(serde_json::from_str::<Millis>(bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&Millis(30_000)).unwrap(), "\"30s\"");
        assert_eq!((Millis(30_000).to_string(), Millis(250).to_string()), ("30s".into(), "250ms".into()));
    }
}
