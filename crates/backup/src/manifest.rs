//! What is told of a backup without reading its state.

use serde::{Deserialize, Serialize};
use znode::{Cluster, State};

/// The manifest: one JSON object, so that people and scripts can read it. Fields that a program
/// does not know are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The cluster's name; in a seed, the new cluster's.
    pub cluster_id: String,
    /// The cluster's uuid; in a seed, the new cluster's.
    pub cluster_uuid: String,
    /// Where its zxids begin.
    pub zxid_base: u64,
    /// The last entry that the state contains.
    pub zxid: u64,
    /// The term of that entry.
    pub term: u64,
    /// The time on the latest entry, in milliseconds since 1970.
    pub time_ms: u64,
    /// The level of the format that the records are written at.
    pub level: u16,
    /// How much there is.
    pub counts: Counts,
    /// How it was saved.
    pub saved: Saved,
    /// What was decided when it was made a seed; nothing in a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// How much a backup has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Znodes, the root included.
    pub znodes: u64,
    /// The data of all znodes, in bytes.
    pub data_bytes: u64,
    /// Open sessions. None of them comes back.
    pub sessions: u64,
    /// Locks with contenders.
    pub locks: u64,
    /// Tickets that hold, of those that a session owns.
    pub holders: u64,
    /// All tickets.
    pub tickets: u64,
}

/// How a backup was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The version of the program that wrote it.
    pub program: String,
    /// When, in milliseconds since 1970, by the clock of the machine that wrote it.
    pub at_ms: u64,
    /// The node that it is from.
    pub node_id: u64,
    /// Whether no quorum was asked: the cluster may have been further.
    pub local: bool,
}

/// What `zlock restore prepare` decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The members of the new cluster.
    pub members: Vec<Member>,
    /// When it was decided, in milliseconds since 1970.
    pub at_ms: u64,
    /// For how long the new cluster grants no lock.
    pub grace_ms: u64,
    /// What it was made of.
    pub origin: Origin,
}

/// One member of the new cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// `host:port` of its peer listener.
    pub peer_addr: String,
    /// `host:port` of its HTTP door.
    pub http_addr: String,
}

/// The cluster that a seed was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its name.
    pub cluster_id: String,
    /// Its uuid.
    pub cluster_uuid: String,
    /// The last entry of it that is in the state.
    pub zxid: u64,
}

impl Manifest {
    /// Describes a state. `None` before its cluster is founded: there is nothing to keep.
    pub fn of(state: &State, cluster_id: &str, saved: Saved) -> Option<Manifest> {
        let founding = state.cluster().map(Cluster::founding)?;
        let counts = Counts {
            znodes: state.znode_count() as u64,
            data_bytes: state.data_bytes(),
            sessions: state.session_count() as u64,
            locks: state.lock_count() as u64,
            holders: state.holder_count(),
            tickets: state.contender_count(),
        };
        Some(Manifest {
            cluster_id: cluster_id.to_owned(),
            cluster_uuid: founding.uuid.to_string(),
            zxid_base: founding.zxid_base,
            zxid: state.last_zxid().0,
            term: state.last_term().0,
            time_ms: state.time_ms(),
            level: state.level(),
            counts,
            saved,
            decided: None,
        })
    }
}
