//! The bytes of ZooKeeper's client protocol, in both directions: values to bytes, and bytes to
//! values.
//!
//! Jute is ZooKeeper's name for its encoding: fields in order, big endian, no tags. [`Record`]
//! encodes and decodes one value, [`Request`] knows the record of each [`op`], and [`Frames`] cuts
//! a stream into packets.
//!
//! Invariants:
//! - No input makes a reader panic, or allocate more than a small multiple of the input's length.
//! - Bytes after a record are ignored, and missing bytes are an error, as in ZooKeeper's servers.
//!
//! ```text
//! request.rs   Request: a row for each operation   multi.rs     the results of a multi
//! records.rs   headers, answers and events         connect.rs   the handshake's optional field
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
