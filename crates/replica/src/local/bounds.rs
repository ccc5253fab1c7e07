//! Bounds for which a node refuses requests of clients.

use znode::{Error, Refusal, State};

znode::named! {
    /// Bound for which a request, body, watch, session or subtree of a client is refused. Its name
    /// is the key of the configuration that sets it. A fixed bound has a name without a dot.
    /// `/address` after a name stands for the share of one address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bound {
        /// HTTP requests in progress.
        Requests = "requests",
        /// Share of one address of the HTTP requests in progress.
        RequestsOfAddress = "requests/address",
        /// HTTP requests that wait for the thread for long work.
        LongWork = "long-work",
        /// Writes of one address in progress at the HTTP server.
        WritesOfAddress = "writes/address",
        /// Backups in progress.
        Backups = "backups",
        /// HTTP requests that wait.
        Waits = "http.waits_max",
        /// Bytes of request bodies, and of long answers that HTTP clients have not read.
        Bodies = "http.bodies_bytes_max",
        /// Share of one address of [`Bound::Bodies`].
        BodiesOfAddress = "http.bodies_bytes_max/address",
        /// Clients' writes in progress at this node, by number or by bytes. Each try counts of a
        /// write that a ZooKeeper client waits for.
        Proposals = "node.proposals_max",
        /// New sessions of one address for each second.
        SessionRate = "node.session_rate_max",
        /// Watches of HTTP clients.
        Watches = "node.watches_max",
        /// Open sessions of the cluster.
        Sessions = "limits.sessions_max",
        /// Open sessions of one address.
        SessionsOfAddress = "limits.sessions_per_address_max",
        /// Znodes of the cluster.
        Znodes = "limits.znodes_max",
        /// Estimated bytes of the state.
        State = "limits.state_bytes_max",
        /// Estimated bytes of one subtree.
        Subtree = "limits.subtree_bytes_max",
        /// Quota that an operator has set for a subtree.
        Quota = "quota",
        /// Watches of ZooKeeper clients.
        ZooKeeperWatches = "zookeeper.watches_max",
        /// Share of one address of [`Bound::ZooKeeperWatches`].
        ZooKeeperWatchesOfAddress = "zookeeper.watches_max/address",
        /// Watches of one connection of a ZooKeeper client.
        ConnectionWatches = "zookeeper.connection_watches_max",
        /// Bytes of watches of ZooKeeper clients.
        WatchBytes = "zookeeper.watches_bytes_max",
        /// Share of one address of [`Bound::WatchBytes`].
        WatchBytesOfAddress = "zookeeper.watches_bytes_max/address",
        /// Bytes of one packet of a ZooKeeper client.
        PacketBytes = "zookeeper.packet_bytes_max",
        /// Bytes of incomplete packets of ZooKeeper clients.
        IncompletePacketBytes = "zookeeper.incomplete_packets_bytes_max",
    }
}

impl Bound {
    /// Returns the bound for which the state machine has refused a write; `None` if no bound is the
    /// reason. `state` includes the entry of the refusal. Where several bounds are possible, the
    /// bound with the least room in `state` counts.
    pub(crate) fn of(refusal: &Refusal, state: &State) -> Option<Bound> {
        let limits = state.limits();
        match (refusal.error, &refusal.path) {
            (Error::TooManySessions, _) if state.session_count() >= limits.sessions_max as usize => {
                Some(Bound::Sessions)
            }
            (Error::TooManySessions, _) => Some(Bound::SessionsOfAddress),
            (Error::QuotaExceeded, Some(path)) if state.has_hard_quota(path) => Some(Bound::Quota),
            (Error::QuotaExceeded, _) if state.znode_count() as u64 >= limits.znodes_max => Some(Bound::Znodes),
            (Error::QuotaExceeded, Some(path)) => {
                let of_subtree = limits.subtree_bytes_max.saturating_sub(state.subtree_bytes(path));
                let of_state = limits.plain_bytes_max().saturating_sub(state.state_bytes());
                Some(if of_subtree < of_state { Bound::Subtree } else { Bound::State })
            }
            (Error::QuotaExceeded, None) => Some(Bound::State),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use znode::{Limits, ZPath};

    use super::*;

    #[test]
    fn a_refusal_counts_for_the_bound_with_the_least_room() {
        let check = |edit: &dyn Fn(&mut Limits), refusal: Refusal, expected| {
            let mut limits = Limits::default();
            edit(&mut limits);
            assert_eq!(Bound::of(&refusal, &State::new(limits)), expected, "{refusal:?}");
        };
        let full = || Refusal::at(Error::QuotaExceeded, &ZPath::parse("/a/b").unwrap());
        check(&|limits| limits.sessions_max = 0, Error::TooManySessions.into(), Some(Bound::Sessions));
        check(&|_| (), Error::TooManySessions.into(), Some(Bound::SessionsOfAddress));
        check(&|limits| limits.znodes_max = 1, full(), Some(Bound::Znodes));
        check(&|limits| limits.subtree_bytes_max = 100, full(), Some(Bound::Subtree));
        check(&|limits| (limits.subtree_bytes_max, limits.state_bytes_max) = (100, 10), full(), Some(Bound::State));
        check(&|_| (), Error::QuotaExceeded.into(), Some(Bound::State));
        check(&|_| (), Error::NoNode.into(), None);
    }
}
