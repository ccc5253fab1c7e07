//! Weights (estimated memory) of the subtrees below the root, one for each child of the root.
//! Ephemeral znodes and the subtree `/zookeeper` are not counted.
//!
//! Snapshots do not contain the weights, which are computed anew as the znodes are read.

use imbl::{OrdMap, OrdSet};

use crate::ZPath;
use crate::tree::system_paths::is_system;
use crate::words::weight::SUBTREE;

/// The weight (estimated memory) of each subtree below the root, with an index that is sorted by
/// weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subtrees {
    by_path: OrdMap<ZPath, u64>,
    by_bytes: OrdSet<(u64, ZPath)>,
}

impl Subtrees {
    /// Estimated memory of the subtree that contains a path, in bytes.
    pub(crate) fn bytes_at(&self, path: &ZPath) -> u64 {
        top(path).and_then(|top| self.by_path.get(top)).copied().unwrap_or(0)
    }

    /// The subtree with the largest estimated memory, and this memory in bytes.
    pub(crate) fn largest(&self) -> Option<(&ZPath, u64)> {
        self.by_bytes.get_max().map(|(bytes, path)| (path, *bytes))
    }

    /// Estimated memory of this index itself, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        self.by_path.len() as u64 * SUBTREE
    }

    /// Updates the sum of a subtree after the estimated memory of its znode at `path` has changed
    /// from `before` to `now` bytes.
    pub(crate) fn change(&mut self, path: &ZPath, before: u64, now: u64) {
        let Some(top) = top(path).filter(|_| before != now) else { return };
        let known = self.by_path.get_key_value(top).map(|(path, bytes)| (path.clone(), *bytes));
        let (top, bytes) = known.unwrap_or_else(|| (ZPath::parse(top).expect("it begins a path"), 0));
        let changed = bytes - before + now;
        self.by_bytes.remove(&(bytes, top.clone()));
        if changed == 0 {
            self.by_path.remove(&top);
        } else {
            self.by_bytes.insert((changed, top.clone()));
            self.by_path.insert(top, changed);
        }
    }
}

/// The child of the root that is the path or an ancestor of it. `None` for the root, and for
/// `/zookeeper` and paths below it.
pub(crate) fn top(path: &ZPath) -> Option<&str> {
    let text = path.as_str();
    let end = text.match_indices('/').nth(1).map_or(text.len(), |(at, _)| at);
    (!path.is_root() && !is_system(text)).then(|| &text[..end])
}
