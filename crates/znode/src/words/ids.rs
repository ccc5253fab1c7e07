//! Numbers that name things. They are newtypes, so that a session is never taken for a zxid.

use std::fmt;

use bincode::de::Decoder;
use bincode::de::read::Reader;
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl Encode for $name {
            fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
                Compact(self.0).encode(encoder)
            }
        }

        impl<C> Decode<C> for $name {
            fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
                Compact::decode(decoder).map(|Compact(number)| $name(number))
            }
        }

        bincode::impl_borrow_decode!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// A transaction id: the index of the Raft log entry that applied it, plus the `zxid_base` of
    /// the cluster's founding.
    ///
    /// ZooKeeper packs an epoch and a counter because Zab restarts its counter in every epoch. A
    /// Raft log index never restarts, so the index alone is unique and increasing. Zero means
    /// "never". Stays below 2^53, so that a JSON number holds it exactly.
    Zxid;
    /// A session's id: the zxid of the entry that opened the session, so no id is used twice. Zero
    /// means "no session".
    SessionId;
    /// The number that a holder shows to a resource: the czxid of its lock node, or the zxid of the
    /// granting entry if a token at least as large was granted before. Rises with the grants of one
    /// lock.
    FencingToken;
    /// A Raft term: a period with at most one leader.
    Term;
    /// One try of one acquire. A client that retries with the same [`RequestKey`] makes a new
    /// attempt. `Withdraw` names the attempt that it ends, so it never ends a later attempt.
    Attempt;
}

impl From<Zxid> for FencingToken {
    fn from(czxid: Zxid) -> Self {
        FencingToken(czxid.0)
    }
}

/// An idempotency key: a UUID that the client chose for one write. Printed with dashes, in lower
/// case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct RequestKey(pub [u8; 16]);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

/// Writes a UUID with dashes, in lower case.
pub(crate) fn write_uuid(uuid: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Every node writes a UUID for every acquire, so the text is built at once and not formatted
    // byte by byte.
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0xf)];
        at += 2;
    }
    f.write_str(std::str::from_utf8(&text).expect("it is made of digits and dashes"))
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Position of a transaction in the log. It comes from the Raft log and is not stored in the
/// transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// The term of the leader that wrote the entry.
    pub term: Term,
    /// The entry's transaction id, which is larger than those of all entries before.
    pub zxid: Zxid,
}

/// A number in a short form: one byte if it is below 248; otherwise a byte for the length, and then
/// the number in the fewest bytes. Times since 1970 in ms take 6 bytes after the length byte. Zxids
/// and session ids, which lie above the cluster's zxid base, usually take 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compact(pub(crate) u64);

const ONE_BYTE: u8 = 248;

impl Encode for Compact {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let bytes = self.0.to_le_bytes();
        if self.0 < u64::from(ONE_BYTE) {
            return encoder.writer().write(&bytes[..1]);
        }
        let length = 8 - self.0.leading_zeros() / 8;
        let [length, ..] = length.to_le_bytes();
        encoder.writer().write(&[ONE_BYTE - 1 + length])?;
        encoder.writer().write(&bytes[..usize::from(length)])
    }
}

impl<C> Decode<C> for Compact {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, bincode::error::DecodeError> {
        let first = u8::decode(decoder)?;
        if first < ONE_BYTE {
            return Ok(Compact(u64::from(first)));
        }
        let mut bytes = [0; 8];
        let length = usize::from(first - ONE_BYTE) + 1;
        decoder.claim_bytes_read(length)?;
        decoder.reader().read(&mut bytes[..length])?;
        let number = u64::from_le_bytes(bytes);
        // Each number has one encoding, so that equal states have equal bytes.
        let shortest = number >= u64::from(ONE_BYTE) && bytes[length - 1] != 0;
        if shortest { Ok(Compact(number)) } else { Err(bincode::error::DecodeError::Other("a number too long")) }
    }
}
