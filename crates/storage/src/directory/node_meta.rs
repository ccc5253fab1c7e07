//! Whose data this is, and how far that node has come.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bincode::{Decode, Encode};

use crate::codec::{self, CodecError};
use crate::directory::place::{Files, Place};
use crate::error::{Doing, Error};
use crate::failpoint;
use crate::fatal::Fatal;

/// The layout of the data directory as a whole, the only one that this program reads. Raised when
/// an older program could not read it any more.
pub const FORMAT: u32 = 2;

pub(crate) const NODE: &str = "node";

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name.
    pub cluster_id: String,
    /// The node's id in it.
    pub node_id: u64,
}

/// Which cluster was founded: its uuid, zxid base and group.
type FoundingRecord = ([u8; 16], u64, u32);

/// The record `node`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
struct NodeRecord {
    format: u32,
    cluster_id: String,
    node_id: u64,
    founding: Option<FoundingRecord>,
    /// Drawn when the directory was new: it tells its log from one of a directory that this node
    /// had before.
    incarnation: u64,
    log_begun: bool,
    joined: bool,
    rejoining: bool,
    /// Bytes of the log that are sure to be on disk: how far it must at least reach.
    log_bytes: u64,
}

/// Whose data a directory holds, and how far that node has come. Clones share it.
#[derive(Clone, Debug)]
pub struct NodeMeta {
    place: Arc<dyn Place>,
    /// As it is on disk. Held for a look only: runtime threads take it.
    record: Arc<Mutex<NodeRecord>>,
    /// Held while a change is written.
    change: Arc<Mutex<()>>,
    identity: Identity,
    fatal: Fatal,
    pristine: bool,
}

impl NodeMeta {
    /// Writes the identity into a new, empty place. Durable on return.
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

    /// Whether a place has an identity, readable or not.
    pub(crate) fn is_there(place: &dyn Place) -> io::Result<bool> {
        Ok(place.read(NODE)?.is_some())
    }

    /// Reads the identity in `place`, which lies in the data directory `dir`, and compares it with
    /// `identity`.
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

    /// Whose data a directory has; `None` when it has no identity.
    pub(crate) fn identity_in(dir: &Path) -> Result<Option<Identity>, Error> {
        let record = read(&Files(dir.into()), dir)?;
        Ok(record.map(|record| Identity { cluster_id: record.cluster_id, node_id: record.node_id }))
    }

    /// Who this node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Uuid, zxid base and group of the cluster, once [`NodeMeta::set_founding`] was called in this
    /// or an earlier run.
    pub fn founding(&self) -> Option<([u8; 16], u64, u32)> {
        self.record().founding
    }

    /// Remembers for good which cluster this is. Durable on return. Blocking.
    ///
    /// # Errors
    /// Any disk error, now or earlier; the node must stop.
    pub fn set_founding(&self, founding: ([u8; 16], u64, u32)) -> io::Result<()> {
        if self.founding() == Some(founding) {
            return Ok(());
        }
        self.change("noting the cluster's uuid", "meta.founding", |record| record.founding = Some(founding))
    }

    /// True when this directory never took part in the cluster before it was opened: no vote, no
    /// entry, no snapshot, not joined. It is either a new node, or one whose disk was wiped and
    /// that may have voted before.
    pub fn pristine(&self) -> bool {
        self.pristine
    }

    /// True once [`NodeMeta::set_joined`] was called, in this or an earlier run.
    pub fn joined(&self) -> bool {
        self.record().joined
    }

    /// True when this node has lost its state and has begun a new log with its old vote: it knows
    /// that there is a cluster, and has no vote in it before it has everything again.
    pub fn rejoining(&self) -> bool {
        self.record().rejoining
    }

    /// Remembers for good that this node holds all that it must know to vote: it helped to found
    /// the cluster, or has caught up with a leader since its directory was new. Durable on return.
    /// Blocking.
    ///
    /// # Errors
    /// Any disk error, now or earlier; the node must stop.
    pub fn set_joined(&self) -> io::Result<()> {
        if self.joined() {
            return Ok(());
        }
        self.change("joining the cluster", "meta.joined", |record| {
            record.joined = true;
            record.rejoining = false;
        })
    }

    /// Remembers that the log is given up, and with it the right to vote. Durable on return.
    /// Blocking.
    pub(crate) fn set_rejoining(&self) -> io::Result<()> {
        self.change("giving up the log", "meta.rejoining", |record| {
            record.joined = false;
            record.rejoining = true;
            record.log_bytes = 0;
        })
    }

    /// True when this directory's log was begun: from then on a log without this node's name is a
    /// lost one.
    pub(crate) fn log_begun(&self) -> bool {
        self.record().log_begun
    }

    pub(crate) fn set_log_begun(&self) -> io::Result<()> {
        self.change("beginning the Raft log", "meta.log-begun", |record| record.log_begun = true)
    }

    /// Bytes that the log must at least have.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.record().log_bytes
    }

    /// Remembers that so many bytes of the log are on disk. Durable on return. Blocking.
    pub(crate) fn set_log_bytes(&self, bytes: u64) -> io::Result<()> {
        if bytes <= self.log_bytes() {
            return Ok(());
        }
        self.change("noting the end of the Raft log", "meta.log-bytes", |record| record.log_bytes = bytes)
    }

    /// Drawn when the directory was made: a node that comes back with another one has lost its
    /// data.
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

/// The record in `place`, which lies in the data directory `dir`.
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
    // The cluster first: node ids of another cluster mean nothing here.
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
