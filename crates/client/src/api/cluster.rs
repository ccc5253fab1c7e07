//! The node, its ensemble and its version.

use serde::{Deserialize, Serialize};

/// `GET /v1/cluster`: the answering node's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
    /// The subtree below the root that weighs most, where every client may know its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_subtree: Option<LargestSubtree>,
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StateDigest {
    /// The last entry that is in it.
    pub zxid: u64,
    /// SHA-256 of the whole of it in hex: equal on all nodes at equal zxid.
    #[cfg_attr(feature = "schema", schema(pattern = "^[0-9a-f]{64}$"))]
    pub digest: String,
}

/// What one child of the root weighs, with all below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LargestSubtree {
    /// The child of the root.
    pub path: String,
    /// By estimate; what sessions own is not among it.
    pub bytes: u64,
    /// How much one subtree may have.
    pub bytes_max: u64,
}

/// A durable snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SnapshotInfo {
    /// The last entry in it; 0 when there is none.
    pub zxid: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A member of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// `ready` (200), or why clients should go elsewhere (503).
    pub ready: String,
}

/// `GET /v1/cluster/health`: the cluster as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterHealth {
    /// The answering node.
    pub node_id: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// Whether there is a leader with a quorum, and nothing wrong is known of any member.
    pub healthy: bool,
    /// How many voters may fail from now on, so that the rest still is a quorum. Only the leader
    /// knows.
    pub failure_tolerance: Option<u64>,
    /// Members with a vote.
    pub voters: u64,
    /// Members without.
    pub learners: u64,
    /// All of them.
    pub members: Vec<MemberHealth>,
}

/// A member, as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberHealth {
    /// Its node id.
    pub id: u64,
    /// `leader`, `voter` or `learner`.
    pub role: String,
    /// Whether it was heard lately; nothing where the answering node cannot know.
    pub reachable: Option<bool>,
    /// How long ago it was heard.
    pub last_contact_ms: Option<u64>,
    /// How many committed entries it lacks.
    pub lag: Option<u64>,
}

/// `/v1/admin/drain`: whether an operator has drained the answering node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Drain {
    /// The answering node.
    pub node_id: u64,
    /// Whether it is drained: not ready, until that is taken back.
    pub draining: bool,
    /// Whether it leads all the same: no other member could take over.
    pub leads: bool,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
}

/// `/v1/admin/upgrade`: the level of the format that the cluster is at, and what its members run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Upgrade {
    /// The cluster's level.
    pub level: u16,
    /// The highest level that all members are ready for, if it is above the cluster's.
    pub next_level: Option<u16>,
    /// The members, by id.
    pub members: Vec<MemberUpgrade>,
}

/// What a member runs, as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberUpgrade {
    /// Its node id.
    pub id: u64,
    /// The version of its program. Null where that is not known: it was not met, or is too old to
    /// say so.
    pub version: Option<String>,
    /// The lowest level that its program knows; null as above.
    pub level_min: Option<u16>,
    /// The highest.
    pub level_max: Option<u16>,
    /// Whether it leads, or follows the leader.
    pub reachable: bool,
}

/// `/v1/admin/members`: who is a member, as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Members {
    /// The index of the entry of the log with the membership that rules.
    pub index: u64,
    /// Whether that entry is committed.
    pub committed: bool,
    /// Whether a change is half done: both sets of voters must agree to everything meanwhile.
    pub joint: bool,
    /// The node that knows this: the leader, or the node that was asked where no leader answers.
    pub told_by: u64,
    /// Who leads.
    pub leader: Option<u64>,
    /// How many more voters may fail before the cluster stops.
    pub failure_tolerance: u64,
    /// All members, by id.
    pub members: Vec<MemberState>,
    /// Ids of nodes that were removed: they are never used again.
    pub removed: Vec<RemovedMember>,
}

/// A member, as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberState {
    /// Its node id.
    pub id: u64,
    /// `host:port` of its peer listener.
    pub peer_addr: String,
    /// `host:port` of its HTTP door.
    pub http_addr: String,
    /// `voter`, `learner` or `observer`.
    pub role: String,
    /// Where it stands.
    pub zone: Option<String>,
    /// Whether it is being removed.
    pub removing: bool,
    /// The member that it is to take the place of.
    pub replaces: Option<u64>,
    /// How many entries of the log it lacks; null where that is not known.
    pub lag_entries: Option<u64>,
    /// How long ago it followed the leader, in milliseconds; null where it has not.
    pub last_contact_ms: Option<u64>,
}

/// A node that was a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RemovedMember {
    /// Its node id.
    pub id: u64,
    /// The zxid at which it was removed.
    pub zxid: u64,
}

/// `PUT /v1/admin/leader`: another member leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Transfer {
    /// Who led before.
    pub from: u64,
    /// Who leads now.
    pub to: u64,
    /// In which term.
    pub term: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// `GET /livez`: the process runs and answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Liveness {
    /// Always true.
    pub live: bool,
}

/// `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Version {
    /// `zlock`.
    pub name: String,
    /// The version of the program.
    pub version: String,
}
