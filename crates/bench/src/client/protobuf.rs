//! Minimal protobuf encoder and decoder: varints and length-delimited fields, the only field types
//! that etcd's messages use here.

/// A message under construction.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// Adds a number. A 0 is written as well, because a member of a `oneof` counts as set only when
    /// it is present.
    pub(crate) fn number(mut self, field: u8, value: u64) -> Message {
        self.0.push(field << 3);
        varint(&mut self.0, value);
        self
    }

    /// Adds bytes, a text or an encoded message.
    pub(crate) fn bytes(mut self, field: u8, value: &[u8]) -> Message {
        self.0.push(field << 3 | 2);
        varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a message.
    pub(crate) fn message(self, field: u8, value: Message) -> Message {
        self.bytes(field, &value.0)
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Iterator over the fields of a message, in order. Ends early at malformed bytes.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the first number in a field; 0 if the field is absent, which is protobuf's default.
    pub(crate) fn number(bytes: &'a [u8], field: u64) -> u64 {
        Fields(bytes)
            .find_map(|found| match found {
                (number, Value::Number(value)) if number == field => Some(value),
                _ => None,
            })
            .unwrap_or(0)
    }

    /// All byte values of a field.
    pub(crate) fn all(bytes: &'a [u8], field: u64) -> impl Iterator<Item = &'a [u8]> {
        Fields(bytes).filter_map(move |found| match found {
            (number, Value::Bytes(value)) if number == field => Some(value),
            _ => None,
        })
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (value, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            // No message that is read here has fields of fixed width.
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let message = Message::default().number(1, 300).bytes(2, b"ab").message(3, Message::default().number(5, 0)).0;
        assert_eq!(message, [0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x1a, 2, 0x28, 0]);
        assert_eq!(Fields::number(&message, 1), 300);
        assert_eq!(Fields::number(&message, 9), 0);
        assert_eq!(Fields::all(&message, 2).collect::<Vec<_>>(), [b"ab"]);
        assert_eq!(Fields(&message[..3]).count(), 1);
        assert_eq!(Fields(&[0x12, 200]).count(), 0);
    }
}
