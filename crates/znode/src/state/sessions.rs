//! The open sessions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Bound, Index};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::words::weight::{SESSION, text};
use crate::{ClientInfo, Session, SessionId};

/// All open sessions, the number of sessions for each client address, and the expired sessions that
/// later entries will remove.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    open: OrdMap<SessionId, Arc<Session>>,
    by_source: OrdMap<IpAddr, u32>,
    /// Sessions that have expired and are not removed yet, because their removal did not fit into
    /// the budget of the log entry that expired them. They accept no requests, and their waiting
    /// tickets are granted no lock.
    ending: OrdSet<SessionId>,
    /// Estimated memory of all open sessions, in bytes.
    bytes: u64,
}

impl Index<&SessionId> for Sessions {
    type Output = Session;

    /// The open session with an id. Panics if there is none.
    fn index(&self, id: &SessionId) -> &Session {
        &self.open[id]
    }
}

impl Sessions {
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.open.get(&id).map(|session| &**session)
    }

    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.open.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The open sessions with ids above `after`, by id.
    pub(crate) fn from(&self, after: SessionId) -> impl Iterator<Item = &Session> {
        self.open.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, session)| &**session)
    }

    /// Number of open sessions from an address; for IPv6, from its /64 network.
    pub(crate) fn of_address(&self, address: IpAddr) -> u32 {
        self.by_source.get(&source(address)).copied().unwrap_or(0)
    }

    /// Estimated memory of all open sessions, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a session. Returns false if a session with that id exists.
    pub(crate) fn add(&mut self, session: Session) -> bool {
        self.bytes += weight(&session);
        if let Some(address) = session.address {
            *self.by_source.entry(source(address)).or_insert(0) += 1;
        }
        self.open.insert(session.id, Arc::new(session)).is_none()
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.open.remove(&id)?;
        self.bytes -= weight(&session);
        if let Some(source) = session.address.map(source) {
            match self.by_source.get_mut(&source) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.by_source.remove(&source);
                }
            }
        }
        self.ending.remove(&id);
        Some(session)
    }

    /// Changes a session, and updates the estimate of memory. Returns `None` if the session is not
    /// open.
    pub(crate) fn edit<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let session = Arc::make_mut(self.open.get_mut(&id)?);
        let before = session.requests.bytes;
        let answer = change(session);
        self.bytes = self.bytes - before + session.requests.bytes;
        Some(answer)
    }

    /// Records expired sessions that later entries will remove.
    pub(crate) fn will_end(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        self.ending.extend(sessions);
    }

    pub(crate) fn is_ending(&self, id: SessionId) -> bool {
        !self.ending.is_empty() && self.ending.contains(&id)
    }

    /// Tells whether expired sessions are still to be removed.
    pub(crate) fn are_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Compares indexes and sums with the sessions, for tests.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let (mut by_source, mut bytes) = (BTreeMap::new(), 0);
        for (id, session) in &self.open {
            if *id != session.id || id.0 == 0 {
                return Err(format!("session {id} calls itself {}", session.id));
            }
            session.requests.check_invariants().map_err(|why| format!("session {id}: {why}"))?;
            if let Some(address) = session.address {
                *by_source.entry(source(address)).or_insert(0) += 1;
            }
            bytes += weight(session);
        }
        if !self.by_source.iter().eq(&by_source) {
            return Err(format!("sessions {by_source:?} of addresses counted as {:?}", self.by_source));
        }
        if bytes != self.bytes {
            return Err(format!("sessions weigh {bytes}, not {}", self.bytes));
        }
        match self.ending.iter().find(|id| !self.contains(**id)) {
            None => Ok(()),
            Some(id) => Err(format!("session {id} is being ended and is not there")),
        }
    }
}

fn weight(session: &Session) -> u64 {
    weight_of_new(&session.label, &session.client) + session.requests.bytes
}

/// Estimated memory of a session without requests, in bytes.
pub(crate) fn weight_of_new(label: &str, client: &ClientInfo) -> u64 {
    SESSION + text(label) + client.weight()
}

/// The address under which sessions are counted: for IPv6 the /64 network, because one machine
/// often has a whole /64 network.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}
