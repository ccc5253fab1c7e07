//! Recording of events, each with the ACLs that decide which clients receive it.

use std::sync::Arc;

use crate::edits::effects::Effects;
use crate::{Acl, EventKind, State, ZPath};

impl State {
    /// Adds an event about an existing znode to `effects`.
    pub(crate) fn tell(&self, kind: EventKind, path: &ZPath, effects: &mut Effects) {
        effects.push(kind, path, self.readers(path, &self.tree()[path]), self.name_readers(path));
    }

    /// Records that a znode was created or deleted, and that its parent's list of children changed.
    /// `acl` decides which clients may read the znode; `None` for all.
    pub(crate) fn tell_with_parent(
        &self,
        kind: EventKind,
        path: &ZPath,
        parent: &ZPath,
        acl: Option<Arc<[Acl]>>,
        effects: &mut Effects,
    ) {
        // Clients that may read the parent may know the names of its children.
        let parent_acl = self.name_readers(path);
        effects.push(kind, path, acl, parent_acl.clone());
        if !effects.has_told_of_children(parent) {
            effects.push(EventKind::ChildrenChanged, parent, parent_acl, self.name_readers(parent));
        }
    }
}
