//! Raft, its state machine, and the connections to peers.

pub(crate) mod agreement;
pub(crate) mod ahead_of_leader;
pub(crate) mod consensus;
pub(crate) mod continuity;
pub(crate) mod decoded_entries;
pub(crate) mod known_cluster;
pub(crate) mod network;
pub(crate) mod peers;
pub(crate) mod purge_index;
pub(crate) mod quorum_contact;
pub(crate) mod reach;
pub(crate) mod state_machine;
pub(crate) mod stored_progress;
pub(crate) mod transitions;
pub(crate) mod transport;
