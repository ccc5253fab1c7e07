//! Log lines about subtrees that exceed their quota.

use std::collections::BTreeSet;

use znode::{Quota, State, ZPath};

/// Largest number of subtrees that are remembered as logged. When it is reached, further subtrees
/// are logged only once remembered ones are within their quota again.
const TOLD_MAX: usize = 1_000;

/// Subtrees of which the leader has logged that they exceed their quota.
#[derive(Default)]
pub(crate) struct QuotaLog {
    told: BTreeSet<ZPath>,
}

impl QuotaLog {
    /// Logs each subtree once when it has come to exceed its quota, and once when it no longer
    /// does.
    pub(crate) fn look(&mut self, state: &State) {
        self.told.retain(|path| {
            let still = state.exceeds_quota(path);
            if !still {
                tracing::info!(%path, "a subtree has no more than its quota again");
            }
            still
        });
        // Each step meets a remembered subtree or remembers one more, so there are at most
        // `TOLD_MAX` steps.
        for (path, Quota { limits, usage }) in state.exceeded_quotas() {
            if self.told.len() >= TOLD_MAX {
                break;
            }
            if self.told.insert(path.clone()) {
                tracing::warn!(%path, %usage, ?limits, "a subtree has more than its quota");
            }
        }
    }

    /// Forgets all subtrees, because another leader logs them from now on.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
    }
}

#[cfg(test)]
mod tests {
    use znode::{Create, LogPosition, Op, Request, Term, Txn, ZnodeOp, Zxid};

    use super::*;

    struct Replica {
        state: State,
        zxid: u64,
    }

    impl Default for Replica {
        fn default() -> Replica {
            let mut replica = Replica { state: State::default(), zxid: 0 };
            replica.create("/", "zookeeper", "");
            replica.create("/zookeeper", "quota", "");
            replica
        }
    }

    impl Replica {
        fn apply(&mut self, op: ZnodeOp) {
            self.zxid += 1;
            let at = LogPosition { term: Term(1), zxid: Zxid(self.zxid) };
            let applied = self.state.apply(at, Txn { proven: false, time_ms: 0, request: Request::new(Op::Znode(op)) });
            assert!(applied.reply.is_ok(), "{applied:?}");
        }

        fn create(&mut self, parent: &str, name: &str, data: &str) {
            let new = Create::new(ZPath::parse(parent).unwrap(), name);
            self.apply(ZnodeOp::Create(Create { data: data.into(), ..new }));
        }

        /// Sets a quota of no znodes on the subtree of this name.
        fn set_quota(&mut self, name: &str) {
            self.create("/zookeeper/quota", name, "");
            self.create(&format!("/zookeeper/quota/{name}"), "zookeeper_limits", "count=0,bytes=-1");
        }
    }

    #[test]
    fn a_subtree_is_told_of_once_each_time() {
        let mut replica = Replica::default();
        replica.set_quota("a");
        let within = replica.state.clone();
        replica.create("/", "a", "");
        let beyond = replica.state;
        let mut log = QuotaLog::default();
        log.look(&within);
        assert!(log.told.is_empty());
        log.look(&beyond);
        assert_eq!(log.told.iter().map(ZPath::as_str).collect::<Vec<_>>(), ["/a"]);
        log.look(&within);
        assert!(log.told.is_empty());
        log.look(&beyond);
        log.forget();
        assert!(log.told.is_empty());
    }

    #[test]
    fn of_more_subtrees_than_are_remembered_none_is_told_of_as_mended() {
        let mut replica = Replica::default();
        let names: Vec<_> = (0..=TOLD_MAX).map(|number| format!("a{number:04}")).collect();
        for name in &names[1..] {
            replica.set_quota(name);
            replica.create("/", name, "");
        }
        let mut log = QuotaLog::default();
        log.look(&replica.state);
        let told = log.told.clone();
        assert_eq!(told.len(), TOLD_MAX);
        // One more subtree, which comes before all of them in order, replaces no remembered one.
        replica.set_quota(&names[0]);
        replica.create("/", &names[0], "");
        log.look(&replica.state);
        assert_eq!(log.told, told);
        // When a remembered subtree is within its quota again, there is room for another one.
        let path = ZPath::parse("/a0500").unwrap();
        replica.apply(ZnodeOp::Delete { path: path.clone(), version: -1 });
        log.look(&replica.state);
        assert!(!log.told.contains(&path));
        assert!(log.told.contains(&ZPath::parse("/a0000").unwrap()));
        assert_eq!(log.told.len(), TOLD_MAX);
    }
}
