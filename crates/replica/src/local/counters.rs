//! Counters of requests, connections, sessions and snapshots since a node started, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use znode::Zxid;

use crate::local::bounds::Bound;

znode::named! {
    /// Interface through which a client's request comes in.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Entrance {
        /// The HTTP API.
        Http = "http",
        /// ZooKeeper's client protocol.
        ZooKeeper = "zookeeper",
    }
}

znode::named! {
    /// Outcome of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RequestEnd {
        /// The request was done.
        Done = "done",
        /// The request was refused, and nothing was done.
        Refused = "refused",
        /// The request could not be served now, and nothing was done.
        Unavailable = "unavailable",
        /// The request may have been done.
        Unknown = "unknown",
    }
}

znode::named! {
    /// Reasons for which a connection of a client is turned away.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TurnedAway {
        /// The number of connections of the HTTP or ZooKeeper server is at its limit.
        DoorFull = "door-full",
        /// The number of connections of the client's address is at its limit.
        AddressFull = "address-full",
        /// The connection was closed to make room for one from another address, because its own
        /// address had the most connections.
        GaveWay = "gave-way",
    }
}

/// The counters of one node.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: [[AtomicU64; RequestEnd::ALL.len()]; Entrance::ALL.len()],
    turned_away: [[AtomicU64; TurnedAway::ALL.len()]; Entrance::ALL.len()],
    refused: [AtomicU64; Bound::ALL.len()],
    connections: [AtomicU64; Entrance::ALL.len()],
    /// Numbers of open connections of peers: first without TLS, then with TLS.
    peer_connections: [AtomicU64; 2],
    sessions_expired: AtomicU64,
    snapshots_built: AtomicU64,
    snapshots_installed: AtomicU64,
    sequence_used: AtomicU64,
    /// Zxid of the last entry in the log when this process started. Sessions that expired up to it
    /// are not counted, because an earlier process may have counted them.
    again_up_to: AtomicU64,
}

impl Counters {
    pub(crate) fn request(&self, entrance: Entrance, end: RequestEnd) {
        self.requests[entrance as usize][end as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn turned_away(&self, entrance: Entrance, cause: TurnedAway) {
        self.turned_away[entrance as usize][cause as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, bound: Bound) {
        self.refused[bound as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn connected(&self, entrance: Entrance) {
        self.connections[entrance as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self, entrance: Entrance) {
        self.connections[entrance as usize].fetch_sub(1, Relaxed);
    }

    pub(crate) fn peer_connected(&self, has_tls: bool) {
        self.peer_connections[usize::from(has_tls)].fetch_add(1, Relaxed);
    }

    pub(crate) fn peer_disconnected(&self, has_tls: bool) {
        self.peer_connections[usize::from(has_tls)].fetch_sub(1, Relaxed);
    }

    /// Sets the zxid up to which expired sessions are not counted, because an earlier process may
    /// have counted them.
    pub(crate) fn again_up_to(&self, zxid: Zxid) {
        self.again_up_to.store(zxid.0, Relaxed);
    }

    /// Tells whether the entry with zxid `at` came into the log after this process started.
    pub(crate) fn is_new(&self, at: Zxid) -> bool {
        at.0 > self.again_up_to.load(Relaxed)
    }

    /// Counts `count` sessions that expired in the entry with zxid `at`, if the entry is new.
    pub(crate) fn sessions_expired(&self, at: Zxid, count: usize) {
        if self.is_new(at) {
            self.sessions_expired.fetch_add(count as u64, Relaxed);
        }
    }

    /// Notes how many numbers for sequential znodes are used under one parent. The largest count is
    /// kept.
    pub(crate) fn sequence_used(&self, numbers: u64) {
        self.sequence_used.fetch_max(numbers, Relaxed);
    }

    /// Counts a snapshot that this node has written of its own state.
    pub(crate) fn snapshot_built(&self) {
        self.snapshots_built.fetch_add(1, Relaxed);
    }

    /// Counts a snapshot from the leader that has replaced the state of this node.
    pub(crate) fn snapshot_installed(&self) {
        self.snapshots_installed.fetch_add(1, Relaxed);
    }

    pub(crate) fn look(&self) -> Counts {
        fn row<const N: usize>(row: &[AtomicU64; N]) -> [u64; N] {
            row.each_ref().map(|count| count.load(Relaxed))
        }
        Counts {
            requests: self.requests.each_ref().map(row),
            turned_away: self.turned_away.each_ref().map(row),
            refused: row(&self.refused),
            connections: row(&self.connections),
            peer_connections: row(&self.peer_connections),
            sessions_expired: self.sessions_expired.load(Relaxed),
            snapshots_built: self.snapshots_built.load(Relaxed),
            snapshots_installed: self.snapshots_installed.load(Relaxed),
            sequence_used: self.sequence_used.load(Relaxed),
        }
    }
}

/// Values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    requests: [[u64; RequestEnd::ALL.len()]; Entrance::ALL.len()],
    turned_away: [[u64; TurnedAway::ALL.len()]; Entrance::ALL.len()],
    refused: [u64; Bound::ALL.len()],
    connections: [u64; Entrance::ALL.len()],
    peer_connections: [u64; 2],
    /// Number of sessions that expired in entries that came after this process started. Sessions
    /// that were missing in a snapshot from the leader are not counted.
    pub sessions_expired: u64,
    /// Snapshots that this node has written of its own state.
    pub snapshots_built: u64,
    /// Snapshots from leaders that have replaced the state of this node.
    pub snapshots_installed: u64,
    /// Largest number of used sequence numbers under one parent, of the parents under which a
    /// sequential znode was created since this process started.
    pub sequence_used: u64,
}

impl Counts {
    /// Number of requests from `entrance` that ended with `end`.
    pub fn requests(&self, entrance: Entrance, end: RequestEnd) -> u64 {
        self.requests[entrance as usize][end as usize]
    }

    /// Number of requests, bodies, watches, sessions and writes that were refused for `bound`.
    pub fn refused(&self, bound: Bound) -> u64 {
        self.refused[bound as usize]
    }

    /// Number of open connections of clients.
    pub fn connections(&self, entrance: Entrance) -> u64 {
        self.connections[entrance as usize]
    }

    /// Number of open connections that other members have opened to this node, with TLS or without.
    pub fn peer_connections(&self, has_tls: bool) -> u64 {
        self.peer_connections[usize::from(has_tls)]
    }

    /// Number of clients' connections that were turned away for `cause`.
    pub fn turned_away(&self, entrance: Entrance, cause: TurnedAway) -> u64 {
        self.turned_away[entrance as usize][cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entrance_and_end_has_a_counter_of_its_own() {
        let counters = Counters::default();
        for (n, entrance) in (0..).zip(Entrance::ALL) {
            for (m, end) in (1..).zip(RequestEnd::ALL) {
                (0..4 * n + m).for_each(|_| counters.request(entrance, end));
            }
        }
        let counts = counters.look();
        let all = Entrance::ALL.map(|entrance| RequestEnd::ALL.map(|end| counts.requests(entrance, end)));
        assert_eq!(all, [[1, 2, 3, 4], [5, 6, 7, 8]]);
    }

    #[test]
    fn what_is_applied_again_after_a_restart_is_not_counted_again() {
        let counters = Counters::default();
        counters.again_up_to(Zxid(5));
        for (at, count) in [(4, 1), (5, 1), (6, 2), (9, 1)] {
            counters.sessions_expired(Zxid(at), count);
        }
        assert_eq!(counters.look().sessions_expired, 3);
    }
}
