//! State of nodes, the members of the ensemble, and the versions of their programs.

use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/cluster`: the cluster as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Cluster {
    /// The cluster's name.
    pub cluster_id: String,
    /// UUID that distinguishes the cluster from other clusters with this name; null before the
    /// cluster is founded.
    #[serde(default)]
    pub cluster_uuid: Option<String>,
    /// Level (version number) of the log's format that the cluster's nodes write; see
    /// docs/dev/formats.md.
    #[serde(default = "first_level")]
    pub level: u16,
    /// The id of the answering node.
    pub node_id: u64,
    /// The role of the answering node: `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub role: String,
    /// The id of the leader, as far as the node knows.
    pub leader: Option<u64>,
    /// The latest term that the node knows.
    pub term: u64,
    /// Zxid of the last entry in the node's Raft log.
    pub last_log_zxid: u64,
    /// Zxid of the last log entry that the node knows to be committed.
    pub committed_zxid: u64,
    /// Zxid of the last log entry that the node has applied.
    pub applied_zxid: u64,
    /// The node's newest durable snapshot.
    pub snapshot: SnapshotInfo,
    /// All members of the ensemble.
    pub members: Vec<MemberInfo>,
    /// Certificates of the answering node's ports with TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateInfo>,
    /// The open connections of other members to the answering node.
    #[serde(default)]
    pub peer_connections: PeerConnections,
    /// The number of open sessions.
    pub sessions: u64,
    /// The number of znodes.
    pub znodes: u64,
    /// Child of the root with the largest subtree; absent unless all clients may read the child's
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_subtree: Option<LargestSubtree>,
    /// Number of locks with clients of different libraries that ignore each other's lock nodes, so
    /// that two clients may hold the lock at once.
    pub mixed_clients_locks: u64,
    /// Number of HTTP requests that wait at this node for a change, such as watches and acquires.
    pub watches: u64,
    /// Number of log entries that this node has proposed, and for which it awaits the outcome.
    pub proposals: u64,
    /// `ready`, or the reason for which clients should use another node, as in `/readyz`.
    pub status: String,
    /// Digest of the state that the node has applied; only with `digest=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateDigest>,
}

/// Certificate of one port with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CertificateInfo {
    /// The port: `http`, `zookeeper` or `peers`.
    pub port: String,
    /// End of the certificate's validity, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// Numbers of open connections that other members have opened to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PeerConnections {
    /// Connections with TLS.
    pub tls: u64,
    /// Connections without TLS.
    pub plain: u64,
}

fn first_level() -> u16 {
    1
}

/// Digest of the state that one node has applied, for comparison with the digests of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StateDigest {
    /// Zxid of the last log entry that was applied to the state.
    pub zxid: u64,
    /// SHA-256 of the whole state in hex. The digests of all nodes are equal at equal zxids.
    #[cfg_attr(feature = "schema", schema(pattern = "^[0-9a-f]{64}$"))]
    pub digest: String,
}

/// The size of one child of the root with all znodes below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LargestSubtree {
    /// The path of the child.
    pub path: String,
    /// Estimated size of the subtree in bytes, without its ephemeral znodes.
    pub bytes: u64,
    /// The largest size that one subtree may have, in bytes.
    pub bytes_max: u64,
}

/// A durable snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SnapshotInfo {
    /// Zxid of the last log entry that the snapshot contains; 0 when there is no snapshot.
    pub zxid: u64,
    /// The length of the snapshot in bytes.
    pub bytes: u64,
}

/// A member of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberInfo {
    /// The node id of the member.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP listener.
    pub http_addr: String,
    /// `leader` or `follower`, as the answering node sees it; `unknown` while that node knows no
    /// leader.
    pub role: String,
}

/// Answer of `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// `ready` (200), or the reason for which clients should use another node (503).
    pub status: String,
}

/// Answer of `GET /v1/cluster/health`: the cluster's health as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterHealth {
    /// The id of the answering node.
    pub node_id: u64,
    /// The id of the leader, as far as the node knows.
    pub leader: Option<u64>,
    /// True if there is a leader with a quorum, and the answering node knows of no unreachable or
    /// lagging member.
    pub healthy: bool,
    /// Number of voters that may still fail before the quorum is lost; null if the answering node
    /// is not the leader.
    pub failure_tolerance: Option<u64>,
    /// The number of members with a vote.
    pub voters: u64,
    /// The number of members without a vote.
    pub learners: u64,
    /// All members.
    pub members: Vec<MemberHealth>,
}

/// A member's health as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberHealth {
    /// The node id of the member.
    pub id: u64,
    /// `leader`, `voter` or `learner`.
    pub role: String,
    /// Whether the answering node received a message of the member recently; null if the two nodes
    /// have no contact, as between two followers.
    pub reachable: Option<bool>,
    /// Time in milliseconds since the last message of the member; null if there was none, or if the
    /// answering node cannot know.
    pub last_contact_ms: Option<u64>,
    /// Number of committed log entries that the member lacks; null when unknown.
    pub lag_entries: Option<u64>,
}

/// Answer of `/v1/admin/drain`: whether an operator has drained the answering node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Drain {
    /// The id of the answering node.
    pub node_id: u64,
    /// Whether the node is drained: `/readyz` reports it as not ready until an operator ends the
    /// drain.
    pub draining: bool,
    /// Whether the drained node still leads because no other member could take over.
    pub leads: bool,
    /// The id of the leader, as far as the node knows.
    pub leader: Option<u64>,
}

/// Answer of `/v1/admin/upgrade`: the cluster's level (version number) of the log's format, and the
/// versions of the members' programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Upgrade {
    /// The cluster's level of the log's format.
    pub level: u16,
    /// Highest level of the log's format that the programs of all members know; null unless it is
    /// above the cluster's level.
    pub next_level: Option<u16>,
    /// The members, sorted by id.
    pub members: Vec<MemberUpgrade>,
}

/// Version of a member's program, and the levels of the log's format that the program can read and
/// write, as far as the leader knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberUpgrade {
    /// The node id of the member.
    pub id: u64,
    /// The version of the member's program. Null when unknown: the leader has not met the member,
    /// or the program is too old to state its version.
    pub version: Option<String>,
    /// Lowest level of the log's format that the member's program knows; null when unknown.
    pub level_min: Option<u16>,
    /// Highest level of the log's format that the member's program knows; null when unknown.
    pub level_max: Option<u16>,
    /// True if the leader reaches the member, or if the member is the leader itself.
    pub reachable: bool,
}

/// Answer of `/v1/admin/members`: the members as the leader knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Members {
    /// Log index of the entry that set the present membership.
    pub index: u64,
    /// Whether the log entry with the membership is committed.
    pub committed: bool,
    /// True while a change of members is half done. Until the change is complete, a log entry is
    /// committed only with a majority of the old voters and a majority of the new voters.
    pub joint: bool,
    /// Id of the node that made this report: the leader, or the node that was asked if no leader
    /// answers.
    pub reported_by: u64,
    /// The id of the leader.
    pub leader: Option<u64>,
    /// Number of voters that may still fail before the quorum is lost.
    pub failure_tolerance: u64,
    /// All members, sorted by id.
    pub members: Vec<MemberState>,
    /// The nodes that were removed. Their ids are never used again.
    pub removed: Vec<RemovedMember>,
}

/// A member, as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberState {
    /// The node id of the member.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP listener.
    pub http_addr: String,
    /// `voter`, `learner` or `observer`.
    pub role: String,
    /// The zone in which the member runs, as free text; null if it has none.
    pub zone: Option<String>,
    /// Whether the member is being removed.
    pub removing: bool,
    /// Id of the member that this member is to replace; null for no replacement.
    pub replaces: Option<u64>,
    /// Number of log entries that the member lacks; null when unknown.
    pub lag_entries: Option<u64>,
    /// The time in milliseconds since the member last accepted a message of the leader; null if it
    /// has not yet.
    pub last_contact_ms: Option<u64>,
}

/// A node that was removed from the ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RemovedMember {
    /// The node id of the former member.
    pub id: u64,
    /// The zxid at which the member was removed.
    pub zxid: u64,
}

/// Answer of `PUT /v1/admin/leader`: leadership went to another member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Transfer {
    /// Id of the former leader.
    pub from: u64,
    /// Id of the new leader.
    pub to: u64,
    /// The term of the new leader.
    pub term: u64,
    /// The duration of the transfer in milliseconds.
    pub took_ms: u64,
}

/// Answer of `GET /livez`: the process runs and answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Liveness {
    /// Always true.
    pub live: bool,
}

/// Answer of `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Version {
    /// The name of the program: `zlock`.
    pub name: String,
    /// The version of the program.
    pub version: String,
}
