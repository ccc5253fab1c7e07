//! The bytes of ledgers and multi-locks: frozen, and safe to read when they are damaged. See `bytes.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fastrand::Rng;
use znode::{
    Acquire, AcquireAll, Attempt, Credential, DecodeError, Idempotency, Limits, LockMode, LockSettings, LogPosition,
    Op, Policy, Request, RequestKey, SessionId, State, StateBuilder, Term, Txn, ZPath, Zxid, decode_txn, encode_txn,
};

const TXNS: &str = include_str!("golden/ledger-txns-v1.hex");
const RECORDS: &str = include_str!("golden/ledger-records-v1.hex");

fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn acquire(lock: &str, mode: LockMode, owner: &str) -> Op {
    let (owner, label) = (owner.into(), "label".into());
    Op::Acquire(Acquire { lock: path(lock), mode, owner, label, lock_delay_ms: 0, attempt: Attempt(1) })
}

fn ticket(key: u8, rest: &str) -> ZPath {
    path(&format!("/c/_c_{}-{rest}", RequestKey([key; 16])))
}

/// Operations that leave a record of every kind: the session, 0 for none, and what is asked, with the zxid as its key.
fn operations() -> Vec<(u64, Op)> {
    let open = Op::OpenSession { secret_hash: [1; 32], timeout_ms: 10_000, label: String::new() };
    let closed = LockSettings { limit: None, closed: true, waiters_max: Some(9) };
    let permits = |permits| LockMode::Lease { permits, limit: 5 };
    let all = |policy, parts: &[(&str, LockMode)]| {
        let parts = parts.iter().map(|(lock, mode)| (path(lock), *mode)).collect();
        Op::AcquireAll(AcquireAll { parts, policy, label: "all".into(), lock_delay_ms: 7, attempt: Attempt(1) })
    };
    let urgent = |lock| match acquire(lock, LockMode::Latch, "") {
        Op::Acquire(acquire) => Op::AcquireUrgent { acquire, priority: 3 },
        other => other,
    };
    vec![
        (0, open),
        (0, Op::SetLock { lock: path("/c"), settings: closed }),
        (1, acquire("/c", LockMode::Exclusive, "o")),
        (1, urgent("/c")),
        (1, acquire("/c", LockMode::Exclusive, "p")),
        (1, acquire("/s", permits(2), "")),
        (1, acquire("/s", permits(4), "")),
        (1, all(Policy::Backfill, &[("/s", permits(1)), ("/b", LockMode::Write)])),
        (1, acquire("/b", LockMode::Exclusive, "")),
        (1, all(Policy::Strict, &[("/x", LockMode::Read), ("/y", LockMode::Exclusive)])),
        (1, Op::HandOver { ticket: ticket(3, "lock-0000000000"), to: ticket(5, "lock-0000000002") }),
    ]
}

fn everything() -> State {
    let limits = Limits { replies_max: 12, container_idle_ms: 60_000, ..Limits::default() };
    let mut state = State::new(limits);
    for ((session, op), zxid) in operations().into_iter().zip(1..) {
        let mut request = Request::new(op);
        if session > 0 {
            request.credential = Some(Credential { session: SessionId(session), secret_hash: [1; 32] });
            request.idempotency = Some(Idempotency { key: RequestKey([zxid as u8; 16]), fingerprint: [7; 16] });
        }
        let txn = Txn { time_ms: 1_763_700_000_000 + zxid, request };
        state.apply(LogPosition { term: Term(300), zxid: Zxid(zxid) }, txn);
    }
    state
}

/// All records but the head: the limits in it have defaults that may change.
fn made() -> Vec<Vec<u8>> {
    everything().records().skip(1).collect()
}

fn frozen() -> Vec<Vec<u8>> {
    RECORDS.lines().map(bytes).collect()
}

fn build(records: &[Vec<u8>]) -> Result<State, DecodeError> {
    let mut builder = StateBuilder::new();
    builder.push(&everything().records().next().unwrap())?;
    for record in records {
        builder.push(record)?;
    }
    builder.finish()
}

#[test]
fn every_kind_of_record_keeps_its_bytes() {
    let made = made();
    assert_eq!(
        made.iter().map(|record| hex(record) + "\n").collect::<String>(),
        RECORDS,
        "what a log means has changed"
    );
    let kinds: BTreeSet<u8> = made.iter().filter(|record| record[1] == 7).map(|record| record[2]).collect();
    assert_eq!(kinds, (0..5).collect(), "one of the kinds of record is not frozen");
    let state = build(&frozen()).unwrap();
    state.check_invariants().unwrap();
    assert!(state.records().skip(1).eq(frozen()));
}

#[test]
fn missing_doubled_cut_and_damaged_records_are_refused_or_harmless() {
    let frozen = frozen();
    let mut rng = Rng::with_seed(7);
    for index in 0..frozen.len() {
        let mut records = frozen.clone();
        records.remove(index);
        assert!(build(&records).is_err(), "without record {index}");
        let mut records = frozen.clone();
        records.insert(index, frozen[index].clone());
        assert!(build(&records).is_err(), "record {index} twice");
        for length in 0..frozen[index].len() {
            let mut records = frozen.clone();
            records[index].truncate(length);
            assert!(build(&records).is_err(), "record {index} cut to {length} bytes");
        }
        for _ in 0..40 {
            let mut records = frozen.clone();
            let at = rng.usize(..records[index].len());
            records[index][at] = rng.u8(..);
            // What can still be read is another state, and goes on like any other.
            if let Ok(mut state) = build(&records) {
                let op = Op::ExpireSessions { sessions: vec![SessionId(1), SessionId(2)], term: Term(301) };
                let txn = Txn { time_ms: u64::MAX, request: Request::new(op) };
                state.apply(LogPosition { term: Term(301), zxid: Zxid(1 << 60) }, txn);
            }
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn transactions_keep_their_bytes() {
    let log: Vec<String> = operations()
        .into_iter()
        .map(|(_, op)| hex(&encode_txn(&Txn { time_ms: 1, request: Request::new(op) })))
        .collect();
    assert_eq!(log.join("\n") + "\n", TXNS, "what is in a log means another thing now");
    for (line, (_, op)) in TXNS.lines().zip(operations()) {
        assert_eq!(decode_txn(&bytes(line)).unwrap().request.op, op);
    }
}
