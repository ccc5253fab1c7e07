//! Bugs that can be planted in the product, to see that a harness finds them.
//!
//! A crate asks [`is`] at the place of a bug. Without the feature `fault-injection`, which no
//! release can have, the answer is a constant and nothing of the bug is left. Each bug has been
//! one: a review or a trial found it, or a harness did (docs/bugs-found.md).

#[cfg(all(feature = "fault-injection", not(debug_assertions)))]
compile_error!(
    "the feature `fault-injection` plants bugs and is never part of a release: build with `--profile fault-injection`"
);

/// Declares the bugs: what each does, and its name.
macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal,)+) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Planted {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Planted {
            /// All of them.
            pub const ALL: &[Planted] = &[$(Planted::$bug,)+];

            /// Its name on command lines and in tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Planted::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    // storage
    /// The Raft log calls entries durable before they are.
    AckBeforeFsync = "ack-before-fsync",
    /// A snapshot is made current without its files and their directory being synced.
    SnapshotNotSynced = "snapshot-not-synced",

    // replica: elections and leaders
    /// A node with a new data directory has a vote before it has caught up.
    WipedNodeVotes = "wiped-node-votes",
    /// A node that was started again votes and stands at once, although the process before it may
    /// have followed a leader that counts on it.
    RestartLeaseSkipped = "restart-lease-skipped",
    /// The answer of a follower to an older frame counts for the frame that was sent last.
    OldFramesCounted = "old-frames-counted",
    /// A leader goes on acknowledging heartbeats while it hands its leadership over.
    HeartbeatsAtHandOver = "heartbeats-at-hand-over",
    /// A leader that hands over does not tell its successor how long sessions have been silent.
    AgesNotTold = "ages-not-told",

    // replica: members
    /// A leader counts a majority of the members of its configuration as its quorum.
    QuorumByFile = "quorum-by-file",
    /// Members without a vote count for the quorum of a leader, too.
    LearnerCounts = "learner-counts",
    /// A wiped node takes the members of its configuration for those that it must hear.
    GateByFile = "gate-by-file",

    // replica: sessions
    /// A leader goes on counting the silence of sessions after it was deposed, and has the new one
    /// expire them.
    DeposedExpiry = "deposed-expiry",
    /// A heartbeat counts, whatever secret comes with it.
    StrangerTouches = "stranger-touches",
    /// A session that agrees on a shorter timeout is looked at when the longer one ends.
    ShorterTimeoutIgnored = "shorter-timeout-ignored",
    /// An expiry that takes long is given up while its entry is in the log: the session is told
    /// that it lives.
    ExpiryGivenUp = "expiry-given-up",

    // replica: reads, waits and watches
    /// A node that believes to lead answers linearizable reads from what it has, and asks no other
    /// node.
    ReadsWithoutQuorum = "reads-without-quorum",
    /// A linearizable read takes Raft's word that a quorum follows, which old answers may have
    /// made.
    ReadsByOldAnswers = "reads-by-old-answers",
    /// A node that was started again answers local reads before it is where it was.
    RestartPositionIgnored = "restart-position-ignored",
    /// A wait sets its watch a moment after it looked at the state, or at the events.
    WatchAfterLook = "watch-after-look",
    /// The events of before stay where a snapshot took the place of the entries in between.
    EventsKeptOverSnapshot = "events-kept-over-snapshot",
    /// Of one grant in 20 no waiter hears: neither that its predecessor's lock node has gone nor
    /// that its own holds.
    LostGrant = "lost-grant",
    /// The same of one grant in 1,000.
    RarelyLostGrant = "rarely-lost-grant",
    /// No node tells that the children of a znode have changed.
    ChildrenChangedDropped = "children-changed-dropped",

    // replica: what is proposed is not what was asked for
    /// An acquire of several permits of a semaphore asks for one less.
    OnePermitLess = "one-permit-less",
    /// The last of the locks of a multi-lock is read, whatever was asked for.
    SharedPart = "shared-part",
    /// An upgrade is one more reader.
    UpgradeReads = "upgrade-reads",
    /// A revocation's deadline is ten seconds later.
    LateDeadline = "late-deadline",
    /// An acquire has no `lock_delay`.
    LockDelayIgnored = "lock-delay-ignored",

    // znode
    /// The answers that are remembered for retries are not part of a snapshot.
    RepliesLostInSnapshot = "replies-lost-in-snapshot",
    /// An expiry that a leader of an earlier term judged is done.
    ExpiryTermIgnored = "expiry-term-ignored",
    /// Where the session of a holder expires, the second of those that wait is granted the lock.
    SecondGranted = "second-granted",
    /// Where a session ends in several entries, one of its waiters is granted a lock in between.
    GrantedToTheEnding = "granted-to-the-ending",
    /// A ticket's token is always its czxid, also where an upgrade or a downgrade has passed it.
    TokenFalls = "token-falls",
}

#[cfg(feature = "fault-injection")]
mod on {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use crate::Planted;

    thread_local! {
        static HERE: Cell<Option<Planted>> = const { Cell::new(None) };
    }
    static EVERYWHERE: OnceLock<Planted> = OnceLock::new();

    /// Plants a bug in what this thread runs from now on: for simulations.
    pub fn here(bug: Option<Planted>) {
        HERE.set(bug);
    }

    /// Plants a bug in the whole process, for good. The first one stays.
    pub fn everywhere(bug: Planted) {
        let _ = EVERYWHERE.set(bug);
    }

    /// Whether this bug is planted.
    pub fn is(bug: Planted) -> bool {
        HERE.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
    }
}

#[cfg(feature = "fault-injection")]
pub use on::{everywhere, here, is};

/// Whether this bug is planted: never, without the feature `fault-injection`.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub const fn is(_: Planted) -> bool {
    false
}

#[cfg(all(test, feature = "fault-injection"))]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_planted_in_one_thread_only() {
        here(Some(Planted::LostGrant));
        assert!(is(Planted::LostGrant) && !is(Planted::SharedPart));
        assert!(std::thread::spawn(|| !is(Planted::LostGrant)).join().unwrap());
        here(None);
        assert!(Planted::ALL.iter().all(|bug| !is(*bug)));
    }
}
