//! The bytes of transactions and of snapshot records: bincode behind a version byte.
//!
//! A request is written by hand: one byte says which of its parts are there, so that those that are
//! not take none.

use std::hash::Hasher;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use bincode::{Decode, Encode};
use siphasher::sip::SipHasher13;

use crate::ids::Compact;
use crate::{Attempt, LockGuard, Op, OtherLevel, Request, Txn};

/// The longest transaction or record, in bytes: what a decoder may be made to allocate.
pub const BYTES_MAX: usize = 16 << 20;

const VERSION: u8 = 1;

const CONFIG: Configuration<LittleEndian, Varint, Limit<BYTES_MAX>> = bincode::config::standard().with_limit();

/// Why bytes are no transaction or record of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by a newer zlock.
    #[error("version {0} is not known to this version of zlock")]
    Version(u8),
    /// Of a cluster at a level that this zlock does not know.
    #[error(transparent)]
    Level(#[from] OtherLevel),
    /// Too short, too long or not what it should be.
    #[error("damaged: {0}")]
    Damaged(String),
}

pub(crate) fn encode<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bincode::encode_into_std_write(value, &mut bytes, CONFIG).expect("values of the state can be encoded");
    bytes
}

pub(crate) fn decode<T: Decode<()>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (version, rest) = bytes.split_first().ok_or_else(|| DecodeError::Damaged("empty".into()))?;
    if *version != VERSION {
        return Err(DecodeError::Version(*version));
    }
    let (value, consumed) =
        bincode::decode_from_slice(rest, CONFIG).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    if consumed != rest.len() {
        return Err(DecodeError::Damaged(format!("{} bytes too many", rest.len() - consumed)));
    }
    Ok(value)
}

/// The bytes of a transaction, as they stand in the log.
pub fn encode_txn(txn: &Txn) -> Vec<u8> {
    encode(txn)
}

/// Reads a transaction back.
///
/// # Errors
/// [`DecodeError`] for bytes that [`encode_txn`] of this version did not make.
pub fn decode_txn(bytes: &[u8]) -> Result<Txn, DecodeError> {
    decode(bytes)
}

/// The bytes of a request on its way to the leader.
pub fn encode_request(request: &Request) -> Vec<u8> {
    encode(request)
}

/// Reads a request back.
///
/// # Errors
/// [`DecodeError`] for bytes that [`encode_request`] of this version did not make.
pub fn decode_request(bytes: &[u8]) -> Result<Request, DecodeError> {
    decode(bytes)
}

/// Tells whether two requests ask the same: a hash of the operation and its guard. SipHash-1-3 with
/// a key of zeros, as it stands in the snapshots.
pub fn fingerprint(op: &Op, guard: Option<&LockGuard>) -> u64 {
    let mut hash = Hash(SipHasher13::new());
    bincode::encode_into_writer((op, guard), &mut hash, CONFIG).expect("hashing does not fail");
    hash.0.finish()
}

struct Hash(SipHasher13);

impl Writer for &mut Hash {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.write(bytes);
        Ok(())
    }
}

impl Encode for Txn {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        Compact(self.time_ms).encode(encoder)?;
        self.request.encode(encoder)
    }
}

impl<C> Decode<C> for Txn {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, bincode::error::DecodeError> {
        let Compact(time_ms) = Decode::decode(decoder)?;
        Ok(Txn { time_ms, request: Decode::decode(decoder)? })
    }
}

// Which parts of a request are there.
const CREDENTIAL: u8 = 1;
const KEY: u8 = 1 << 1;
const GUARD: u8 = 1 << 2;
const IDENTITIES: u8 = 1 << 3;
const ADDRESS: u8 = 1 << 4;
const TURN: u8 = 1 << 5;
const ATTEMPT: u8 = 1 << 6;
const KNOWN: u8 = CREDENTIAL | KEY | GUARD | IDENTITIES | ADDRESS | TURN | ATTEMPT;

impl Encode for Request {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        let part = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
        let parts = part(self.credential.is_some(), CREDENTIAL)
            | part(self.key.is_some(), KEY)
            | part(self.guard.is_some(), GUARD)
            | part(!self.identities.is_empty(), IDENTITIES)
            | part(self.address.is_some(), ADDRESS)
            | part(self.turn.is_some(), TURN)
            | part(self.attempt != Attempt(0), ATTEMPT);
        parts.encode(encoder)?;
        encode_part(&self.credential, encoder)?;
        encode_part(&self.key, encoder)?;
        encode_part(&self.guard, encoder)?;
        encode_part(&Some(&self.identities).filter(|identities| !identities.is_empty()), encoder)?;
        encode_part(&self.address, encoder)?;
        encode_part(&self.turn, encoder)?;
        encode_part(&Some(self.attempt).filter(|attempt| *attempt != Attempt(0)), encoder)?;
        self.op.encode(encoder)
    }
}

impl<C> Decode<C> for Request {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, bincode::error::DecodeError> {
        let parts = u8::decode(decoder)?;
        if parts & !KNOWN != 0 {
            return Err(bincode::error::DecodeError::Other("a part of a request that is not known"));
        }
        Ok(Request {
            credential: decode_part(parts & CREDENTIAL, decoder)?,
            key: decode_part(parts & KEY, decoder)?,
            guard: decode_part(parts & GUARD, decoder)?,
            identities: decode_part(parts & IDENTITIES, decoder)?.unwrap_or_default(),
            address: decode_part(parts & ADDRESS, decoder)?,
            turn: decode_part(parts & TURN, decoder)?,
            attempt: decode_part(parts & ATTEMPT, decoder)?.unwrap_or_default(),
            op: Decode::decode(decoder)?,
        })
    }
}

fn encode_part<T: Encode, E: Encoder>(part: &Option<T>, encoder: &mut E) -> Result<(), EncodeError> {
    part.as_ref().map_or(Ok(()), |part| part.encode(encoder))
}

fn decode_part<T: Decode<D::Context>, D: Decoder>(
    is_there: u8,
    decoder: &mut D,
) -> Result<Option<T>, bincode::error::DecodeError> {
    if is_there == 0 { Ok(None) } else { T::decode(decoder).map(Some) }
}
