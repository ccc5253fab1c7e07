//! Directories that are missing above a new znode: finding them, and making them as containers.

use std::sync::Arc;

use crate::edits::edit::NewNode;
use crate::edits::effects::Effects;
use crate::edits::permissions::check_client_path;
use crate::{Acl, Ensure, Error, Kind, Refusal, State, ZPath};

impl State {
    /// The nearest existing znode on the way to a lock (the lock itself or an ancestor), and the
    /// missing paths below it, deepest first. A path that is too long or too deep is refused before
    /// the walk, which costs the square of the depth.
    pub(crate) fn missing_on_the_way(&self, lock: &ZPath) -> Result<(ZPath, Vec<ZPath>), Error> {
        if self.tree().contains(lock) {
            return Ok((lock.clone(), Vec::new()));
        }
        self.check_path(lock)?;
        let mut missing = Vec::new();
        let mut path = lock.clone();
        while !self.tree().contains(&path) {
            let parent = path.parent().expect("the root exists");
            missing.push(path);
            path = parent;
        }
        Ok((path, missing))
    }

    /// The nearest existing znode on the way to `parent`, and the missing directories below it that
    /// a create must make, deepest first. With [`Ensure::New`], `parent` itself must exist.
    pub(crate) fn way_to(&self, parent: &ZPath, ensure: Ensure) -> Result<(ZPath, Vec<ZPath>), Refusal> {
        let refuse = |error| Refusal::at(error, parent);
        if ensure == Ensure::New {
            let there = self.tree().contains(parent);
            return if there { Ok((parent.clone(), Vec::new())) } else { Err(refuse(Error::NoNode)) };
        }
        check_client_path(parent)?;
        self.missing_on_the_way(parent).map_err(refuse)
    }

    /// Makes missing directories, given deepest first, as containers with the ACL of the directory
    /// above them.
    pub(crate) fn make_containers(&mut self, missing: &[ZPath], acl: &Arc<[Acl]>, effects: &mut Effects) {
        for path in missing.iter().rev() {
            let container =
                NewNode { kind: Kind::Container, data: Arc::new([]), acl: Arc::clone(acl), contender: None };
            self.insert(path, container, effects);
        }
    }
}
