//! Settings with which a node starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use accept::MutualTls;
use znode::{Limits, Program, ZXID_BASE_MAX};

use crate::StartError;

/// A member of the ensemble: its id and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's node id, unique in the ensemble and not 0.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP API. Clients are told the leader's.
    pub http_addr: String,
}

impl Member {
    /// Converts a member from the form in which the log's membership stores it.
    pub(crate) fn of(id: u64, member: &storage::Member) -> Member {
        Member { id, peer_addr: member.peer_addr.clone(), http_addr: member.http_addr.clone() }
    }
}

/// TLS on the connections between this node and its peers.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// Certificate of this node, and authorities of its peers' certificates.
    pub tls: MutualTls,
    /// True if this node opens its connections with TLS; false if it opens them without TLS.
    pub dials: bool,
    /// True if peers that connect without TLS are refused.
    pub is_required: bool,
    /// True if a peer's certificate must have the URI of the peer ([`node_uri`]) among its names.
    /// False if every certificate of the authorities is accepted for every peer.
    pub checks_names: bool,
}

/// Returns the URI that stands for a node in the node's certificate.
pub fn node_uri(cluster_id: &str, node_id: u64) -> String {
    format!("zlock://{cluster_id}/{node_id}")
}

/// Defines a struct of settings, in which each field has its default behind its type.
#[macro_export]
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident {$(
        $(#[$field_meta:meta])* pub $field:ident: $type:ty = $default:expr,
    )*}) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }
    };
}

settings! {
    /// Settings of one node. All durations are in milliseconds.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Id of this node. It is one of `members`, unless the node joins.
        pub node_id: u64 = 1,
        /// The cluster's name. Peers and data directories of another cluster are refused.
        pub cluster_id: String = "zlock".into(),
        /// The members that found the cluster, the same list on every node. After the founding the
        /// log says who is a member, and this list only names the peers to ask first.
        pub members: Vec<Member> = Vec::new(),
        /// True if this node joins an existing cluster. Such a node never helps to found one, and
        /// need not be among `members`.
        pub join: bool = false,
        /// Preference for this node as leader, 0 to 100. Of voters that are equally far in the log,
        /// the one with the highest preference leads. A node with 0 leads only as long as no other
        /// can.
        pub leader_priority: u8 = 50,
        /// Time for which a learner must be nearly up to date (lack few entries) before the leader
        /// makes it a voter.
        pub promote_after_ms: u64 = 10_000,
        /// Number that is added to an entry's index to make its zxid, for a cluster that is founded
        /// now; at most [`znode::ZXID_BASE_MAX`]. `None` stands for the time in milliseconds since
        /// 1970, times 1,024, so that zxids are larger than those of an earlier cluster.
        pub zxid_base: Option<u64> = None,
        /// Directory of the log, the snapshots and the node's identity. Created when missing.
        pub data_dir: PathBuf = PathBuf::from("data"),
        /// Address at which this node listens for peers.
        pub peer_listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7101)),
        /// TLS with peers; `None` for connections without TLS.
        pub peer_tls: Option<PeerTls> = None,
        /// Time between two heartbeats of an idle leader.
        pub heartbeat_ms: u64 = 60,
        /// Shortest time without a leader after which a follower stands for election. The actual
        /// time is random, up to `election_timeout_max_ms`. Half of this minimum (at least four
        /// heartbeats) is the lease: the time after a message from the leader in which a follower
        /// votes for no other node. When the leader's connection ends, a follower asks for
        /// pre-votes as soon as the lease is over.
        pub election_timeout_min_ms: u64 = 500,
        /// Longest time without a leader after which a follower stands for election.
        pub election_timeout_max_ms: u64 = 800,
        /// Timeout of one round trip between peers, connecting included.
        pub peer_timeout_ms: u64 = 1_000,
        /// Number of applied entries, counted from the last snapshot, after which the next one is
        /// built.
        pub snapshot_log_entries: u64 = 200_000,
        /// Bytes of applied entries, counted from the last snapshot, after which the next one is
        /// built.
        pub snapshot_log_bytes: u64 = 256 << 20,
        /// Number of entries that stay in the log although a snapshot contains them, for followers
        /// that lag a little.
        pub log_entries_kept: u64 = 20_000,
        /// Limits of the replicated state, for example on sizes and timeouts. A leader whose limits
        /// differ from those in the state proposes its own.
        pub limits: Limits = Limits::default(),
        /// Largest number of proposals of this node under way at once. Proposals that peers forward
        /// are counted apart. A proposal beyond the bound is `Unavailable`.
        pub proposals_max: usize = 4_096,
        /// Largest total size in bytes of the proposals of this node that are under way. Each
        /// counts with the size of its request.
        pub proposal_bytes_max: usize = 64 << 20,
        /// Bound on the reads and heartbeats of this node that are under way at once. A call beyond
        /// it is `Unavailable`.
        pub reads_max: usize = 16_384,
        /// Largest number of callers that wait at this node for a change of the state. One more
        /// wait ends at once with [`crate::WaitEnd::TooMany`].
        pub watches_max: usize = 1_000_000,
        /// Largest number of events that are kept for [`crate::Replica::events`].
        pub event_ring_max: usize = 100_000,
        /// Largest size in bytes of the events that are kept for [`crate::Replica::events`].
        pub event_ring_bytes_max: usize = 64 << 20,
        /// Free bytes of the data directory's filesystem below which clients' writes are
        /// `Unavailable`.
        pub free_disk_min_bytes: u64 = 512 << 20,
        /// Longest time that a write to the log may wait for the disk. Beyond it the node is not
        /// ready and takes no part in elections, and a leader hands over leadership.
        pub disk_stall_max_ms: u64 = 2_000,
        /// Time between two scans by the leader for sessions without heartbeats and for znodes that
        /// are due for deletion.
        pub tick_ms: u64 = 100,
        /// Largest number of znodes that the leader deletes with one entry because they are due,
        /// and largest number of sessions that it expires with one entry.
        pub reap_batch_max: usize = 256,
        /// Largest number of committed entries that a ready node may not have applied yet. A node
        /// that lacks more is not ready.
        pub ready_lag_max: u64 = 10_000,
        /// Time in which the leader's entries hash all records of the state (the scrub). Only tests
        /// set another time than the default.
        pub scrub_round_ms: u64 = 3_600_000,
        /// The program that this node runs. Only a simulation sets another one, so that the node
        /// plays an older program.
        pub program: Program = Program::default(),
    }
}

impl Config {
    /// Lease: time after a message from the leader in which a follower votes for no other node.
    /// Half of the shortest election timeout, but at least four heartbeats. openraft gets it as its
    /// `election_timeout_max`.
    pub(crate) fn lease_ms(&self) -> u64 {
        (self.election_timeout_min_ms / 2).max(self.heartbeat_ms * 4)
    }

    /// Shortest pause of a candidate between two elections, and longest wait for votes. The lease
    /// and this pause together end before the shortest election timeout, so that Raft does not
    /// delay an election that `follower/campaign.rs` allows.
    pub(crate) fn pause_ms(&self) -> u64 {
        self.lease_ms() / 2
    }

    /// Time after the last contact with a quorum for which a leader is sure that no other leader
    /// was elected. Clearly shorter than the lease, because clocks run at different speeds.
    pub(crate) fn sure_ms(&self) -> u64 {
        self.lease_ms() * 3 / 4
    }

    /// Timeout of one round trip between peers, after which the peer counts as lost.
    pub(crate) fn peer_timeout(&self) -> Duration {
        Duration::from_millis(self.peer_timeout_ms)
    }

    /// Checks that the settings fit together.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let refuse = |why: String| Err(StartError::Config(why));
        let mut ids: Vec<u64> = self.members.iter().map(|member| member.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) || ids.first() == Some(&0) {
            return refuse(format!("member ids must be different and not 0, but are {ids:?}"));
        }
        if self.node_id == 0 || !self.join && !ids.contains(&self.node_id) {
            return refuse(format!("node.id {} is not among the members {ids:?}", self.node_id));
        }
        if self.leader_priority > 100 {
            return refuse(format!("raft.leader_priority is {}, and is 0 to 100", self.leader_priority));
        }
        if self.cluster_id.is_empty() {
            return refuse("node.cluster_id is empty".into());
        }
        let durations = [self.heartbeat_ms, self.peer_timeout_ms, self.tick_ms, self.disk_stall_max_ms];
        if durations.contains(&0) || self.snapshot_log_entries == 0 {
            let names = "raft.heartbeat_interval, peers.timeout, raft.reap_interval, disk.stall_max and disk.snapshot_log_entries";
            return refuse(format!("{names} must not be 0"));
        }
        if self.zxid_base.is_some_and(|base| base > ZXID_BASE_MAX) {
            return refuse(format!("node.zxid_base must be at most {ZXID_BASE_MAX}"));
        }
        Ok(())
    }
}
