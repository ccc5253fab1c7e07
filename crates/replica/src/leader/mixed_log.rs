//! Log lines about locks of which two clients may be holders at once, because some clients do not
//! see the lock nodes of others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use znode::lock::{self, MixedPair};
use znode::{State, ZPath};

/// Shortest time between two log lines about the same lock.
const AGAIN: Duration = Duration::from_secs(60);
/// Largest number of locks with a log line within [`AGAIN`]. Further locks are not logged.
const TOLD_MAX: usize = 100;

/// Locks that a leader has logged because two clients may hold them at once, each with the time of
/// its last log line.
#[derive(Default)]
pub(crate) struct MixedLog {
    told: BTreeMap<ZPath, Instant>,
}

impl MixedLog {
    /// Logs each lock whose clients do not see each other's lock nodes, at once and again every
    /// [`AGAIN`].
    pub(crate) fn look(&mut self, state: &State, now: Instant) {
        for (path, mixed) in self.due(state, now) {
            let mixed: Vec<String> = mixed.iter().map(MixedPair::to_string).collect();
            let clients = mixed.join(", ");
            tracing::warn!(%path, clients, "clients of a lock do not see each other: two may hold at once");
        }
    }

    fn due(&mut self, state: &State, now: Instant) -> Vec<(ZPath, Vec<MixedPair>)> {
        if self.told.is_empty() && state.mixed_lock_count() == 0 {
            return Vec::new();
        }
        self.told.retain(|_, told| now < *told + AGAIN);
        let mut due = Vec::new();
        for path in state.mixed_locks() {
            if self.told.len() >= TOLD_MAX {
                break;
            }
            if !self.told.contains_key(path) {
                self.told.insert(path.clone(), now);
                due.push((path.clone(), lock::mixed_clients(state, path)));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use znode::{Create, LogPosition, Op, Request, Term, Txn, ZnodeOp, Zxid};

    use super::*;

    /// State with `count` locks, each with a lock node made by Curator and one made by kazoo.
    fn with_mixed_locks(count: usize) -> State {
        let mut state = State::default();
        let mut zxid = 0;
        let mut create = |parent: &str, name: &str| {
            zxid += 1;
            let op = ZnodeOp::Create(Create::new(ZPath::parse(parent).unwrap(), name));
            let at = LogPosition { term: Term(1), zxid: Zxid(zxid) };
            let applied = state.apply(at, Txn { proven: false, time_ms: 0, request: Request::new(Op::Znode(op)) });
            assert!(applied.reply.is_ok(), "{applied:?}");
        };
        for number in 0..count {
            create("/", &format!("l{number:03}"));
            for node in ["_c_x-lock-0000000000", "x__lock__0000000001"] {
                create(&format!("/l{number:03}"), node);
            }
        }
        state
    }

    #[test]
    fn a_lock_is_told_of_at_once_and_each_minute() {
        let (state, mut log, begin) = (with_mixed_locks(1), MixedLog::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let told: Vec<usize> = [0, 1, 59, 60, 61, 120].map(|second| log.due(&state, at(second)).len()).into();
        assert_eq!(told, [1, 0, 0, 1, 0, 1]);
        assert!(log.due(&State::default(), at(180)).is_empty() && log.told.is_empty());
        let (path, mixed) = log.due(&state, at(181)).remove(0);
        let mixed: Vec<String> = mixed.iter().map(MixedPair::to_string).collect();
        assert_eq!(path.as_str(), "/l000");
        assert_eq!(mixed, ["curator does not see kazoo", "kazoo does not see curator"]);
    }

    #[test]
    fn so_many_locks_are_told_of_in_a_minute_and_no_more() {
        let (state, mut log, begin) = (with_mixed_locks(TOLD_MAX + 1), MixedLog::default(), Instant::now());
        assert_eq!(log.due(&state, begin).len(), TOLD_MAX);
        assert!(log.due(&state, begin + Duration::from_secs(1)).is_empty());
        assert_eq!(log.due(&state, begin + AGAIN).len(), TOLD_MAX);
    }
}
