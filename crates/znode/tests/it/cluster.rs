//! The cluster's founding, format levels and removed members.

use znode::{
    Cluster, ClusterUuid, DecodeError, Error, Founding, LEVEL_MAX, Levels, LogPosition, Op, OtherLevel, Reply, Request,
    State, StateBuilder, Term, Txn, ZXID_BASE_MAX, Zxid,
};

const FOUNDING: Founding = Founding { uuid: ClusterUuid([7; 16]), zxid_base: 1_000, group: 0 };

/// Applies an operation as the log entry with this index, and with the zxid that the state computes
/// for it.
fn apply(state: &mut State, index: u64, op: Op) -> (Zxid, Result<Reply, Error>) {
    let request = Request::new(op);
    let zxid = state.zxid_of(index, Some(&request));
    let applied = state.apply(LogPosition { term: Term(1), zxid }, Txn { proven: false, time_ms: 1, request });
    (zxid, applied.reply.map_err(|refusal| refusal.error))
}

fn founded() -> State {
    let mut state = State::default();
    assert_eq!(apply(&mut state, 2, Op::Found(FOUNDING)), (Zxid(1_002), Ok(Reply::Done)));
    state
}

fn restored(state: &State) -> Result<State, DecodeError> {
    let mut builder = StateBuilder::new();
    state.records().try_for_each(|record| builder.push(&record))?;
    builder.finish()
}

#[test]
fn zxids_count_from_the_base_from_the_founding_on() {
    let mut state = State::default();
    assert_eq!((state.level(), state.cluster()), (1, None));
    assert_eq!(state.zxid_of(1, None), Zxid(1));
    state.skip(LogPosition { term: Term(1), zxid: Zxid(1) });
    apply(&mut state, 2, Op::Found(FOUNDING)).1.unwrap();
    assert_eq!(apply(&mut state, 3, Op::Multi(Vec::new())).0, Zxid(1_003));
    assert_eq!(restored(&state).unwrap().zxid_of(4, None), Zxid(1_004));
}

#[test]
fn a_second_founding_changes_nothing() {
    let mut state = founded();
    let other = Founding { uuid: ClusterUuid([8; 16]), zxid_base: 9_000, group: 0 };
    assert_eq!(apply(&mut state, 3, Op::Found(other)), (Zxid(1_003), Ok(Reply::Done)));
    assert_eq!(state.cluster().map(Cluster::founding), Some(&FOUNDING));
}

#[test]
fn a_base_that_lets_zxids_grow_beyond_a_json_number_founds_nothing() {
    let mut state = State::default();
    let refused = Founding { zxid_base: ZXID_BASE_MAX + 1, ..FOUNDING };
    assert_eq!(apply(&mut state, 1, Op::Found(refused)), (Zxid(1), Err(Error::BadArguments)));
    assert_eq!(state.cluster(), None);
    let highest = Founding { zxid_base: ZXID_BASE_MAX, ..FOUNDING };
    assert_eq!(apply(&mut state, 2, Op::Found(highest)), (Zxid(ZXID_BASE_MAX + 2), Ok(Reply::Done)));
}

#[test]
fn levels_only_rise_and_a_snapshot_above_the_known_one_is_not_read() {
    let mut state = founded();
    assert_eq!(apply(&mut state, 3, Op::SetLevel { level: 1 }).1, Err(Error::BadArguments));
    assert_eq!(restored(&state).unwrap().level(), 1);
    let level = LEVEL_MAX + 1;
    assert_eq!(apply(&mut state, 4, Op::SetLevel { level }).1, Ok(Reply::Done));
    assert_eq!(state.level(), level);
    assert_eq!(restored(&state).unwrap_err(), DecodeError::Level(OtherLevel { level, known: Levels::OWN }));
}

#[test]
fn a_removed_member_is_remembered_for_good() {
    let mut state = State::default();
    assert_eq!(apply(&mut state, 1, Op::NoteRemoved { node_id: 3 }).1, Err(Error::BadArguments));
    let mut state = founded();
    for index in [5, 6] {
        apply(&mut state, index, Op::NoteRemoved { node_id: 3 }).1.unwrap();
    }
    let removed = |state: &State| state.cluster().unwrap().removed().collect::<Vec<_>>();
    assert_eq!(removed(&state), [(3, Zxid(1_005))]);
    assert_eq!(removed(&restored(&state).unwrap()), [(3, Zxid(1_005))]);
}

/// Format level 2 introduces the cluster's note, a text for people. At level 1 a note is refused,
/// and state and records show no trace of it. At level 2, a program that knows only level 1 refuses
/// the records.
#[cfg(feature = "next-level")]
#[test]
fn what_came_with_the_next_level_waits_for_it() {
    let note = || Op::SetNote { text: "note".into() };
    let mut state = founded();
    let before: Vec<Vec<u8>> = state.records().skip(1).collect();
    assert_eq!(apply(&mut state, 3, note()).1, Err(Error::LevelTooLow));
    assert!(state.records().skip(1).eq(before), "but for the head, which has the last zxid");
    let old = Levels { min: 1, max: 1 };
    let read = |state: &State, known| {
        let mut builder = StateBuilder::knowing(known);
        state.records().try_for_each(|record| builder.push(&record)).and_then(|()| builder.finish())
    };
    read(&state, old).unwrap();
    apply(&mut state, 4, Op::SetLevel { level: 2 }).1.unwrap();
    assert_eq!(apply(&mut state, 5, note()).1, Ok(Reply::Done));
    let restored = read(&state, Levels::OWN).unwrap();
    assert_eq!(restored.cluster().and_then(Cluster::note), Some("note"));
    assert!(restored.records().eq(state.records()));
    assert_eq!(read(&state, old).unwrap_err(), DecodeError::Level(OtherLevel { level: 2, known: old }));
}
