//! The node, its ensemble and its version.

use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

/// `GET /v1/cluster`: the answering node's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Cluster {
    /// The cluster's name.
    pub cluster_id: String,
    /// Tells it from any other cluster of the same name; none before it is founded.
    #[serde(default)]
    pub cluster_uuid: Option<String>,
    /// The level of the log's format that its nodes write; see docs/formats.md.
    #[serde(default = "first_level")]
    pub level: u16,
    /// The answering node.
    pub node_id: u64,
    /// Its role: `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub role: String,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// The term that it knows.
    pub term: u64,
    /// The last entry in its log.
    pub last_log_zxid: u64,
    /// The last entry that it knows to be committed.
    pub committed_zxid: u64,
    /// The last entry that it has applied.
    pub applied_zxid: u64,
    /// Its newest durable snapshot.
    pub snapshot: SnapshotInfo,
    /// The ensemble.
    pub members: Vec<MemberInfo>,
    /// Open sessions.
    pub sessions: u64,
    /// Znodes.
    pub znodes: u64,
    /// Locks with clients in their queue that do not see each other.
    pub mixed_locks: u64,
    /// Waits that this node keeps.
    pub watches: u64,
    /// Proposals of this node on their way.
    pub proposals: u64,
    /// `ready`, or why not; as `/readyz`.
    pub ready: String,
    /// What it has applied, with `digest=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateDigest>,
}

fn first_level() -> u16 {
    1
}

/// The applied state of one node, for comparison with another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct StateDigest {
    /// The last entry that is in it.
    pub zxid: u64,
    /// SHA-256 of the whole of it in hex: equal on all nodes at equal zxid.
    pub digest: String,
}

/// A durable snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct SnapshotInfo {
    /// The last entry in it; 0 when there is none.
    pub zxid: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A member of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct MemberInfo {
    /// Its node id.
    pub id: u64,
    /// `host:port` for peers.
    pub peer_addr: String,
    /// `host:port` of its HTTP door.
    pub http_addr: String,
    /// `leader` or `follower`, as the answering node sees it; `unknown` while it knows no leader.
    pub role: String,
}

/// `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Readiness {
    /// `ready` (200), or why clients should go elsewhere (503).
    pub ready: String,
}

/// `GET /livez`: the process runs and answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Liveness {
    /// Always true.
    pub live: bool,
}

/// `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Version {
    /// `zlock`.
    pub name: String,
    /// The version of the program.
    pub version: String,
}
