//! Opening and ending sessions.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::operations::readings;
use crate::queue::ended::TicketEnd;
use crate::state::sessions::weight_of_new;
use crate::{ClientInfo, Error, Limits, Refusal, Reply, SecretHash, Session, SessionId, State, Term, WriteTurn, ZPath};

impl State {
    pub(crate) fn open_session(
        &mut self,
        secret_hash: SecretHash,
        timeout_ms: u32,
        label: &str,
        address: Option<IpAddr>,
        client: ClientInfo,
        context: &Context,
    ) -> Result<Reply, Refusal> {
        let limits = self.limits();
        client.check(limits)?;
        if label.len() > limits.label_bytes_max as usize {
            return Err(Error::DataTooLarge.into());
        }
        if self.session_count() >= limits.sessions_max as usize {
            return Err(Error::TooManySessions.into());
        }
        if address.is_some_and(|address| self.sessions_of(address) >= limits.sessions_per_address_max) {
            return Err(Error::TooManySessions.into());
        }
        self.check_bytes(weight_of_new(label, &client))?;
        let timeout_ms = agreed_timeout(timeout_ms, limits);
        let session = Session {
            id: SessionId(context.zxid.0),
            secret_hash,
            timeout_ms,
            label: label.into(),
            opened_ms: context.time_ms,
            address,
            client: client.into(),
            ..Session::default()
        };
        let id = session.id;
        self.add_session(session);
        Ok(Reply::SessionOpened { session: id, timeout_ms })
    }

    /// Number of open sessions from an address; for IPv6, from its /64 network.
    pub fn sessions_of(&self, address: IpAddr) -> u32 {
        self.sessions().of_address(address)
    }

    /// Attaches the session to another connection, whose ordered writes are numbered from 1.
    pub(crate) fn attach_session(
        &mut self,
        connection: u64,
        timeout_ms: u32,
        context: &Context,
    ) -> Result<Reply, Refusal> {
        if connection == 0 {
            return Err(Error::BadArguments.into());
        }
        let timeout_ms = agreed_timeout(timeout_ms, self.limits());
        let session = context.session.ok_or(Error::SessionRequired)?;
        let attach = |attached: &mut Session| {
            (attached.connection, attached.turn, attached.timeout_ms) = (connection, 0, timeout_ms);
        };
        self.edit_session(session, attach).expect("the credential was checked");
        Ok(Reply::SessionOpened { session, timeout_ms })
    }

    /// Checks that an ordered write comes from the session's connection and has the next number,
    /// and records this number. A refusal changes nothing.
    pub(crate) fn take_turn(&mut self, turn: WriteTurn, context: &Context) -> Result<(), Error> {
        let id = context.session.ok_or(Error::SessionRequired)?;
        let session = &self.sessions()[&id];
        if session.connection != turn.connection {
            return Err(Error::SessionMoved);
        }
        if session.turn.checked_add(1) != Some(turn.number) {
            return Err(Error::OutOfTurn);
        }
        self.edit_session(id, |session| session.turn = turn.number);
        Ok(())
    }

    pub(crate) fn close_session(&mut self, id: SessionId, effects: &mut Effects) -> Result<Reply, Refusal> {
        match effects.context.session {
            None => Err(Error::SessionRequired.into()),
            Some(asking) if asking != id => Err(Error::AuthFailed.into()),
            Some(_) => {
                self.end_session(id, &BTreeSet::new(), effects);
                Ok(Reply::Done)
            }
        }
    }

    /// Expires sessions that a leader found without heartbeats. Refused if `term` is not the Raft
    /// term of the entry: the leader was deposed.
    pub(crate) fn expire_sessions(
        &mut self,
        sessions: &[SessionId],
        term: Term,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        if term != effects.context.term {
            return Err(Error::StaleTerm.into());
        }
        let open: Vec<SessionId> = sessions.iter().copied().filter(|id| self.sessions().contains(*id)).collect();
        let sessions = self.ending_together(&open);
        // All of these sessions have expired, so the locks of the sessions that this entry removes
        // must not be granted to the sessions that only later entries remove.
        self.will_end(open[sessions.len()..].iter().copied());
        // Collected before any session ends: otherwise a waiter of an expired session could be
        // granted the lock of a session that ends before it, and then keep it for its lock-delay.
        let lingering: BTreeSet<ZPath> = sessions.iter().flat_map(|id| self.lingering(*id)).collect();
        let mut count = 0;
        for &id in sessions {
            if self.sessions().contains(id) {
                self.end_session(id, &lingering, effects);
                count += 1;
            }
        }
        Ok(Reply::Removed { count })
    }

    /// The lock nodes of an expiring session that are kept for their lock-delay, because they hold
    /// their locks now.
    fn lingering(&self, id: SessionId) -> Vec<ZPath> {
        let lingers = |path: &&ZPath| {
            let delayed = self.tree()[*path].contender().is_some_and(|contender| contender.lock_delay_ms > 0);
            delayed && matches!(readings::held(self, path), Ok(Some(_)))
        };
        self.session(id).into_iter().flat_map(Session::ephemerals).filter(lingers).cloned().collect()
    }

    pub(crate) fn end_session(&mut self, id: SessionId, lingering: &BTreeSet<ZPath>, effects: &mut Effects) {
        let session = self.remove_session(id, effects.end == Some(TicketEnd::Expired), effects.context.moment());
        effects.ended.insert(id, session.clone());
        for path in session.ephemerals() {
            if lingering.contains(path) {
                self.linger(path, effects);
            } else if self.tree().contains(path) {
                // An earlier removal may have removed the lock node as a part of the same
                // multi-lock.
                self.remove(path, effects);
            }
        }
    }

    fn linger(&mut self, path: &ZPath, effects: &Effects) {
        let time_ms = effects.context.time_ms;
        let node = self.tree().shared(path);
        self.ticket_ended(path, &node, readings::grant(self, path), effects);
        self.edit_znode(path, |node| {
            let contender = Arc::make_mut(node.contender.as_mut().expect("a lingering node has a delay"));
            contender.lingers_until_ms = Some(time_ms.saturating_add(u64::from(contender.lock_delay_ms)));
        });
    }
}

/// The session timeout that the client asks for, brought within the limits. `clamp()` would panic
/// if the configured minimum is above the maximum.
fn agreed_timeout(wish_ms: u32, limits: &Limits) -> u32 {
    wish_ms.max(limits.session_timeout_min_ms).min(limits.session_timeout_max_ms)
}
