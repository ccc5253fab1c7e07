//! Quotas: how many znodes and bytes a subtree may have, set in the way of ZooKeeper's `setquota`.
//!
//! The quota of `/a/b` is the text of `/zookeeper/quota/a/b/zookeeper_limits`; `zookeeper_stats`
//! beside it says what the subtree has. Both are znodes like others, so every client can set a
//! quota and look at it. What a subtree has is kept with its root (`subtree.rs`), so setting a
//! quota counts nothing.

use imbl::{OrdMap, OrdSet};

use crate::state::State;
use crate::tree::system_paths::is_system;
use crate::tree::znode::Znode;
use crate::{Error, Refusal, Usage, ZPath};

/// Where quotas are set, with a slash at the end.
const QUOTAS: &str = "/zookeeper/quota/";
pub(crate) const LIMITS: &str = "zookeeper_limits";
pub(crate) const STATS: &str = "zookeeper_stats";

/// What a subtree may have; `None` is as much as it likes.
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
    fn parse(text: &[u8]) -> Result<QuotaLimits, Error> {
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

    fn is_exceeded_by(&self, usage: Usage) -> bool {
        let over = |used: u64, limits: [Option<u64>; 2]| limits.into_iter().flatten().any(|limit| used > limit);
        over(usage.count, [self.count, self.count_hard]) || over(usage.bytes, [self.bytes, self.bytes_hard])
    }
}

/// The quota of one subtree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What it may have.
    pub limits: QuotaLimits,
    /// What it has.
    pub usage: Usage,
}

/// All quotas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas {
    by_path: OrdMap<ZPath, Quota>,
    /// Those that have more than they should, by limits of either kind.
    exceeded: OrdSet<ZPath>,
}

impl Quotas {
    pub(crate) fn len(&self) -> usize {
        self.by_path.len()
    }

    fn set(&mut self, path: &ZPath, quota: Quota) {
        if quota.limits.is_exceeded_by(quota.usage) {
            self.exceeded.insert(path.clone());
        } else {
            self.exceeded.remove(path);
        }
        self.by_path.insert(path.clone(), quota);
    }
}

/// What a write would add to the subtrees that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Znodes on the way to the path, itself included, each below the one before.
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl State {
    /// The subtrees that have a quota, by path.
    pub fn quotas(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.quotas.by_path.iter()
    }

    /// Those that have more than they should, by limits of either kind.
    pub fn exceeded_quotas(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.quotas.exceeded.iter().filter_map(|path| self.quotas.by_path.get_key_value(path))
    }

    /// Whether it is one of those.
    pub fn exceeds_quota(&self, subtree: &ZPath) -> bool {
        self.quotas.exceeded.contains(subtree)
    }

    /// Refuses what would bring a subtree beyond a hard limit. What does not grow is always let
    /// through: it is the way out.
    ///
    /// # Errors
    /// `QuotaExceeded`, about the subtree whose quota it is.
    pub(crate) fn check_quota(&self, path: &ZPath, growth: Growth) -> Result<(), Refusal> {
        for subtree in self.charged(path) {
            let Quota { limits, usage } = self.quotas.by_path[&subtree];
            let count = growth.count.min((path.depth() - subtree.depth()) as u64 + 1);
            let beyond = |used: u64, grows: u64, limit: Option<u64>| {
                grows > 0 && limit.is_some_and(|limit| used.saturating_add(grows) > limit)
            };
            if beyond(usage.count, count, limits.count_hard) || beyond(usage.bytes, growth.bytes, limits.bytes_hard) {
                return Err(Refusal::at(Error::QuotaExceeded, &subtree));
            }
        }
        Ok(())
    }

    /// What may stand at a path below `/zookeeper/quota`.
    pub(crate) fn check_quota_text(&self, path: &ZPath, data: &[u8]) -> Result<(), Error> {
        if subtree_of(path, LIMITS).is_some() { QuotaLimits::parse(data).map(drop) } else { Ok(()) }
    }

    /// A znode with so much data has come. Whether its data may have changed by that: it tells what
    /// a subtree has.
    pub(crate) fn quota_created(&mut self, path: &ZPath, bytes: u64) -> bool {
        self.charge(path, |used| Usage { count: used.count + 1, bytes: used.bytes + bytes });
        self.quota_set(path)
    }

    /// A znode has gone.
    pub(crate) fn quota_deleted(&mut self, path: &ZPath, node: &Znode) {
        let usage = Usage::of(node);
        self.charge(path, |used| Usage { count: used.count - usage.count, bytes: used.bytes - usage.bytes });
        if let Some(subtree) = subtree_of(path, LIMITS) {
            self.quotas.by_path.remove(&subtree);
            self.quotas.exceeded.remove(&subtree);
        }
    }

    /// A znode's data has been replaced by so much. Whether it may have changed again by that, as
    /// for [`State::quota_created`].
    pub(crate) fn quota_changed(&mut self, path: &ZPath, before: u64, now: u64) -> bool {
        self.charge(path, |used| Usage { bytes: used.bytes - before + now, ..used });
        self.quota_set(path)
    }

    /// Finds all quotas anew: the tree was read back.
    pub(crate) fn find_quotas(&mut self) {
        let limits = self.tree.between(QUOTAS, "/zookeeper/quota0").filter_map(|(path, node)| {
            // What was written before there were quotas may be anything.
            Some((subtree_of(path, LIMITS)?, QuotaLimits::parse(&node.data).unwrap_or_default()))
        });
        let limits: Vec<_> = limits.collect();
        if limits.is_empty() {
            return;
        }
        for (subtree, limits) in limits {
            let usage = self.tree.usage(&subtree);
            self.quotas.set(&subtree, Quota { limits, usage });
            self.tell_usage(&subtree);
        }
    }

    /// For tests: every quota against the tree.
    pub(crate) fn check_quotas(&self) -> Result<(), String> {
        for (subtree, quota) in self.quotas() {
            let told =
                self.node(&stats_of(subtree)).is_none_or(|node| *node.data == *quota.usage.to_string().as_bytes());
            let exceeded = quota.limits.is_exceeded_by(quota.usage) == self.quotas.exceeded.contains(subtree);
            if quota.usage != self.tree.usage(subtree) || !told || !exceeded {
                return Err(format!("{subtree}: {quota:?} of {:?}", self.tree.usage(subtree)));
            }
        }
        let limits = self.tree.iter().filter(|(path, _)| subtree_of(path, LIMITS).is_some()).count();
        let all = limits == self.quotas.by_path.len() && self.quotas.exceeded.len() <= limits;
        if all { Ok(()) } else { Err(format!("{limits} znodes with limits, {:?}", self.quotas)) }
    }

    /// Limits were set, or what the subtree has was overwritten. Whether this is such a znode.
    fn quota_set(&mut self, path: &ZPath) -> bool {
        if !path.as_str().starts_with(QUOTAS) {
            return false;
        }
        if let Some(subtree) = subtree_of(path, LIMITS) {
            let limits = QuotaLimits::parse(&self.tree[path].data).unwrap_or_default();
            let usage = self.quotas.by_path.get(&subtree).map(|quota| quota.usage);
            let usage = usage.unwrap_or_else(|| self.tree.usage(&subtree));
            self.quotas.set(&subtree, Quota { limits, usage });
            self.tell_usage(&subtree);
        }
        if let Some(subtree) = subtree_of(path, STATS) {
            self.tell_usage(&subtree);
        }
        true
    }

    fn charge(&mut self, path: &ZPath, change: impl Fn(Usage) -> Usage) {
        for subtree in self.charged(path) {
            let quota = self.quotas.by_path[&subtree];
            self.quotas.set(&subtree, Quota { usage: change(quota.usage), ..quota });
            self.tell_usage(&subtree);
        }
    }

    /// The subtrees with a quota that a path is in.
    fn charged(&self, path: &ZPath) -> Vec<ZPath> {
        if self.quotas.by_path.is_empty() {
            return Vec::new();
        }
        let ends = path.as_str().match_indices('/').map(|(at, _)| at).skip(1).chain([path.as_str().len()]);
        let found = ends.filter_map(|end| self.quotas.by_path.get_key_value(&path.as_str()[..end]));
        found.map(|(subtree, _)| subtree.clone()).collect()
    }

    /// Writes down what a subtree has, for clients to read. As in ZooKeeper this counts as no
    /// change of the znode.
    fn tell_usage(&mut self, subtree: &ZPath) {
        let stats = stats_of(subtree);
        let Some(quota) = self.quotas.by_path.get(subtree).filter(|_| self.tree.contains(&stats)) else {
            return;
        };
        let text = quota.usage.to_string();
        self.tree.edit(&stats, |node| node.data = text.into_bytes().into());
    }
}

/// The subtree that `/zookeeper/quota<subtree>/<name>` is about.
fn subtree_of(path: &ZPath, name: &str) -> Option<ZPath> {
    let subtree = path.as_str().strip_prefix("/zookeeper/quota")?.strip_suffix(name)?.strip_suffix('/')?;
    let subtree = ZPath::parse(subtree).ok().filter(|subtree| !subtree.is_root())?;
    // What is kept by the system itself has no quota: the counts would count themselves.
    (!is_system(subtree.as_str())).then_some(subtree)
}

fn stats_of(subtree: &ZPath) -> ZPath {
    ZPath::parse(&format!("/zookeeper/quota{subtree}/{STATS}")).expect("a path below another one")
}

#[cfg(test)]
mod tests {
    use super::*;

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
