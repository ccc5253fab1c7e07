//! Quotas: how many znodes and bytes a subtree may have, set in the way of ZooKeeper's `setquota`.
//!
//! The quota of `/a/b` is the text of `/zookeeper/quota/a/b/zookeeper_limits`; `zookeeper_stats`
//! beside it says what the subtree has. Both are znodes like others, so every client can set a
//! quota and look at it. What a subtree has is kept with its root (`usage.rs`), so setting a
//! quota counts nothing.

use std::ops::Index;

use imbl::{OrdMap, OrdSet};

use crate::tree::system_paths::STATS;
use crate::tree::system_paths::is_system;
use crate::{Error, Usage, ZPath};

/// Directory where quotas are set, with a slash at the end.
pub(crate) const QUOTAS: &str = "/zookeeper/quota/";

/// Limits of what a subtree may have; `None` is as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Znodes: more are told in the leader's log.
    pub count: Option<u64>,
    /// Bytes: more are told in the leader's log.
    pub bytes: Option<u64>,
    /// Znodes: more are refused.
    pub count_hard: Option<u64>,
    /// Bytes: more are refused.
    pub bytes_hard: Option<u64>,
}

impl QuotaLimits {
    /// Reads `count=5,bytes=-1=;byteHardLimit=1000;countHardLimit=10` (StatsTrack). A negative or
    /// missing number is no limit, and nothing at all is none.
    ///
    /// # Errors
    /// `BadArguments` for a number that is none. Words that are not known are passed over, as
    /// ZooKeeper does.
    pub(crate) fn parse(text: &[u8]) -> Result<QuotaLimits, Error> {
        let text = std::str::from_utf8(text).map_err(|_| Error::BadArguments)?;
        let mut limits = QuotaLimits::default();
        for pair in text.split([',', ';']).filter(|pair| !pair.is_empty()) {
            // After the bytes stands another `=`, which keeps old clients from reading on.
            let (word, rest) = pair.split_once('=').ok_or(Error::BadArguments)?;
            let digits = rest.split('=').next().unwrap_or_default();
            let number: i64 = if digits.is_empty() { -1 } else { digits.parse().map_err(|_| Error::BadArguments)? };
            let place = match word {
                "count" => &mut limits.count,
                "bytes" => &mut limits.bytes,
                "countHardLimit" => &mut limits.count_hard,
                "byteHardLimit" => &mut limits.bytes_hard,
                _ => continue,
            };
            *place = u64::try_from(number).ok();
        }
        Ok(limits)
    }

    pub(crate) fn is_exceeded_by(&self, usage: Usage) -> bool {
        let over = |used: u64, limits: [Option<u64>; 2]| limits.into_iter().flatten().any(|limit| used > limit);
        over(usage.count, [self.count, self.count_hard]) || over(usage.bytes, [self.bytes, self.bytes_hard])
    }
}

/// The quota of one subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Limits of what it may have.
    pub limits: QuotaLimits,
    /// Usage: what it has.
    pub usage: Usage,
}

/// All quotas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas {
    by_path: OrdMap<ZPath, Quota>,
    /// Subtrees that have more than they should, by limits of either kind.
    exceeded: OrdSet<ZPath>,
}

impl Index<&ZPath> for Quotas {
    type Output = Quota;

    /// A quota that is there.
    fn index(&self, path: &ZPath) -> &Quota {
        &self.by_path[path]
    }
}

impl Quotas {
    pub(crate) fn len(&self) -> usize {
        self.by_path.len()
    }

    pub(crate) fn get(&self, path: &ZPath) -> Option<&Quota> {
        self.by_path.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.by_path.iter()
    }

    /// Quotas of subtrees that have more than they should, by limits of either kind.
    pub(crate) fn exceeded(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.exceeded.iter().filter_map(|path| self.by_path.get_key_value(path))
    }

    /// Tells whether it is one of those.
    pub(crate) fn is_exceeded(&self, path: &ZPath) -> bool {
        self.exceeded.contains(path)
    }

    /// The subtrees with a quota that a path is in.
    pub(crate) fn charged(&self, path: &ZPath) -> Vec<ZPath> {
        if self.by_path.is_empty() {
            return Vec::new();
        }
        let ends = path.as_str().match_indices('/').map(|(at, _)| at).skip(1).chain([path.as_str().len()]);
        let found = ends.filter_map(|end| self.by_path.get_key_value(&path.as_str()[..end]));
        found.map(|(subtree, _)| subtree.clone()).collect()
    }

    pub(crate) fn remove(&mut self, path: &ZPath) {
        self.by_path.remove(path);
        self.exceeded.remove(path);
    }

    pub(crate) fn set(&mut self, path: &ZPath, quota: Quota) {
        if quota.limits.is_exceeded_by(quota.usage) {
            self.exceeded.insert(path.clone());
        } else {
            self.exceeded.remove(path);
        }
        self.by_path.insert(path.clone(), quota);
    }
}

/// Growth that a write would bring to the subtrees that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Znodes on the way to the path, itself included, each below the one before.
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// The subtree that `/zookeeper/quota<subtree>/<name>` is about.
pub(crate) fn subtree_of(path: &ZPath, name: &str) -> Option<ZPath> {
    let subtree = path.as_str().strip_prefix("/zookeeper/quota")?.strip_suffix(name)?.strip_suffix('/')?;
    let subtree = ZPath::parse(subtree).ok().filter(|subtree| !subtree.is_root())?;
    // The znodes that the system keeps have no quota: the counts would count themselves.
    (!is_system(subtree.as_str())).then_some(subtree)
}

pub(crate) fn stats_of(subtree: &ZPath) -> ZPath {
    ZPath::parse(&format!("/zookeeper/quota{subtree}/{STATS}")).expect("a path below another one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::system_paths::LIMITS;

    #[track_caller]
    fn check(text: &str, expected: [i64; 4]) {
        let number = |number: i64| u64::try_from(number).ok();
        let [count, bytes, count_hard, bytes_hard] = expected.map(number);
        let expected = QuotaLimits { count, bytes, count_hard, bytes_hard };
        assert_eq!(QuotaLimits::parse(text.as_bytes()), Ok(expected), "{text:?}");
    }

    #[test]
    fn limits_are_read_as_zookeeper_writes_them() {
        check("", [-1; 4]);
        check("count=5,bytes=-1", [5, -1, -1, -1]);
        check("count=-1,bytes=7=;byteHardLimit=1000;countHardLimit=10", [-1, 7, 10, 1000]);
        check("count=,bytes=0=;byteHardLimit=-1;countHardLimit=0;other=3", [-1, 0, 0, -1]);
        for bad in ["5", "count=x", "count=5,bytes=1e3", "bytes=9223372036854775808"] {
            assert_eq!(QuotaLimits::parse(bad.as_bytes()), Err(Error::BadArguments), "{bad:?}");
        }
        assert_eq!(QuotaLimits::parse(b"count=\xff"), Err(Error::BadArguments));
    }

    #[test]
    fn a_quota_is_for_a_subtree_that_is_not_zookeepers_own() {
        let subtree = |path: &str| subtree_of(&ZPath::parse(path).unwrap(), LIMITS).map(|path| path.to_string());
        assert_eq!(subtree("/zookeeper/quota/a/b/zookeeper_limits").as_deref(), Some("/a/b"));
        assert_eq!(subtree("/zookeeper/quota/zookeeperx/zookeeper_limits").as_deref(), Some("/zookeeperx"));
        for none in ["/zookeeper_limits", "/zookeeper/zookeeper_limits", "/zookeeper/quota/zookeeper_limits"] {
            assert_eq!(subtree(none), None, "{none}");
        }
        assert_eq!(subtree("/zookeeper/quota/zookeeper/quota/zookeeper_limits"), None);
        assert_eq!(subtree("/zookeeper/quotas/a/zookeeper_limits"), None);
        assert_eq!(subtree("/zookeeper/quota/a/xzookeeper_limits"), None);
    }
}
