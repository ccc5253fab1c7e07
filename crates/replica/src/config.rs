//! Settings that a node is told at start, with the bounds that an operator may move.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use znode::{Levels, Limits, ZXID_BASE_MAX};

use crate::StartError;

/// One member of the ensemble, as the configuration of every node names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's node id, unique in the ensemble and not 0.
    pub id: u64,
    /// `host:port` of its peer listener.
    pub peer_addr: String,
    /// `host:port` of its HTTP door, for clients that are told who leads.
    pub http_addr: String,
}

impl Member {
    /// Makes a member of what the membership has.
    pub(crate) fn of(id: u64, member: &storage::Member) -> Member {
        Member { id, peer_addr: member.peer_addr.clone(), http_addr: member.http_addr.clone() }
    }
}

/// The program that a node runs, as it tells the other members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program's version, for people.
    pub version: String,
    /// Levels of the format that it knows.
    pub levels: Levels,
}

impl Default for Program {
    /// The program that this is.
    fn default() -> Self {
        let next = if cfg!(feature = "next-level") { "+next-level" } else { "" };
        Program { version: format!("{}{next}", env!("CARGO_PKG_VERSION")), levels: Levels::OWN }
    }
}

/// Settings of one node. All durations are in milliseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// The id of this node; one of `members`.
    pub node_id: u64,
    /// The cluster's name. Peers and data directories of another cluster are refused.
    pub cluster_id: String,
    /// The members that found the cluster, the same list on every node. From then on the log says
    /// who is a member, and these are only asked first.
    pub members: Vec<Member>,
    /// True if this node joins a cluster that is there: it never helps to found one, and need not
    /// be among `members`.
    pub join: bool,
    /// The preference for this node as leader, 0 to 100: of voters that are equally far the one
    /// with the highest leads. One with 0 leads only as long as no other can.
    pub leader_priority: u8,
    /// Time for which a learner must have nearly everything before it becomes a voter of itself.
    pub promote_after_ms: u64,
    /// The zxid at which those of a cluster begin that is founded now; the time in milliseconds
    /// since 1970, times 1,024, when it is `None`, so that they are larger than those of a cluster
    /// before it. At most [`znode::ZXID_BASE_MAX`].
    pub zxid_base: Option<u64>,
    /// The directory in which log, snapshots and node metadata live. Made when missing.
    pub data_dir: PathBuf,
    /// The address to which peers connect.
    pub peer_listen: SocketAddr,
    /// Time between two signs of life of an idle leader.
    pub heartbeat_ms: u64,
    /// A follower that heard no leader for this long (up to the maximum, at random) stands for
    /// election. Half of it is the lease: so long after it heard a leader, a follower votes for no
    /// other. When the leader's connection ends, it asks whether it would be elected as soon as the
    /// lease is over.
    pub election_timeout_min_ms: u64,
    /// The maximum; see `election_timeout_min_ms`.
    pub election_timeout_max_ms: u64,
    /// One round trip between peers, connecting included.
    pub peer_timeout_ms: u64,
    /// A snapshot is built when this many entries were applied since the last one ...
    pub snapshot_log_entries: u64,
    /// ... or this many bytes of entries.
    pub snapshot_log_bytes: u64,
    /// Entries that stay in the log behind a snapshot, for followers that are a little late.
    pub log_entries_kept: u64,
    /// Bounds of the state. The leader proposes them when the replicated ones differ.
    pub limits: Limits,
    /// Proposals of this node on their way at once, forwarded ones of peers counted apart. Beyond:
    /// `Unavailable`.
    pub proposals_max: usize,
    /// Bytes of the entries of those proposals.
    pub proposal_bytes_max: usize,
    /// Linearizable reads and heartbeats of this node on their way at once. Beyond: `Unavailable`.
    pub reads_max: usize,
    /// Waits that this node keeps at once. Beyond: [`crate::WaitEnd::TooMany`].
    pub watches_max: usize,
    /// Events kept for [`crate::Replica::events`] ...
    pub event_ring_max: usize,
    /// ... and how many bytes of paths they may hold.
    pub event_ring_bytes_max: usize,
    /// Free space on the data directory's filesystem below which clients' writes are `Unavailable`.
    pub free_disk_min_bytes: u64,
    /// A node whose log has waited for the disk for longer is not ready and takes no part in
    /// elections, and a leader hands over.
    pub disk_stall_max_ms: u64,
    /// Time between two looks of the leader for silent sessions and znodes to collect.
    pub tick_ms: u64,
    /// Znodes or sessions that one entry of the leader may collect.
    pub reap_batch_max: usize,
    /// A node whose applied entry is this far behind the committed one is not ready.
    pub ready_lag_max: u64,
    /// The program that this node runs. Only a simulation says otherwise than it is: a node then
    /// plays an older program.
    pub program: Program,
}

impl Config {
    /// Time in which a follower that heard a leader votes for no other: half of the shortest
    /// silence, but four heartbeats at least. Raft knows it as the longest election timeout, which
    /// it counts from the end of the lease on.
    pub(crate) fn lease_ms(&self) -> u64 {
        (self.election_timeout_min_ms / 2).max(self.heartbeat_ms * 4)
    }

    /// The shortest pause of a candidate that was not elected, and the time that votes may take.
    /// With the lease less than the shortest silence, so that what `campaign` says about that
    /// holds.
    pub(crate) fn pause_ms(&self) -> u64 {
        self.lease_ms() / 2
    }

    /// A leader that a quorum followed so recently is the only one: clearly shorter than the lease,
    /// because clocks run at different speeds.
    pub(crate) fn sure_ms(&self) -> u64 {
        self.lease_ms() * 3 / 4
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            node_id: 1,
            cluster_id: "zlock".into(),
            members: Vec::new(),
            join: false,
            leader_priority: 50,
            promote_after_ms: 10_000,
            zxid_base: None,
            data_dir: PathBuf::from("data"),
            peer_listen: SocketAddr::from(([127, 0, 0, 1], 7101)),
            heartbeat_ms: 60,
            election_timeout_min_ms: 500,
            election_timeout_max_ms: 800,
            peer_timeout_ms: 1_000,
            snapshot_log_entries: 200_000,
            snapshot_log_bytes: 256 << 20,
            log_entries_kept: 20_000,
            limits: Limits::default(),
            proposals_max: 4_096,
            proposal_bytes_max: 64 << 20,
            reads_max: 16_384,
            watches_max: 1_000_000,
            event_ring_max: 100_000,
            event_ring_bytes_max: 64 << 20,
            free_disk_min_bytes: 512 << 20,
            disk_stall_max_ms: 2_000,
            tick_ms: 100,
            reap_batch_max: 256,
            ready_lag_max: 10_000,
            program: Program::default(),
        }
    }
}

impl Config {
    /// Silence that a peer is allowed which owes an answer.
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
