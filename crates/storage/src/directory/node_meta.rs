//! Record of the node that owns the data: its identity, and its progress in joining the cluster.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bincode::{Decode, Encode};

use crate::codec::{self, CodecError};
use crate::directory::place::{Files, Place};
use crate::error::{Doing, Error};
use crate::failpoint;
use crate::fatal::Fatal;

/// Version of the data directory's layout. This program reads only this version. It is raised with
/// each change that an older program could not read.
pub const FORMAT: u32 = 2;

pub(crate) const NODE: &str = "node";

/// Identity of a node: the name of its cluster, and its id there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name.
    pub cluster_id: String,
    /// The node's id in the cluster.
    pub node_id: u64,
}

/// Values fixed when the cluster was founded: its uuid, its zxid base (added to a log index to form
/// a zxid), and the number of its Raft group, which is always 0.
type FoundingRecord = ([u8; 16], u64, u32);

/// Content of the record named `node`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct NodeRecord {
    format: u32,
    cluster_id: String,
    node_id: u64,
    founding: Option<FoundingRecord>,
    /// Random number drawn when the directory was created. The log has it too, so that a log from
    /// an earlier directory of this node is recognized.
    incarnation: u64,
    log_begun: bool,
    joined: bool,
    rejoining: bool,
    /// Number of the log's bytes that were known to be on disk when this record was written. A
    /// shorter log is damaged.
    log_bytes: u64,
}

/// Identity of the node that owns a data directory, and its progress in joining the cluster. Clones
/// share it.
#[derive(Clone, Debug)]
pub struct NodeMeta {
    place: Arc<dyn Place>,
    /// Content of the record on disk. The mutex is never held during IO, because threads of the
    /// async runtime lock it.
    record: Arc<Mutex<NodeRecord>>,
    /// Locked while a change is written, so that changes do not overlap.
    change: Arc<Mutex<()>>,
    identity: Identity,
    fatal: Fatal,
    pristine: bool,
}

impl NodeMeta {
    /// Writes the first content of the record named `node` in a new data directory. Durable on
    /// return.
    pub(crate) fn create(place: &dyn Place, identity: &Identity, incarnation: u64) -> io::Result<()> {
        let Identity { cluster_id, node_id } = identity.clone();
        failpoint::pass("meta.create")?;
        let record = NodeRecord {
            format: FORMAT,
            cluster_id,
            node_id,
            founding: None,
            incarnation,
            log_begun: false,
            joined: false,
            rejoining: false,
            log_bytes: 0,
        };
        place.replace(NODE, &codec::seal(&record))?;
        failpoint::pass("meta.created")
    }

    /// Tells whether `place` has the record `node`, readable or not.
    pub(crate) fn is_there(place: &dyn Place) -> io::Result<bool> {
        Ok(place.read(NODE)?.is_some())
    }

    /// Reads the record `node` in `place` and refuses an identity other than `identity`. `dir` is
    /// the data directory, for errors.
    pub(crate) fn open(
        place: &Arc<dyn Place>,
        dir: &Path,
        identity: Identity,
        fatal: &Fatal,
    ) -> Result<NodeMeta, Error> {
        let gone = || Error::Damaged { dir: dir.into(), what: "the node's identity is gone".into() };
        let record = read(&**place, dir)?.ok_or_else(gone)?;
        check(&record, dir, &identity)?;
        let (record, change) = (Arc::new(Mutex::new(record)), Arc::default());
        Ok(NodeMeta { place: Arc::clone(place), record, change, identity, fatal: fatal.clone(), pristine: false })
    }

    /// Reads the identity of the node that owns the data directory `dir`, without opening the
    /// storage; `None` for a directory without data.
    ///
    /// # Errors
    /// As [`Storage::open`](crate::Storage::open).
    pub fn identity_in(dir: &Path) -> Result<Option<Identity>, Error> {
        let record = read(&Files(dir.into()), dir)?;
        Ok(record.map(|record| Identity { cluster_id: record.cluster_id, node_id: record.node_id }))
    }

    /// Identity of this node.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Cluster's uuid, zxid base (the number added to a log index to form a zxid), and number of
    /// its Raft group, always 0. `None` before the first [`NodeMeta::set_founding`] on this data
    /// directory.
    pub fn founding(&self) -> Option<([u8; 16], u64, u32)> {
        self.record().founding
    }

    /// Stores the values fixed when the cluster was founded. Durable on return. Blocking.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one; the node must stop.
    pub fn set_founding(&self, founding: ([u8; 16], u64, u32)) -> io::Result<()> {
        if self.founding() == Some(founding) {
            return Ok(());
        }
        self.change("noting the cluster's uuid", "meta.founding", |record| record.founding = Some(founding))
    }

    /// Tells whether the directory was without a vote, log entry and snapshot when it was opened,
    /// and its node had not joined the cluster. Such a node is new, or its disk was wiped and it
    /// may have voted before.
    pub fn pristine(&self) -> bool {
        self.pristine
    }

    /// Tells whether this node may vote, because [`NodeMeta::set_joined`] was called on this data
    /// directory.
    pub fn joined(&self) -> bool {
        self.record().joined
    }

    /// Tells whether this node has lost its state and begun a new log that contains only its last
    /// vote. Such a node founds no new cluster, and does not vote until it has the whole state
    /// again.
    pub fn rejoining(&self) -> bool {
        self.record().rejoining
    }

    /// Stores that this node may vote: it helped to found the cluster, or has caught up with a
    /// leader since its directory was created. Durable on return. Blocking.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one; the node must stop.
    pub fn set_joined(&self) -> io::Result<()> {
        if self.joined() {
            return Ok(());
        }
        self.change("joining the cluster", "meta.joined", |record| {
            record.joined = true;
            record.rejoining = false;
        })
    }

    /// Stores that the log is given up, and that the node must not vote until a leader has sent it
    /// the whole state. Durable on return. Blocking.
    pub(crate) fn set_rejoining(&self) -> io::Result<()> {
        self.change("giving up the log", "meta.rejoining", |record| {
            record.joined = false;
            record.rejoining = true;
            record.log_bytes = 0;
        })
    }

    /// Tells whether the log of this directory began with an owner record, which names the node
    /// that owns the log. If so, a log without an owner record means that the original log was
    /// lost.
    pub(crate) fn log_begun(&self) -> bool {
        self.record().log_begun
    }

    pub(crate) fn set_log_begun(&self) -> io::Result<()> {
        self.change("beginning the Raft log", "meta.log-begun", |record| record.log_begun = true)
    }

    /// Smallest length in bytes that the log must have; a shorter log is damaged.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.record().log_bytes
    }

    /// Stores that `bytes` bytes of the log are on disk. Durable on return. Blocking.
    pub(crate) fn set_log_bytes(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.log_bytes() {
            return Ok(());
        }
        self.change("noting the end of the Raft log", "meta.log-bytes", |record| {
            record.log_bytes = record.log_bytes.max(bytes);
        })
    }

    /// Random number drawn when the directory was created. A node that returns with another number
    /// has lost its data.
    pub fn incarnation(&self) -> u64 {
        self.record().incarnation
    }

    pub(crate) fn set_pristine(&mut self, pristine: bool) {
        self.pristine = pristine;
    }

    fn record(&self) -> MutexGuard<'_, NodeRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, doing: &str, failpoint: &'static str, change: impl FnOnce(&mut NodeRecord)) -> io::Result<()> {
        self.fatal.check()?;
        let _turn = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = self.record().clone();
        change(&mut changed);
        let written = failpoint::pass(failpoint).and_then(|()| self.place.replace(NODE, &codec::seal(&changed)));
        self.fatal.note(doing, written)?;
        *self.record() = changed;
        Ok(())
    }
}

/// Reads and checks the record `node` in `place`; `None` when there is none. `dir` is the data
/// directory, for errors.
fn read(place: &dyn Place, dir: &Path) -> Result<Option<NodeRecord>, Error> {
    let record = place.read(NODE).doing(|| "reading the node's identity".to_string())?;
    let Some(record) = record else { return Ok(None) };
    let record: NodeRecord = codec::unseal(&record).map_err(|error| match error {
        CodecError::Version { found } => newer(dir, u32::from(found)),
        error => Error::Damaged { dir: dir.into(), what: format!("the node's identity is unreadable ({error})") },
    })?;
    match record.format {
        FORMAT => Ok(Some(record)),
        found if found > FORMAT => Err(newer(dir, found)),
        found => Err(Error::OlderFormat { dir: dir.into(), found, known: FORMAT }),
    }
}

fn check(record: &NodeRecord, dir: &Path, wanted: &Identity) -> Result<(), Error> {
    let dir = dir.to_path_buf();
    // The cluster is compared first, as a node id of another cluster has no meaning here.
    if record.cluster_id != wanted.cluster_id {
        Err(Error::OtherCluster { dir, found: record.cluster_id.clone(), wanted: wanted.cluster_id.clone() })
    } else if record.node_id != wanted.node_id {
        Err(Error::OtherNode { dir, found: record.node_id, wanted: wanted.node_id })
    } else {
        Ok(())
    }
}

fn newer(dir: &Path, found: u32) -> Error {
    Error::NewerFormat { dir: dir.into(), found, known: FORMAT }
}
