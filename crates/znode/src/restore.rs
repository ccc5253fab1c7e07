//! Restore: making the state of a backup the first state of a new cluster.
//!
//! A backup is old: the clients of its sessions may have released their locks since, and may be
//! running. So all sessions end, with their ephemeral znodes, tickets, and answers kept for
//! idempotency keys. The new cluster has a new uuid. Its zxids begin above all that the old cluster
//! can have used, so that no fencing token falls.
//!
//! The restore acts as one entry of index 1, applied before there is a log. No other entry ends a
//! session at that zxid, so the zxid of a session's end shows that the restore caused it
//! ([`State::ended_by_restore`]).

use crate::edits::context::Context;
use crate::edits::edit::NewNode;
use crate::edits::effects::Effects;
use crate::queue::ended::{EndedSession, TicketEnd};
use crate::tree::system_paths::SYSTEM;
use crate::{
    ALL, Acl, Cluster, FencingToken, Founding, Kind, Limits, LogPosition, READ, SessionId, State, Term, ZPath,
    ZXID_BASE_MAX, Zxid,
};

/// Path of a znode that stops grants after a restore: while it exists, the leader grants no lock.
pub const RESTORING: &str = "/zookeeper/restoring";
/// Log index of a restore, which counts as the first entry of the new cluster's log.
pub const RESTORED_INDEX: u64 = 1;

/// Beginning of the JSON text in the znode [`RESTORING`]; the number of milliseconds for which
/// leaders grant no lock follows.
const GRACE: &str = "{\"grace_ms\":";

/// Values that are chosen for a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The uuid of the new cluster, and a zxid base above every zxid of the old cluster.
    pub founding: Founding,
    /// The time of the restore, in milliseconds since 1970.
    pub time_ms: u64,
    /// Time for which leaders of the new cluster grant no lock, in milliseconds; 0 if they grant
    /// locks at once.
    pub grace_ms: u64,
}

/// Reasons why a state cannot be restored with these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The zxid base is not above the backup's zxids, so fencing tokens could fall.
    #[error("zxids would begin at {base}, and the backup has zxid {zxid} already")]
    BaseTooLow {
        /// The zxid base that was asked for.
        base: u64,
        /// The last zxid of the state.
        zxid: u64,
    },
    /// The zxid base is so high that zxids could reach 2^53.
    #[error("zxids would begin at {0}, and {ZXID_BASE_MAX} is the most")]
    BaseTooHigh(u64),
}

impl State {
    /// Turns the state into that of a new cluster. Znodes keep their zxids.
    ///
    /// # Errors
    /// [`RestoreError`] if the zxid base is too low or too high. The state is unchanged then.
    pub fn restore(&mut self, restore: Restore) -> Result<(), RestoreError> {
        let Restore { founding, time_ms, grace_ms } = restore;
        let (base, zxid) = (founding.zxid_base, self.last_zxid().0);
        if base > ZXID_BASE_MAX {
            return Err(RestoreError::BaseTooHigh(base));
        }
        if base <= zxid {
            return Err(RestoreError::BaseTooLow { base, zxid });
        }
        // The new cluster has other members, so ids of members and of removed nodes are dropped.
        let level = self.level();
        self.set_cluster(Cluster::new(founding, level));
        // No entry of the old cluster has this term and this index. A node that still has the old
        // log would otherwise take its own entry 1 for that of the restore.
        let term = Term(self.last_term().0 + 1);
        let at = LogPosition { term, zxid: Zxid(base + RESTORED_INDEX) };
        self.skip(at);
        self.advance_time(time_ms);
        // The budget of an entry bounds the wait of clients, and no client waits here.
        let limits = self.set_limits(Limits { entry_cost_max: u32::MAX, ..self.limits().clone() });
        let mut effects = Effects::new(Context::new(at, self.time_ms()));
        self.end_all_sessions(&mut effects);
        self.raise_tokens(FencingToken(base));
        self.take_up_unsettled(&mut effects);
        self.grant_ready(&mut effects);
        self.set_limits(limits);
        self.begin_grace(grace_ms, &mut effects);
        Ok(())
    }

    /// Ends all sessions at once, without the lock-delays of their tickets. Removes also the lock
    /// nodes of sessions that ended in the old cluster, which were kept for a lock-delay.
    fn end_all_sessions(&mut self, effects: &mut Effects) {
        effects.end = Some(TicketEnd::Expired);
        let sessions: Vec<SessionId> = self.sessions_from(SessionId(0)).map(|session| session.id).collect();
        for session in sessions {
            self.end_session(session, &Default::default(), effects);
        }
        let walk = self.tree().walk().filter(|(_, node)| node.owner().is_some());
        let lingering: Vec<ZPath> = walk.map(|(path, _)| path).collect();
        for path in lingering {
            // The node is gone already if another part of its multi-lock was removed.
            if self.tree().contains(&path) {
                self.remove(&path, effects);
            }
        }
    }

    /// Raises the largest token of every queue to `token`. Tickets in persistent znodes stay. The
    /// new cluster must not grant such a ticket its lock with its czxid as token, because the old
    /// cluster may have granted larger tokens after the backup was made.
    fn raise_tokens(&mut self, token: FencingToken) {
        let locks = self.tree().walk().filter(|(_, node)| node.family.queue.is_some());
        let locks: Vec<ZPath> = locks.map(|(path, _)| path).collect();
        for lock in locks {
            self.edit_queue(&lock, |queue| queue.raise_top_token(token));
        }
    }

    fn begin_grace(&mut self, grace_ms: u64, effects: &mut Effects) {
        let path = |text| ZPath::parse(text).expect("a constant");
        let made = |perms, data: String| {
            let acl = vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }].into();
            NewNode { kind: Kind::Persistent, data: data.into_bytes().into(), acl, contender: None }
        };
        let restoring = path(RESTORING);
        // The backup may come from a restored cluster that did not grant locks yet.
        if self.tree().contains(&restoring) {
            self.remove(&restoring, effects);
        }
        if grace_ms == 0 {
            return;
        }
        if !self.tree().contains(&path(SYSTEM)) {
            self.insert(&path(SYSTEM), made(ALL, String::new()), effects);
        }
        let data = format!("{GRACE}{grace_ms},\"prepared_ms\":{}}}", self.time_ms());
        self.insert(&restoring, made(READ, data), effects);
    }

    /// Time in milliseconds for which a leader of this restored cluster grants no lock, from the
    /// start of its term. `None` if leaders grant locks at once.
    pub fn grace_ms(&self) -> Option<u64> {
        let node = self.tree().get(RESTORING)?;
        let text = std::str::from_utf8(&node.data).ok();
        let digits = text.and_then(|text| text.strip_prefix(GRACE)?.split(',').next());
        // A client overwrote the text, and it cannot be read, so the longest session timeout
        // counts.
        let longest = || u64::from(self.limits().session_timeout_max_ms);
        Some(digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(longest))
    }

    /// Tells whether the leader grants no lock for now, because clients of the old cluster may
    /// still believe that they hold locks.
    pub fn is_restoring(&self) -> bool {
        self.tree().get(RESTORING).is_some()
    }

    /// Tells whether a session was ended by the restore of its cluster.
    pub fn ended_by_restore(&self, session: &EndedSession) -> bool {
        let founding = self.cluster().map(Cluster::founding);
        founding.is_some_and(|founding| session.ended.zxid.0 == founding.zxid_base + RESTORED_INDEX)
    }
}
