//! The bytes of snapshot records that are not znodes.

use znode::{Limits, LockMode, Op, SessionId, Term, Upgrade};

use crate::bytes::frozen::{Beside, acquire, path, ticket};

const RECORDS: &str = include_str!("../../golden/level-1/lock-records.hex");

/// Operations that leave a snapshot record of every kind that this file tests. Each operation has
/// its session's id, or 0 for no session. Its idempotency key is the zxid of its log entry.
fn operations() -> Vec<(u64, Op)> {
    let open = |label: &str| Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 10_000,
        label: label.into(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let limits = Limits {
        history_max: 3,
        histories_max: 9,
        ended_sessions_max: 8,
        ended_sessions_ms: 70_000,
        deadlock_looks_max: 300,
        ..Limits::default()
    };
    let upgrade = |key| Upgrade { ticket: ticket("/l", key, LockMode::Read, 0), label: "up".into() };
    vec![
        (0, open("one")),
        (0, open("two")),
        (0, Op::SetLimits(limits)),
        (1, acquire("/l", LockMode::Read, "o")),
        (2, acquire("/l", LockMode::Write, "p")),
        (1, Op::Upgrade(upgrade(4))),
        (0, open("three")),
        (0, Op::ExpireSessions { sessions: vec![SessionId(7)], term: Term(300) }),
        (1, acquire("/l", LockMode::Exclusive, "o")),
        (2, Op::Revoke { path: path("/l"), deadline_ms: Some(4000) }),
        (2, acquire("/m", LockMode::Exclusive, "")),
        (2, Op::Release { ticket: ticket("/m", 11, LockMode::Exclusive, 0).into() }),
    ]
}

fn beside() -> Beside {
    Beside { operations: operations(), golden: RECORDS, file: "lock-records.hex" }
}

#[test]
fn every_kind_of_record_keeps_its_bytes() {
    beside().check_bytes(&[2, 3, 4, 7, 8, 9, 10]);
}

#[test]
fn missing_doubled_cut_and_damaged_records_are_refused_or_harmless() {
    beside().check_damage(200);
}
