//! Weights of the subtrees below the root, each under the first name of its paths: their znodes
//! that stay until they are deleted or collected. Those of sessions are not among them, nor is what
//! is below `/zookeeper`.
//!
//! It is no part of snapshots: it comes back as the znodes do.

use imbl::{OrdMap, OrdSet};

use crate::ZPath;
use crate::tree::system_paths::is_system;
use crate::words::weight::SUBTREE;

/// The weight of each subtree, and which is the heaviest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subtrees {
    by_path: OrdMap<ZPath, u64>,
    by_bytes: OrdSet<(u64, ZPath)>,
}

impl Subtrees {
    /// Weight of the subtree that a path is in.
    pub(crate) fn bytes_at(&self, path: &ZPath) -> u64 {
        top(path).and_then(|top| self.by_path.get(top)).copied().unwrap_or(0)
    }

    /// The heaviest, and what it weighs.
    pub(crate) fn largest(&self) -> Option<(&ZPath, u64)> {
        self.by_bytes.get_max().map(|(bytes, path)| (path, *bytes))
    }

    /// Weight of all of this itself.
    pub(crate) fn weight(&self) -> u64 {
        self.by_path.len() as u64 * SUBTREE
    }

    /// Changes the weight of what stands at a path, from so much before to so much now.
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

/// The subtree that a path is in, but for the root and what the system keeps.
pub(crate) fn top(path: &ZPath) -> Option<&str> {
    let text = path.as_str();
    let end = text.match_indices('/').nth(1).map_or(text.len(), |(at, _)| at);
    (!path.is_root() && !is_system(text)).then(|| &text[..end])
}
