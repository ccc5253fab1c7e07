//! The bytes of queues and multi-locks.

use znode::{Acquire, AcquireAll, LockMode, LockSettings, Op, Policy, Request, Txn, decode_txn, encode_txn};

use crate::bytes::frozen::{Beside, acquire, assert_frozen, bytes, hex, path, ticket};

const TXNS: &str = include_str!("../../golden/level-1/ledger-txns.hex");
const RECORDS: &str = include_str!("../../golden/level-1/ledger-records.hex");
const OWNED_TXNS: &str = include_str!("../../golden/level-1/owned-multilock-txns.hex");
const OWNED_RECORDS: &str = include_str!("../../golden/level-1/owned-multilock-records.hex");

/// Operations that leave a snapshot record of every kind that this file tests. Each operation has
/// its session's id, or 0 for no session. Its idempotency key is the zxid of its log entry.
fn operations() -> Vec<(u64, Op)> {
    let open = Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 10_000,
        label: String::new(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let managed = LockSettings { limit: None, managed: true, waiters_max: Some(9) };
    let permits = |permits| LockMode::Lease { permits, limit: 5 };
    let all = |policy, parts: &[(&str, LockMode)]| {
        let parts = parts.iter().map(|(lock, mode)| (path(lock), *mode)).collect();
        Op::AcquireAll(AcquireAll { policy, label: "all".into(), lock_delay_ms: 7, ..AcquireAll::new(parts) })
    };
    let urgent = |lock| match acquire(lock, LockMode::Latch, "") {
        Op::Acquire(acquire) => Op::Acquire(Acquire { priority: 3, ..acquire }),
        other => other,
    };
    vec![
        (0, open),
        (0, Op::SetLock { lock: path("/c"), settings: managed }),
        (1, acquire("/c", LockMode::Exclusive, "o")),
        (1, urgent("/c")),
        (1, acquire("/c", LockMode::Exclusive, "p")),
        (1, acquire("/s", permits(2), "")),
        (1, acquire("/s", permits(4), "")),
        (1, all(Policy::Backfill, &[("/s", permits(1)), ("/b", LockMode::Write)])),
        (1, acquire("/b", LockMode::Exclusive, "")),
        (1, all(Policy::Strict, &[("/x", LockMode::Read), ("/y", LockMode::Exclusive)])),
        (
            1,
            Op::HandOver {
                ticket: ticket("/c", 3, LockMode::Exclusive, 0),
                to: ticket("/c", 5, LockMode::Exclusive, 2),
            },
        ),
    ]
}

/// Operations that make multi-locks with owners: one that was acquired twice, and one that waits in
/// a managed lock.
fn owned() -> Vec<(u64, Op)> {
    let all = |owner: &str, policy, parts: &[(&str, LockMode)]| {
        let parts = parts.iter().map(|(lock, mode)| (path(lock), *mode)).collect();
        let (owner, label) = (owner.into(), "all".into());
        Op::AcquireAll(AcquireAll { policy, owner, label, lock_delay_ms: 7, ..AcquireAll::new(parts) })
    };
    let pair = [("/x", LockMode::Read), ("/y", LockMode::Write)];
    let mut operations = operations()[..4].to_vec();
    operations.extend([
        (1, all("o", Policy::Strict, &pair)),
        (1, all("o", Policy::Strict, &[pair[1], pair[0]])),
        (1, all("p", Policy::Backfill, &[("/z", LockMode::Exclusive), ("/c", LockMode::Exclusive)])),
    ]);
    operations
}

fn beside() -> Beside {
    Beside { operations: operations(), golden: RECORDS, file: "ledger-records.hex" }
}

fn beside_owned() -> Beside {
    Beside { operations: owned(), golden: OWNED_RECORDS, file: "owned-multilock-records.hex" }
}

#[test]
fn every_kind_of_record_keeps_its_bytes() {
    beside().check_bytes(&[2, 3, 4, 5, 8, 10]);
    beside_owned().check_bytes(&[2, 3, 4, 5, 10]);
}

#[test]
fn missing_doubled_cut_and_damaged_records_are_refused_or_harmless() {
    beside().check_damage(40);
    beside_owned().check_damage(40);
}

#[test]
fn transactions_keep_their_bytes() {
    for (operations, golden, file) in
        [(operations(), TXNS, "ledger-txns.hex"), (owned(), OWNED_TXNS, "owned-multilock-txns.hex")]
    {
        let bytes_of =
            |op: &Op| hex(&encode_txn(&Txn { proven: false, time_ms: 1, request: Request::new(op.clone()) }));
        let log: String = operations.iter().map(|(_, op)| bytes_of(op) + "\n").collect();
        assert_frozen(&log, golden, file);
        for (line, (_, op)) in golden.lines().zip(operations) {
            assert_eq!(decode_txn(&bytes(line)).unwrap().request.op, op);
        }
    }
}
