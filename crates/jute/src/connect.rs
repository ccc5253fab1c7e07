//! The handshake. Its last field is optional: clients older than ZooKeeper 3.4 do not send it and must not get it.

use crate::{Buffer, DecodeError, Input, Record};

/// The length of a session's password.
pub const PASSWORD_BYTES: usize = 16;

/// A client's first packet. It has no header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Always 0.
    pub protocol_version: i32,
    /// The last zxid that the client has seen, on any server.
    pub last_zxid_seen: i64,
    /// The session timeout that it wishes, in milliseconds.
    pub timeout_ms: i32,
    /// The session to resume; 0 for a new one.
    pub session_id: i64,
    /// The session's password; empty or zeros for a new one.
    pub password: Buffer,
    /// Whether a server without a quorum will do. `None` when the client did not send the field.
    pub read_only: Option<bool>,
}

impl Record for ConnectRequest {
    fn write(&self, out: &mut Vec<u8>) {
        self.protocol_version.write(out);
        self.last_zxid_seen.write(out);
        self.timeout_ms.write(out);
        self.session_id.write(out);
        self.password.write(out);
        if let Some(read_only) = self.read_only {
            read_only.write(out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(ConnectRequest {
            protocol_version: input.read()?,
            last_zxid_seen: input.read()?,
            timeout_ms: input.read()?,
            session_id: input.read()?,
            password: input.read()?,
            read_only: optional(input)?,
        })
    }
}

/// The server's first packet. It has no header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// The timeout that counts, in milliseconds; 0 when the session is gone.
    pub timeout_ms: i32,
    /// The session; 0 when it is gone.
    pub session_id: i64,
    /// Its password, [`PASSWORD_BYTES`] long.
    pub password: Buffer,
    /// Whether this server is without a quorum. `None` when the client's field was missing.
    pub read_only: Option<bool>,
}

impl Record for ConnectResponse {
    fn write(&self, out: &mut Vec<u8>) {
        self.protocol_version.write(out);
        self.timeout_ms.write(out);
        self.session_id.write(out);
        self.password.write(out);
        if let Some(read_only) = self.read_only {
            read_only.write(out);
        }
    }

    fn read(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(ConnectResponse {
            protocol_version: input.read()?,
            timeout_ms: input.read()?,
            session_id: input.read()?,
            password: input.read()?,
            read_only: optional(input)?,
        })
    }
}

fn optional(input: &mut Input<'_>) -> Result<Option<bool>, DecodeError> {
    if input.remaining() == 0 { Ok(None) } else { input.read().map(Some) }
}
