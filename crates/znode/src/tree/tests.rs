//! Tests that set fields of the tree directly, to values that requests would take too long to
//! reach.

use crate::edits::edit::SEQUENCE_MAX;
use crate::{
    Create, CreateMode, Error, LogPosition, Op, Refusal, Reply, Request, State, Term, Txn, Usage, ZPath, ZnodeOp, Zxid,
};

fn apply(state: &mut State, op: Op) -> Result<Reply, Refusal> {
    let at = LogPosition { term: Term(1), zxid: Zxid(state.last_zxid().0 + 1) };
    let applied = state.apply(at, Txn { proven: false, time_ms: 1, request: Request::new(op) });
    state.check_invariants().unwrap();
    applied.reply
}

fn create(name: &str, mode: CreateMode) -> Op {
    Op::Znode(ZnodeOp::Create(Create { mode, ..Create::new(ZPath::root(), name) }))
}

fn create_at(at: &str) -> ZnodeOp {
    let at = ZPath::parse(at).unwrap();
    ZnodeOp::Create(Create::new(at.parent().unwrap(), at.name()))
}

#[test]
fn sequence_numbers_run_out_and_never_wrap() {
    let mut state = State::default();
    state.edit_znode(&ZPath::root(), |root| {
        root.changes.creates = SEQUENCE_MAX - 1;
        root.changes.deletes = SEQUENCE_MAX - 1;
    });
    let last = apply(&mut state, create("s-", CreateMode::PersistentSequential));
    assert!(matches!(&last, Ok(Reply::Created { path, .. }) if path.as_str() == "/s-2147483646"));
    let used = state.sequence_used(last.as_ref().unwrap());
    assert_eq!(used, Some((ZPath::root(), SEQUENCE_MAX)));
    let beyond = apply(&mut state, create("s-", CreateMode::PersistentSequential)).unwrap_err();
    assert_eq!(beyond, Refusal::at(Error::SequenceExhausted, &ZPath::root()));
    // Names without a sequence number can still be created.
    let plain = apply(&mut state, create("plain", CreateMode::Persistent));
    assert_eq!(state.sequence_used(&plain.unwrap()), None);
    let root = state.node(&ZPath::root()).unwrap().stat();
    assert_eq!((root.cversion, root.num_children), (-2, 2), "2^32 - 2 changes, as ZooKeeper's 32 bits show them");
}

#[test]
fn versions_wrap_past_the_one_that_means_any() {
    let mut state = State::default();
    let root = ZPath::root();
    for (before, after) in [(i32::MAX, i32::MIN), (-2, 0), (0, 1)] {
        state.edit_znode(&root, |node| node.changes.version = before);
        let set = ZnodeOp::SetData { path: root.clone(), data: Vec::new(), version: before };
        assert!(apply(&mut state, Op::Znode(set)).is_ok());
        assert_eq!(state.node(&root).unwrap().stat().version, after);
    }
}

#[test]
fn setting_quotas_64_times_in_one_entry_walks_no_subtree() {
    let mut state = State::default();
    for at in ["/big", "/big/a", "/zookeeper", "/zookeeper/quota", "/zookeeper/quota/big"] {
        apply(&mut state, Op::Znode(create_at(at))).unwrap();
    }
    let big = ZPath::parse("/big").unwrap();
    // This usage differs from the result of a walk over the subtree.
    state.edit_znode(&big, |node| node.below = Usage { count: 500_000, bytes: 7 });
    let limits = "/zookeeper/quota/big/zookeeper_limits";
    let delete = || ZnodeOp::Delete { path: ZPath::parse(limits).unwrap(), version: -1 };
    let set = |at: &str| match create_at(at) {
        ZnodeOp::Create(create) => ZnodeOp::Create(Create { data: b"count=5".into(), ..create }),
        other => other,
    };
    let mut ops: Vec<ZnodeOp> = (0..64).flat_map(|_| [set(limits), delete()]).collect();
    ops.truncate(127);
    let at = LogPosition { term: Term(1), zxid: Zxid(state.last_zxid().0 + 1) };
    state.apply(at, Txn { proven: false, time_ms: 1, request: Request::new(Op::Multi(ops)) }).reply.unwrap();
    let usage = state.quotas().next().map(|(_, quota)| quota.usage);
    assert_eq!(usage, Some(Usage { count: 500_001, bytes: 7 }));
    assert_eq!(state.descendant_count(&big), 500_000);
}
