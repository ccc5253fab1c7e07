//! Parser of the DER encoding of a certificate.

/// Tag of a SEQUENCE.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of a SET.
pub(crate) const SET: u8 = 0x31;
/// Tag of an OBJECT IDENTIFIER.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tag of the optional version field of an X.509 certificate.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the content of the first DER element and the bytes behind it; `None` if the element is
/// damaged or has another tag than `tag`.
pub(crate) fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Returns the tag and the content of the first DER element, and the bytes behind it; `None` if the
/// element is damaged. Accepts only definite lengths up to 65,535.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 | 0x82 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Returns the end of a certificate's validity (`notAfter`) in seconds since 1970; `None` if the
/// certificate is damaged.
pub(crate) fn not_after_s(certificate: &[u8]) -> Option<u64> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut fields, _) = take(certificate, SEQUENCE)?;
    if let Some((_, rest)) = take(fields, VERSION) {
        fields = rest;
    }
    // The fields before the validity: serial number, algorithm of the signature, issuer.
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (validity, _) = take(fields, SEQUENCE)?;
    let (_, _, end) = element(validity)?;
    let (tag, digits, _) = element(end)?;
    let digits = digits.strip_suffix(b"Z")?;
    match tag {
        // RFC 5280: two digits of the year, from 1950 to 2049.
        UTC_TIME => {
            let (year, rest) = number(digits, 2)?;
            seconds(if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(digits, 4).and_then(|(year, rest)| seconds(year, rest)),
        _ => None,
    }
}

/// Reads a decimal number of `digits` digits. Returns the number and the bytes behind it.
fn number(bytes: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_at_checked(digits)?;
    let text = std::str::from_utf8(number).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((text.parse().ok()?, rest))
}

/// Returns the seconds from 1970 to a moment in UTC; `None` for an invalid date. `rest` has the
/// month, day, hour, minute and second, with two digits each. A day before 1970 counts as 1 January
/// 1970.
fn seconds(year: u64, rest: &[u8]) -> Option<u64> {
    let mut parts = [0; 5];
    let mut rest = rest;
    for part in &mut parts {
        (*part, rest) = number(rest, 2)?;
    }
    let [month, day, hour, minute, second] = parts;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days of the Gregorian calendar, counted in years that begin with March, so that a leap day is
    // the last day of its year.
    let (march_year, march_month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days =
        365 * march_year + march_year / 4 - march_year / 100 + march_year / 400 + (153 * march_month + 2) / 5 + day;
    let since_1970 = days.saturating_sub(719_469);
    Some(since_1970 * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_counted_in_seconds_since_1970() {
        // Expected values of `date -u -d ... +%s`.
        let check = |year, rest: &str, expected| assert_eq!(seconds(year, rest.as_bytes()), expected, "{year}{rest}");
        check(1970, "0101000000", Some(0));
        check(2000, "0229235959", Some(951_868_799));
        check(2026, "1127080000", Some(1_795_766_400));
        check(2100, "0301000000", Some(4_107_542_400));
        check(9999, "1231235959", Some(253_402_300_799));
        check(2026, "1327080000", None);
        check(2026, "11270800", None);
    }
}
