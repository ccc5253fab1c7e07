//! Who is at the other end of a session, and who did something to a ticket: for people, and never
//! for a decision.

use std::net::IpAddr;
use std::sync::Arc;

use bincode::{Decode, Encode};

use crate::lock::history::{TEXT_MAX, short};
use crate::state::{Changes, State};
use crate::{Error, Identity, Limits, SUPER, Session, SessionId, user};

/// What a client says of itself when it opens its session, and where the door saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientInfo {
    /// The name of its machine; empty when it says none.
    pub host: String,
    /// The number of its process.
    pub pid: Option<u32>,
    /// The name of its program; empty when it says none.
    pub program: String,
    /// The other end of the connection, as the door saw it. Also where it counts for no bound: see
    /// [`crate::Op::OpenSession`].
    pub address: Option<IpAddr>,
}

impl ClientInfo {
    /// One of whom only the address is known.
    pub fn at(address: Option<IpAddr>) -> ClientInfo {
        ClientInfo { address, ..ClientInfo::default() }
    }

    /// Whether nothing is known.
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

/// Who asked for a ticket, took it away, or deleted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Actor {
    /// The session that asked; `None` for a request without one.
    pub session: Option<SessionId>,
    /// Its label.
    pub label: String,
    /// What the request had proven: the scheme, and the name without what proves it, as
    /// `digest:bob`. Empty for nothing.
    pub identity: String,
    /// The session's client; of a request without a session, or from another place, the address
    /// that it came from.
    pub client: ClientInfo,
}

impl State {
    /// Who asks in this entry.
    pub(crate) fn actor(&self, changes: &Changes) -> Actor {
        let session = changes.session.and_then(|id| self.session_of(id, changes));
        let mut client = session.map_or_else(ClientInfo::default, |session| (*session.client).clone());
        client.address = changes.address.or(client.address);
        Actor {
            session: changes.session,
            label: session.map_or_else(String::new, |session| short(&session.label)),
            identity: shown(&changes.identities),
            client,
        }
    }

    /// A session that is open, or that this entry ends.
    pub(crate) fn session_of<'a>(&'a self, id: SessionId, changes: &'a Changes) -> Option<&'a Session> {
        self.session(id).or_else(|| changes.ended.get(&id).map(|session| &**session))
    }
}

/// The first of several identities that is a name, without what proves it.
fn shown(identities: &[Identity]) -> String {
    let named = identities.iter().find(|identity| identity.scheme != SUPER).or(identities.first());
    let Some(Identity { scheme, id }) = named else { return String::new() };
    let id = if scheme == "digest" { user(id) } else { id };
    short(&format!("{scheme}:{id}"))
}

/// The label and the client of a session, to be kept beside what it did.
pub(crate) fn remembered(session: Option<&Session>) -> (Arc<str>, Arc<ClientInfo>) {
    let label = |session: &Session| match session.label.len() > TEXT_MAX {
        true => short(&session.label).into(),
        false => session.label.clone(),
    };
    session.map_or_else(|| ("".into(), Arc::default()), |session| (label(session), session.client.clone()))
}
