//! The session key: the value of the header `Zlock-Session-Key`.

use std::fmt;
use std::str::FromStr;

/// Id and secret of a session, written `<id>.<32 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionKey {
    /// The id of the session, never 0.
    pub id: u64,
    /// The secret: 128 random bits.
    pub secret: [u8; 16],
}

/// Error for a text that is not a session key. The message does not repeat the text, as it may be a
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session key: write the `session_key` that the opening of the session was answered with")]
pub struct SessionKeyError;

impl SessionKey {
    /// Returns the secret as 32 hex digits.
    pub fn secret_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.secret))
    }
}

impl FromStr for SessionKey {
    type Err = SessionKeyError;

    fn from_str(text: &str) -> Result<Self, SessionKeyError> {
        let (id, hex) = text.split_once('.').ok_or(SessionKeyError)?;
        let plain_number = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        let id = id.parse().ok().filter(|id| plain_number && *id != 0).ok_or(SessionKeyError)?;
        // A number may also begin with a plus sign.
        if hex.len() != 32 || hex.starts_with('+') {
            return Err(SessionKeyError);
        }
        let secret = u128::from_str_radix(hex, 16).map_err(|_| SessionKeyError)?;
        Ok(SessionKey { id, secret: secret.to_be_bytes() })
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.secret_hex())
    }
}

/// Shows the session's id, but not the secret.
impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({}.***)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_key_reads_back_as_it_was_printed() {
        let key = SessionKey { id: 17, secret: *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff" };
        assert_eq!(key.to_string(), "17.000102030405060708090a0b0c0d0eff");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
        assert_eq!(format!("{key:?}"), "SessionKey(17.***)");
    }

    #[test]
    fn anything_else_is_refused() {
        let hex = "000102030405060708090a0b0c0d0eff";
        for bad in [
            "",
            ".",
            "1",
            "1.",
            &format!(".{hex}"),
            &format!("0.{hex}"),
            &format!("+1.{hex}"),
            &format!("-1.{hex}"),
            &format!("1.{hex}0"),
            &format!("1.{}", &hex[1..]),
            &format!("1.+{}", &hex[1..]),
            &format!("1.é{}", &hex[2..]),
            &format!("99999999999999999999.{hex}"),
            &format!(" 1.{hex}"),
        ] {
            assert_eq!(bad.parse::<SessionKey>(), Err(SessionKeyError), "{bad:?}");
        }
    }
}
