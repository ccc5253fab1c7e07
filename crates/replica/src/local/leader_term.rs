//! Heartbeats of sessions as a leader notes them in one term, and the sessions' ages (times without
//! a heartbeat) that it gets from the previous leader.
//!
//! A leader that hands over tells its successor the age of each session. From then on the old
//! leader acknowledges no heartbeat in its term, so no acknowledged heartbeat is missing in the
//! ages. The successor goes on counting from each age when it begins to note heartbeats. The time
//! in between, in which no leader noted heartbeats, does not count. Ages are used only in the term
//! right after the term in which they were sent, because a leader of a term in between may have
//! noted newer heartbeats. After a crash of the leader there are no ages.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use znode::{SessionId, State, Term};

use crate::local::session_tracker::SessionTracker;

/// A session, and the time in milliseconds for which it has sent no heartbeat.
pub(crate) type Age = (SessionId, u32);

/// Largest number of sessions' ages (times without a heartbeat) that a leader sends and a successor
/// keeps; they take 16 MiB. Sessions beyond this number get their whole timeout again.
const AGES_MAX: usize = 1 << 20;

/// Heartbeats of sessions in the term in which this node leads, and sessions' times without a
/// heartbeat as the previous leader sent them.
#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) current: Option<LeaderTerm>,
    /// The newest term in which this node, as the leader, has begun to note heartbeats.
    begun: u64,
    taken_over: Option<Ages>,
}

/// Ages of sessions (times without a heartbeat) that the leader of a term sent to this node.
struct Ages {
    term: u64,
    of: HashMap<SessionId, u32>,
}

/// Heartbeats of sessions in one term of this node as leader. This node begins to note heartbeats
/// in a term once it has applied all entries of earlier terms.
pub(crate) struct LeaderTerm {
    pub(crate) term: Term,
    /// Time at which this node began to note heartbeats in the term.
    pub(crate) began: Instant,
    pub(crate) tracker: SessionTracker,
    /// Highest id of the sessions whose heartbeats are tracked.
    watched: SessionId,
    pub(crate) ticks: u64,
}

impl Sessions {
    /// Begins to note heartbeats in `term`. Returns the number of sessions for which the previous
    /// leader sent the time since the last heartbeat; this leader continues from that time. Every
    /// other session has its whole timeout ahead.
    pub(crate) fn begin(&mut self, term: Term, state: &State, now: Instant, tick: Duration) -> usize {
        self.begun = term.0;
        let ages = self.taken_over.take().filter(|ages| ages.term + 1 == term.0).map(|ages| ages.of);
        let ages = ages.unwrap_or_default();
        let age_of = |session: SessionId| Duration::from_millis(ages.get(&session).copied().unwrap_or(0).into());
        let mut tracker = SessionTracker::new(now, tick);
        let mut watched = SessionId(0);
        for session in state.sessions_from(watched) {
            tracker.watch_aged(session.id, session.timeout_ms, age_of(session.id), now);
            watched = session.id;
        }
        self.current = Some(LeaderTerm { term, began: now, tracker, watched, ticks: 0 });
        ages.len()
    }

    /// Time without a heartbeat of each session, if this node is the leader of `term`; otherwise
    /// empty.
    pub(crate) fn ages(&self, term: Term) -> Vec<Age> {
        let current = self.current.as_ref().filter(|current| current.term == term);
        current.map_or_else(Vec::new, |current| current.tracker.ages(AGES_MAX))
    }

    /// Keeps the sessions' ages that the leader of `term` sent, for this node's term as the next
    /// leader. An age is a time without a heartbeat.
    pub(crate) fn take_over(&mut self, term: u64, ages: Vec<Age>) {
        if term < self.begun {
            return;
        }
        let kept = self.taken_over.take().filter(|kept| kept.term >= term);
        let kept = self.taken_over.insert(kept.unwrap_or_else(|| Ages { term, of: HashMap::new() }));
        if kept.term == term {
            let room = AGES_MAX.saturating_sub(kept.of.len());
            kept.of.extend(ages.into_iter().take(room));
        }
    }

    /// Drops sessions' ages (times without a heartbeat) that were sent too long before `term`. Ages
    /// count only in the term right after the term in which they were sent.
    pub(crate) fn forget_ages_before(&mut self, term: u64) {
        self.taken_over.take_if(|ages| ages.term + 1 < term);
    }
}

impl LeaderTerm {
    /// Tracks sessions that were opened since the last call, each with its whole timeout ahead.
    pub(crate) fn watch_new(&mut self, state: &State, now: Instant) {
        for session in state.sessions_from(self.watched) {
            self.tracker.watch(session.id, session.timeout_ms, now);
            self.watched = session.id;
        }
    }
}

#[cfg(test)]
mod tests {
    use znode::{LogPosition, Op, Request, Txn, Zxid};

    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    fn with_sessions(count: u64) -> State {
        let mut state = State::new(znode::Limits::default());
        for zxid in 1..=count {
            let open = Op::OpenSession {
                secret_hash: [0; 16],
                timeout_ms: 10_000,
                label: String::new(),
                address: None,
                client: znode::ClientInfo::default(),
            };
            let at = LogPosition { term: Term(1), zxid: Zxid(zxid) };
            assert!(state.apply(at, Txn { proven: false, time_ms: 1, request: Request::new(open) }).reply.is_ok());
        }
        state
    }

    /// Milliseconds until the second of two sessions expires in `term`. Each item of `told` is the
    /// term of an earlier leader and the ages that it sent.
    fn left(told: &[(u64, Vec<Age>)], term: u64) -> u64 {
        let (state, mut now) = (with_sessions(2), Instant::now());
        let mut sessions = Sessions::default();
        for (term, ages) in told {
            sessions.take_over(*term, ages.clone());
        }
        sessions.begin(Term(term), &state, now, TICK);
        let current = sessions.current.as_mut().unwrap();
        for ms in (0..=20_000).step_by(100) {
            current.tracker.tick(now, true);
            if current.tracker.expire(2, |_| true).contains(&SessionId(2)) {
                return ms;
            }
            now += TICK;
        }
        panic!("it is never expired");
    }

    #[test]
    fn ages_count_in_the_term_behind_theirs_and_in_no_other() {
        let aged = vec![(SessionId(2), 7_000), (SessionId(9), 9_000)];
        assert_eq!(left(&[(4, aged.clone())], 5), 3_000);
        assert_eq!(left(&[(4, aged.clone())], 6), 10_000, "a leader of term 5 may have heard it");
        assert_eq!(left(&[], 5), 10_000);
        // Of the ages of two leaders, those of the later term count, in whichever order they come.
        let younger = vec![(SessionId(2), 1_000)];
        assert_eq!(left(&[(4, aged.clone()), (3, younger.clone())], 5), 3_000);
        assert_eq!(left(&[(3, aged.clone()), (4, younger)], 5), 9_000);
        // An age that is longer than the timeout ends the session at once.
        assert_eq!(left(&[(4, vec![(SessionId(2), u32::MAX)])], 5), 0);
        // Ages that come after their next term has begun are dropped.
        let mut sessions = Sessions::default();
        sessions.begin(Term(5), &with_sessions(2), Instant::now(), TICK);
        sessions.take_over(4, aged);
        assert!(sessions.taken_over.is_none());
    }

    #[test]
    fn a_leader_tells_how_long_it_has_listened_in_vain() {
        let (state, mut now) = (with_sessions(2), Instant::now());
        let mut sessions = Sessions::default();
        sessions.take_over(4, vec![(SessionId(2), 7_000)]);
        assert_eq!(sessions.begin(Term(5), &state, now, TICK), 1);
        for listening in [true, true, false, true] {
            now += TICK;
            sessions.current.as_mut().unwrap().tracker.tick(now, listening);
        }
        assert_eq!(sessions.ages(Term(5)), [(SessionId(2), 7_300), (SessionId(1), 300)]);
        assert_eq!(sessions.ages(Term(4)), []);
        sessions.current.as_mut().unwrap().tracker.heard(SessionId(2), 10_000, now);
        assert_eq!(sessions.ages(Term(5)), [(SessionId(1), 300), (SessionId(2), 0)]);
    }
}
