//! HTTP addresses of all nodes, and the nodes that are members at present. Clients share one value
//! with the nemesis, so that they follow changes of the members.

use std::sync::{Arc, PoisonError, RwLock};

/// HTTP addresses of nodes. Nodes are numbered from 1. Clones share the list of present members.
#[derive(Clone, Debug)]
pub struct Endpoints {
    addrs: Arc<[String]>,
    members: Arc<RwLock<Vec<u64>>>,
}

impl From<Vec<String>> for Endpoints {
    /// Returns the addresses of a cluster of which every node is a member.
    fn from(addrs: Vec<String>) -> Endpoints {
        let members = Arc::new(RwLock::new((1..=addrs.len() as u64).collect()));
        Endpoints { addrs: addrs.into(), members }
    }
}

impl Endpoints {
    /// Address (`host:port`) of every node, from node 1 on, also of those that are no members.
    pub fn addrs(&self) -> &[String] {
        &self.addrs
    }

    /// Returns the ids of the present members, in order.
    pub fn members(&self) -> Vec<u64> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the list of present members. All clients use it from their next request on.
    pub fn set_members(&self, members: impl IntoIterator<Item = u64>) {
        let members = members.into_iter().collect();
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }
}
