//! The bytes of ZooKeeper's client protocol, in both directions. Values in, bytes out, and back;
//! nothing else.
//!
//! Jute is ZooKeeper's name for its encoding: fields in order, big endian, no tags. [`Record`]
//! writes and reads one value; [`Request`] knows which record belongs to which [`op`]; [`Frames`]
//! cuts a stream into packets.
//!
//! What always holds:
//! - No input makes a reader panic, and none makes it allocate more than a small multiple of the
//!   input's own length.
//! - Bytes behind a record are ignored and missing ones are an error, as ZooKeeper's servers have
//!   it.
//!
//! ```text
//! request.rs   Request: a row for each operation   multi.rs     the results of transactions
//! records.rs   the other records, one table        connect.rs   the handshake's optional field
//! code.rs      numbers: errors, events, watches    frames.rs    packets in a stream
//! codec.rs     Record, Input, primitive types
//! ```

mod code;
mod codec;
mod connect;
mod frames;
mod multi;
mod records;
mod request;

pub use code::{create_flags, error, event, watcher, xid};
pub use codec::{Buffer, DecodeError, Input, Record};
pub use connect::{ConnectRequest, ConnectResponse, PASSWORD_BYTES};
pub use frames::{FrameError, Frames, framed};
pub use multi::{MultiResult, read_multi_results, write_multi_results};
pub use records::*;
pub use request::*;
