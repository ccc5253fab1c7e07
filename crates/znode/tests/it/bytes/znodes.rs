//! The bytes of transactions, znodes and sessions.

use std::collections::BTreeSet;

use fastrand::Rng;
use znode::{
    Acl, Acquire, AcquireAll, Asker, Attempt, ClientInfo, ClusterUuid, Create, CreateMode, Credential, DecodeError,
    Ensure, Error, FencingToken, Founding, HeldTicket, Identity, LEVEL_MAX, Limits, LockGuard, LockMode, LockSettings,
    LogPosition, Op, ReapCandidate, RecordKey, Request, RequestKey, SessionId, State, StateBuilder, Term, TicketRef,
    Txn, Upgrade, WriteTurn, ZPath, ZnodeOp, Zxid, decode_request, decode_txn, encode_request, encode_txn,
};

use crate::bytes::frozen::{assert_frozen, build, bytes, hex, path, ticket};

const TXNS: &str = include_str!("../../golden/level-1/txns.hex");
const ATTACHED: &str = include_str!("../../golden/level-1/attached-session.hex");
const FORMATS: &str = include_str!("../../../../../docs/dev/formats.md");
const RECORDS: &str = include_str!("../../golden/level-1/records.hex");

#[test]
fn transactions_keep_their_bytes() {
    let samples = samples();
    let text: String = samples.iter().map(|(name, txn)| format!("{name} {}\n", hex(&encode_txn(txn)))).collect();
    assert_frozen(&text, TXNS, "txns.hex");
    for (name, txn) in &samples {
        assert_eq!(decode_txn(&encode_txn(txn)).as_ref(), Ok(txn), "{name}");
    }
}

/// Checks the table of operations: names are unique, format levels are known, and an operation
/// needs a session where the table says so.
#[test]
fn every_operation_has_its_row() {
    let mut names = BTreeSet::new();
    for (_, txn) in samples() {
        let row = txn.request.op.row();
        names.insert(row.name);
        assert!((1..=LEVEL_MAX).contains(&row.level), "{row:?}");
        let asker = format!("{:?}", row.asker).to_lowercase();
        let documented = format!("| `{}` | {asker} | {} |\n", row.name, row.level);
        assert!(FORMATS.contains(&documented), "docs/dev/formats.md lacks {documented}");
        let (at, request) = (LogPosition { term: Term(1), zxid: Zxid(1) }, Request::new(txn.request.op));
        let request = Request { key: None, ..request };
        let refused = State::new(limits()).apply(at, Txn { proven: false, time_ms: 1, request }).reply.err();
        let lacks_session = refused.is_some_and(|refusal| refusal.error == Error::SessionRequired);
        assert!(lacks_session || row.asker != Asker::Session, "{row:?}");
    }
    assert_eq!(names.len(), 21, "one of the operations is not frozen");
}

#[test]
fn snapshots_keep_their_bytes() {
    let frozen = frozen_records();
    let kinds: BTreeSet<u8> = frozen.iter().map(|record| record[1]).collect();
    assert_eq!(kinds, BTreeSet::from([0, 1, 2, 3, 4, 8, 10]), "one of the kinds of record is not frozen");
    let state = build(&frozen).unwrap();
    state.check_invariants().unwrap();
    let written: Vec<String> = state.records().map(|record| hex(&record)).collect();
    assert_eq!(written, RECORDS.lines().collect::<Vec<_>>());
}

/// A session was attached to another connection and sent a write through it. The session's snapshot
/// record must equal the golden file, and must be read back.
#[test]
fn an_attached_session_keeps_its_bytes() {
    let mut state = State::new(limits());
    let credential = Some(Credential { session: SessionId(1), secret_hash: [1; 16] });
    let open = Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 10_000,
        label: "label".into(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let attach = Op::AttachSession { connection: 77, timeout_ms: 30_000 };
    let turn = Some(WriteTurn { connection: 77, number: 1 });
    let requests = [
        Request::new(open),
        Request { credential, ..Request::new(attach) },
        Request { credential, turn, ..Request::new(Op::Multi(Vec::new())) },
    ];
    for (request, zxid) in requests.into_iter().zip(1..) {
        state.apply(
            LogPosition { term: Term(300), zxid: Zxid(zxid) },
            Txn { proven: false, time_ms: 1_763_700_000_000, request },
        );
    }
    let records: Vec<Vec<u8>> = state.records().collect();
    assert_frozen(&(hex(&records[1]) + "\n"), ATTACHED, "attached-session.hex");
    let read = build(&records).unwrap();
    assert_eq!(read.records().collect::<Vec<_>>(), records);
    assert_eq!(
        (read.session(SessionId(1)).unwrap().connection, read.session(SessionId(1)).unwrap().timeout_ms),
        (77, 30_000)
    );
}

#[test]
fn the_state_that_is_frozen_can_be_made_today() {
    let made: String = everything().records().map(|record| hex(&record) + "\n").collect();
    assert_frozen(&made, RECORDS, "records.hex");
}

/// Only a leader may leave the session's secret out of a request, and only in a log entry.
#[test]
fn a_request_without_its_secret_is_refused() {
    let (_, proven) = samples().pop().unwrap();
    let entry = encode_txn(&proven);
    let request = encode_request(&proven.request);
    assert_eq!(decode_request(&request), Ok(proven.request));
    // The rest of the request follows the version and the time.
    let without_secret = [&entry[..1], &entry[8..]].concat();
    assert_eq!(
        decode_request(&without_secret).unwrap_err().to_string(),
        "damaged: Other(\"a request to the leader without its secret\")"
    );
    let mut both = entry;
    both[8] |= 1;
    assert!(decode_txn(&both).is_err());
}

#[test]
fn bytes_of_another_version_are_refused_by_name() {
    let mut bytes = encode_txn(&samples()[0].1);
    bytes[0] = 2;
    assert_eq!(decode_txn(&bytes), Err(DecodeError::Version(2)));
    let mut record = frozen_records()[0].clone();
    record[0] = 0;
    assert_eq!(StateBuilder::new().push(&record), Err(DecodeError::Version(0)));
}

#[test]
fn cut_or_lengthened_bytes_are_refused() {
    for (name, txn) in samples() {
        let mut bytes = encode_txn(&txn);
        for length in 0..bytes.len() {
            assert!(decode_txn(&bytes[..length]).is_err(), "{name} cut to {length} bytes");
        }
        bytes.push(0);
        assert!(decode_txn(&bytes).is_err(), "{name} with a byte more");
    }
    let frozen = frozen_records();
    for (index, record) in frozen.iter().enumerate() {
        for length in 0..record.len() {
            let mut builder = StateBuilder::new();
            frozen[..index].iter().for_each(|before| builder.push(before).unwrap());
            assert!(builder.push(&record[..length]).is_err(), "record {index} cut to {length} bytes");
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let mut rng = Rng::with_seed(7);
    let bytes: Vec<Vec<u8>> = samples().iter().map(|(_, txn)| encode_txn(txn)).collect();
    for _ in 0..20_000 {
        let mut damaged = bytes[rng.usize(..bytes.len())].clone();
        damage(&mut damaged, &mut rng);
        // Damaged bytes that can still be read are another transaction, which must apply without a
        // panic.
        if let Ok(txn) = decode_txn(&damaged) {
            assert_eq!(decode_txn(&encode_txn(&txn)).as_ref(), Ok(&txn));
            everything_once().apply(LogPosition { term: Term(1), zxid: Zxid(1000) }, txn);
        }
    }
    let frozen = frozen_records();
    for _ in 0..2_000 {
        let mut records = frozen.clone();
        let index = rng.usize(..records.len());
        damage(&mut records[index], &mut rng);
        let _ = build(&records);
    }
}

#[test]
fn missing_doubled_and_shuffled_records_are_refused() {
    let frozen = frozen_records();
    let mut rng = Rng::with_seed(7);
    for index in 0..frozen.len() {
        let mut missing = frozen.clone();
        missing.remove(index);
        assert!(build(&missing).is_err(), "without record {index}");
        let mut doubled = frozen.clone();
        doubled.insert(index, frozen[index].clone());
        assert!(build(&doubled).is_err(), "record {index} twice");
        let mut shuffled = frozen.clone();
        shuffled.swap(index, rng.usize(..frozen.len()));
        if let Ok(state) = build(&shuffled) {
            assert!(state.records().eq(frozen.iter().cloned()), "record {index} elsewhere made another state");
        }
    }
    assert!(StateBuilder::new().finish().is_err());
}

#[test]
fn lengths_beyond_all_bounds_are_refused_unread() {
    // A transaction is: version, time, no credential, no key, no guard, then the operation.
    let start = [1, 0, 0, 0, 0];
    for length in [[253, 255, 255, 255, 255, 255, 255, 255, 255].as_slice(), &[252, 255, 255, 255, 255]] {
        // These bytes are a multi of that many operations, or an expiry of that many sessions.
        for variant in [4, 2] {
            let bytes = [&start, [variant].as_slice(), length].concat();
            assert!(matches!(decode_txn(&bytes), Err(DecodeError::Damaged(_))), "{bytes:?}");
        }
    }
}

#[test]
fn a_multi_in_a_multi_is_refused_before_the_stack_ends() {
    let mut state = State::new(limits());
    let open = Request::new(Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms: 10_000,
        label: String::new(),
        address: None,
        client: znode::ClientInfo::default(),
    });
    let mut multi = Request::new(Op::Multi(Vec::new()));
    multi.credential = Some(Credential { session: SessionId(1), secret_hash: [1; 16] });
    multi.key = Some(RequestKey([2; 16]));
    for (request, zxid) in [open, multi].into_iter().zip(1..) {
        state.apply(LogPosition { term: Term(1), zxid: Zxid(zxid) }, Txn { proven: false, time_ms: 0, request });
    }
    let records: Vec<_> = state.records().collect();
    let (start, end) = records[2].split_at(records[2].len() - 4);
    assert_eq!(end, [1, 0, 4, 0], "an answer, good, a multi, of nothing");
    let nested = |depth: usize| {
        let mut builder = StateBuilder::new();
        records[..2].iter().for_each(|before| builder.push(before).unwrap());
        builder.push(&[start, &[1, 0], &[4, 1].repeat(depth), &[4, 0]].concat())
    };
    assert_eq!(nested(0), Ok(()));
    for depth in [1, 1_000_000] {
        assert!(matches!(nested(depth), Err(DecodeError::Damaged(_))), "{depth} deep");
    }
}

fn damage(bytes: &mut [u8], rng: &mut Rng) {
    for _ in 0..rng.usize(1..4) {
        let index = rng.usize(..bytes.len());
        bytes[index] = if rng.bool() {
            bytes[index] ^ (1 << rng.u8(..8))
        } else {
            [0, 1, 250, 251, 252, 253, 255][rng.usize(..7)]
        };
    }
}

fn create(parent: &str, name: &str, mode: CreateMode) -> ZnodeOp {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    ZnodeOp::Create(Create { data: b"data".into(), mode, acl, ..Create::new(path(parent), name) })
}

fn acquire(lock: &str, mode: LockMode, owner: &str) -> Op {
    let (owner, label) = (owner.into(), "label".into());
    Op::Acquire(Acquire { owner, label, lock_delay_ms: 1500, ..Acquire::new(path(lock), mode) })
}

/// Limits as they were when the golden bytes were written. Defaults may change, but the golden
/// bytes must not.
fn limits() -> Limits {
    Limits {
        data_bytes_max: 1_047_552,
        path_bytes_max: 1024,
        path_depth_max: 64,
        name_bytes_max: 255,
        label_bytes_max: 256,
        children_max: 1_000_000,
        waiters_max: 200_000,
        znodes_max: 5_000_000,
        state_bytes_max: 1 << 30,
        sessions_max: 200_000,
        sessions_per_address_max: 50_000,
        ephemerals_max: 10_000,
        ops_max: 128,
        entry_cost_max: 16_384,
        acl_entries_max: 64,
        holds_max: 1024,
        replies_max: 12,
        used_keys_max: 1024,
        session_timeout_min_ms: 2_000,
        session_timeout_max_ms: 300_000,
        lock_delay_max_ms: 60_000,
        container_idle_ms: 60_000,
        history_max: 16,
        histories_max: 10_000,
        ended_sessions_max: 10_000,
        ended_sessions_ms: 3_600_000,
        deadlock_looks_max: 256,
        subtree_bytes_max: 214_748_365,
    }
}

/// A sample of every operation, with its name.
fn ops(ticket: &ZPath) -> Vec<(&'static str, Op)> {
    let all_modes = vec![
        create("/", "p", CreateMode::Persistent),
        create("/", "e", CreateMode::Ephemeral),
        create("/", "s-", CreateMode::PersistentSequential),
        create("/", "es-", CreateMode::EphemeralSequential),
        create("/", "c", CreateMode::Container),
        create("/", "t", CreateMode::PersistentTtl { ttl_ms: 5000 }),
        create("/", "ts-", CreateMode::PersistentSequentialTtl { ttl_ms: (1 << 40) - 1 }),
    ];
    let parts = vec![(path("/l"), LockMode::Read)];
    let wish = AcquireAll { owner: "owner".into(), label: "label".into(), ..AcquireAll::new(parts) };
    let settings = LockSettings { limit: None, managed: true, waiters_max: Some(3) };
    vec![
        (
            "open",
            Op::OpenSession {
                secret_hash: [0xab; 16],
                timeout_ms: 10_000,
                label: "worker".into(),
                address: Some([192, 0, 2, 7].into()),
                client: ClientInfo {
                    host: "web-1".into(),
                    pid: Some(71),
                    program: "backup".into(),
                    address: Some([192, 0, 2, 7].into()),
                },
            },
        ),
        ("close", Op::CloseSession { session: SessionId(7) }),
        ("expire", Op::ExpireSessions { sessions: vec![SessionId(7), SessionId(1 << 40)], term: Term(3) }),
        ("create", Op::Znode(all_modes[0].clone())),
        ("create_own", ensured(Ensure::Own)),
        ("create_own_with_data", ensured(Ensure::OwnWithData)),
        ("delete", Op::Znode(ZnodeOp::Delete { path: path("/a/b"), version: -1 })),
        ("set", Op::Znode(ZnodeOp::SetData { path: path("/a"), data: vec![0, 255], version: i32::MAX })),
        ("check", Op::Znode(ZnodeOp::Check { path: path("/"), version: i32::MIN })),
        ("multi", Op::Multi(all_modes)),
        ("set_acl", Op::SetAcl { path: path("/ü"), acl: Acl::open(), version: 0 }),
        ("acquire_exclusive", acquire("/l", LockMode::Exclusive, "")),
        ("acquire_read", acquire("/l/m", LockMode::Read, "owner")),
        ("acquire_write", acquire("/l", LockMode::Write, "owner")),
        ("release", Op::Release { ticket: ticket.clone().into() }),
        ("acquire_keyless", keyless()),
        ("acquire_urgent", urgent(7)),
        ("acquire_all", Op::AcquireAll(wish)),
        ("set_lock", Op::SetLock { lock: path("/l"), settings }),
        ("hand_over", Op::HandOver { ticket: ticket.clone(), to: path("/l/by-hand-0000000001") }),
        ("release_held", Op::Release { ticket: TicketRef::Held(held_ticket()) }),
        ("withdraw", Op::Withdraw { ticket: ticket.clone(), attempt: Attempt(9), if_waiting: true }),
        ("reap", Op::Reap { candidates: vec![ReapCandidate { path: path("/l"), czxid: Zxid(70_000) }] }),
        ("set_limits", Op::SetLimits(limits())),
        ("revoke", Op::Revoke { path: ticket.clone(), deadline_ms: Some(70_000) }),
        ("upgrade", Op::Upgrade(Upgrade { ticket: ticket.clone(), label: "label".into() })),
        ("found", Op::Found(founding())),
        ("set_level", Op::SetLevel { level: 300 }),
        ("note_removed", Op::NoteRemoved { node_id: 300 }),
        ("attach_session", Op::AttachSession { connection: 77, timeout_ms: 30_000 }),
        ("scrub", Op::Scrub { after: None }),
        (
            "scrub_after_request",
            Op::Scrub { after: Some(RecordKey::Session(SessionId(300), Some(RequestKey([2; 16])))) },
        ),
        ("scrub_after_znode", Op::Scrub { after: Some(RecordKey::Znode(path("/a"))) }),
        ("scrub_after_ended_session", Op::Scrub { after: Some(RecordKey::EndedSession(SessionId(7))) }),
    ]
}

fn founding() -> Founding {
    Founding { uuid: ClusterUuid([3; 16]), zxid_base: 70_000, group: 300 }
}

/// A transaction for every operation, and for every optional field of a request, with a name.
fn samples() -> Vec<(&'static str, Txn)> {
    let ticket = path("/l/0000000000_00000000000000000000000000000007__WRIT__0000000000__lock__0000000000");
    let txn = |op| Txn { proven: false, time_ms: 1_763_700_000_000, request: Request::new(op) };
    let mut samples: Vec<_> = ops(&ticket).into_iter().map(|(name, op)| (name, txn(op))).collect();
    let mut full = txn(Op::Release { ticket: ticket.into() });
    full.request.credential = Some(Credential { session: SessionId(300), secret_hash: [1; 16] });
    full.request.key = Some(RequestKey([2; 16]));
    full.request.identities = vec![Identity { scheme: "digest".into(), id: "bob:x".into() }];
    full.request.turn = Some(WriteTurn { connection: 77, number: u64::MAX });
    full.request.attempt = Attempt(u64::MAX);
    full.request.address = Some([192, 0, 2, 9].into());
    full.request.guard = Some(LockGuard { lock: path("/l"), token: FencingToken(1 << 33) });
    samples.push(("full_request", full.clone()));
    full.request.credential = Some(Credential { session: SessionId(300), secret_hash: [0; 16] });
    samples.push(("full_request_proven", Txn { proven: true, ..full }));
    samples
}

fn ensured(ensure: Ensure) -> Op {
    let ZnodeOp::Create(new) = create("/g", "a", CreateMode::Ephemeral) else { panic!("a create is one") };
    Op::Znode(ZnodeOp::Create(Create { ensure, ..new }))
}

fn keyless() -> Op {
    let Op::Acquire(acquire) = acquire("/l", LockMode::Exclusive, "") else { panic!("an acquire is one") };
    Op::Acquire(Acquire { keyless: true, ..acquire })
}

fn urgent(priority: u32) -> Op {
    let Op::Acquire(acquire) = acquire("/l", LockMode::Exclusive, "") else { panic!("an acquire is one") };
    Op::Acquire(Acquire { priority, ..acquire })
}

fn held_ticket() -> HeldTicket {
    let (mode, token) = (Some(LockMode::Read), Some(FencingToken(300)));
    HeldTicket { lock: path("/l"), mode, token, owner: Some("owner".into()) }
}

fn open(timeout_ms: u32, label: &str, address: Option<std::net::IpAddr>) -> Op {
    Op::OpenSession {
        secret_hash: [1; 16],
        timeout_ms,
        label: label.into(),
        address,
        client: znode::ClientInfo::default(),
    }
}

/// Operations that leave a state in which the snapshot records of znodes and sessions have all
/// their optional fields. Each operation has its session's id, or 0 for no session, and its
/// idempotency key.
fn operations() -> Vec<(u64, u8, Op)> {
    vec![
        (0, 0, open(10_000, "one", None)),
        (0, 0, open(20_000, "", Some([192, 0, 2, 7].into()))),
        (0, 0, Op::Found(Founding { zxid_base: 0, ..founding() })),
        (0, 0, Op::NoteRemoved { node_id: 300 }),
        (1, 1, Op::Multi(Vec::new())),
        (1, 2, Op::Znode(create("/", "p", CreateMode::Persistent))),
        (1, 3, Op::Znode(create("/p", "e", CreateMode::Ephemeral))),
        (1, 4, Op::Znode(ZnodeOp::SetData { path: path("/p"), data: vec![0, 255], version: 0 })),
        (
            1,
            5,
            Op::Multi(vec![
                create("/p", "s-", CreateMode::PersistentSequential),
                create("/p", "c", CreateMode::Container),
            ]),
        ),
        (1, 6, Op::Znode(create("/p", "t", CreateMode::PersistentTtl { ttl_ms: 5000 }))),
        (1, 7, acquire("/l", LockMode::Write, "o")),
        (1, 8, acquire("/l", LockMode::Write, "o")),
        (1, 9, acquire("/l", LockMode::Read, "o")),
        (2, 1, acquire("/l", LockMode::Exclusive, "")),
        (1, 10, Op::Release { ticket: ticket("/l", 7, LockMode::Write, 0).into() }),
        (1, 11, Op::Znode(ZnodeOp::Delete { path: path("/missing"), version: -1 })),
        (
            1,
            12,
            Op::SetAcl {
                path: path("/p"),
                acl: vec![Acl { perms: 1, scheme: "digest".into(), id: "x".into() }],
                version: 0,
            },
        ),
        (1, 13, Op::Multi(vec![ZnodeOp::Check { path: path("/p"), version: 9 }])),
        (1, 14, Op::Withdraw { ticket: ticket("/l", 7, LockMode::Write, 0), attempt: Attempt(99), if_waiting: true }),
        (1, 15, Op::Withdraw { ticket: ticket("/l", 7, LockMode::Write, 0), attempt: Attempt(8), if_waiting: true }),
        (1, 16, acquire("/d", LockMode::Exclusive, "")),
        (
            1,
            17,
            Op::Withdraw { ticket: ticket("/d", 16, LockMode::Exclusive, 0), attempt: Attempt(16), if_waiting: false },
        ),
        (1, 18, Op::Reap { candidates: Vec::new() }),
        (0, 0, open(1, "", None)),
        (22, 1, acquire("/z", LockMode::Read, "")),
        (0, 0, Op::ExpireSessions { sessions: vec![SessionId(22)], term: Term(300) }),
    ]
}

/// The state that [`operations`] make.
fn everything() -> State {
    let mut state = State::new(limits());
    for ((session, key, op), zxid) in operations().into_iter().zip(1..) {
        let mut request = Request::new(op);
        if session > 0 {
            request.credential = Some(Credential { session: SessionId(session), secret_hash: [1; 16] });
            (request.key, request.attempt) = (Some(RequestKey([key; 16])), Attempt(key.into()));
        }
        let txn = Txn { proven: false, time_ms: 1_763_700_000_000 + zxid, request };
        state.apply(LogPosition { term: Term(300), zxid: Zxid(zxid) }, txn);
    }
    state
}

/// A clone of the state of [`everything`], which is computed only once.
fn everything_once() -> State {
    static STATE: std::sync::OnceLock<State> = std::sync::OnceLock::new();
    STATE.get_or_init(everything).clone()
}

fn frozen_records() -> Vec<Vec<u8>> {
    RECORDS.lines().map(bytes).collect()
}
