//! `/zookeeper` and the paths below it: their meaning, and what clients may do there.
//!
//! The nodes of the cluster write the configuration. Clients may set quotas. The ACL of a subtree
//! also guards the znodes of its quota. All other writes are refused here, so that the servers for
//! clients need no checks of their own.

pub(crate) const SYSTEM: &str = "/zookeeper";
pub(crate) const CONFIG: &str = "/zookeeper/config";
pub(crate) const QUOTA: &str = "/zookeeper/quota";
pub(crate) const LIMITS: &str = "zookeeper_limits";
pub(crate) const STATS: &str = "zookeeper_stats";

/// Meaning of a path with respect to `/zookeeper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// A path outside `/zookeeper`, for clients.
    Client,
    /// A path below `/zookeeper` that only the nodes of the cluster write.
    System,
    /// A directory under `/zookeeper/quota`, with the path of the subtree that it stands for.
    Directory(&'a str),
    /// A znode of a subtree's quota (limits or usage), with the path of the subtree.
    Quota(&'a str),
}

impl Place<'_> {
    pub(crate) fn of(path: &str) -> Place<'_> {
        if !is_system(path) {
            return Place::Client;
        }
        let Some(subtree) = path.strip_prefix(QUOTA).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
            return if path == SYSTEM { Place::Directory("/") } else { Place::System };
        };
        let (above, name) = subtree.rsplit_once('/').unwrap_or_default();
        let is_quota = matches!(name, LIMITS | STATS);
        let subtree = if is_quota { above } else { subtree };
        // Subtrees of `/zookeeper` have no quota.
        if is_system(subtree) {
            return Place::System;
        }
        let subtree = if subtree.is_empty() { "/" } else { subtree };
        if is_quota { Place::Quota(subtree) } else { Place::Directory(subtree) }
    }
}

/// Tells whether a path is `/zookeeper` or below it.
pub(crate) fn is_system(path: &str) -> bool {
    path.strip_prefix(SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The subtree whose ACL guards a path below `/zookeeper/quota`. `None` for other paths.
pub(crate) fn guarding_subtree(path: &str) -> Option<&str> {
    match Place::of(path) {
        Place::Directory(_) if path == SYSTEM => None,
        Place::Directory(subtree) | Place::Quota(subtree) => Some(subtree),
        Place::Client | Place::System => None,
    }
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

    /// The server examines the path of a request before it checks its length, so a path of some MiB
    /// must not cost much.
    #[test]
    fn a_path_that_repeats_the_name_of_the_quotas_is_looked_at_once() {
        let path = QUOTA.repeat(65_000);
        assert_eq!(Place::of(&path), Place::System);
        assert!(is_system(&path));
    }
}
