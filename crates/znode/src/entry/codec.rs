//! The bytes of transactions and of snapshot records: a version byte, then bincode.
//!
//! A request has its own encoding: one byte of flags says which of its optional fields are set, so
//! that unset fields take no bytes.

use std::hash::Hasher;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use bincode::{Decode, Encode};
use siphasher::sip::SipHasher13;

use crate::words::ids::Compact;
use crate::{Attempt, Credential, LockGuard, Op, OtherLevel, Request, SecretHash, Txn};

/// Maximum length of an encoded transaction, request or snapshot record, in bytes. Bounds the
/// memory that a decoder may allocate.
pub const BYTES_MAX: usize = 16 << 20;

const VERSION: u8 = 1;

const CONFIG: Configuration<LittleEndian, Varint, Limit<BYTES_MAX>> = bincode::config::standard().with_limit();

/// Reasons why bytes cannot be read as a transaction, request or snapshot record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The version byte is one that a newer zlock writes.
    #[error("version {0} is not known to this version of zlock")]
    Version(u8),
    /// The bytes come from a cluster at a format level (version of the format of log and snapshots)
    /// that this program does not know.
    #[error(transparent)]
    Level(#[from] OtherLevel),
    /// The bytes are too short, too long or malformed.
    #[error("damaged: {0}")]
    Damaged(String),
}

pub(crate) fn encode<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_to(value, &mut bytes);
    bytes
}

/// Appends the encoded value to `bytes`.
pub(crate) fn encode_to<T: Encode>(value: &T, bytes: &mut Vec<u8>) {
    bytes.push(VERSION);
    bincode::encode_into_std_write(value, bytes, CONFIG).expect("values of the state can be encoded");
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

/// Encodes a transaction as it stands in the log.
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

/// Encodes a request that a node passes on to the leader.
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

/// Hash of an operation and its guard. Two requests with the same idempotency key must have the
/// same hash. The algorithm is SipHash-1-3 with a key of zeros. It never changes, because snapshots
/// contain the hash.
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
        encode_parts(&self.request, self.proven, encoder)
    }
}

impl<C> Decode<C> for Txn {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, bincode::error::DecodeError> {
        let Compact(time_ms) = Decode::decode(decoder)?;
        let (request, proven) = decode_parts(decoder)?;
        Ok(Txn { time_ms, proven, request })
    }
}

impl Encode for Request {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        encode_parts(self, false, encoder)
    }
}

impl<C> Decode<C> for Request {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, bincode::error::DecodeError> {
        match decode_parts(decoder)? {
            (request, false) => Ok(request),
            (_, true) => Err(bincode::error::DecodeError::Other("a request to the leader without its secret")),
        }
    }
}

// Flags: which optional fields of a request are set.
const CREDENTIAL: u8 = 1;
const KEY: u8 = 1 << 1;
const GUARD: u8 = 1 << 2;
const IDENTITIES: u8 = 1 << 3;
const ADDRESS: u8 = 1 << 4;
const TURN: u8 = 1 << 5;
const ATTEMPT: u8 = 1 << 6;
/// Flag: the request has the session's id without the secret's hash, because the leader has already
/// verified the secret.
const SESSION: u8 = 1 << 7;

fn encode_parts<E: Encoder>(request: &Request, proven: bool, encoder: &mut E) -> Result<(), EncodeError> {
    let credential = request.credential.filter(|_| !proven);
    let session = request.credential.filter(|_| proven).map(|credential| credential.session);
    let identities = Some(&request.identities).filter(|identities| !identities.is_empty());
    let attempt = Some(request.attempt).filter(|attempt| *attempt != Attempt(0));
    let part = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    let parts = part(credential.is_some(), CREDENTIAL)
        | part(request.key.is_some(), KEY)
        | part(request.guard.is_some(), GUARD)
        | part(identities.is_some(), IDENTITIES)
        | part(request.address.is_some(), ADDRESS)
        | part(request.turn.is_some(), TURN)
        | part(attempt.is_some(), ATTEMPT)
        | part(session.is_some(), SESSION);
    parts.encode(encoder)?;
    encode_part(&credential, encoder)?;
    encode_part(&session, encoder)?;
    encode_part(&request.key, encoder)?;
    encode_part(&request.guard, encoder)?;
    encode_part(&identities, encoder)?;
    encode_part(&request.address, encoder)?;
    encode_part(&request.turn, encoder)?;
    encode_part(&attempt, encoder)?;
    request.op.encode(encoder)
}

/// Reads a request. The returned flag is true if the leader has already verified the session's
/// secret; then the bytes contain no hash of the secret.
fn decode_parts<C, D: Decoder<Context = C>>(decoder: &mut D) -> Result<(Request, bool), bincode::error::DecodeError> {
    let parts = u8::decode(decoder)?;
    if parts & CREDENTIAL != 0 && parts & SESSION != 0 {
        return Err(bincode::error::DecodeError::Other("a request with two sessions"));
    }
    let credential = decode_part(parts & CREDENTIAL, decoder)?;
    let session = decode_part(parts & SESSION, decoder)?;
    let without_secret = session.map(|session| Credential { session, secret_hash: SecretHash::default() });
    let request = Request {
        credential: credential.or(without_secret),
        key: decode_part(parts & KEY, decoder)?,
        guard: decode_part(parts & GUARD, decoder)?,
        identities: decode_part(parts & IDENTITIES, decoder)?.unwrap_or_default(),
        address: decode_part(parts & ADDRESS, decoder)?,
        turn: decode_part(parts & TURN, decoder)?,
        attempt: decode_part(parts & ATTEMPT, decoder)?.unwrap_or_default(),
        op: Decode::decode(decoder)?,
    };
    Ok((request, session.is_some()))
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
