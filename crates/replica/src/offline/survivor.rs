//! Data of a stopped node: its snapshot and all entries of its log, acknowledged to clients or not.

use std::io;
use std::path::Path;

use openraft::{EntryPayload, RaftLogReader as _};
use storage::{Entry, LogId, Membership, NodeMeta, Storage, StorageConfig};
use znode::{ClusterUuid, Levels, LogPosition, State, StateBuilder, Term, Zxid, decode_txn};

use crate::Member;
use crate::offline::error::Error;

/// Number of log entries that are read at a time.
const BATCH: u64 = 512;

/// Position of an entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Term of the leader that wrote the entry.
    pub term: u64,
    /// The entry's index.
    pub index: u64,
}

impl From<LogId> for Position {
    fn from(id: LogId) -> Self {
        Position { term: id.committed_leader_id().term, index: id.index }
    }
}

/// Identity and data of a stopped node.
#[derive(Debug)]
pub struct Survivor {
    /// The cluster's name.
    pub cluster_id: String,
    /// The node's id.
    pub node_id: u64,
    /// The cluster's uuid.
    pub cluster_uuid: ClusterUuid,
    /// Zxid base of the cluster, which is added to an entry's index to make its zxid.
    pub zxid_base: u64,
    /// True if the node had a vote. A node without a vote was still catching up, and other nodes
    /// have more entries.
    pub joined: bool,
    /// Last term in which the node voted; 0 if it never did.
    pub voted_term: u64,
    /// Position of the node's last entry; `None` without entries. Of several survivors, the one
    /// with the greatest position has the most entries.
    pub last: Option<Position>,
    /// Position of the last entry that the node knew to be committed. Later entries may or may not
    /// have been acknowledged.
    pub committed: Option<Position>,
    /// Members in the last membership that the node has.
    pub members: Vec<Member>,
    /// State after the node's last entry.
    pub state: State,
}

impl Survivor {
    /// Opens the directory as the node itself would, repairs what a crash interrupted, and applies
    /// every entry. The node must be stopped.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn read(data_dir: &Path) -> Result<Survivor, Error> {
        let identity = NodeMeta::identity_in(data_dir)?.ok_or_else(|| Error::NoData(data_dir.into()))?;
        let storage = Storage::open(StorageConfig {
            data_dir: data_dir.into(),
            cluster_id: identity.cluster_id.clone(),
            node_id: identity.node_id,
            free_disk_min_bytes: 0,
            ballast_bytes: 0,
            // A node with peers may give up entries, because a leader sends them again. Here no
            // leader can.
            has_peers: false,
        })?;
        let read = read(&storage, identity).await;
        let closing = storage.closing();
        drop(storage);
        closing.closed().await;
        read
    }

    /// Zxid of the entry that removed this node from the cluster; `None` if the node's data has no
    /// such entry.
    pub fn removed_at(&self) -> Option<Zxid> {
        let mut removed = self.state.cluster()?.removed();
        removed.find(|(id, _)| *id == self.node_id).map(|(_, zxid)| zxid)
    }

    /// The zxid of an entry.
    pub fn zxid(&self, position: Position) -> u64 {
        self.zxid_base + position.index
    }
}

async fn read(storage: &Storage, identity: storage::Identity) -> Result<Survivor, Error> {
    let (mut state, mut membership, mut next) = begin(storage)?;
    let mut log = storage.log.clone();
    let end = storage.log.last().map_or(next, |last| last.index + 1);
    while next < end {
        let entries = log.try_get_log_entries(next..end.min(next + BATCH)).await;
        let entries = entries.map_err(|source| Error::Io { doing: "reading the log".into(), source })?;
        let before = next;
        for entry in entries {
            next = entry.log_id.index + 1;
            if let EntryPayload::Membership(other) = &entry.payload {
                membership = other.clone();
            }
            apply(&mut state, entry)?;
        }
        if next == before {
            let source = io::Error::new(io::ErrorKind::InvalidData, format!("entry {next} is missing"));
            return Err(Error::Io { doing: "reading the log".into(), source });
        }
    }
    let founding = *state.cluster().ok_or(Error::NotFounded)?.founding();
    let snapshot = storage.snapshots.current().and_then(|snapshot| snapshot.meta().last_log_id);
    Ok(Survivor {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
        cluster_uuid: founding.uuid,
        zxid_base: founding.zxid_base,
        joined: storage.meta.joined(),
        voted_term: storage.log.vote().map_or(0, |vote| vote.leader_id.term),
        last: storage.log.last().max(snapshot).map(Position::from),
        committed: storage.log.committed().max(snapshot).map(Position::from),
        members: membership.nodes().map(|(id, member)| Member::of(*id, member)).collect(),
        state,
    })
}

/// Reads the snapshot. Returns its state, its membership, and the index of the first entry after
/// it.
fn begin(storage: &Storage) -> Result<(State, Membership, u64), Error> {
    let Some(snapshot) = storage.snapshots.current() else {
        return Ok((State::default(), Membership::default(), 0));
    };
    let mut builder = StateBuilder::new();
    let damaged = |error| Error::Decode { what: "a record of the snapshot".into(), error };
    for record in snapshot.records() {
        let record = record.map_err(|source| Error::Io { doing: "reading the snapshot".into(), source })?;
        builder.push(&record).map_err(damaged)?;
    }
    let state = builder.finish().map_err(damaged)?;
    let next = snapshot.meta().last_log_id.map_or(0, |id| id.index + 1);
    Ok((state, snapshot.meta().last_membership.membership().clone(), next))
}

/// Applies an entry as the state machine of a running node does.
fn apply(state: &mut State, entry: Entry) -> Result<(), Error> {
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
    let txn = decode_txn(&command.0).map_err(|error| Error::Decode { what: format!("entry {id}"), error })?;
    if let znode::Op::SetLevel { level } = txn.request.op {
        let known = Levels::OWN.check(level).map_err(znode::DecodeError::Level);
        known.map_err(|error| Error::Decode { what: format!("entry {id}"), error })?;
    }
    let at = LogPosition { term, zxid: state.zxid_of(id.index, Some(&txn.request)) };
    state.apply(at, txn);
    Ok(())
}
