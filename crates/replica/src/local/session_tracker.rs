//! Times at which the leader last heard each session, in its own term. They are not replicated.
//!
//! Time is counted on a listening clock, which stands still while the leader could not have heard
//! heartbeats, because its process was paused or no quorum followed it. So such time never counts
//! against a session.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use znode::SessionId;

/// Start value of the session tracker's clock, which runs only while heartbeats can arrive. It is
/// not 0: a session's last heartbeat may lie before the start, by the session's timeout of at most
/// 2^32 ms.
const BEFORE: Duration = Duration::from_millis(1 << 32);

/// Times of the sessions' last heartbeats. The present time comes in as an argument of each call.
pub(crate) struct SessionTracker {
    /// Largest step of the listening clock between two ticks. A longer time was a pause of the
    /// process.
    step_max: Duration,
    ticked_at: Instant,
    /// Value of the listening clock (which runs only while heartbeats can arrive) at `ticked_at`.
    listened: Duration,
    sessions: HashMap<SessionId, TrackedSession>,
    /// Times on the listening clock at which to check a session next, never after its timeout ends.
    /// Each session has one item, and none while it is expiring. A heartbeat moves the item only if
    /// it brings a shorter timeout; otherwise the check moves the item to the new end of the
    /// timeout.
    due: BTreeSet<(Duration, SessionId)>,
}

/// A session with the time of its last heartbeat.
#[derive(Clone, Copy, Debug)]
struct TrackedSession {
    at: Duration,
    timeout: Duration,
    /// Time at which the tracker checks the session next. While the session is expiring, time of
    /// the check that began the expiry.
    look: Duration,
    expiring: bool,
}

impl TrackedSession {
    /// Time at which the session's timeout ends if it sends no more heartbeats, on the clock that
    /// runs only while heartbeats can arrive.
    fn due(&self) -> Duration {
        self.at + self.timeout
    }
}

/// Time since a session's last heartbeat, and time until the session expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Time since the session's last heartbeat, or since this leader began to note heartbeats.
    pub so_far: Duration,
    /// Time until the session expires without a heartbeat; zero while it is expiring.
    pub left: Duration,
}

/// Outcome of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatOutcome {
    /// The heartbeat counts: the session has its whole timeout again.
    Alive,
    /// The heartbeat does not count: the session's expiry was proposed.
    Expiring,
}

impl SessionTracker {
    /// Makes a tracker without sessions, whose listening clock starts now. `tick` is the time
    /// between two calls of [`SessionTracker::tick`].
    pub(crate) fn new(now: Instant, tick: Duration) -> SessionTracker {
        SessionTracker {
            step_max: tick * 3,
            ticked_at: now,
            listened: BEFORE,
            sessions: HashMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Number of sessions that are tracked.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Begins to track a session, with its whole timeout ahead. A session that is tracked already
    /// stays as it is.
    pub(crate) fn watch(&mut self, session: SessionId, timeout_ms: u32, now: Instant) {
        self.watch_aged(session, timeout_ms, Duration::ZERO, now);
    }

    /// Begins to track a session that sent its last heartbeat `age` ago. A session that is tracked
    /// already stays as it is.
    pub(crate) fn watch_aged(&mut self, session: SessionId, timeout_ms: u32, age: Duration, now: Instant) {
        let timeout = Duration::from_millis(timeout_ms.into());
        let at = self.clock(now) - age.min(timeout);
        self.sessions.entry(session).or_insert_with(|| {
            let look = at + timeout;
            self.due.insert((look, session));
            TrackedSession { at, timeout, look, expiring: false }
        });
    }

    /// Notes a heartbeat of a session, with the session's present timeout. Begins to track a
    /// session that is not tracked yet.
    pub(crate) fn heard(&mut self, session: SessionId, timeout_ms: u32, now: Instant) -> HeartbeatOutcome {
        let at = self.clock(now);
        let timeout = Duration::from_millis(timeout_ms.into());
        self.watch(session, timeout_ms, now);
        let heard = self.sessions.get_mut(&session).expect("watched just above");
        if heard.expiring {
            return HeartbeatOutcome::Expiring;
        }
        // A session that moved to another connection may have agreed on another timeout.
        (heard.at, heard.timeout) = (at, timeout);
        // A shorter timeout must not wait for the look that the longer one has set.
        if heard.due() < heard.look {
            self.due.remove(&(heard.look, session));
            heard.look = heard.due();
            self.due.insert((heard.look, session));
        }
        HeartbeatOutcome::Alive
    }

    /// Time since a session's last heartbeat, and until it expires; `None` if the session is not
    /// tracked.
    pub(crate) fn silence(&self, session: SessionId, now: Instant) -> Option<Silence> {
        let (heard, now) = (self.sessions.get(&session)?, self.clock(now));
        let left = if heard.expiring { Duration::ZERO } else { heard.due().saturating_sub(now) };
        Some(Silence { so_far: now.saturating_sub(heard.at), left })
    }

    /// Times since the last heartbeat, in milliseconds, of the `max` sessions that expire first.
    pub(crate) fn ages(&self, max: usize) -> Vec<(SessionId, u32)> {
        let mut all: Vec<_> = self.sessions.iter().map(|(session, heard)| (heard.due(), *session, heard.at)).collect();
        all.sort_unstable();
        all.truncate(max);
        let age = |at| u32::try_from(self.listened.saturating_sub(at).as_millis()).unwrap_or(u32::MAX);
        all.into_iter().map(|(_, session, at)| (session, age(at))).collect()
    }

    /// Advances the listening clock. `listening` is true if a quorum followed this leader since the
    /// last tick, so that heartbeats could arrive; otherwise the clock stands still.
    pub(crate) fn tick(&mut self, now: Instant, listening: bool) {
        if listening {
            self.listened = self.clock(now);
        }
        self.ticked_at = now;
    }

    /// Returns sessions without a heartbeat for their whole timeout, the longest overdue first: at
    /// most `max`, and only up to the first for which `has_room` is false. They count as expiring
    /// until [`SessionTracker::expiry_ended`].
    pub(crate) fn expire(&mut self, max: usize, mut has_room: impl FnMut(SessionId) -> bool) -> Vec<SessionId> {
        let mut expired = Vec::new();
        while expired.len() < max {
            let Some((look, session)) = self.due.first().copied().filter(|(look, _)| *look <= self.listened) else {
                break;
            };
            self.due.pop_first();
            let heard = self.sessions.get_mut(&session).expect("an entry is of a session that is watched");
            if heard.due() > look {
                heard.look = heard.due();
                self.due.insert((heard.look, session));
                continue;
            }
            if !has_room(session) {
                self.due.insert((look, session));
                break;
            }
            heard.expiring = true;
            expired.push(session);
        }
        expired
    }

    /// Notes that the expiry of these sessions was applied or lost. Drops the sessions that no
    /// longer exist; the others may be expired again.
    pub(crate) fn expiry_ended(&mut self, expired: &[SessionId], exists: impl Fn(SessionId) -> bool) {
        for session in expired {
            let Some(heard) = self.sessions.get_mut(session) else {
                continue;
            };
            // The session is in `due` only if the tracker of an earlier term began this expiry.
            self.due.remove(&(heard.look, *session));
            if exists(*session) {
                heard.expiring = false;
                heard.look = heard.due();
                self.due.insert((heard.look, *session));
            } else {
                self.sessions.remove(session);
            }
        }
    }

    /// Drops the sessions that no longer exist, unless they are expiring.
    pub(crate) fn retain(&mut self, exists: impl Fn(SessionId) -> bool) {
        self.sessions.retain(|session, heard| {
            let stays = heard.expiring || exists(*session);
            if !stays {
                self.due.remove(&(heard.look, *session));
            }
            stays
        });
    }

    /// Value at `now` of the listening clock, which runs only while heartbeats can arrive.
    fn clock(&self, now: Instant) -> Duration {
        self.listened + now.saturating_duration_since(self.ticked_at).min(self.step_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    /// Advances the time by `millis`, in ticks. `listening` is passed to each tick.
    fn run(tracker: &mut SessionTracker, now: &mut Instant, millis: u64, listening: bool) {
        for _ in 0..millis / 100 {
            *now += TICK;
            tracker.tick(*now, listening);
        }
    }

    fn tracker() -> (SessionTracker, Instant) {
        let now = Instant::now();
        let mut tracker = SessionTracker::new(now, TICK);
        tracker.watch(A, 1_000, now);
        tracker.watch(B, 1_000, now);
        (tracker, now)
    }

    #[test]
    fn a_silent_session_expires_after_its_timeout_and_a_heard_one_does_not() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 900, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        assert_eq!(tracker.heard(A, 1_000, now), HeartbeatOutcome::Alive);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [B]);
        run(&mut tracker, &mut now, 800, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [A]);
    }

    #[test]
    fn a_session_that_agreed_on_another_timeout_has_that_one() {
        let (mut tracker, mut now) = tracker();
        assert_eq!(tracker.heard(A, 3_000, now), HeartbeatOutcome::Alive);
        assert_eq!(tracker.heard(B, 500, now), HeartbeatOutcome::Alive);
        run(&mut tracker, &mut now, 400, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [B]);
        run(&mut tracker, &mut now, 2_400, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [A]);
    }

    #[test]
    fn a_session_that_agrees_on_other_timeouts_again_and_again_is_queued_once() {
        let (mut tracker, mut now) = tracker();
        for timeout_ms in [300_000, 2_000, 100_000, 1_500].into_iter().cycle().take(1_000) {
            assert_eq!(tracker.heard(A, timeout_ms, now), HeartbeatOutcome::Alive);
            assert_eq!(tracker.heard(B, 300_000, now), HeartbeatOutcome::Alive);
            run(&mut tracker, &mut now, 1_400, true);
            assert_eq!(tracker.expire(10, |_| true), []);
            assert_eq!((tracker.len(), tracker.due.len()), (2, 2));
        }
        // The shortest timeout was agreed on last.
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [A]);
        tracker.expiry_ended(&[A], |_| false);
        assert_eq!((tracker.len(), tracker.due.len()), (1, 1));
    }

    #[test]
    fn a_paused_leader_gives_the_time_back() {
        let (mut tracker, mut now) = tracker();
        now += Duration::from_secs(60);
        tracker.tick(now, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 600, true);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10, |_| true), [A, B]);
    }

    #[test]
    fn time_without_a_quorum_does_not_count() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 60_000, false);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(1, |_| true), [A]);
        assert_eq!(tracker.expire(10, |_| true), [B]);
    }

    #[test]
    fn an_expiry_that_failed_is_tried_again_and_nobody_is_told_alive_meanwhile() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 1_000, true);
        let expired = tracker.expire(10, |_| true);
        assert_eq!(tracker.heard(A, 1_000, now), HeartbeatOutcome::Expiring);
        assert_eq!(tracker.expire(10, |_| true), []);
        tracker.expiry_ended(&expired, |session| session == A);
        assert_eq!(tracker.len(), 1);
        assert_eq!(tracker.heard(A, 1_000, now), HeartbeatOutcome::Alive);
        assert_eq!(tracker.expire(10, |_| true), []);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(10, |_| true), [A]);
    }

    #[test]
    fn expiries_that_another_tracker_began_leave_one_entry_or_none() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 500, true);
        tracker.expiry_ended(&[A, B, SessionId(3)], |session| session == B);
        assert_eq!((tracker.len(), tracker.due.len()), (1, 1));
        run(&mut tracker, &mut now, 500, true);
        assert_eq!(tracker.expire(10, |_| true), [B]);
    }

    #[test]
    fn closed_sessions_are_forgotten() {
        let (mut tracker, mut now) = tracker();
        tracker.retain(|session| session == B);
        assert_eq!((tracker.len(), tracker.due.len()), (1, 1));
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(10, |_| true), [B]);
        tracker.expiry_ended(&[B], |_| false);
        assert_eq!((tracker.len(), tracker.due.len()), (0, 0));
    }
}
