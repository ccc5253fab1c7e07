//! Tells the operator of subtrees that have more than their quota says.

use std::collections::BTreeSet;

use znode::{Quota, State, ZPath};

/// Subtrees that are told of at once and remembered; with more than these, some are told of again.
const TOLD_MAX: usize = 1_000;

/// What a leader has told.
#[derive(Default)]
pub(crate) struct QuotaLog {
    told: BTreeSet<ZPath>,
}

impl QuotaLog {
    /// Tells of each subtree once when it has come to have too much, and once when it has not any more.
    pub(crate) fn look(&mut self, state: &State) {
        let exceeded: Vec<_> = state.exceeded_quotas().take(TOLD_MAX).collect();
        for (path, Quota { limits, usage }) in &exceeded {
            if !self.told.contains(*path) {
                tracing::warn!(%path, %usage, ?limits, "a subtree has more than its quota");
            }
        }
        let now: BTreeSet<ZPath> = exceeded.into_iter().map(|(path, _)| path.clone()).collect();
        for path in self.told.difference(&now) {
            tracing::info!(%path, "a subtree has no more than its quota again");
        }
        self.told = now;
    }

    /// Another leader tells from here on.
    pub(crate) fn forget(&mut self) {
        self.told.clear();
    }
}

#[cfg(test)]
mod tests {
    use znode::{Acl, Create, CreateMode, LogPosition, Op, Request, Term, Txn, ZnodeOp, Zxid};

    use super::*;

    #[test]
    fn a_subtree_is_told_of_once_each_time() {
        let mut state = State::default();
        let mut apply = |zxid: u64, op: ZnodeOp| {
            let txn = Txn { time_ms: 0, request: Request::new(Op::Znode(op)) };
            let applied = state.apply(LogPosition { term: Term(1), zxid: Zxid(zxid) }, txn);
            assert!(applied.reply.is_ok(), "{applied:?}");
            state.clone()
        };
        let create = |parent: &str, name: &str, data: &str| {
            let (parent, name, data) = (ZPath::parse(parent).unwrap(), name.to_owned(), data.as_bytes().to_vec());
            ZnodeOp::Create(Create { parent, name, data, mode: CreateMode::Persistent, acl: Acl::open() })
        };
        apply(1, create("/", "zookeeper", ""));
        apply(2, create("/zookeeper", "quota", ""));
        apply(3, create("/zookeeper/quota", "a", ""));
        let within = apply(4, create("/zookeeper/quota/a", "zookeeper_limits", "count=0,bytes=-1"));
        let beyond = apply(5, create("/", "a", ""));
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
}
