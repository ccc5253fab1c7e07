//! Telling of what has changed, each event with the ACLs that say who may hear of it.

use std::sync::Arc;

use crate::edits::changes::Changes;
use crate::{Acl, EventKind, State, ZPath};

impl State {
    /// Tells of a change of a znode that is there.
    pub(crate) fn tell(&self, kind: EventKind, path: &ZPath, changes: &mut Changes) {
        changes.push(kind, path, self.readers(path, &self.tree[path]), self.name_readers(path));
    }

    /// Tells that a znode has come or gone, and of the list that its name is in. `acl` says who may
    /// read the znode.
    pub(crate) fn tell_with_parent(
        &self,
        kind: EventKind,
        path: &ZPath,
        parent: &ZPath,
        acl: Option<Arc<[Acl]>>,
        changes: &mut Changes,
    ) {
        // Who may know the name is who may read the parent.
        let parent_acl = self.name_readers(path);
        changes.push(kind, path, acl, parent_acl.clone());
        if !changes.has_told_of_children(parent) {
            changes.push(EventKind::ChildrenChanged, parent, parent_acl, self.name_readers(parent));
        }
    }
}
