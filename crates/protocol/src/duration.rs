//! Durations as clients write them.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A duration in milliseconds. Written as a number of milliseconds; read from `30s`, `250ms`, `5m`, `1h` or plain
/// milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a duration: write 30s, 250ms or plain milliseconds")]
pub struct DurationError;

impl FromStr for Millis {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let unit_ms: u64 = match unit {
            "" | "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(DurationError),
        };
        let count: u64 = digits.parse().map_err(|_| DurationError)?;
        count.checked_mul(unit_ms).map(Millis).ok_or(DurationError)
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

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MillisVisitor;

        impl Visitor<'_> for MillisVisitor {
            type Value = Millis;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("milliseconds, or a text such as \"30s\" or \"250ms\"")
            }

            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<Millis, E> {
                Ok(Millis(ms))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
                text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
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
    fn a_duration_is_a_number_with_a_unit_or_milliseconds() {
        check("0", Ok(0));
        check("250", Ok(250));
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
            check(bad, Err(DurationError));
        }
    }

    #[test]
    fn json_takes_both_and_writes_milliseconds() {
        assert_eq!(serde_json::from_str::<Millis>("1500").unwrap(), Millis(1_500));
        assert_eq!(serde_json::from_str::<Millis>("\"30s\"").unwrap(), Millis(30_000));
        assert!(serde_json::from_str::<Millis>("-1").is_err());
        assert!(serde_json::from_str::<Millis>("1.5").is_err());
        assert!(serde_json::from_str::<Millis>("\"soon\"").is_err());
        assert_eq!(serde_json::to_string(&Millis(30_000)).unwrap(), "30000");
        assert_eq!((Millis(30_000).to_string(), Millis(250).to_string()), ("30s".into(), "250ms".into()));
    }
}
