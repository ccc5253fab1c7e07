//! The bytes of transactions and of snapshot records: bincode behind a version byte.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

use crate::{Acquire, AcquireAll, Attempt, Op, Request, Txn, Upgrade};

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

/// What a request asks, as bytes to hash: the operation without its attempt, and the guard. Equal for a retry.
pub fn fingerprint_bytes(request: &Request) -> Vec<u8> {
    let mut op = match request.op.clone() {
        // Who asks is no part of what is asked.
        Op::Proven(proven) => proven.op.into(),
        op => op,
    };
    match &mut op {
        Op::Acquire(Acquire { attempt, .. })
        | Op::AcquireUrgent { acquire: Acquire { attempt, .. }, .. }
        | Op::AcquireAll(AcquireAll { attempt, .. })
        | Op::AcquireAllAs { wish: AcquireAll { attempt, .. }, .. }
        | Op::Upgrade(Upgrade { attempt, .. }) => *attempt = Attempt(0),
        _ => {}
    }
    encode(&(op, &request.guard))
}
