//! The handshake. Its last field is optional: clients older than ZooKeeper 3.4 do not send it and
//! must not get it.

use crate::records::records;
use crate::{Buffer, DecodeError, Input, Record};

/// The length of a session's password.
pub const PASSWORD_BYTES: usize = 16;

records! {
    /// A client's first packet. It has no header.
    ConnectRequest {
        /// Always 0.
        protocol_version: i32,
        /// The last zxid that the client has seen, on any server.
        last_zxid_seen: i64,
        /// The session timeout that it wishes, in milliseconds.
        timeout_ms: i32,
        /// The session to resume; 0 for a new one.
        session_id: i64,
        /// The session's password; empty or zeros for a new one.
        password: Buffer,
        /// True if a server without a quorum will do. `None` when the client did not send the
        /// field.
        read_only: Option<bool>,
    }
    /// The server's first packet. It has no header.
    ConnectResponse {
        /// Always 0.
        protocol_version: i32,
        /// The timeout that counts, in milliseconds; 0 when the session is gone.
        timeout_ms: i32,
        /// The session; 0 when it is gone.
        session_id: i64,
        /// The session's password, [`PASSWORD_BYTES`] long.
        password: Buffer,
        /// True if this server is without a quorum. `None` when the client's field was missing.
        read_only: Option<bool>,
    }
}

/// A field at the end of a packet, which need not be there.
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
