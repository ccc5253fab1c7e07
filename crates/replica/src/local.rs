//! Facts that a node knows by itself: its machine, disk, vote and clocks, and when it heard its
//! leader and its sessions.

pub mod background;
pub(crate) mod bounds;
pub(crate) mod counters;
pub(crate) mod disk_space;
pub(crate) mod disk_watch;
pub(crate) mod entry_clock;
pub(crate) mod host;
pub(crate) mod leader_term;
pub(crate) mod leader_watch;
pub(crate) mod session_tracker;
pub(crate) mod times;
pub(crate) mod vote_gate;
