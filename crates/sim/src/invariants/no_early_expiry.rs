//! A session does not expire before its timeout has passed since its client sent the last
//! acknowledged heartbeat.
//!
//! Source: the promise of `Replica::touch` and docs/http-api.md; Gray and Cheriton, "Leases"
//! (1989). A deposed leader that goes on counting, or a new one that counts from too early, would
//! violate it. Time is the client's. The nodes' clocks may run faster by their drift, which is
//! allowed for.

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
    /// Times of entries that expired sessions. A client may hear of an expiry before the invariants
    /// know the client.
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
        // An acknowledgement may have been under way when the session expired. Its heartbeat must
        // not have been sent after that.
        self.expired.keys().try_for_each(|session| self.check(*session))
    }
}
