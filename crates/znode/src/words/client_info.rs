//! The one at the other end of a session, and the one who did something to a ticket: for people,
//! and never for a decision.

use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::words::weight::{CLIENT, text};
use crate::{Error, Limits, SessionId};

/// Words of a client about itself when it opens its session, and where the door saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientInfo {
    /// Name of the client's machine; empty when the client says none.
    pub host: String,
    /// The number of the client's process.
    pub pid: Option<u32>,
    /// Name of the client's program; empty when the client says none.
    pub program: String,
    /// The client's end of the connection, as the door saw it, also where the address counts for no
    /// bound: see [`crate::Op::OpenSession`].
    pub address: Option<IpAddr>,
}

impl ClientInfo {
    /// A client of whom only the address is known.
    pub fn at(address: Option<IpAddr>) -> ClientInfo {
        ClientInfo { address, ..ClientInfo::default() }
    }

    /// Tells whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == ClientInfo::default()
    }

    /// # Errors
    /// `DataTooLarge` when a text is longer than a label may be.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Error> {
        let max = TEXT_MAX.min(limits.label_bytes_max as usize);
        if self.host.len() > max || self.program.len() > max { Err(Error::DataTooLarge) } else { Ok(()) }
    }
}

/// The one who asked for a ticket, took it away, or deleted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Actor {
    /// The session that asked; `None` for a request without one.
    pub session: Option<SessionId>,
    /// The session's label.
    pub label: String,
    /// The identity that the request had proven: the scheme, and the name without what proves it,
    /// as `digest:bob`. Empty for nothing.
    pub identity: String,
    /// The session's client; of a request without a session, or from another place, the address
    /// that it came from.
    pub client: ClientInfo,
}

/// Bytes that are kept of a text, whatever the limits: the history of a lock is one record of a
/// snapshot.
pub(crate) const TEXT_MAX: usize = 1024;

/// The beginning of a text.
pub(crate) fn short(text: &str) -> String {
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}

impl ClientInfo {
    /// Weight of the record. Counted at each place, though some share it: a snapshot has it once
    /// for each.
    pub(crate) fn weight(&self) -> u64 {
        CLIENT + text(&self.host) + text(&self.program)
    }
}

impl Actor {
    /// Weight of the actor.
    pub(crate) fn weight(&self) -> u64 {
        text(&self.label) + text(&self.identity) + self.client.weight()
    }
}
