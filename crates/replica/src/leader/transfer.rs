//! Transfer of leadership to another voter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use accept::Defer;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::{Instant, sleep, timeout};

use crate::leader::orders::{OrderError, OrderOutcome, RefusedOrder};
use crate::raft::consensus::Consensus;

/// Longest time in which the successor must get every log entry. New proposals wait meanwhile.
const HOLD_MAX: Duration = Duration::from_millis(50);
/// Time between two checks whether the successor has every entry.
const LOOK: Duration = Duration::from_millis(2);

/// Transfers leadership, and waits for the next leader.
pub(crate) struct Transfer {
    pub(crate) consensus: Arc<Consensus>,
}

impl Transfer {
    /// Asks voter `to` to take over from this leader of `term`, and waits for a leader of a newer
    /// term. `None` stands for the voter with the highest preference.
    pub(crate) async fn transfer(&self, to: Option<u64>, term: u64) -> Result<OrderOutcome, OrderError> {
        let (began, own) = (Instant::now(), self.consensus.node_id);
        if to == Some(own) {
            return Ok(OrderOutcome::Transferred { from: own, to: own, term, took_ms: 0 });
        }
        let to = {
            let _pause = self.hold(term)?;
            let to = self.target(to, term)?;
            let in_step = async {
                while self.consensus.lag(to) != Some(0) {
                    sleep(LOOK).await;
                }
            };
            if timeout(HOLD_MAX, in_step).await.is_err() {
                let lag = self.consensus.lag(to);
                let why =
                    format!("node {to} lacks {lag:?} entries and did not get them in {} ms", HOLD_MAX.as_millis());
                return Err(OrderError::refused(RefusedOrder::TransferFailed, why));
            }
            tracing::info!(to, term, "leadership is transferred");
            if !self.consensus.hand_over_to(to, term).await {
                return Err(OrderError::Unavailable("Raft has ended".into()));
            }
            to
        };
        let leader = self.next_leader(term).await;
        let took_ms = began.elapsed().as_millis() as u64;
        match leader {
            Some((leader, term)) if leader == to => Ok(OrderOutcome::Transferred { from: own, to, term, took_ms }),
            Some((leader, term)) => {
                let why = format!("node {to} was asked to lead, and node {leader} was elected in term {term}");
                Err(OrderError::refused(RefusedOrder::TransferFailed, why))
            }
            None => Err(OrderError::Unknown(format!("node {to} was asked to lead, and no leader is known yet"))),
        }
    }

    fn target(&self, to: Option<u64>, term: u64) -> Result<u64, OrderError> {
        let refused = |why: String| Err(OrderError::refused(RefusedOrder::TransferFailed, why));
        let Some(to) = to else {
            let none = || OrderError::refused(RefusedOrder::TransferFailed, "no other voter follows this leader");
            return self.consensus.successor(term, &BTreeSet::new()).ok_or_else(none);
        };
        if self.consensus.membership().voter_ids().all(|voter| voter != to) {
            return refused(format!("node {to} is no voter"));
        }
        if !self.consensus.is_in_contact(to, term) {
            return refused(format!("node {to} does not follow this leader now"));
        }
        Ok(to)
    }

    /// Makes proposals wait while leadership is transferred, until the guard is dropped. Fails
    /// while another transfer is under way, because the transfer that ends first would end the
    /// pause of both.
    fn hold(&self, term: u64) -> Result<Defer<impl Fn()>, OrderError> {
        let holds = &self.consensus.holds;
        if self.consensus.hands_over_in(term) || !holds.send_if_modified(|held| !std::mem::replace(held, true)) {
            let why = "leadership is changing hands already: look who leads in a second, and try again";
            return Err(OrderError::refused(RefusedOrder::ChangeInProgress, why));
        }
        Ok(Defer(move || _ = holds.send_replace(false)))
    }

    /// Waits for a leader of a later term than `term`. Returns its id and its term; `None` if none
    /// is heard in time.
    async fn next_leader(&self, term: u64) -> Option<(u64, u64)> {
        let mut changes = self.consensus.role_changes();
        let heard = async {
            loop {
                let next = {
                    let metrics = changes.borrow_watched();
                    let then = metrics.vote.leader_id.term;
                    metrics
                        .current_leader
                        .filter(|_| then > term && metrics.vote.committed)
                        .map(|leader| (leader, then))
                };
                if next.is_some() || changes.changed().await.is_err() {
                    return next;
                }
            }
        };
        let patience = 4 * self.consensus.election_timeout_max;
        timeout(patience, heard).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::propose::tests::leader;

    #[tokio::test]
    async fn the_second_of_two_transfers_is_refused_and_lets_no_proposal_go_on() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        let (consensus, transfer) = (&node.consensus, &node.operators.transfer);
        let (term, _) = consensus.leading_term().unwrap();
        let is_refused = |done: Result<OrderOutcome, OrderError>| {
            assert!(matches!(done, Err(OrderError::Refused { kind: RefusedOrder::ChangeInProgress, .. })), "{done:?}");
        };
        let first = transfer.hold(term).unwrap();
        is_refused(transfer.transfer(Some(2), term).await);
        assert!(*consensus.holds.borrow(), "proposals wait for the first");
        drop(first);
        assert!(!*consensus.holds.borrow());
        // After the first transfer has asked its successor, others are refused until the next term.
        assert!(consensus.hand_over_to(2, term).await);
        is_refused(transfer.transfer(Some(3), term).await);
        assert!(!*consensus.holds.borrow());
        node.shutdown().await;
    }
}
