//! Descriptions of clients: of those that open sessions, and of those that end or revoke tickets.
//! They are shown to people, and no decision depends on them.

use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::words::weight::{CLIENT, text};
use crate::{Error, Limits, SessionId};

/// Description that a client gives of itself when it opens its session, with its address as the
/// server saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientInfo {
    /// Name of the client's machine; empty when the client names none.
    pub host: String,
    /// Process id of the client's program; `None` when the client gives none.
    pub pid: Option<u32>,
    /// Name of the client's program; empty when the client names none.
    pub program: String,
    /// Address of the client's end of the connection, as the server saw it; `None` if unknown. It
    /// is kept also if it does not count for the limit of sessions per address: see
    /// [`crate::Op::OpenSession`].
    pub address: Option<IpAddr>,
}

impl ClientInfo {
    /// A description with the address alone.
    pub fn at(address: Option<IpAddr>) -> ClientInfo {
        ClientInfo { address, ..ClientInfo::default() }
    }

    /// Tells whether all fields are empty.
    pub fn is_empty(&self) -> bool {
        *self == ClientInfo::default()
    }

    /// Checks the length of the description's texts.
    ///
    /// # Errors
    /// `DataTooLarge` when a text is longer than a label may be.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Error> {
        let max = TEXT_MAX.min(limits.label_bytes_max as usize);
        if self.host.len() > max || self.program.len() > max { Err(Error::DataTooLarge) } else { Ok(()) }
    }

    /// Estimated memory of the description, in bytes. If sessions and histories share one
    /// description in memory, each of them counts it, because a snapshot repeats it.
    pub(crate) fn weight(&self) -> u64 {
        CLIENT + text(&self.host) + text(&self.program)
    }
}

/// The client that deleted a ticket, revoked it, or set its deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Actor {
    /// The session of the request; `None` for a request without a session.
    pub session: Option<SessionId>,
    /// The session's label.
    pub label: String,
    /// The first identity that the request had proven, without its proof, as in `digest:bob`. Empty
    /// if the request had no identity.
    pub identity: String,
    /// The description of the session's client. Its address is that of the request, if the request
    /// contains it.
    pub client: ClientInfo,
}

/// Longest text in the description of a client or an actor, in bytes, even if the limits allow
/// more: the history of a lock must fit into one record of a snapshot.
pub(crate) const TEXT_MAX: usize = 1024;

/// The longest beginning of a text that has at most [`TEXT_MAX`] bytes and ends between characters.
pub(crate) fn short(text: &str) -> String {
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}

impl Actor {
    /// Estimated memory of the actor, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        text(&self.label) + text(&self.identity) + self.client.weight()
    }
}
