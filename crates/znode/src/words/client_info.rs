//! Records of a session's client, and of the client that did something to a ticket. They are shown
//! to people, and no decision depends on them.

use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::words::weight::{CLIENT, text};
use crate::{Error, Limits, SessionId};

/// Facts that a client tells of itself when it opens its session, and its address as the door saw
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientInfo {
    /// Name of the client's machine; empty when the client names none.
    pub host: String,
    /// The number of the client's process.
    pub pid: Option<u32>,
    /// Name of the client's program; empty when the client names none.
    pub program: String,
    /// The address of the client's end of the connection, as the door saw it. It is there also for
    /// an address that counts for no bound: see [`crate::Op::OpenSession`].
    pub address: Option<IpAddr>,
}

impl ClientInfo {
    /// A record with the address alone.
    pub fn at(address: Option<IpAddr>) -> ClientInfo {
        ClientInfo { address, ..ClientInfo::default() }
    }

    /// Tells whether nothing is known of the client.
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

/// The client that asked for a ticket, took it away, or deleted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Actor {
    /// The session that asked; `None` for a request without one.
    pub session: Option<SessionId>,
    /// The session's label.
    pub label: String,
    /// The identity that the request had proven: the scheme and the name without its proof, as
    /// `digest:bob`. Empty if the request had none.
    pub identity: String,
    /// The client of the session, with the address that the request came from if that is known.
    pub client: ClientInfo,
}

/// The longest text of a client or actor that is kept, in bytes, whatever the limits: the history
/// of a lock must fit into one record of a snapshot.
pub(crate) const TEXT_MAX: usize = 1024;

/// The beginning of a text: at most [`TEXT_MAX`] bytes, cut between characters.
pub(crate) fn short(text: &str) -> String {
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}

impl ClientInfo {
    /// Estimated memory of the record, in bytes. It is counted at each place that has the record,
    /// also where several share one in memory: a snapshot repeats it.
    pub(crate) fn weight(&self) -> u64 {
        CLIENT + text(&self.host) + text(&self.program)
    }
}

impl Actor {
    /// Estimated memory of the actor, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        text(&self.label) + text(&self.identity) + self.client.weight()
    }
}
