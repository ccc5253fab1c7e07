//! Quotas while the tree changes: counting usage, and refusing writes beyond a hard limit.

use crate::tree::quota::{Growth, QUOTAS, stats_of, subtree_of};
use crate::tree::system_paths::{LIMITS, STATS};
use crate::{Error, Quota, QuotaLimits, Refusal, State, Usage, ZPath, Znode};

impl State {
    /// The subtrees that have a quota, by path.
    pub fn quotas(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.quotas.iter()
    }

    /// The quotas whose subtrees exceed a soft or hard limit.
    pub fn exceeded_quotas(&self) -> impl Iterator<Item = (&ZPath, &Quota)> {
        self.quotas.exceeded()
    }

    /// Tells whether the subtree exceeds a soft or hard limit of its quota.
    pub fn exceeds_quota(&self, subtree: &ZPath) -> bool {
        self.quotas.is_exceeded(subtree)
    }

    /// Tells whether the subtree's quota has a hard limit.
    pub fn has_hard_quota(&self, subtree: &ZPath) -> bool {
        self.quotas.get(subtree).is_some_and(|quota| quota.limits.count_hard.or(quota.limits.bytes_hard).is_some())
    }

    /// Refuses a write that would take a subtree beyond a hard limit. A write that adds nothing to
    /// a subtree always passes, so that a full subtree can be emptied.
    ///
    /// # Errors
    /// `QuotaExceeded`, with the path of the subtree that is full.
    pub(crate) fn check_quota(&self, path: &ZPath, growth: Growth) -> Result<(), Refusal> {
        for subtree in self.quotas.charged(path) {
            let Quota { limits, usage } = self.quotas[&subtree];
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

    /// Checks the data that a client writes to `path`. Only the data of a `zookeeper_limits` znode,
    /// which sets a quota, can be refused.
    pub(crate) fn check_quota_text(&self, path: &ZPath, data: &[u8]) -> Result<(), Error> {
        if subtree_of(path, LIMITS).is_some() { QuotaLimits::parse(data).map(drop) } else { Ok(()) }
    }

    /// Adds a new znode with `bytes` bytes of data to the usage of each quota above it. Returns
    /// true for a path below `/zookeeper/quota`. There the data of a `zookeeper_stats` znode is
    /// replaced by the usage of its subtree.
    pub(crate) fn quota_created(&mut self, path: &ZPath, bytes: u64) -> bool {
        self.charge(path, |used| Usage { count: used.count + 1, bytes: used.bytes + bytes });
        self.quota_set(path)
    }

    /// Subtracts a removed znode from the usage of each quota above it. The removal of a
    /// `zookeeper_limits` znode ends its quota.
    pub(crate) fn quota_deleted(&mut self, path: &ZPath, node: &Znode) {
        let usage = node.usage();
        self.charge(path, |used| Usage { count: used.count - usage.count, bytes: used.bytes - usage.bytes });
        if let Some(subtree) = subtree_of(path, LIMITS) {
            self.quotas.remove(&subtree);
        }
    }

    /// Counts a change of a znode's data from `before` to `now` bytes in each quota above it.
    /// Returns true for a path below `/zookeeper/quota`, as [`State::quota_created`] does.
    pub(crate) fn quota_changed(&mut self, path: &ZPath, before: u64, now: u64) -> bool {
        self.charge(path, |used| Usage { bytes: used.bytes - before + now, ..used });
        self.quota_set(path)
    }

    /// Collects all quotas from the znodes of a tree that was read from a snapshot.
    pub(crate) fn find_quotas(&mut self) {
        let limits = self.tree.between(QUOTAS, "/zookeeper/quota0").filter_map(|(path, node)| {
            // The data may be malformed in a znode that was written before quotas were supported.
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

    /// Compares every quota with the tree, for tests.
    pub(crate) fn check_quotas(&self) -> Result<(), String> {
        for (subtree, quota) in self.quotas() {
            let told =
                self.node(&stats_of(subtree)).is_none_or(|node| *node.data == *quota.usage.to_string().as_bytes());
            let exceeded = quota.limits.is_exceeded_by(quota.usage) == self.quotas.is_exceeded(subtree);
            if quota.usage != self.tree.usage(subtree) || !told || !exceeded {
                return Err(format!("{subtree}: {quota:?} of {:?}", self.tree.usage(subtree)));
            }
        }
        let limits = self.tree.iter().filter(|(path, _)| subtree_of(path, LIMITS).is_some()).count();
        let all = limits == self.quotas.len() && self.quotas.exceeded().count() <= limits;
        if all { Ok(()) } else { Err(format!("{limits} znodes with limits, {:?}", self.quotas)) }
    }

    /// Updates the quota that a written znode belongs to. A `zookeeper_limits` znode gives the
    /// quota its limits. A `zookeeper_stats` znode gets the text of the usage again, because a
    /// client has overwritten it. Returns true if the path is below `/zookeeper/quota`.
    fn quota_set(&mut self, path: &ZPath) -> bool {
        if !path.as_str().starts_with(QUOTAS) {
            return false;
        }
        if let Some(subtree) = subtree_of(path, LIMITS) {
            let limits = QuotaLimits::parse(&self.tree[path].data).unwrap_or_default();
            let usage = self.quotas.get(&subtree).map(|quota| quota.usage);
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
        for subtree in self.quotas.charged(path) {
            let quota = self.quotas[&subtree];
            self.quotas.set(&subtree, Quota { usage: change(quota.usage), ..quota });
            self.tell_usage(&subtree);
        }
    }

    /// Writes the usage of a subtree into its `zookeeper_stats` znode, if it exists. As in
    /// ZooKeeper, the znode's version and zxids do not change.
    fn tell_usage(&mut self, subtree: &ZPath) {
        let stats = stats_of(subtree);
        let Some(quota) = self.quotas.get(subtree).filter(|_| self.tree.contains(&stats)) else {
            return;
        };
        let text = quota.usage.to_string();
        self.tree.edit(&stats, |node| node.data = text.into_bytes().into());
    }
}
