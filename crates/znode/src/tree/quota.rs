//! Quotas: bounds on the znodes and bytes of a subtree, set as by ZooKeeper's `setquota`.
//!
//! The quota of `/a/b` is the text of `/zookeeper/quota/a/b/zookeeper_limits`, and
//! `zookeeper_stats` beside that znode shows the usage of the subtree. Both are ordinary znodes, so
//! every client can set a quota and read it. The root of each subtree keeps its usage (`usage.rs`),
//! so setting a quota walks no subtree.

use std::ops::Index;

use imbl::{OrdMap, OrdSet};

use crate::tree::system_paths::STATS;
use crate::tree::system_paths::is_system;
use crate::{Error, Usage, ZPath};

/// Directory of the quotas, with a slash at the end.
pub(crate) const QUOTAS: &str = "/zookeeper/quota/";

/// Limits of a subtree; in each field, `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Soft limit of znodes: the leader only reports in its log that it is exceeded.
    pub count: Option<u64>,
    /// Soft limit of bytes of data: the leader only reports in its log that it is exceeded.
    pub bytes: Option<u64>,
    /// Hard limit of znodes: a write beyond it is refused.
    pub count_hard: Option<u64>,
    /// Hard limit of bytes of data: a write beyond it is refused.
    pub bytes_hard: Option<u64>,
}

impl QuotaLimits {
    /// Reads `count=5,bytes=-1=;byteHardLimit=1000;countHardLimit=10` (StatsTrack). A negative or
    /// missing number stands for no limit, an empty text for no limits.
    ///
    /// # Errors
    /// `BadArguments` for a malformed number or pair. Unknown names are ignored, as in ZooKeeper.
    pub fn parse(text: &[u8]) -> Result<QuotaLimits, Error> {
        let text = std::str::from_utf8(text).map_err(|_| Error::BadArguments)?;
        let mut limits = QuotaLimits::default();
        for pair in text.split([',', ';']).filter(|pair| !pair.is_empty()) {
            // The number of bytes is followed by another `=`, at which old clients stop reading.
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

/// The quota of one subtree, with the usage that it bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Limits of the subtree.
    pub limits: QuotaLimits,
    /// Usage of the subtree.
    pub usage: Usage,
}

/// The quotas of all subtrees that have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas {
    by_path: OrdMap<ZPath, Quota>,
    /// Subtrees that exceed a soft or hard limit of their quota.
    exceeded: OrdSet<ZPath>,
}

impl Index<&ZPath> for Quotas {
    type Output = Quota;

    /// The quota of a path. Panics if there is none.
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

    /// Quotas of subtrees that exceed a soft or hard limit.
    pub(crate) fn exceeded(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.exceeded.iter().filter_map(|path| self.by_path.get_key_value(path))
    }

    /// Tells whether the subtree exceeds a soft or hard limit of its quota.
    pub(crate) fn is_exceeded(&self, path: &ZPath) -> bool {
        self.exceeded.contains(path)
    }

    /// The subtrees with a quota that contain a path, from the top down.
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

/// Number of znodes and bytes of data that a write would add to each subtree that contains the
/// written path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Number of znodes made: the one at the path, and its missing ancestors.
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// The subtree whose quota is at `/zookeeper/quota<subtree>/<name>`. `None` for other paths.
pub(crate) fn subtree_of(path: &ZPath, name: &str) -> Option<ZPath> {
    let subtree = path.as_str().strip_prefix("/zookeeper/quota")?.strip_suffix(name)?.strip_suffix('/')?;
    let subtree = ZPath::parse(subtree).ok().filter(|subtree| !subtree.is_root())?;
    // Subtrees of `/zookeeper` have no quota, because a quota's own znodes would count in their
    // usage.
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
