//! Telling of what has changed, each event with the ACLs that say who may hear of it.

use std::sync::Arc;

use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::{Acl, EventKind, State, ZPath};

impl State {
    /// Tells of a change of a znode that is there.
    pub(crate) fn tell(&self, kind: EventKind, path: &ZPath, context: &Context, effects: &mut Effects) {
        effects.push(context.zxid, kind, path, self.readers(path, &self.tree[path]), self.name_readers(path));
    }

    /// Tells that a znode has come or gone, and of the list that its name is in. `acl` says who may
    /// read the znode.
    pub(crate) fn tell_with_parent(
        &self,
        kind: EventKind,
        path: &ZPath,
        parent: &ZPath,
        acl: Option<Arc<[Acl]>>,
        context: &Context,
        effects: &mut Effects,
    ) {
        // The name may be known to those that may read the parent.
        let parent_acl = self.name_readers(path);
        effects.push(context.zxid, kind, path, acl, parent_acl.clone());
        if !effects.has_told_of_children(parent) {
            effects.push(context.zxid, EventKind::ChildrenChanged, parent, parent_acl, self.name_readers(parent));
        }
    }
}
