//! Whose data this is.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bincode::{Decode, Encode};

use crate::codec::{self, CodecError};
use crate::database::{Database, Tree};
use crate::error::{Doing, Error};
use crate::failpoint;

/// The layout of the data directory as a whole. Raised when an older program could not read it any more.
pub const FORMAT: u32 = 1;

const NODE: &str = "node";
const IDENTITY: &str = "identity";
const LOG_BEGUN: &str = "log-begun";
const JOINED: &str = "joined";

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's name.
    pub cluster_id: String,
    /// The node's id in it.
    pub node_id: u64,
}

/// The record of [`Identity`].
#[derive(Encode, Decode)]
struct IdentityRecord {
    format: u32,
    cluster_id: String,
    node_id: u64,
    zxid_base: u64,
}

/// Whose data a directory holds, and how far that node has come. Clones share it.
#[derive(Clone, Debug)]
pub struct NodeMeta {
    database: Database,
    tree: Tree,
    identity: Identity,
    zxid_base: u64,
    joined: Arc<AtomicBool>,
    pristine: bool,
}

impl NodeMeta {
    /// Writes the identity into a new, empty database. Durable on return.
    pub(crate) fn create(database: &Database, identity: &Identity) -> io::Result<()> {
        let Identity { cluster_id, node_id } = identity.clone();
        failpoint::pass("meta.create")?;
        let record = IdentityRecord { format: FORMAT, cluster_id, node_id, zxid_base: 0 };
        database.tree(NODE)?.insert(IDENTITY, &codec::seal(&record))?;
        database.flush_durably()?;
        failpoint::pass("meta.created")
    }

    /// Reads the identity in `database`, which lies in the data directory `dir`, and compares it with `identity`.
    pub(crate) fn open(database: &Database, dir: &Path, identity: Identity) -> Result<NodeMeta, Error> {
        let doing = || "reading the node's identity".to_string();
        let damaged = |what: String| Error::Damaged { dir: dir.into(), what };
        let tree = database.tree(NODE).doing(doing)?;
        let record = tree.get(IDENTITY).doing(doing)?.ok_or_else(|| damaged("the node's identity is gone".into()))?;
        let record: IdentityRecord = codec::unseal(&record).map_err(|error| match error {
            CodecError::Version { found } => newer(dir, u32::from(found)),
            error => damaged(format!("the node's identity is unreadable ({error})")),
        })?;
        check(&record, dir, &identity)?;
        let joined = match tree.get(JOINED).doing(doing)? {
            None => false,
            Some(mark) => codec::unseal(&mark).map_err(|error| damaged(format!("the joined mark: {error}")))?,
        };
        let joined = Arc::new(AtomicBool::new(joined));
        let zxid_base = record.zxid_base;
        Ok(NodeMeta { database: database.clone(), tree, identity, zxid_base, joined, pristine: false })
    }

    /// Who this node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What is added to a log index to make it a zxid: 0, until a restore from a backup starts a log anew.
    pub fn zxid_base(&self) -> u64 {
        self.zxid_base
    }

    /// True when this directory never took part in the cluster before it was opened: no vote, no entry, no snapshot,
    /// not joined. It is either a new node, or one whose disk was wiped and that may have voted before.
    pub fn pristine(&self) -> bool {
        self.pristine
    }

    /// True once [`NodeMeta::set_joined`] was called, in this or an earlier run.
    pub fn joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    /// Remembers for good that this node holds all that it must know to vote: it helped to found the cluster, or has
    /// caught up with a leader since its directory was new. Durable on return. Blocking.
    ///
    /// # Errors
    /// Any disk error, now or earlier; the node must stop.
    pub fn set_joined(&self) -> io::Result<()> {
        if self.joined() {
            return Ok(());
        }
        self.mark("joining the cluster", "meta.joined", JOINED)?;
        self.joined.store(true, Ordering::Release);
        Ok(())
    }

    /// True when this directory's log was begun: from then on a log without this node's name is a lost one.
    pub(crate) fn log_begun(&self) -> Result<bool, Error> {
        Ok(self.tree.get(LOG_BEGUN).doing(|| "reading the node's identity".into())?.is_some())
    }

    pub(crate) fn set_log_begun(&self) -> io::Result<()> {
        self.mark("beginning the Raft log", "meta.log-begun", LOG_BEGUN)
    }

    pub(crate) fn set_pristine(&mut self, pristine: bool) {
        self.pristine = pristine;
    }

    fn mark(&self, doing: &str, failpoint: &'static str, key: &str) -> io::Result<()> {
        self.database.fatal().check()?;
        let written = failpoint::pass(failpoint).and_then(|()| self.tree.insert(key, &codec::seal(&true)));
        self.database.fatal().note(doing, written)?;
        self.database.flush_durably()
    }
}

fn check(record: &IdentityRecord, dir: &Path, wanted: &Identity) -> Result<(), Error> {
    let dir = dir.to_path_buf();
    // The cluster first: node ids of another cluster mean nothing here.
    if record.format > FORMAT {
        Err(newer(&dir, record.format))
    } else if record.cluster_id != wanted.cluster_id {
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
