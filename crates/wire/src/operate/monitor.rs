//! The four-letter word `mntr`: one field on each line, as monitoring tools read them.

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

use replica::{NodeStatus, Role};
use znode::SessionId;

use crate::session::door::Door;

/// Writes the answer to the four-letter word `mntr`: the fields of ZooKeeper 3.8 that apply to
/// zlock, and after them zlock's own. ZooKeeper's counters of its processors and queues are left
/// out.
pub(crate) fn fields(door: &Door, out: &mut String) {
    let (status, state, counts) = (door.replica.status(), door.replica.state(), door.counts.look());
    let mut line = |key: &str, value: &dyn Display| {
        let _ = writeln!(out, "zk_{key}\t{value}");
    };
    line("version", &VERSION);
    line("server_state", &mode(&status));
    if status.members.len() > 1 {
        line("peer_state", &peer_state(&status));
    }
    line("ephemerals_count", &state.sessions_from(SessionId(0)).map(|one| one.ephemeral_count()).sum::<usize>());
    let clients = door.hub.clients();
    line("num_alive_connections", &clients.len());
    line("avg_latency", &format!("{:.4}", counts.latency_avg));
    line("min_latency", &counts.latency_min);
    line("max_latency", &counts.latency_max);
    line("outstanding_requests", &counts.outstanding);
    line("znode_count", &state.znode_count());
    line("global_sessions", &state.session_count());
    line("local_sessions", &0);
    let without_certificate = clients.iter().filter(|client| !client.has_certificate());
    let (local, remote): (Vec<_>, Vec<_>) =
        without_certificate.partition(|client| client.arrival.addr.ip().is_loopback());
    line("non_mtls_local_conn_count", &local.len());
    line("non_mtls_remote_conn_count", &remote.len());
    let [last, min, max] =
        counts.answer_bytes.map(|bytes| bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)));
    line("last_client_response_size", &last);
    line("min_client_response_size", &min);
    line("max_client_response_size", &max);
    line("packets_sent", &counts.sent);
    line("packets_received", &counts.received);
    // Connections are refused only at their bound, and never at random.
    line("connection_drop_probability", &"0.0");
    line("watch_count", &door.hub.watches());
    line("auth_failed_count", &door.auth_failed.load(Ordering::Relaxed));
    line("approximate_data_size", &state.data_bytes());
    line("uptime", &door.since.elapsed().as_millis());
    if let Some((open, max)) = file_descriptors() {
        line("open_file_descriptor_count", &open);
        line("max_file_descriptor_count", &max);
    }
    if status.members.len() > 1 {
        line("quorum_size", &status.voters);
    }
    if status.role == Role::Leader && status.members.len() > 1 {
        leader(door, &status, &mut line);
    }
    line("incomplete_packets_bytes", &door.incomplete_packets.bytes());
    line("requests_bytes", &door.requests.look().0);
    let (unread, most) = door.unread.look();
    line("unread_bytes", &unread);
    line("max_unread_bytes", &most);
}

/// Writes the fields of `mntr` that only a leader shows.
fn leader(door: &Door, status: &NodeStatus, line: &mut dyn FnMut(&str, &dyn Display)) {
    line("learners", &(status.followers.following + status.observers.following));
    // ZooKeeper's name before 3.6, which tools still ask for.
    line("followers", &status.followers.following);
    line("synced_followers", &status.followers.synced);
    line("synced_non_voting_followers", &0);
    line("synced_observers", &status.observers.synced);
    line("pending_syncs", &door.syncs.load(Ordering::Relaxed));
    // Sizes of proposals are not measured; ZooKeeper shows -1 as long as a leader has none.
    for key in ["last_proposal_size", "min_proposal_size", "max_proposal_size"] {
        line(key, &-1);
    }
}

/// Returns the node's role with its phase after an election, in ZooKeeper's words. A node that
/// answers is always in the last phase, `broadcast`.
fn peer_state(status: &NodeStatus) -> &'static str {
    match status.role {
        Role::Leader => "leading - broadcast",
        Role::Learner => "observing - broadcast",
        Role::Follower | Role::Candidate | Role::Stopped => "following - broadcast",
    }
}

/// Returns the number of this process's open file descriptors and the bound on it; `None` on a
/// system without `/proc`.
fn file_descriptors() -> Option<(usize, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    Some((open, line.split_whitespace().nth(3)?.parse().ok()?))
}

/// Version text of ZooKeeper 3.8, by which clients and tools recognize the abilities of a server,
/// with zlock's version in it.
///
/// Tools expect a date. It is fixed for each version, so that builds are reproducible.
pub(crate) const VERSION: &str = concat!("3.8.0-zlock-", env!("CARGO_PKG_VERSION"), ", built on 2026-11-22 00:00 UTC");

/// Returns ZooKeeper's name for the role of the node.
pub(crate) fn mode(status: &NodeStatus) -> &'static str {
    match status.role {
        Role::Leader if status.members.len() == 1 => "standalone",
        Role::Leader => "leader",
        Role::Learner => "observer",
        Role::Follower | Role::Candidate | Role::Stopped => "follower",
    }
}
