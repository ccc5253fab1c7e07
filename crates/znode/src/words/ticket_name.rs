//! Names of the lock nodes that acquires make. The recipes of Curator and of kazoo both sort them
//! in the right order.
//!
//! | ticket | name, with S for the ten digits and G for the key in 32 hex digits |
//! |---|---|
//! | that holds alone | `S_G__WRIT__S__lock__S` |
//! | of a reader | `S_G__READ__S__rlock__S` |
//! | of a semaphore | `_c_<key>-lease-S`, as Curator's |
//!
//! Curator's mutex and its latch sort by the whole name if it has no `lock-` or `latch-`, so the
//! first two forms begin with S. Curator's read/write lock sorts by the text after `__READ__` or
//! `__WRIT__`, kazoo by the text after `__lock__` or `__rlock__`.
//!
//! The log and snapshots have a short form of these names: the shape as a number, the 16 bytes of
//! the key, and the sequence number.

use crate::{LockMode, RequestKey};

const DIGITS: usize = 10;
/// Number of hex digits of an idempotency key in a name.
const HEX: usize = 32;
const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Length in bytes of the longest name that an acquire gives a lock node: the name for a reader.
pub const TICKET_NAME_BYTES_MAX: usize = 80;

/// The parts of the name of a lock node that an acquire made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketName {
    pub(crate) shape: Shape,
    pub(crate) key: RequestKey,
    pub(crate) number: u64,
}

/// The form of a name: the fixed texts around key and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The name of a ticket that wants the lock alone.
    Alone = 0,
    /// The name of a reader's ticket.
    Reader = 1,
    /// The name of a ticket in a semaphore.
    Lease = 2,
}

impl Shape {
    const ALL: [Shape; 3] = [Shape::Alone, Shape::Reader, Shape::Lease];

    pub(crate) fn of(mode: LockMode) -> Shape {
        match mode {
            LockMode::Exclusive | LockMode::Write | LockMode::Latch => Shape::Alone,
            LockMode::Read => Shape::Reader,
            LockMode::Lease { .. } => Shape::Lease,
        }
    }

    /// The shape's number in the log.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Shape> {
        Shape::ALL.get(usize::from(code)).copied()
    }
}

impl TicketName {
    /// The largest number that has ten digits.
    pub(crate) const NUMBER_MAX: u64 = 9_999_999_999;

    /// Reads a name. `None` for a name that [`TicketName::text`] would not write, for example
    /// because its numbers differ.
    pub(crate) fn parse(name: &str) -> Option<TicketName> {
        // Most names in a tree are no tickets, and their length shows it.
        let (shape, before, behind) = match name.len() {
            79 => (Shape::Alone, "__WRIT__", "__lock__"),
            80 => (Shape::Reader, "__READ__", "__rlock__"),
            56 => return TicketName::parse_lease(name),
            _ => return None,
        };
        let (digits, rest) = name.split_at_checked(DIGITS)?;
        let (key, rest) = rest.strip_prefix('_')?.split_at_checked(HEX)?;
        let rest = rest.strip_prefix(before)?.strip_prefix(digits)?.strip_prefix(behind)?;
        let number = sequence_of(name).filter(|_| rest == digits)?;
        Some(TicketName { shape, key: plain_key(key)?, number })
    }

    fn parse_lease(name: &str) -> Option<TicketName> {
        let key = plain_key(&name.get(3..39)?.replace('-', ""))?;
        let parsed = TicketName { shape: Shape::Lease, key, number: sequence_of(name)? };
        (parsed.text() == name).then_some(parsed)
    }

    /// The name as text. It is built without the formatting macros, which would cost more than all
    /// else that an acquire does with the name.
    pub(crate) fn text(&self) -> String {
        let TicketName { shape, key, number } = self;
        let (before, behind) = match shape {
            Shape::Alone => ("__WRIT__", "__lock__"),
            Shape::Reader => ("__READ__", "__rlock__"),
            Shape::Lease => return format!("_c_{key}-lease-{number:010}"),
        };
        let digits = ten_digits(*number);
        let digits = std::str::from_utf8(&digits).expect("digits are ASCII");
        let mut text = String::with_capacity(TICKET_NAME_BYTES_MAX);
        text.push_str(digits);
        text.push('_');
        for byte in key.0 {
            text.push(char::from(HEX_DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(HEX_DIGITS[usize::from(byte & 15)]));
        }
        for part in [before, digits, behind, digits] {
            text.push_str(part);
        }
        text
    }
}

fn ten_digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// Reads a key of 32 hex digits in lower case.
fn plain_key(digits: &str) -> Option<RequestKey> {
    let value = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut key = [0; 16];
    let digits: &[u8; HEX] = digits.as_bytes().try_into().ok()?;
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(RequestKey(key))
}

/// Texts right before the ten digits, in names that the recipes of Curator and kazoo give.
const RECIPES: [&str; 6] = ["__lock__", "__rlock__", "lock-", "latch-", "__READ__", "__WRIT__"];

/// Tells whether a name has a form that acquires or recipes give to tickets.
pub fn is_ticket_name(name: &str) -> bool {
    TicketName::parse(name).is_some() || (is_of_recipe(name) && sequence_of(name).is_some())
}

/// Tells whether a name has a text of [`RECIPES`] right before its last ten bytes.
pub(crate) fn is_of_recipe(name: &str) -> bool {
    name.len().checked_sub(DIGITS).and_then(|end| name.get(..end)).is_some_and(ends_as_recipe)
}

/// Tells whether a name without its digits ends with a text of [`RECIPES`].
pub(crate) fn ends_as_recipe(family: &str) -> bool {
    RECIPES.iter().any(|word| family.ends_with(word))
}

/// The number in the last ten bytes of a name; `None` if they are not all digits.
pub fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.as_bytes().last_chunk::<DIGITS>()?;
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    Some(number)
}

/// Tells whether the name is that of a ticket for reading, as ZooKeeper's clients name it:
/// Curator's `__READ__`, kazoo's `__rlock__`, the recipe's `read-` and `-R-`.
pub(crate) fn is_shared(name: &str) -> bool {
    name.contains("__READ__") || name.contains("__rlock__") || name.starts_with("read-") || name.contains("-R-")
}

/// The mode of a ticket that a plain create made, told by its name.
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

    const KEY: RequestKey = RequestKey(*b"0123456789abcdef");

    #[test]
    fn what_is_read_is_what_would_be_written() {
        for shape in Shape::ALL {
            assert_eq!(Shape::from_code(shape.code()), Some(shape));
            for number in [0, 17, TicketName::NUMBER_MAX] {
                let name = TicketName { shape, key: KEY, number };
                assert_eq!(TicketName::parse(&name.text()), Some(name));
            }
        }
        for good in [
            "0000000007_00112233445566778899aabbccddeeff__WRIT__0000000007__lock__0000000007",
            "0000000007_00112233445566778899aabbccddeeff__READ__0000000007__rlock__0000000007",
            "_c_00112233-4455-6677-8899-aabbccddeeff-lease-0000000007",
        ] {
            assert_eq!(TicketName::parse(good).map(|name| name.text()), Some(good.into()));
        }
    }

    #[test]
    fn other_names_are_none() {
        let good = TicketName { shape: Shape::Alone, key: KEY, number: 7 }.text();
        let lease = TicketName { shape: Shape::Lease, key: KEY, number: 7 }.text();
        let names = [
            good.replacen("0000000007", "0000000008", 1),
            good.replacen("__0000000007__", "__0000000008__", 1),
            good.replace("lock__0000000007", "lock__0000000008"),
            good.replace("0000000007", "000000007"),
            good.replace("0000000007", "+000000007"),
            good.replace("0000000007", "00000000007"),
            good.replace("WRIT", "writ"),
            good.replace("__lock__", "_rlock__"),
            good.replace("__WRIT__", "__READ__"),
            good.replace("_3031", "_+031"),
            good.to_uppercase(),
            format!("{good}0"),
            format!("x{}", &good[1..]),
            lease.replace("-lease", "-LEASE"),
            lease.replace("_c_", "_d_"),
            lease.replacen('-', "0", 1),
            "_c_".into(),
            "_c_é".repeat(20),
            "é".repeat(40),
            String::new(),
        ];
        for name in names {
            assert_eq!(TicketName::parse(&name), None, "{name}");
        }
    }
}
