//! A state from a backup becomes the first state of a new cluster.
//!
//! A backup is a claim about the past: the clients of its sessions may have let go of their locks
//! since, and may live on. So all sessions end, and with them ephemeral znodes, tickets and the
//! answers that idempotency keys are remembered for. The new cluster has a uuid of its own, and its
//! zxids begin above all that the old one can have given out, so that no fencing token falls.
//!
//! It is done as one entry of index 1 would do it, before there is a log. No other entry of any
//! cluster ends a session at that zxid, and so it is known later why these ended
//! ([`State::ended_by_restore`]).

use std::sync::Arc;

use crate::edits::context::Context;
use crate::edits::edit::NewNode;
use crate::edits::effects::Effects;
use crate::queue::ended::{EndedSession, TicketEnd};
use crate::tree::system_paths::SYSTEM;
use crate::{
    ALL, Acl, Cluster, FencingToken, Founding, Kind, Limits, LogPosition, READ, SessionId, State, Term, ZPath,
    ZXID_BASE_MAX, Zxid,
};

/// Path of a znode: as long as it is there, the leader grants no lock.
pub const RESTORING: &str = "/zookeeper/restoring";
/// The index of the entry that a restored state stands for, the first of its cluster's log.
pub const RESTORED_INDEX: u64 = 1;
/// The term of that entry.
pub const RESTORED_TERM: Term = Term(1);

/// Beginning of the data of [`RESTORING`].
const GRACE: &str = "{\"grace_ms\":";

/// Decisions that are made when a state is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The new cluster: its uuid, and a zxid base above every zxid of the old one.
    pub founding: Founding,
    /// The time of the restore, in milliseconds since 1970.
    pub time_ms: u64,
    /// Time for which the first leader of the new cluster grants no lock; 0 for not at all.
    pub grace_ms: u64,
}

/// Reasons why a state cannot be restored so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Tokens could fall.
    #[error("zxids would begin at {base}, and the backup has zxid {zxid} already")]
    BaseTooLow {
        /// The zxid base that was to be.
        base: u64,
        /// The last zxid of the state.
        zxid: u64,
    },
    /// Zxids must stay below 2^53.
    #[error("zxids would begin at {0}, and {ZXID_BASE_MAX} is the most")]
    BaseTooHigh(u64),
}

impl State {
    /// Makes the state that of a new cluster. What is in the tree keeps its zxids.
    ///
    /// # Errors
    /// When the zxid base will not do; nothing is changed then.
    pub fn restore(&mut self, restore: Restore) -> Result<(), RestoreError> {
        let Restore { founding, time_ms, grace_ms } = restore;
        let (base, zxid) = (founding.zxid_base, self.last_zxid.0);
        if base > ZXID_BASE_MAX {
            return Err(RestoreError::BaseTooHigh(base));
        }
        if base <= zxid {
            return Err(RestoreError::BaseTooLow { base, zxid });
        }
        // Ids of members mean nothing in another cluster, nor do those of removed ones.
        let level = self.level();
        self.cluster = Some(Arc::new(Cluster::new(founding, level)));
        let at = LogPosition { term: RESTORED_TERM, zxid: Zxid(base + RESTORED_INDEX) };
        self.skip(at);
        self.time_ms = self.time_ms.max(time_ms);
        // No client waits for this entry.
        let budget = Limits { entry_cost_max: u32::MAX, ..(*self.limits).clone() };
        let limits = std::mem::replace(&mut self.limits, Arc::new(budget));
        let (context, mut effects) = (Context::new(at, self.time_ms), Effects::default());
        self.end_all_sessions(&context, &mut effects);
        self.raise_tokens(FencingToken(base));
        self.take_up_unsettled(&mut effects);
        self.grant_ready(&context, &mut effects);
        self.limits = limits;
        self.begin_grace(grace_ms, &context, &mut effects);
        Ok(())
    }

    /// Ends all sessions, without lock-delays: nothing lingers for a holder of another cluster.
    fn end_all_sessions(&mut self, context: &Context, effects: &mut Effects) {
        effects.end = Some(TicketEnd::Expired);
        let sessions: Vec<SessionId> = self.sessions_from(SessionId(0)).map(|session| session.id).collect();
        for session in sessions {
            self.end_session(session, &Default::default(), context, effects);
        }
        let walk = self.tree.walk().filter(|(_, node)| node.owner().is_some());
        let lingering: Vec<ZPath> = walk.map(|(path, _)| path).collect();
        for path in lingering {
            // Not when it went with another part of its multi-lock.
            if self.tree.contains(&path) {
                self.remove(&path, context, effects);
            }
        }
    }

    /// Raises the largest token of every queue. A ticket of no session stays. One that waits was
    /// perhaps granted its lock after the backup, with others behind it, so its own zxid is no
    /// token any more.
    fn raise_tokens(&mut self, token: FencingToken) {
        let locks = self.tree.walk().filter(|(_, node)| node.family.queue.is_some());
        let locks: Vec<ZPath> = locks.map(|(path, _)| path).collect();
        for lock in locks {
            self.tree.edit_queue(&lock, |queue| queue.raise_top_token(token));
        }
    }

    fn begin_grace(&mut self, grace_ms: u64, context: &Context, effects: &mut Effects) {
        let path = |text| ZPath::parse(text).expect("a constant");
        let made = |perms, data: String| {
            let acl = vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }].into();
            NewNode { kind: Kind::Persistent, data: data.into_bytes().into(), acl, contender: None }
        };
        let restoring = path(RESTORING);
        // That of a restored cluster that was backed up in its own grace.
        if self.tree.contains(&restoring) {
            self.remove(&restoring, context, effects);
        }
        if grace_ms == 0 {
            return;
        }
        if !self.tree.contains(&path(SYSTEM)) {
            self.insert(&path(SYSTEM), made(ALL, String::new()), context, effects);
        }
        let data = format!("{GRACE}{grace_ms},\"prepared_ms\":{}}}", self.time_ms);
        self.insert(&restoring, made(READ, data), context, effects);
    }

    /// Time for which a leader of this restored cluster still grants no lock, counted from the
    /// start of its term. `None` when there is nothing to wait for.
    pub fn grace_ms(&self) -> Option<u64> {
        let node = self.tree.get(RESTORING)?;
        let text = std::str::from_utf8(&node.data).ok();
        let digits = text.and_then(|text| text.strip_prefix(GRACE)?.split(',').next());
        // A text that cannot be read was not written here: as long as any session may last.
        let longest = || u64::from(self.limits.session_timeout_max_ms);
        Some(digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(longest))
    }

    /// Tells whether locks are not granted for now, because clients of the cluster that was
    /// restored may still believe in theirs.
    pub fn is_restoring(&self) -> bool {
        self.tree.get(RESTORING).is_some()
    }

    /// Tells whether a session ended because its cluster was restored without it.
    pub fn ended_by_restore(&self, session: &EndedSession) -> bool {
        let founding = self.cluster().map(Cluster::founding);
        founding.is_some_and(|founding| session.ended.zxid.0 == founding.zxid_base + RESTORED_INDEX)
    }
}
