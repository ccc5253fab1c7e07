//! Names of the lock nodes that acquires make: `_c_<key>-<family><ten digits>`, as Curator writes
//! them.
//!
//! The log and snapshots have them short: the family as a number, the 16 bytes of the key, and the
//! sequence number.

use std::fmt;

use crate::{LockMode, RequestKey};

/// The parts of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketName {
    pub(crate) family: Family,
    pub(crate) key: RequestKey,
    pub(crate) number: u64,
}

/// What a name tells of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Lock,
    Read,
    Write,
    Latch,
    Lease,
}

impl Family {
    const ALL: [Family; 5] = [Family::Lock, Family::Read, Family::Write, Family::Latch, Family::Lease];

    pub(crate) fn of(mode: LockMode) -> Family {
        match mode {
            LockMode::Exclusive => Family::Lock,
            LockMode::Read => Family::Read,
            LockMode::Write => Family::Write,
            LockMode::Latch => Family::Latch,
            LockMode::Lease { .. } => Family::Lease,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Family::Lock => "lock-",
            Family::Read => "__READ__",
            Family::Write => "__WRIT__",
            Family::Latch => "latch-",
            Family::Lease => "lease-",
        }
    }

    /// The number that stands for it in the log.
    pub(crate) fn code(self) -> u8 {
        match self {
            Family::Lock => 0,
            Family::Read => 1,
            Family::Write => 2,
            Family::Latch => 3,
            Family::Lease => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Family> {
        Family::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

const DIGITS: usize = 10;
const UUID: usize = 36;

impl TicketName {
    /// The largest number that has ten digits.
    pub(crate) const NUMBER_MAX: u64 = 9_999_999_999;

    /// Reads a name. `None` for one that [`TicketName::fmt`] would write otherwise.
    pub(crate) fn parse(name: &str) -> Option<TicketName> {
        let (uuid, rest) = name.strip_prefix("_c_")?.split_at_checked(UUID)?;
        let (family, digits) = rest.strip_prefix('-')?.split_at_checked(rest.len().checked_sub(1 + DIGITS)?)?;
        let family = Family::ALL.into_iter().find(|known| known.text() == family)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = plain.then(|| digits.parse().ok()).flatten()?;
        Some(TicketName { family, key: key_of(uuid.as_bytes())?, number })
    }
}

impl fmt::Display for TicketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "_c_{}-{}{:010}", self.key, self.family, self.number)
    }
}

/// A UUID with dashes, in lower case.
fn key_of(uuid: &[u8]) -> Option<RequestKey> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (mut key, mut at) = ([0; 16], 0);
    for (index, byte) in key.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            (*uuid.get(at)? == b'-').then_some(())?;
            at += 1;
        }
        *byte = digit(*uuid.get(at)?)? << 4 | digit(*uuid.get(at + 1)?)?;
        at += 2;
    }
    Some(RequestKey(key))
}

/// The number of a ticket: ten digits at the end of its name, without a sign (rule 2 of
/// docs/znode-model.md).
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.as_bytes().last_chunk::<10>()?;
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    Some(number)
}

/// Whether a ticket wants the lock together with others, told by the names that ZooKeeper's clients
/// give: Curator's `__READ__`, kazoo's `__rlock__`, the recipe's `read-` and `-R-`.
pub(crate) fn is_shared(name: &str) -> bool {
    name.contains("__READ__") || name.contains("__rlock__") || name.starts_with("read-") || name.contains("-R-")
}

/// The mode that the name of a ticket made by hand stands for.
pub(crate) fn mode_of(name: &str) -> LockMode {
    if is_shared(name) {
        LockMode::Read
    } else if name.contains("__WRIT__") || name.starts_with("write-") || name.contains("-W-") {
        LockMode::Write
    } else {
        LockMode::Exclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_would_be_written() {
        for family in Family::ALL {
            assert_eq!(Family::from_code(family.code()), Some(family));
            let name = TicketName { family, key: RequestKey(*b"0123456789abcdef"), number: 17 };
            assert_eq!(TicketName::parse(&name.to_string()), Some(name));
        }
        let good = "_c_00112233-4455-6677-8899-aabbccddeeff-__READ__0000000007";
        assert_eq!(TicketName::parse(good).map(|name| name.to_string()), Some(good.into()));
    }

    #[test]
    fn other_names_are_none() {
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        let names = [
            format!("_c_{uuid}-lock-000000007"),
            format!("_c_{uuid}-lock-00000000007"),
            format!("_c_{uuid}-lock-+000000007"),
            format!("_c_{uuid}-lock0000000007"),
            format!("_c_{uuid}lock-0000000007"),
            format!("_c_{}-lock-0000000007", uuid.to_uppercase()),
            format!("_c_{}-lock-0000000007", uuid.replace('-', "0")),
            format!("_c_{uuid}-LOCK-0000000007"),
            format!("x_c_{uuid}-lock-0000000007"),
            "_c_".into(),
            "_c_é".repeat(20),
            String::new(),
        ];
        for name in names {
            assert_eq!(TicketName::parse(&name), None, "{name}");
        }
    }
}
