//! Manifest: the description of a backup, which can be read without its state.

use serde::{Deserialize, Serialize};
use znode::{Cluster, State};

/// Manifest of a backup or of a seed, which is the file from which the nodes of a restored cluster
/// start. It is one JSON object, so that people and scripts can read it. Unknown fields are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The cluster's name; in a seed, the name of the restored cluster.
    pub cluster_id: String,
    /// The cluster's UUID; in a seed, the UUID of the restored cluster.
    pub cluster_uuid: String,
    /// Number that the cluster adds to the index of a log entry to make its zxid.
    pub zxid_base: u64,
    /// Zxid of the last log entry that the state contains.
    pub zxid: u64,
    /// Raft term of the last log entry that the state contains.
    pub term: u64,
    /// Time in the last log entry, in milliseconds since 1970, by the leader's clock.
    pub time_ms: u64,
    /// Version ("level") of the format in which the records of the state are written.
    pub level: u16,
    /// Numbers of objects in the backup.
    pub counts: Counts,
    /// When, where and by which program the backup was saved.
    pub saved: Saved,
    /// Decisions of the operator who made a seed from the backup; absent in a plain backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// Numbers of objects in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of znodes, the root included.
    pub znodes: u64,
    /// Bytes of the data of all znodes.
    pub data_bytes: u64,
    /// Number of open sessions. A restore ends all of them.
    pub sessions: u64,
    /// Number of locks with contenders.
    pub locks: u64,
    /// Number of tickets (lock nodes) that hold a lock and belong to a session.
    pub holders: u64,
    /// Number of all tickets, holding or waiting.
    pub tickets: u64,
}

/// Circumstances in which a backup was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The version of the program that wrote the file.
    pub program: String,
    /// The time of the backup in milliseconds since 1970, by the clock of the machine that wrote
    /// it.
    pub at_ms: u64,
    /// Id of the node whose state was saved.
    pub node_id: u64,
    /// Whether the node saved its own state without asking a quorum. The cluster may have had newer
    /// log entries then.
    pub local: bool,
}

/// Decisions that `zlock restore prepare` writes into a seed, the file from which the nodes of the
/// restored cluster start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The members of the new cluster.
    pub members: Vec<Member>,
    /// The time of the decision in milliseconds since 1970.
    pub at_ms: u64,
    /// Time for which the restored cluster grants no lock after its start, in milliseconds.
    pub grace_ms: u64,
    /// The original cluster, from whose backup the seed was made.
    pub origin: Origin,
}

/// A member of the new cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node id of the member.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP listener.
    pub http_addr: String,
}

/// The original cluster, from whose backup a restored cluster starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The name of the original cluster.
    pub cluster_id: String,
    /// The UUID of the original cluster.
    pub cluster_uuid: String,
    /// Zxid of the last log entry that the backup's state contains.
    pub zxid: u64,
}

impl Manifest {
    /// Makes the manifest of a state. Returns `None` before the cluster is founded, as there is
    /// nothing to back up then.
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
