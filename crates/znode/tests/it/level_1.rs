//! Logs of format level 1, applied again: each reply, event and state must be as it was when the
//! level's golden files were written.
//!
//! From the first release on these files must never be written again: a later level has files of
//! its own beside them.

use std::collections::BTreeSet;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use znode::{LogPosition, Op, State, StateBuilder, Term, TxnOutcome, decode_txn, encode_txn};

/// Golden files with logs. Each line is a log entry: its term, its index, its bytes, and the hash
/// of its result ([`hash`]).
const LOGS: [&str; 4] = [
    include_str!("../golden/level-1/log-1.txt"),
    include_str!("../golden/level-1/log-2.txt"),
    include_str!("../golden/level-1/log-3.txt"),
    include_str!("../golden/level-1/log-4.txt"),
];
/// Golden files with the snapshot records of the state at the end of each log.
const SNAPSHOTS: [&str; 4] = [
    include_str!("../golden/level-1/snapshot-1.hex"),
    include_str!("../golden/level-1/snapshot-2.hex"),
    include_str!("../golden/level-1/snapshot-3.hex"),
    include_str!("../golden/level-1/snapshot-4.hex"),
];

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap()).collect()
}

/// Hash of the reply, the events, and the state after an entry.
fn hash(applied: &TxnOutcome, state: &State) -> u64 {
    let mut hash = SipHasher13::new();
    let outcome = bincode::encode_to_vec(applied, bincode::config::standard()).unwrap();
    for part in std::iter::once(outcome).chain(state.records()) {
        // With its length, each value is hashed apart from the next one.
        hash.write_u64(part.len() as u64);
        hash.write(&part);
    }
    hash.finish()
}

/// Writes the golden files of a log again, with newly computed hashes and snapshot, which is
/// allowed only until the first release.
fn freeze(number: usize, log: &str) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut state = State::default();
    let mut lines = String::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [term, index, txn, _] = words[..] else { panic!("no entry: {line}") };
        let txn = decode_txn(&bytes(txn)).unwrap();
        let text = hex(&encode_txn(&txn));
        let zxid = state.zxid_of(index.parse().unwrap(), Some(&txn.request));
        let applied = state.apply(LogPosition { term: Term(term.parse().unwrap()), zxid }, txn);
        lines += &format!("{term} {index} {text} {:016x}\n", hash(&applied, &state));
    }
    let records: String = state.records().map(|record| hex(&record) + "\n").collect();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/level-1");
    std::fs::write(format!("{directory}/log-{number}.txt"), lines).unwrap();
    std::fs::write(format!("{directory}/snapshot-{number}.hex"), records).unwrap();
}

/// Applies a log to `state`, and compares each result with the hash in the log. Entries that
/// `state` contains already are skipped. Calls `each` after every entry, and adds the names of the
/// operations to `names`.
fn replay(log: &str, mut state: State, each: impl Fn(&State), names: &mut BTreeSet<&'static str>) -> State {
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [term, index, txn, expected] = words[..] else { panic!("no entry: {line}") };
        let txn = decode_txn(&bytes(txn)).unwrap();
        let (term, index) = (Term(term.parse().unwrap()), index.parse().unwrap());
        let zxid = state.zxid_of(index, Some(&txn.request));
        if zxid <= state.last_zxid() {
            continue;
        }
        let op: Op = txn.request.op.clone();
        let applied = state.apply(LogPosition { term, zxid }, txn);
        assert_eq!(format!("{:016x}", hash(&applied, &state)), expected, "entry {index}: {op:?} -> {applied:?}");
        names.insert(op.row().name);
        each(&state);
    }
    state
}

fn read<'a>(records: impl IntoIterator<Item = &'a Vec<u8>>) -> State {
    let mut builder = StateBuilder::new();
    records.into_iter().for_each(|record| builder.push(record).unwrap());
    builder.finish().unwrap()
}

#[test]
fn a_log_comes_to_what_it_came_to_when_level_1_was_frozen() {
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        return LOGS.iter().enumerate().for_each(|(index, log)| freeze(index + 1, log));
    }
    let mut names = BTreeSet::new();
    for (log, snapshot) in LOGS.iter().zip(SNAPSHOTS) {
        let state = replay(log, State::default(), |state| state.check_invariants().unwrap(), &mut names);
        let frozen: Vec<Vec<u8>> = snapshot.lines().map(bytes).collect();
        assert!(state.records().eq(frozen));
    }
    assert_eq!(names.len(), 21, "an operation of level 1 stands in none of the logs: {names:?}");
}

#[test]
fn a_snapshot_at_any_place_of_the_log_goes_on_as_the_log_does() {
    for (log, snapshot) in LOGS.iter().zip(SNAPSHOTS) {
        let frozen: Vec<Vec<u8>> = snapshot.lines().map(bytes).collect();
        assert!(read(&frozen).records().eq(frozen));
        let length = log.lines().count();
        for cut in [length / 7, length / 2, length - 3] {
            let begin: String = log.lines().take(cut).map(|line| format!("{line}\n")).collect();
            let state = replay(&begin, State::default(), |_| {}, &mut BTreeSet::new());
            let records: Vec<Vec<u8>> = state.records().collect();
            let state = replay(log, read(&records), |_| {}, &mut BTreeSet::new());
            assert!(state.records().eq(snapshot.lines().map(bytes)));
        }
    }
}
