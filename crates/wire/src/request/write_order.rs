//! Order of the writes of one connection. A write is refused if its log entry precedes that of a
//! write that the client sent earlier. The refused write waits here until the earlier writes are
//! done, and is then proposed again.

use std::collections::BTreeMap;

use accept::Mutex;
use tokio::sync::oneshot;

/// Progress of one connection's writes. A write's turn is its number in the order of sending, from
/// 1.
#[derive(Default)]
pub(crate) struct WriteOrder {
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    /// Highest turn up to which all writes were applied or finally refused.
    done: u64,
    early: BTreeMap<u64, oneshot::Sender<()>>,
}

impl WriteOrder {
    /// Notes that the write with the number `turn` was applied or finally refused. Wakes the
    /// waiting writes with the numbers that follow without a gap, at once and in order, so that
    /// they are proposed together.
    pub(crate) fn done(&self, turn: u64) {
        let mut turns = self.turns.lock();
        turns.done = turns.done.max(turn);
        let mut next = turns.done + 1;
        while let Some(early) = turns.early.remove(&next) {
            // The connection may have ended.
            let _ = early.send(());
            next += 1;
        }
    }

    /// Waits until all writes with lower numbers are applied, finally refused, or woken to be
    /// proposed again.
    pub(crate) async fn wait_for(&self, turn: u64) {
        let woken = {
            let mut turns = self.turns.lock();
            if turns.done + 1 >= turn {
                return;
            }
            let (wake, woken) = oneshot::channel();
            turns.early.insert(turn, wake);
            woken
        };
        // The sender is dropped only with the whole connection, so an error needs no handling.
        let _ = woken.await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn early_writes_come_again_together_once_nobody_is_missing_before_them() {
        let turns = WriteOrder::default();
        let mut waiting: Vec<_> = [2, 3, 5].into_iter().map(|turn| Box::pin(turns.wait_for(turn))).collect();
        let mut ready = || waiting.iter_mut().map(|one| one.as_mut().now_or_never().is_some()).collect::<Vec<_>>();
        assert_eq!(ready(), [false; 3]);
        turns.done(1);
        assert_eq!(turns.wait_for(2).now_or_never(), Some(()));
        assert_eq!(ready(), [true, true, false]);
    }
}
