//! Kinds of znodes: how long each stays.

use bincode::{Decode, Encode};

use crate::words::ticket_name::{is_of_recipe, sequence_of};
use crate::{CreateMode, SessionId};

/// Kinds of znodes, by how long they stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Kind {
    /// Stays until it is deleted.
    #[default]
    Persistent,
    /// Stays until its session ends.
    Ephemeral {
        /// The session that owns the znode.
        owner: SessionId,
    },
    /// Stays until its last child has been gone for `container_idle_ms`. A container that never had
    /// a child stays.
    Container,
    /// Stays until it has no children and its data was not set for `ttl_ms`.
    Ttl {
        /// Time without a change of the data after which the znode is deleted, in milliseconds.
        ttl_ms: u64,
    },
}

impl Kind {
    /// The kind of znode that a create mode makes. `owner` is used for ephemeral znodes only.
    pub(crate) fn of(mode: CreateMode, owner: SessionId) -> Kind {
        match mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => Kind::Persistent,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => Kind::Ephemeral { owner },
            CreateMode::Container => Kind::Container,
            CreateMode::PersistentTtl { ttl_ms } | CreateMode::PersistentSequentialTtl { ttl_ms } => {
                Kind::Ttl { ttl_ms }
            }
        }
    }

    /// The sequence number of a child that is a ticket in its parent's queue (rule 2 of
    /// docs/znode-model.md), read from the child's name. `None` for any other child.
    pub(crate) fn number(self, name: &str) -> Option<u64> {
        let contends = match self {
            Kind::Ephemeral { .. } => true,
            // kazoo can make persistent lock nodes, which outlive their sessions.
            Kind::Persistent => is_of_recipe(name),
            Kind::Container | Kind::Ttl { .. } => false,
        };
        if contends { sequence_of(name) } else { None }
    }

    /// ZooKeeper's `ephemeralOwner` (EphemeralType.java), whose high bits mark containers and TTL
    /// znodes.
    pub(crate) fn ephemeral_owner(self) -> u64 {
        match self {
            Kind::Persistent => 0,
            Kind::Ephemeral { owner } => owner.0,
            Kind::Container => 1 << 63,
            Kind::Ttl { ttl_ms } => 0xff << 56 | ttl_ms,
        }
    }
}
