//! Conversion of times to and from text: UTC, as in RFC 3339.

use std::time::{Duration, UNIX_EPOCH};

/// The last millisecond of the year 9999. RFC 3339 has no later times.
const LAST_MS: u64 = 253_402_300_799_999;

/// Formats milliseconds since 1970 as `2026-11-25T10:30:00Z`.
pub(crate) fn show(ms: u64) -> String {
    if ms > LAST_MS {
        return format!("{ms} ms since 1970");
    }
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

/// Formats milliseconds since 1970 for file names, as `20261125T103000Z`. The names sort by time
/// and need no quotes in a shell.
pub(crate) fn stamp(ms: u64) -> String {
    show(ms).replace(['-', ':', ' '], "")
}

/// Parses `2026-11-25T10:30:00Z`, or seconds since 1970 as `date +%s` prints them. Returns
/// milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no time: write it in UTC as 2026-11-25T10:30:00Z, or as `date +%s` prints it");
    let ms = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1_000))
    } else {
        let time = humantime::parse_rfc3339(text).ok();
        let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since.and_then(|since| u64::try_from(since.as_millis()).ok())
    };
    ms.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_795_604_399_000, "2026-11-25T10:59:59Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!((show(ms).as_str(), parse(text)), (text, Ok(ms)));
        }
        assert_eq!(parse("1795604399"), Ok(1_795_604_399_000));
        assert_eq!(stamp(951_782_400_000), "20000229T000000Z");
        for wrong in ["", "yesterday", "2026-02-30T00:00:00Z", "2026-11-25", "2026-11-25T24:00:00Z", "-5"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show(LAST_MS), "9999-12-31T23:59:59Z");
        assert_eq!(show(u64::MAX), "18446744073709551615 ms since 1970");
    }
}
