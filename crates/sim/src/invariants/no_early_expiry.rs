//! A session does not expire before its timeout has passed since its client sent the last
//! acknowledged heartbeat.
//!
//! Source: the promise of `Replica::touch` and docs/http-api.md; Gray and Cheriton, "Leases"
//! (1989). A deposed leader that still expires sessions would violate the invariant. So would a new
//! leader that counts timeouts from a moment before its election. Times are those of the client's
//! clock. The check allows for nodes whose clocks run faster.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::{Op, SessionId};

use super::{Invariant, World};
use crate::history::History;
use crate::observation::{Commit, Lease, Observation};

pub(super) struct NoEarlyExpiry {
    world: World,
    leases: BTreeMap<SessionId, Rc<RefCell<Lease>>>,
    /// Times in milliseconds of the entries that expired sessions. The invariants may see such an
    /// entry before they are told of the session's opening.
    expired: BTreeMap<SessionId, u64>,
}

impl NoEarlyExpiry {
    pub(super) fn new(world: World) -> NoEarlyExpiry {
        NoEarlyExpiry { world, leases: BTreeMap::new(), expired: BTreeMap::new() }
    }

    fn check(&self, session: SessionId) -> Result<(), String> {
        let (Some(lease), Some(at_ms)) = (self.leases.get(&session), self.expired.get(&session)) else {
            return Ok(());
        };
        let lease = lease.borrow();
        let until_ms = lease.sent_ms + self.world.at_least_ms(lease.timeout_ms.into());
        if *at_ms >= until_ms {
            return Ok(());
        }
        Err(format!(
            "session {session} was expired by an entry of {at_ms} ms; its last heartbeat was sent at {} ms and its \
             timeout is {} ms",
            lease.sent_ms, lease.timeout_ms
        ))
    }
}

impl Invariant for NoEarlyExpiry {
    fn name(&self) -> &'static str {
        "no early expiry"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(Op::ExpireSessions { sessions, .. }) = commit.txn.map(|txn| &txn.request.op) else { return Ok(()) };
        for session in sessions {
            if commit.before.session(*session).is_some() && commit.after.session(*session).is_none() {
                self.expired.insert(*session, commit.written_ms);
                self.check(*session)?;
            }
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        let Observation::Opened { lease } = seen else { return Ok(()) };
        let session = lease.borrow().session;
        self.leases.insert(session, Rc::clone(lease));
        self.check(session)
    }

    fn end(&mut self, _: &mut History) -> Result<(), String> {
        // The acknowledgement of a heartbeat may have arrived after the expiry was checked. So each
        // expiry is checked again, with the time of the last acknowledged heartbeat.
        self.expired.keys().try_for_each(|session| self.check(*session))
    }
}
