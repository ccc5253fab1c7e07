//! While no leader crashes, a session without heartbeats expires soon after its timeout. The
//! invariant `no_early_expiry` checks that it does not expire sooner. The tests in `failover` check
//! the time that transfers of leadership add.
//!
//! Source: ZooKeeper's ephemeral nodes (zookeeperProgrammers, "ZooKeeper Sessions"): a lock whose
//! holder has died must become free.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::{Op, SessionId};

use super::{Calm, Invariant};
use crate::history::History;
use crate::observation::{Commit, Lease, Observation};

/// Longest time between the end of a timeout and the entry that expires the session: the leader
/// checks sessions only once a tick, its clock may be slow, and the entry must be committed.
const LATE_MS: u64 = 1_000;

pub(super) struct SessionsEndInTime {
    calm: Rc<RefCell<Calm>>,
    /// Leases of sessions that were opened and, as far as the log tells, have not ended.
    leases: BTreeMap<SessionId, Rc<RefCell<Lease>>>,
    now_ms: u64,
}

impl SessionsEndInTime {
    pub(super) fn new(calm: Rc<RefCell<Calm>>) -> SessionsEndInTime {
        SessionsEndInTime { calm, leases: BTreeMap::new(), now_ms: 0 }
    }

    /// Checks that a session which existed until `until_ms` did not exist for too long.
    fn judge(&self, lease: &Lease, until_ms: u64) -> Result<(), String> {
        let Some(calm_ms) = self.calm.borrow().from_ms else { return Ok(()) };
        let Lease { session, timeout_max_ms, heard_ms, .. } = *lease;
        // After a crash the next leader gives each session its whole timeout again. Time in which a
        // leader was not sure to lead does not count either. Neither happens in the calm.
        if until_ms <= heard_ms.max(calm_ms) + u64::from(timeout_max_ms) + LATE_MS {
            return Ok(());
        }
        Err(format!(
            "session {session} was heard at {heard_ms} ms for the last time, its timeout is {timeout_max_ms} ms, and it \
             was there until {until_ms} ms"
        ))
    }
}

impl Invariant for SessionsEndInTime {
    fn name(&self) -> &'static str {
        "sessions end in time"
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        if let Observation::Opened { lease } = seen {
            let session = lease.borrow().session;
            self.leases.insert(session, Rc::clone(lease));
        }
        Ok(())
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        self.now_ms = commit.now_ms;
        match commit.txn.map(|txn| &txn.request.op) {
            Some(Op::ExpireSessions { sessions, .. }) => sessions.iter().try_for_each(|session| {
                let lease = self.leases.remove(session);
                lease.map_or(Ok(()), |lease| self.judge(&lease.borrow(), commit.written_ms))
            }),
            Some(Op::CloseSession { session }) => {
                self.leases.remove(session);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, history: &mut History) -> Result<(), String> {
        let Some(state) = history.state(history.last()) else { return Ok(()) };
        let there = |session: &SessionId| state.session(*session).is_some();
        let left = self.leases.iter().filter(|(session, _)| there(session));
        left.map(|(_, lease)| lease).try_for_each(|lease| self.judge(&lease.borrow(), self.now_ms))
    }
}
