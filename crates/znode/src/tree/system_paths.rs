//! `/zookeeper` and what is below it: whose it is, and what clients may do there.
//!
//! The nodes keep the configuration. Clients may set quotas, and the ACL of a quota is that of the
//! subtree that it is about: a znode of `/zookeeper/quota` has none of its own. Everything else is
//! refused here, so that no door has to.

use crate::acl::KEEPER;
use crate::state::{Changes, State};
use crate::tree::ops::permit;
use crate::tree::quota;
use crate::{ADMIN, ALL, Acl, CREATE, Create, CreateMode, Error, Refusal, ZPath, ZnodeOp};

const SYSTEM: &str = "/zookeeper";
const CONFIG: &str = "/zookeeper/config";
const QUOTA: &str = "/zookeeper/quota";

/// What a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place<'a> {
    /// Of the clients.
    Client,
    /// Of the nodes.
    System,
    /// A directory on the way to the quota of a subtree, or the directory of that quota.
    Directory(&'a str),
    /// What the quota of a subtree is made of: limits and usage.
    Quota(&'a str),
}

impl Place<'_> {
    fn of(path: &str) -> Place<'_> {
        let Some(below) = path.strip_prefix(SYSTEM).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            return Place::Client;
        };
        let Some(subtree) = path.strip_prefix(QUOTA).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            return if below.is_empty() { Place::Directory("/") } else { Place::System };
        };
        let (above, name) = subtree.rsplit_once('/').unwrap_or_default();
        let is_quota = matches!(name, quota::LIMITS | quota::STATS);
        let subtree = if is_quota { above } else { subtree };
        // What is kept by the system itself has no quota.
        if is_system(subtree) {
            return Place::System;
        }
        let subtree = if subtree.is_empty() { "/" } else { subtree };
        if is_quota { Place::Quota(subtree) } else { Place::Directory(subtree) }
    }
}

/// Whether a path is `/zookeeper` or below it.
pub(crate) fn is_system(path: &str) -> bool {
    Place::of(path) != Place::Client
}

/// The subtree whose ACL is that of a path below `/zookeeper/quota`.
pub(crate) fn guarding_subtree(path: &str) -> Option<&str> {
    match Place::of(path) {
        Place::Directory(_) if path == SYSTEM => None,
        Place::Directory(subtree) | Place::Quota(subtree) => Some(subtree),
        Place::Client | Place::System => None,
    }
}

/// Refuses what clients cannot do with any path of the system: to lock it, and what belongs to
/// that.
///
/// # Errors
/// `NoAuth`.
pub(crate) fn check_client_path(path: &ZPath) -> Result<(), Refusal> {
    if is_system(path.as_str()) { Err(Refusal::at(Error::NoAuth, path)) } else { Ok(()) }
}

impl State {
    /// Whether a client may do this at all where its path is one of the system's. What may be
    /// created there is persistent and has no ACL of its own.
    ///
    /// # Errors
    /// `NoAuth`; `BadArguments` for deleting what is always there, as in ZooKeeper
    /// (ZKDatabase.isSpecialPath).
    pub(crate) fn check_system_write(&self, op: &mut ZnodeOp, changes: &Changes) -> Result<(), Refusal> {
        match op {
            ZnodeOp::Create(create) => self.check_system_create(create, changes),
            ZnodeOp::Delete { path, .. } | ZnodeOp::SetData { path, .. } if !is_system(path.as_str()) => Ok(()),
            ZnodeOp::Delete { path, .. } if [SYSTEM, CONFIG, QUOTA].contains(&path.as_str()) => {
                Err(Refusal::at(Error::BadArguments, path))
            }
            ZnodeOp::SetData { path, .. } if [SYSTEM, QUOTA].contains(&path.as_str()) => {
                Err(Refusal::at(Error::NoAuth, path))
            }
            ZnodeOp::Delete { path, .. } | ZnodeOp::SetData { path, .. } => {
                let perms = (Place::of(path.as_str()), ADMIN);
                if self.tree.contains(path) { self.permit_quota(perms, path, changes) } else { Ok(()) }
            }
            ZnodeOp::Check { .. } => Ok(()),
        }
    }

    fn check_system_create(&self, create: &mut Create, changes: &Changes) -> Result<(), Refusal> {
        let Create { parent, name, data, mode, acl, ensure: _ } = create;
        let is_itself = parent.is_root() && *name == SYSTEM[1..];
        if !is_itself && !is_system(parent.as_str()) {
            return Ok(());
        }
        // The length of a path is bounded where its parent is there.
        if !self.tree.contains(parent) {
            return Ok(());
        }
        let path = parent.child(name).map_err(|error| Refusal::at(error, parent))?;
        if is_keeper(changes) {
            return Ok(());
        }
        if *mode != CreateMode::Persistent {
            return Err(Refusal::at(Error::NoAuth, &path));
        }
        *acl = Acl::open();
        let place = Place::of(path.as_str());
        // Who may set a quota for a subtree need not have ADMIN above it, and a directory by itself
        // means nothing: any permission on the znode that it is named after will do. There is no
        // more than one for each znode, so that such directories cannot fill the state; one of no
        // znode needs what making that znode does.
        let perms = match place {
            Place::Directory(subtree) if data.is_empty() => {
                if self.nearest(subtree).0 == subtree {
                    ALL
                } else {
                    CREATE | ADMIN
                }
            }
            _ => ADMIN,
        };
        self.permit_quota((place, perms), &path, changes)
    }

    fn permit_quota(&self, (place, perms): (Place<'_>, u32), path: &ZPath, changes: &Changes) -> Result<(), Refusal> {
        match place {
            _ if is_keeper(changes) => Ok(()),
            Place::Quota(subtree) | Place::Directory(subtree) => {
                let (at, node) = self.nearest(subtree);
                let at = |error| ZPath::parse(at).map_or_else(Refusal::from, |at| Refusal::at(error, &at));
                permit(&node.acl, perms, changes).map_err(at)
            }
            Place::System | Place::Client => Err(Refusal::at(Error::NoAuth, path)),
        }
    }
}

/// Whether it is a node that asks, for what it keeps itself.
fn is_keeper(changes: &Changes) -> bool {
    changes.identities.iter().any(|identity| identity.scheme == KEEPER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, place: Place<'_>) {
        assert_eq!(Place::of(path), place, "{path}");
    }

    #[test]
    fn a_path_is_the_clients_the_nodes_or_about_a_quota() {
        for path in ["/", "/a", "/zookeeperx", "/a/zookeeper", "/zookeeper-quota"] {
            check(path, Place::Client);
        }
        for path in [
            "/zookeeper/config",
            "/zookeeper/config/a",
            "/zookeeper/quotas",
            "/zookeeper/x",
            "/zookeeper/quota/zookeeper",
            "/zookeeper/quota/zookeeper/zookeeper_limits",
        ] {
            check(path, Place::System);
        }
        check("/zookeeper", Place::Directory("/"));
        check("/zookeeper/quota", Place::Directory("/"));
        check("/zookeeper/quota/a/b", Place::Directory("/a/b"));
        check("/zookeeper/quota/zookeeperx", Place::Directory("/zookeeperx"));
        check("/zookeeper/quota/a/b/zookeeper_limits", Place::Quota("/a/b"));
        check("/zookeeper/quota/a/zookeeper_stats", Place::Quota("/a"));
        check("/zookeeper/quota/zookeeper_stats", Place::Quota("/"));
        check("/zookeeper/quota/a/zookeeper_limits/b", Place::Directory("/a/zookeeper_limits/b"));
    }
}
