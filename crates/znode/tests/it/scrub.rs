//! The operation `Op::Scrub`, which hashes the records of the state in rounds.

use znode::{
    Acquire, AcquireAll, Attempt, Create, Credential, LockMode, LogPosition, Op, RecordKey, Reply, Request, RequestKey,
    SessionId, State, StateBuilder, Term, Txn, ZPath, ZnodeOp, Zxid,
};

const SECRET: [u8; 16] = [1; 16];
/// Number of records of each kind in the state that the tests scrub. More than a page has room for.
const MANY: u8 = 200;

fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn apply(state: &mut State, session: u64, op: Op) -> Reply {
    let zxid = state.last_zxid().0 + 1;
    let mut request = Request::new(op);
    if session > 0 {
        request.credential = Some(Credential { session: SessionId(session), secret_hash: SECRET });
        (request.key, request.attempt) = (Some(RequestKey(u128::from(zxid).to_be_bytes())), Attempt(1));
    }
    let txn = Txn { proven: false, time_ms: 1_763_700_000_000 + zxid, request };
    state.apply(LogPosition { term: Term(1), zxid: Zxid(zxid) }, txn).reply.unwrap()
}

fn create(parent: &str, name: String, length: usize) -> Op {
    Op::Znode(ZnodeOp::Create(Create { data: vec![7; length], ..Create::new(path(parent), name) }))
}

fn open(state: &mut State) -> u64 {
    let (secret_hash, label, client) = (SECRET, String::new(), znode::ClientInfo::default());
    match apply(state, 0, Op::OpenSession { secret_hash, timeout_ms: 10_000, label, address: None, client }) {
        Reply::SessionOpened { session, .. } => session.0,
        other => panic!("{other:?}"),
    }
}

/// A state with many records of most kinds.
fn filled() -> State {
    let mut state = State::default();
    let found = znode::Founding { uuid: znode::ClusterUuid([3; 16]), zxid_base: 0, group: 0 };
    apply(&mut state, 0, Op::Found(found));
    let sessions = [open(&mut state), open(&mut state)];
    for name in ["plain", "locks"] {
        apply(&mut state, 0, create("/", name.into(), 0));
    }
    for number in 0..MANY {
        apply(&mut state, 0, create("/plain", format!("n{number}"), 700));
        let ended = open(&mut state);
        apply(&mut state, ended, Op::CloseSession { session: SessionId(ended) });
        let lock = path(&format!("/locks/l{number}"));
        let acquire = || Op::Acquire(Acquire::new(lock.clone(), LockMode::Exclusive));
        let Reply::Acquired { ticket, .. } = apply(&mut state, sessions[0], acquire()) else { panic!("no ticket") };
        apply(&mut state, sessions[0], Op::Release { ticket: ticket.into() });
        let Reply::Acquired { ticket, .. } = apply(&mut state, sessions[1], acquire()) else { panic!("no ticket") };
        apply(&mut state, 0, Op::Revoke { path: ticket, deadline_ms: Some(60_000) });
        let parts = ["a", "b"].map(|name| (path(&format!("/locks/{name}{number}")), LockMode::Exclusive));
        apply(&mut state, sessions[0], Op::AcquireAll(AcquireAll::new(parts.into())));
    }
    // A record that has a page of its own.
    apply(&mut state, 0, create("/plain", "large".into(), 200_000));
    state.check_invariants().unwrap();
    state
}

/// Scrubs the states for one round. `between` is called after each entry, with the states and the
/// last record that was hashed. Returns the number of entries.
fn round(states: &mut [State], mut between: impl FnMut(&mut [State], &RecordKey)) -> usize {
    let mut after = None;
    for entries in 1.. {
        let replies = states.iter_mut().map(|state| apply(state, 0, Op::Scrub { after: after.clone() }));
        let lasts = replies.map(|reply| match reply {
            Reply::Scrubbed { last, .. } => last,
            other => panic!("{other:?}"),
        });
        // As in a cluster, the reply of one state decides where the next entry begins.
        after = lasts.collect::<Vec<_>>().swap_remove(0);
        let Some(last) = &after else { return entries };
        between(states, last);
    }
    unreachable!("a round ends")
}

fn read(records: &[Vec<u8>]) -> Option<State> {
    let mut builder = StateBuilder::new();
    records.iter().try_for_each(|record| builder.push(record)).ok()?;
    builder.finish().ok()
}

/// The state of these records, after a bit of one record was flipped. `None` if no state has that
/// record.
fn with_a_flip(records: &[Vec<u8>], index: usize, bit: usize) -> Option<State> {
    let mut damaged = records.to_vec();
    damaged[index][bit / 8] ^= 1 << (bit % 8);
    read(&damaged)
}

#[test]
fn a_round_finds_a_difference_in_each_kind_of_record() {
    let right = filled();
    let records: Vec<Vec<u8>> = right.records().collect();
    let mut found = std::collections::BTreeSet::new();
    // All records but the head and the tail would take a minute.
    for index in (1..records.len() - 1).step_by(59) {
        for bit in [(records[index].len() - 1) * 8, records[index].len() / 2 * 8 + 3] {
            let Some(wrong) = with_a_flip(&records, index, bit) else { continue };
            let same = right.records().eq(wrong.records());
            let mut states = [right.clone(), wrong];
            round(&mut states, |_, _| ());
            let equal = states[0].history_hash() == states[1].history_hash();
            // The second byte is the kind of the record.
            assert_eq!(equal, same, "record {index} of kind {}, bit {bit}", records[index][1]);
            found.extend((!equal).then_some(records[index][1]));
        }
    }
    let [session_request, znode, revocation, history, ended] = [3, 4, 7, 8, 9];
    for kind in [session_request, znode, revocation, history, ended] {
        assert!(found.contains(&kind), "no difference was made in a record of kind {kind}: {found:?}");
    }
}

/// After each entry of the scrub the last hashed znode is deleted, and others are made before and
/// behind it.
#[test]
fn a_round_meets_each_record_that_stays_while_others_change() {
    let right = filled();
    let records: Vec<Vec<u8>> = right.records().collect();
    let kept = records.iter().position(|record| record.windows(4).any(|part| part == b"n123")).unwrap();
    let wrong = with_a_flip(&records, kept, records[kept].len() / 2 * 8).unwrap();
    assert!(!right.records().eq(wrong.records()));
    let mut states = [right, wrong];
    let mut made = 0..;
    let entries = round(&mut states, |states, last| {
        let number = made.next().unwrap();
        for state in states {
            if let RecordKey::Znode(path) = last
                && state.children(path).is_ok_and(|mut names| names.next().is_none())
            {
                apply(state, 0, Op::Znode(ZnodeOp::Delete { path: path.clone(), version: -1 }));
            }
            ["a", "zz"].iter().for_each(|name| drop(apply(state, 0, create("/", format!("{name}{number}"), 100))));
        }
    });
    assert!(entries > 10, "{entries} entries");
    assert_ne!(states[0].history_hash(), states[1].history_hash());
    // Without a difference, the same changes give the same hashes.
    let mut states = [read(&records).unwrap(), read(&records).unwrap()];
    round(&mut states, |_, _| ());
    assert_eq!(states[0].history_hash(), states[1].history_hash());
}

#[test]
fn a_scrub_changes_nothing_but_the_head() {
    let mut state = filled();
    let before: Vec<_> = state.records().skip(1).collect();
    let (entries, events) = (round(std::slice::from_mut(&mut state), |_, _| ()), state.state_bytes());
    assert!(state.records().skip(1).eq(before));
    assert_eq!(events, filled().state_bytes());
    // At most 128 records in an entry, and few entries more than that.
    let pages = state.records().count() / 128;
    assert!((pages..pages + 10).contains(&entries), "{entries} entries for {pages} times 128 records");
}
