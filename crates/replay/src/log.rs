//! Replay: applies the snapshot and the log of a stopped node again.

use std::io;
use std::path::PathBuf;

use openraft::{EntryPayload, RaftLogReader as _};
use storage::{Entry, Storage, StorageConfig};
use znode::{EventKind, LogPosition, Op, SessionId, State, StateBuilder, Term, ZPath, decode_txn};

use crate::{Fact, Holders};

/// Number of log entries that are read at a time.
const BATCH: u64 = 512;

/// The node whose data is read.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's data directory. It is opened as the node itself does, which completes steps that
    /// a crash interrupted.
    pub data_dir: PathBuf,
    /// The cluster's name.
    pub cluster_id: String,
    /// The node's id.
    pub node_id: u64,
}

/// Reason why data cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no data of a node.
    #[error("{0} is no data directory of a node: it has no file `node`")]
    NoData(PathBuf),
    /// The storage in the directory cannot be opened.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The log or the snapshot cannot be read.
    #[error("the log or the snapshot cannot be read: {0}")]
    Io(#[from] io::Error),
    /// This part of the data (a record of the snapshot, or a log entry) cannot be decoded.
    #[error("{0} cannot be decoded: {1}")]
    Decode(String, znode::DecodeError),
    /// For this lock, the holders that follow from the facts differ from the holders in the final
    /// state.
    #[error("the holders of {0} differ from those in the recorded facts")]
    Disagree(ZPath),
}

/// Calls `tell` with every fact in the data of a stopped node, up to the last entry that the node
/// knows to be committed.
///
/// # Errors
/// When the data cannot be read, or the holders that follow from the facts differ from those in the
/// final state.
pub async fn replay(node: Node, mut tell: impl FnMut(Fact)) -> Result<(), Error> {
    let Node { data_dir, cluster_id, node_id } = node;
    // Without this check, the storage would create a new data directory here.
    if !data_dir.join("node").is_file() {
        return Err(Error::NoData(data_dir));
    }
    let storage = Storage::open(StorageConfig {
        data_dir,
        cluster_id,
        node_id,
        free_disk_min_bytes: 0,
        ballast_bytes: 0,
        // As for a node without peers, damaged data is refused, because no leader can send the
        // state again.
        has_peers: false,
    })?;
    let (mut state, mut next) = begin(&storage)?;
    tell(Fact::Began { zxid: state.last_zxid().0 });
    let mut holders = Holders::default();
    let locks: Vec<ZPath> = znode::lock::paths(&state, &ZPath::root(), None).cloned().collect();
    holders.look(&state, locks, state.last_zxid().0).into_iter().for_each(&mut tell);
    let end = storage.log.committed().map_or(next, |committed| committed.index + 1);
    let mut log = storage.log.clone();
    while next < end {
        for entry in log.try_get_log_entries(next..end.min(next + BATCH)).await? {
            next = entry.log_id.index + 1;
            apply(&mut state, &mut holders, entry, &mut tell)?;
        }
    }
    if let Some(lock) = holders.differences(&state).into_iter().next() {
        return Err(Error::Disagree(lock));
    }
    let digest = replica::Replica::digest(&state).iter().map(|byte| format!("{byte:02x}")).collect();
    tell(Fact::Applied { zxid: state.last_zxid().0, digest });
    Ok(())
}

/// Returns the state of the newest snapshot, and the index of the next log entry. Without a
/// snapshot the state is empty and the index 0.
fn begin(storage: &Storage) -> Result<(State, u64), Error> {
    let Some(snapshot) = storage.snapshots.current() else { return Ok((State::default(), 0)) };
    let mut builder = StateBuilder::new();
    let damaged = |error| Error::Decode("a record of the snapshot".into(), error);
    for record in snapshot.records() {
        builder.push(&record?).map_err(damaged)?;
    }
    let state = builder.finish().map_err(damaged)?;
    Ok((state, snapshot.meta().last_log_id.map_or(0, |id| id.index + 1)))
}

fn apply(state: &mut State, holders: &mut Holders, entry: Entry, tell: &mut impl FnMut(Fact)) -> Result<(), Error> {
    let id = entry.log_id;
    let term = Term(id.committed_leader_id().term);
    let EntryPayload::Normal(command) = entry.payload else {
        let at = LogPosition { term, zxid: state.zxid_of(id.index, None) };
        // The first membership is entry 0, and zxid 0 means "never".
        if at.zxid > state.last_zxid() {
            state.skip(at);
        }
        return Ok(());
    };
    let txn = decode_txn(&command.0).map_err(|error| Error::Decode(format!("entry {id}"), error))?;
    let at = LogPosition { term, zxid: state.zxid_of(id.index, Some(&txn.request)) };
    let zxid = at.zxid.0;
    let expires = matches!(txn.request.op, Op::ExpireSessions { .. });
    let sessions = changes_sessions(&txn.request.op).then(|| sessions(state));
    let applied = state.apply(at, txn);
    if let Some(before) = sessions {
        let after = self::sessions(state);
        let opened = after.iter().filter(|session| !before.contains(session));
        opened.for_each(|session| tell(Fact::SessionOpened { zxid, session: session.0 }));
        let ended = before.iter().filter(|session| !after.contains(session));
        ended.for_each(|session| tell(Fact::SessionEnded { zxid, session: session.0 }));
    }
    let changed = applied.events.iter().filter(|event| event.kind != EventKind::ChildrenChanged);
    let touched = changed.filter_map(|event| event.path.parent());
    // A ticket of an expired session may stay for its lock-delay, which causes no event. So after
    // an expiry all held locks are compared.
    let lingering = if expires { holders.known() } else { Vec::new() };
    holders.look(state, touched.chain(lingering), zxid).into_iter().for_each(tell);
    Ok(())
}

fn changes_sessions(op: &Op) -> bool {
    matches!(op, Op::OpenSession { .. } | Op::CloseSession { .. } | Op::ExpireSessions { .. })
}

fn sessions(state: &State) -> std::collections::BTreeSet<SessionId> {
    state.sessions_from(SessionId(0)).map(|session| session.id).collect()
}
