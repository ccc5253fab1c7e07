//! Durations and changes that a node measures for monitoring.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use accept::Mutex;
use storage::{Durations, TENURE, WORK};
use znode::{EventKind, EventRecord, Reply, State, TxnOutcome, Zxid, lock};

use crate::Entrance;

/// Durations of answered requests, by the client's protocol and the operation's name.
type RequestTimes = BTreeMap<(Entrance, String), Arc<Durations>>;

/// Durations that a node has measured since it started.
#[derive(Debug)]
pub struct Times {
    /// Writes of this node's clients: from the proposal until the entry is applied here.
    pub commit: Durations,
    /// Snapshots that this node has built.
    pub snapshot: Durations,
    /// Waits for a lock, from the entry into the queue to the grant, counted by the leader at the
    /// grant. An acquire that holds at once counts as 0.
    pub lock_wait: Durations,
    /// Holds of a lock, from the grant to the end of the ticket, counted by the leader at the end.
    pub lock_hold: Durations,
    /// Hand-offs of a lock to a waiting ticket, counted by the leader at the grant: from the
    /// proposal of the entry that frees the lock until the leader has applied it. Whole
    /// milliseconds.
    pub lock_handoff: Durations,
    requests: Mutex<RequestTimes>,
    leader_changes: AtomicU64,
}

impl Default for Times {
    fn default() -> Times {
        let (commit, snapshot) = (Durations::new(WORK), Durations::new(WORK));
        let (lock_wait, lock_hold) = (Durations::new(TENURE), Durations::new(TENURE));
        let (lock_handoff, requests) = (Durations::new(WORK), Mutex::default());
        Times { commit, snapshot, lock_wait, lock_hold, lock_handoff, requests, leader_changes: AtomicU64::new(0) }
    }
}

impl Times {
    /// Histogram for the answered requests of one operation, which is made at the first call.
    pub fn of_requests(&self, entrance: Entrance, operation: &str) -> Arc<Durations> {
        let mut requests = self.requests.lock();
        let durations = requests.entry((entrance, operation.to_owned()));
        Arc::clone(durations.or_insert_with(|| Arc::new(Durations::new(WORK))))
    }

    /// All histograms of answered requests, by the client's protocol and the operation's name.
    pub fn requests(&self) -> RequestTimes {
        self.requests.lock().clone()
    }

    /// Number of times that this node has found another leader than before.
    pub fn leader_changes(&self) -> u64 {
        self.leader_changes.load(Relaxed)
    }

    pub(crate) fn leader_changed(&self) {
        self.leader_changes.fetch_add(1, Relaxed);
    }

    /// Counts the grants and the ends of tickets in the entry just applied, whose zxid is `at`. The
    /// waits and holds are measured by the state's clock. `since_proposed` is the entry's age.
    pub(crate) fn note_locks(
        &self,
        state: &State,
        at: Zxid,
        applied: &TxnOutcome,
        events: &[EventRecord],
        since_proposed: impl Fn() -> Duration,
    ) {
        let now_ms = state.time_ms();
        if let Ok(Reply::Acquired { held: Some(_), .. }) = applied.reply
            && applied.zxid == at
        {
            self.lock_wait.note(Duration::ZERO);
        }
        let granted = events.iter().map(|record| &record.event).filter(|event| event.kind == EventKind::Granted);
        for ticket in granted.filter_map(|event| state.node(&event.path)) {
            self.lock_wait.note(Duration::from_millis(now_ms.saturating_sub(ticket.stat().ctime_ms)));
            self.lock_handoff.note(since_proposed());
        }
        for grant in lock::ended_in(state, at).filter_map(|(_, ended)| ended.grant) {
            self.lock_hold.note(Duration::from_millis(now_ms.saturating_sub(grant.at.time_ms)));
        }
    }
}

/// Facts about the connection to another member, for monitoring.
#[derive(Clone, Debug)]
pub struct PeerMeasures {
    /// Id of the member.
    pub id: u64,
    /// Round trips of this node's pings to the member.
    pub round_trips: Arc<Durations>,
    /// Number of entries that the member lacks; `None` if this node does not lead.
    pub lag: Option<u64>,
}
