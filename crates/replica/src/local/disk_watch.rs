//! Detection of a disk that does not answer, and what a node does until the disk answers again.
//!
//! Raft's own task never waits for a flush of the log; only acknowledgements do. So a leader whose
//! disk stalls goes on leading, and the other nodes commit without it, but one more failure would
//! stop the cluster. A separate task measures how long the oldest write has waited. Beyond
//! `disk_stall_max_ms`
//!
//! * the node is not ready, and refuses writes and linearizable reads as unavailable. A leader
//!   goes on serving while the other nodes commit what it proposes,
//! * the node does not stand for election. It passes no vote request, no append of a leader that
//!   Raft does not know yet and no entry to Raft, because Raft would have to wait for the disk, and
//!   would do nothing else meanwhile. It notes who leads, so that heartbeats of sessions reach the
//!   leader,
//! * a leader hands over, if there is a quorum without it. A transfer needs nothing of the old
//!   leader's disk.
//!
//! ```text
//! write begins       disk.stall_max      a follower takes over              the disk answers
//! |------------------------|--|-----------------|-------------- ... --------------|------------>
//!                           asks who is steady   refused, or passed on             follows
//! ```
//!
//! Leadership must not pass from node to node without end in a cluster whose disks are all slow. So
//! a leader gives up leadership only when the other nodes have committed entries that its own disk
//! lacks, and when a quorum of other members say that they are steady: their disks have answered in
//! time for [`STEADY`] times the bound.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use accept::Mutex;
use storage::{Durations, LogWrites};
use tokio::time::Instant;

use crate::Config;

/// Message of a node that refuses requests while its disk does not answer.
pub(crate) const STALLED: &str = "the disk of this node does not answer";

/// Multiple of `disk_stall_max_ms` for which a disk must not have stalled before its node is asked
/// to take over leadership.
const STEADY: u32 = 10;
/// Number of checks of the disk within `disk_stall_max_ms`. The time between two checks is at least
/// 1 ms, so there are fewer checks within a very short `disk_stall_max_ms`.
const LOOKS: u64 = 20;

/// Measures how long writes wait for the disk, and detects a disk that stalls.
pub(crate) struct DiskWatch {
    writes: LogWrites,
    max: Duration,
    pub(crate) every: Duration,
    stalls: AtomicBool,
    waiting: Mutex<PendingWrites>,
    /// This leader's entries that wait to be committed. An entry begins when it is in the log, and
    /// is done when it is committed.
    uncommitted: Mutex<PendingWrites>,
    /// True if this node leads and its entries are committed within `disk_stall_max_ms`.
    commits: AtomicBool,
    noted: Mutex<UntoldLeader>,
}

/// Leader of which this node knows and Raft does not, because Raft could not be told while the disk
/// stalled. Both fields are 0 if there is none.
#[derive(Clone, Copy, Default)]
struct UntoldLeader {
    term: u64,
    leader: u64,
}

/// Writes that have begun and are not done, each with the time at which a periodic check first
/// found it begun.
struct PendingWrites {
    /// Time by which waiting is measured: the sum of the times between checks. Each counts as at
    /// most two regular intervals, because a pause of the whole process is not the disk's fault.
    clock: Duration,
    looked: Instant,
    /// One item for each check that found newly begun writes, until they are done: the number of
    /// all writes begun by then, and the check's time on `clock`.
    begun: VecDeque<(u64, Duration)>,
    /// Time on `clock` at which the disk stalled last; `None` if it never did.
    stalled: Option<Duration>,
}

impl PendingWrites {
    fn new(now: Instant) -> PendingWrites {
        PendingWrites { clock: Duration::ZERO, looked: now, begun: VecDeque::new(), stalled: None }
    }

    fn look(&mut self, (begun, done): (u64, u64), now: Instant, every: Duration) {
        self.clock += now.saturating_duration_since(self.looked).min(every * 2);
        self.looked = now;
        while self.begun.front().is_some_and(|(upto, _)| *upto <= done) {
            self.begun.pop_front();
        }
        if begun > self.begun.back().map_or(done, |(upto, _)| *upto) {
            self.begun.push_back((begun, self.clock));
        }
    }

    /// Time for which the oldest pending write had waited at the last check.
    fn waits(&self) -> Duration {
        self.begun.front().map_or(Duration::ZERO, |(_, since)| self.clock - *since)
    }
}

impl DiskWatch {
    pub(crate) fn new(writes: LogWrites, config: &Config) -> DiskWatch {
        let waiting = || Mutex::new(PendingWrites::new(Instant::now()));
        DiskWatch {
            writes,
            max: Duration::from_millis(config.disk_stall_max_ms),
            every: Duration::from_millis((config.disk_stall_max_ms / LOOKS).max(1)),
            stalls: AtomicBool::new(false),
            waiting: waiting(),
            uncommitted: waiting(),
            commits: AtomicBool::new(false),
            noted: Mutex::default(),
        }
    }

    /// Durations of the log's syncs.
    pub(crate) fn syncs(&self) -> &Durations {
        self.writes.syncs()
    }

    /// Tells whether the oldest write has waited for longer than `disk_stall_max_ms`.
    pub(crate) fn stalls(&self) -> bool {
        self.stalls.load(Ordering::Acquire)
    }

    /// Time for which the oldest pending write has waited, as of the last check.
    pub(crate) fn waits(&self) -> Duration {
        self.waiting.lock().waits()
    }

    /// Tells whether this node leads and its proposals are committed in time, perhaps by the other
    /// nodes alone.
    pub(crate) fn commits(&self) -> bool {
        self.commits.load(Ordering::Acquire)
    }

    /// Notes at a regular check whether a leader's entries are committed in time. `log` has the
    /// indexes of its last entry and of its last committed entry; `None` on a node that does not
    /// lead.
    pub(crate) fn look_at_commits(&self, log: Option<(u64, u64)>, now: Instant) {
        let mut uncommitted = self.uncommitted.lock();
        match log {
            Some(log) => uncommitted.look(log, now, self.every),
            None => *uncommitted = PendingWrites::new(now),
        }
        self.commits.store(log.is_some() && uncommitted.waits() <= self.max, Ordering::Release);
    }

    /// Tells whether this disk is steady: it has not stalled for [`STEADY`] times
    /// `disk_stall_max_ms`. A leader whose disk stalls may hand over to a steady node.
    pub(crate) fn is_steady(&self) -> bool {
        let waiting = self.waiting.lock();
        !self.stalls() && waiting.stalled.is_none_or(|at| waiting.clock - at >= self.max * STEADY)
    }

    /// Notes that `leader` leads in `term`, because Raft cannot be told while the disk stalls.
    /// Returns false if a leader of a later term is noted already.
    pub(crate) fn follow(&self, term: u64, leader: u64) -> bool {
        let mut noted = self.noted.lock();
        let known = noted.term;
        if known < term {
            *noted = UntoldLeader { term, leader };
        }
        known <= term
    }

    /// Id and term of the leader noted by [`DiskWatch::follow`], if its term is above `term`, the
    /// newest that Raft knows.
    pub(crate) fn noted_above(&self, term: u64) -> Option<(u64, u64)> {
        let UntoldLeader { leader, term: noted } = *self.noted.lock();
        (noted > term).then_some((leader, noted))
    }

    /// Checks the log's writes. When a stall begins or ends, returns how long the oldest write has
    /// waited; otherwise `None`.
    pub(crate) fn look(&self, now: Instant) -> Option<Duration> {
        let mut waiting = self.waiting.lock();
        let before = waiting.waits();
        waiting.look(self.writes.counts(), now, self.every);
        let waits = waiting.waits();
        let stalls = waits > self.max;
        if stalls {
            waiting.stalled = Some(waiting.clock);
        }
        (self.stalls.swap(stalls, Ordering::AcqRel) != stalls).then_some(waits.max(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    impl DiskWatch {
        /// Makes the watch see a write that has begun and never ends.
        pub(crate) fn hang(&self) {
            let mut waiting = self.waiting.lock();
            waiting.clock += self.max * 2;
            waiting.begun.push_front((u64::MAX, Duration::ZERO));
            self.stalls.store(true, Ordering::Release);
        }
    }

    /// Checks the writes every 100 ms. Each item of `looks` is the number of writes that have begun
    /// and of those that are done; the last wait must be `expected_ms`.
    #[track_caller]
    fn check(looks: &[(u64, u64)], expected_ms: u32) {
        let start = Instant::now();
        let mut waiting = PendingWrites::new(start);
        for (at, counts) in (1..).zip(looks) {
            waiting.look(*counts, start + MS * 100 * at, MS * 100);
        }
        assert_eq!(waiting.waits(), MS * expected_ms);
    }

    #[test]
    fn the_oldest_write_counts_and_not_the_flush_before_it() {
        check(&[(0, 0), (0, 0)], 0);
        check(&[(1, 0), (1, 0), (1, 0)], 200);
        check(&[(1, 0), (1, 0), (1, 1)], 0);
        // Writes 2 and 3 were first seen at the second look. They wait behind a flush that ended at
        // the fourth.
        check(&[(1, 0), (3, 0), (4, 0), (4, 1)], 200);
        check(&[(1, 0), (3, 0), (4, 0), (4, 3)], 100);
        // A disk that is slow but answers.
        check(&[(1, 0), (2, 1), (3, 2), (4, 3)], 0);
    }

    #[test]
    fn a_pause_of_the_process_is_not_the_disks() {
        let start = Instant::now();
        let mut waiting = PendingWrites::new(start);
        waiting.look((1, 0), start + MS * 100, MS * 100);
        waiting.look((1, 0), start + MS * 60_000, MS * 100);
        assert_eq!(waiting.waits(), MS * 200);
    }

    #[test]
    fn a_leader_commits_as_long_as_no_entry_waits_for_longer_than_a_disk_may() {
        let watch = DiskWatch::new(LogWrites::default(), &Config { disk_stall_max_ms: 200, ..Config::default() });
        let mut now = Instant::now();
        let mut look = |ms: u64, log| {
            for _ in 0..ms / 10 {
                now += MS * 10;
                watch.look_at_commits(log, now);
            }
            watch.commits()
        };
        assert!(!look(10, None));
        assert!(look(400, Some((7, 7))));
        assert!(look(200, Some((8, 7))) && !look(30, Some((8, 7))) && !look(30, Some((9, 7))));
        // Entry 9 has waited for a short time only.
        assert!(look(10, Some((9, 8))));
        assert!(!look(10, None));
        assert!(look(10, Some((9, 7))), "another term counts anew");
    }

    /// One thread notes ever newer leaders, and another reads the noted leader. A read must never
    /// give one leader's id with another leader's term: no node would answer a question for that
    /// pair.
    #[test]
    fn a_leader_that_was_noted_is_told_with_its_own_term() {
        let watch = DiskWatch::new(LogWrites::default(), &Config::default());
        let enough = AtomicBool::new(false);
        let terms = std::thread::scope(|threads| {
            let follows = threads.spawn(|| {
                let still = (1..).take_while(|_| !enough.load(Ordering::Relaxed));
                still.inspect(|term| assert!(watch.follow(*term, *term))).last().unwrap()
            });
            while watch.noted_above(0).is_none() {
                std::thread::yield_now();
            }
            let torn = (0..200_000).find_map(|_| watch.noted_above(0).filter(|(leader, term)| leader != term));
            enough.store(true, Ordering::Relaxed);
            assert_eq!(torn, None, "leader and term");
            follows.join().unwrap()
        });
        assert!(!watch.follow(terms - 1, 1), "one of a later term is known");
        assert_eq!((watch.noted_above(terms - 1), watch.noted_above(terms)), (Some((terms, terms)), None));
    }

    #[test]
    fn a_disk_that_stalled_a_while_ago_is_steady_again_and_not_before() {
        let (writes, config) = (LogWrites::default(), Config { disk_stall_max_ms: 200, ..Config::default() });
        let watch = DiskWatch::new(writes.clone(), &config);
        let mut now = Instant::now();
        let mut run = |ms: u64| {
            for _ in 0..ms / 10 {
                now += MS * 10;
                watch.look(now);
            }
            (watch.stalls(), watch.is_steady())
        };
        writes.begin();
        assert_eq!(run(200), (false, true));
        assert_eq!(run(20), (true, false));
        writes.end(1);
        assert_eq!(run(20), (false, false));
        assert_eq!(run(1_900), (false, false));
        assert_eq!(run(120), (false, true));
    }
}
