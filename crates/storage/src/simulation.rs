//! Storage of a simulated node: the stores of a real node, over records and databases that the
//! simulation provides.

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use crate::databases::copying::FileRecord;
use crate::databases::database::Databases;
pub use crate::databases::engine::{Engine, Tree};
use crate::directory::node_meta::{Identity, NodeMeta};
pub use crate::directory::place::Place;
use crate::error::Error;
use crate::fatal::Fatal;
use crate::snapshots::snapshot_store::SnapshotStore;

/// Parts of a simulated node's storage. The Raft log is not among them.
#[derive(Clone)]
pub struct Parts {
    /// The snapshots.
    pub snapshots: SnapshotStore,
    /// Identity of the node that owns the data.
    pub meta: NodeMeta,
    /// First disk error of the snapshots or of the record `node`, which has the node's identity.
    pub fatal: Fatal,
}

/// Opens the storage of a node. `is_new` is true for an empty disk, which is given the node's
/// identity first.
///
/// # Errors
/// [`Error::Damaged`] and others. A simulated crash must never cause an error.
pub fn open(
    place: Arc<dyn Place>,
    databases: impl Engine + 'static,
    identity: Identity,
    is_new: bool,
) -> Result<Parts, Error> {
    let (dir, fatal) = (Path::new("memory"), Fatal::new());
    let io = |source: io::Error| Error::Io { doing: "opening a disk in memory".into(), source };
    if is_new {
        NodeMeta::create(&*place, &identity, 0).map_err(io)?;
    }
    let meta = NodeMeta::open(&place, dir, identity, &fatal)?;
    let databases = Databases::new(databases, &fatal, 0);
    let (snapshots, lost) = SnapshotStore::open(&place, &databases).map_err(io)?;
    if let Some(what) = lost {
        return Err(Error::Damaged { dir: dir.into(), what });
    }
    snapshots.tidy().map_err(io)?;
    Ok(Parts { snapshots, meta, fatal })
}
