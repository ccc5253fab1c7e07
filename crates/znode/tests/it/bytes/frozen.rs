//! Golden files of bytes: the comparison with them, and code that several of these tests share.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fastrand::Rng;
use znode::{
    Acquire, Attempt, Credential, DecodeError, Limits, LockMode, LogPosition, Op, Request, RequestKey, SessionId,
    State, StateBuilder, Term, Txn, ZPath, Zxid,
};

use crate::model::ticket_name;

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap()).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Compares a text with its golden file. With the environment variable `UPDATE_GOLDENFILES`, the
/// function writes the file instead, which is allowed until the first release.
#[track_caller]
pub(crate) fn assert_frozen(made: &str, frozen: &str, file: &str) {
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(format!("{}/tests/golden/level-1/{file}", env!("CARGO_MANIFEST_DIR")), made).unwrap();
    } else {
        assert_eq!(made, frozen, "{file}: what a log means has changed");
    }
}

pub(crate) fn build<'a>(records: impl IntoIterator<Item = &'a Vec<u8>>) -> Result<State, DecodeError> {
    let mut builder = StateBuilder::new();
    for record in records {
        builder.push(record)?;
    }
    builder.finish()
}

pub(crate) fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

pub(crate) fn acquire(lock: &str, mode: LockMode, owner: &str) -> Op {
    let (owner, label) = (owner.into(), "label".into());
    Op::Acquire(Acquire { owner, label, ..Acquire::new(path(lock), mode) })
}

/// Path of the lock node that an acquire with the idempotency key `[key; 16]` makes.
pub(crate) fn ticket(lock: &str, key: u8, mode: LockMode, number: u64) -> ZPath {
    path(&format!("{lock}/{}", ticket_name(mode, RequestKey([key; 16]), number)))
}

/// Operations, and the golden snapshot records (all but the first) of the state that they make.
/// Each operation has its session's id, or 0 for no session. Its idempotency key is the zxid of its
/// log entry.
pub(crate) struct Beside {
    pub(crate) operations: Vec<(u64, Op)>,
    pub(crate) golden: &'static str,
    pub(crate) file: &'static str,
}

impl Beside {
    fn state(&self) -> State {
        let limits = Limits { replies_max: 12, container_idle_ms: 60_000, ..Limits::default() };
        let mut state = State::new(limits);
        for ((session, op), zxid) in self.operations.iter().cloned().zip(1..) {
            let mut request = Request::new(op);
            if session > 0 {
                request.credential = Some(Credential { session: SessionId(session), secret_hash: [1; 16] });
                (request.key, request.attempt) = (Some(RequestKey([zxid as u8; 16])), Attempt(1));
            }
            let txn = Txn { proven: false, time_ms: 1_763_700_000_000 + zxid, request };
            state.apply(LogPosition { term: Term(300), zxid: Zxid(zxid) }, txn);
        }
        state
    }

    /// The golden records. The first record of a snapshot (the head) is not among them, because it
    /// contains limits, and the default limits may change.
    fn frozen(&self) -> Vec<Vec<u8>> {
        self.golden.lines().map(bytes).collect()
    }

    fn head(&self) -> Vec<u8> {
        self.state().records().next().unwrap()
    }

    /// Checks that the operations make the golden records, that these include all the given kinds
    /// of snapshot record, and that they can be read.
    #[track_caller]
    pub(crate) fn check_bytes(&self, kinds: &[u8]) {
        let made: Vec<Vec<u8>> = self.state().records().skip(1).collect();
        let text: String = made.iter().map(|record| hex(record) + "\n").collect();
        assert_frozen(&text, self.golden, self.file);
        let found: BTreeSet<u8> = made.iter().map(|record| record[1]).collect();
        assert_eq!(found, kinds.iter().copied().collect(), "one of the kinds of record is not frozen");
        let state = build_on(&self.head(), &self.frozen()).unwrap();
        state.check_invariants().unwrap();
        assert!(state.records().skip(1).eq(self.frozen()));
    }

    /// Checks that missing, doubled and cut golden records are refused. A record with a changed
    /// byte must be refused, or give a state that can apply an entry. `flips` is the number of
    /// changed bytes that are tried for each record.
    #[track_caller]
    pub(crate) fn check_damage(&self, flips: u32) {
        let (head, frozen) = (self.head(), self.frozen());
        let mut rng = Rng::with_seed(7);
        for index in 0..frozen.len() {
            let mut records = frozen.clone();
            records.remove(index);
            assert!(build_on(&head, &records).is_err(), "without record {index}");
            let mut records = frozen.clone();
            records.insert(index, frozen[index].clone());
            assert!(build_on(&head, &records).is_err(), "record {index} twice");
            // The push of the doubled record itself must fail, not only the count in the last
            // record.
            let mut builder = StateBuilder::new();
            [&head].into_iter().chain(&frozen[..=index]).for_each(|record| builder.push(record).unwrap());
            assert!(builder.push(&frozen[index]).is_err(), "record {index} twice in a row");
            for length in 0..frozen[index].len() {
                let mut records = frozen.clone();
                records[index].truncate(length);
                assert!(build_on(&head, &records).is_err(), "record {index} cut to {length} bytes");
            }
            for _ in 0..flips {
                let mut records = frozen.clone();
                let at = rng.usize(..records[index].len());
                records[index][at] = rng.u8(..);
                if let Ok(mut state) = build_on(&head, &records) {
                    let op = Op::ExpireSessions { sessions: vec![SessionId(1), SessionId(2)], term: Term(301) };
                    let txn = Txn { proven: false, time_ms: u64::MAX, request: Request::new(op) };
                    state.apply(LogPosition { term: Term(301), zxid: Zxid(1 << 52) }, txn);
                }
            }
        }
    }
}

fn build_on(head: &Vec<u8>, records: &[Vec<u8>]) -> Result<State, DecodeError> {
    build([head].into_iter().chain(records))
}
