//! When each session was last heard. The leader's knowledge for its own term; nothing of it is replicated.
//!
//! Time is counted on a listening clock: it stands still while the leader could not have heard heartbeats, because its
//! process was paused or no quorum followed it. So a silence that was the leader's own is never held against a session.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use znode::SessionId;

/// Pure: time comes in as an argument.
pub(crate) struct SessionTracker {
    /// More time than this between two ticks was a pause and does not count.
    step_max: Duration,
    ticked_at: Instant,
    /// The listening clock at `ticked_at`.
    listened: Duration,
    sessions: HashMap<SessionId, Heard>,
    /// When to look at a session next, by the listening clock. Heartbeats leave it alone: a session that turns out to
    /// have been heard is put back with its new due time. One entry for each session.
    due: BinaryHeap<Reverse<(Duration, SessionId)>>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Duration,
    timeout: Duration,
    expiring: bool,
}

/// What a heartbeat came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// The session has its whole timeout again.
    Alive,
    /// Its expiry is on its way.
    Expiring,
}

impl SessionTracker {
    /// A tracker that begins to listen now. `tick` is how often [`SessionTracker::tick`] will be called.
    pub(crate) fn new(now: Instant, tick: Duration) -> SessionTracker {
        SessionTracker {
            step_max: tick * 3,
            ticked_at: now,
            listened: Duration::ZERO,
            sessions: HashMap::new(),
            due: BinaryHeap::new(),
        }
    }

    /// How many sessions are watched.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Begins to watch a session, with its whole timeout ahead. A session that is watched already stays as it is.
    pub(crate) fn watch(&mut self, session: SessionId, timeout_ms: u32, now: Instant) {
        let at = self.clock(now);
        let timeout = Duration::from_millis(timeout_ms.into());
        self.sessions.entry(session).or_insert_with(|| {
            self.due.push(Reverse((at + timeout, session)));
            Heard { at, timeout, expiring: false }
        });
    }

    /// A heartbeat.
    pub(crate) fn heard(&mut self, session: SessionId, timeout_ms: u32, now: Instant) -> Noted {
        let at = self.clock(now);
        let timeout = Duration::from_millis(timeout_ms.into());
        self.watch(session, timeout_ms, now);
        let heard = self.sessions.get_mut(&session).expect("watched just above");
        if heard.expiring {
            return Noted::Expiring;
        }
        // A session that moved to another connection may have agreed on another timeout.
        (heard.at, heard.timeout) = (at, timeout);
        Noted::Alive
    }

    /// Moves the clock on. `listening`: a quorum followed since the last tick, so that heartbeats could arrive.
    pub(crate) fn tick(&mut self, now: Instant, listening: bool) {
        if listening {
            self.listened = self.clock(now);
        }
        self.ticked_at = now;
    }

    /// Sessions that were silent for their whole timeout, the longest overdue first. They count as expiring until
    /// [`SessionTracker::settle`].
    pub(crate) fn expire(&mut self, max: usize) -> Vec<SessionId> {
        let mut expired = Vec::new();
        while expired.len() < max {
            let Some(Reverse((due, session))) = self.due.peek().copied().filter(|next| next.0.0 <= self.listened)
            else {
                break;
            };
            self.due.pop();
            let Some(heard) = self.sessions.get_mut(&session) else {
                continue;
            };
            let really = heard.at + heard.timeout;
            if really > due {
                self.due.push(Reverse((really, session)));
                continue;
            }
            heard.expiring = true;
            expired.push(session);
        }
        expired
    }

    /// What became of expiries: sessions that are gone are forgotten, the others may be expired again.
    pub(crate) fn settle(&mut self, expired: &[SessionId], exists: impl Fn(SessionId) -> bool) {
        for session in expired {
            match self.sessions.get_mut(session) {
                Some(heard) if exists(*session) => {
                    heard.expiring = false;
                    self.due.push(Reverse((heard.at + heard.timeout, *session)));
                }
                _ => drop(self.sessions.remove(session)),
            }
        }
    }

    /// Forgets sessions that were closed. Their entries in `due` go when they come up.
    pub(crate) fn retain(&mut self, exists: impl Fn(SessionId) -> bool) {
        self.sessions.retain(|session, heard| heard.expiring || exists(*session));
    }

    /// The listening clock.
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

    /// Ticks on for so long, listening or not.
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
        assert_eq!(tracker.expire(10), []);
        assert_eq!(tracker.heard(A, 1_000, now), Noted::Alive);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10), [B]);
        run(&mut tracker, &mut now, 800, true);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10), [A]);
    }

    #[test]
    fn a_session_that_agreed_on_another_timeout_has_that_one() {
        let (mut tracker, mut now) = tracker();
        assert_eq!(tracker.heard(A, 3_000, now), Noted::Alive);
        assert_eq!(tracker.heard(B, 500, now), Noted::Alive);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(10), [B]);
        run(&mut tracker, &mut now, 1_900, true);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10), [A]);
    }

    #[test]
    fn a_paused_leader_gives_the_time_back() {
        let (mut tracker, mut now) = tracker();
        now += Duration::from_secs(60);
        tracker.tick(now, true);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 600, true);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 100, true);
        assert_eq!(tracker.expire(10), [A, B]);
    }

    #[test]
    fn time_without_a_quorum_does_not_count() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 60_000, false);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(1), [A]);
        assert_eq!(tracker.expire(10), [B]);
    }

    #[test]
    fn an_expiry_that_failed_is_tried_again_and_nobody_is_told_alive_meanwhile() {
        let (mut tracker, mut now) = tracker();
        run(&mut tracker, &mut now, 1_000, true);
        let expired = tracker.expire(10);
        assert_eq!(tracker.heard(A, 1_000, now), Noted::Expiring);
        assert_eq!(tracker.expire(10), []);
        tracker.settle(&expired, |session| session == A);
        assert_eq!(tracker.len(), 1);
        assert_eq!(tracker.heard(A, 1_000, now), Noted::Alive);
        assert_eq!(tracker.expire(10), []);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(10), [A]);
    }

    #[test]
    fn closed_sessions_are_forgotten() {
        let (mut tracker, mut now) = tracker();
        tracker.retain(|session| session == B);
        run(&mut tracker, &mut now, 1_000, true);
        assert_eq!(tracker.expire(10), [B]);
        tracker.settle(&[B], |_| false);
        assert_eq!((tracker.len(), tracker.due.len()), (0, 0));
    }
}
