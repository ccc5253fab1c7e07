//! Invariants of sessions: when they end, and whose heartbeats count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::{Op, SessionId};

use super::{Calm, Invariant, World};
use crate::history::{Commit, History};
use crate::observation::{Lease, Observation};

/// A session does not expire before its timeout has passed since its client sent the last
/// acknowledged heartbeat.
///
/// Source: the promise of `Replica::touch` and docs/http-api.md; Gray and Cheriton, "Leases"
/// (1989). A deposed leader that still expires sessions would violate the invariant. So would a new
/// leader that counts timeouts from a moment before its election. Times are those of the client's
/// clock. The check allows for nodes whose clocks run faster.
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
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(Op::ExpireSessions { sessions, .. }) = commit.entry.txn.as_ref().map(|txn| &txn.request.op) else {
            return Ok(());
        };
        for session in sessions {
            if commit.before.session(*session).is_some() && commit.entry.state.session(*session).is_none() {
                self.expired.insert(*session, commit.entry.written_ms);
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

/// Longest time between the end of a timeout and the entry that expires the session: the leader
/// checks sessions only once a tick, its clock may be slow, and the entry must be committed.
const LATE_MS: u64 = 1_000;

/// While no leader crashes, a session without heartbeats expires soon after its timeout. The
/// invariant `NoEarlyExpiry` checks that it does not expire sooner. The tests in `failover` check
/// the time that transfers of leadership add.
///
/// Source: ZooKeeper's ephemeral nodes (zookeeperProgrammers, "ZooKeeper Sessions"): a lock whose
/// holder has died must become free.
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
    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        if let Observation::Opened { lease } = seen {
            let session = lease.borrow().session;
            self.leases.insert(session, Rc::clone(lease));
        }
        Ok(())
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        self.now_ms = commit.now_ms;
        match commit.entry.txn.as_ref().map(|txn| &txn.request.op) {
            Some(Op::ExpireSessions { sessions, .. }) => sessions.iter().try_for_each(|session| {
                let lease = self.leases.remove(session);
                lease.map_or(Ok(()), |lease| self.judge(&lease.borrow(), commit.entry.written_ms))
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

/// A heartbeat with another secret than the session's is refused.
///
/// Source: docs/http-api.md: a client that knows only a session's id can neither keep the session
/// alive nor end it.
pub(super) struct StrangersCountForNothing;

impl Invariant for StrangersCountForNothing {
    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::StrangerTouched { session } => {
                Err(format!("a heartbeat without the secret of session {session} was acknowledged"))
            }
            _ => Ok(()),
        }
    }
}
