//! Checks that a backup reads back as the state from which it was written, and that any other file
//! is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::Cursor;

use backup::{Backup, Error, Manifest, Saved, VERSION, write};
use znode::{ClusterUuid, Create, Founding, LogPosition, Op, Request, State, Term, Txn, ZPath, ZnodeOp};

/// Returns a state with znodes of incompressible data, which fill several chunks.
fn state(znodes: usize) -> State {
    let mut state = State::default();
    let founding = Op::Found(Founding { uuid: ClusterUuid([7; 16]), zxid_base: 1_000, group: 0 });
    let mut rng = fastrand::Rng::with_seed(7);
    let creates = (0..znodes).map(|number| {
        let data = std::iter::repeat_with(|| rng.u8(..)).take(40_000).collect();
        Op::Znode(ZnodeOp::Create(Create { data, ..Create::new(ZPath::root(), format!("n{number}")) }))
    });
    for (index, op) in (1..).zip(std::iter::once(founding).chain(creates.collect::<Vec<_>>())) {
        let request = Request::new(op);
        let at = LogPosition { term: Term(3), zxid: state.zxid_of(index, Some(&request)) };
        state.apply(at, Txn { proven: false, time_ms: 1_000 + index, request }).reply.unwrap();
    }
    state
}

fn saved() -> Saved {
    Saved { program: "0.1.0".into(), at_ms: 5, node_id: 1, local: false }
}

fn file(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    let manifest = Manifest::of(state, "orders", saved()).unwrap();
    let written = write(state, &manifest, &mut bytes).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    bytes
}

fn open(bytes: &[u8]) -> Result<Backup<Cursor<&[u8]>>, Error> {
    Backup::open(Cursor::new(bytes))
}

#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let error = open(bytes).err().unwrap().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_state_reads_back_record_by_record() {
    for znodes in [0, 1, 30] {
        let state = state(znodes);
        let bytes = file(&state);
        let mut backup = open(&bytes).unwrap();
        assert_eq!(backup.manifest(), &Manifest::of(&state, "orders", saved()).unwrap());
        assert_eq!(backup.bytes(), bytes.len() as u64);
        assert!(backup.state().unwrap().records().eq(state.records()), "{znodes} znodes");
    }
}

#[test]
fn a_state_before_its_cluster_is_founded_has_no_backup() {
    assert_eq!(Manifest::of(&State::default(), "orders", saved()), None);
}

#[test]
fn what_is_no_backup_is_told_from_what_is_a_damaged_one() {
    let bytes = file(&state(2));
    for other in [&b""[..], b"zlock", b"PK\x03\x04 something else altogether"] {
        refused(other, "no backup of zlock");
    }
    let mut newer = bytes.clone();
    newer[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    refused(&newer, &format!("version {}", VERSION + 1));
    let mut longer = bytes.clone();
    longer.push(0);
    refused(&longer, "bytes behind its end");
    assert!(open(&bytes).is_ok());
}

#[test]
fn a_cut_file_is_refused_wherever_it_was_cut() {
    let bytes = file(&state(1));
    for length in (0..bytes.len()).step_by(97).chain(bytes.len() - 40..bytes.len()) {
        let error = open(&bytes[..length]).err().unwrap();
        let expected = if length < 8 { matches!(error, Error::NotABackup) } else { matches!(error, Error::Cut(_)) };
        assert!(expected, "{length} bytes: {error}");
    }
}

#[test]
fn any_flipped_bit_is_found() {
    let bytes = file(&state(0));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&flipped).is_err(), "bit {bit} of {}", bytes.len() * 8);
    }
    let bytes = file(&state(10));
    let mut middle = bytes.clone();
    middle[bytes.len() / 2] ^= 1;
    refused(&middle, "SHA-256");
}

/// Checks that the golden backup in version 1 of the format can be read. Before the first release,
/// the environment variable `UPDATE_GOLDENFILES` makes this test rewrite the golden file. After the
/// release, a changed layout needs a new version of the format.
#[test]
fn the_format_is_the_one_that_was_frozen() {
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
        let text: String = file(&state(0)).chunks(32).map(line).collect();
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/version-1.hex"), text).unwrap();
        return;
    }
    let frozen = include_str!("golden/version-1.hex").split_whitespace().collect::<String>();
    let digits = frozen.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let frozen: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    let mut backup = open(&frozen).unwrap();
    assert_eq!(backup.manifest().zxid, 1_001);
    assert!(backup.state().unwrap().records().eq(state(0).records()));
}
