//! The handshake, which opens or resumes a session. Its last field, `read_only`, is optional:
//! clients older than ZooKeeper 3.4 do not send the field, and the answer to them must not have it.

use crate::records::records;
use crate::{Buffer, DecodeError, Input, Record};

/// The length of a session's password, in bytes.
pub const PASSWORD_BYTES: usize = 16;

records! {
    /// The first packet of a client, which has no [`crate::RequestHeader`].
    ConnectRequest {
        /// The version of the protocol: always 0.
        protocol_version: i32,
        /// The last zxid that the client has seen, in an answer of any server.
        last_zxid_seen: i64,
        /// The session timeout that the client asks for, in milliseconds.
        timeout_ms: i32,
        /// The session to resume; 0 for a new one.
        session_id: i64,
        /// The session's password; empty or zeros for a new session.
        password: Buffer,
        /// True if the client accepts a server without a quorum. `None` if the client did not send
        /// the field.
        read_only: Option<bool>,
    }
    /// The first packet of the server, which has no [`crate::ReplyHeader`].
    ConnectResponse {
        /// The version of the protocol: always 0.
        protocol_version: i32,
        /// The timeout that the session got, in milliseconds; 0 if the session has ended.
        timeout_ms: i32,
        /// The session's id; 0 if the session has ended.
        session_id: i64,
        /// The session's password, [`PASSWORD_BYTES`] long.
        password: Buffer,
        /// True if this server has no quorum. `None` if the client did not send the field.
        read_only: Option<bool>,
    }
}

/// Optional field at the end of a packet: `None` if the packet ends before it.
impl Record for Option<bool> {
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        if input.remaining() == 0 { Ok(None) } else { input.read().map(Some) }
    }
}
