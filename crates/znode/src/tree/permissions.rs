//! Which ACL counts, and for whom: what a client may do with a ticket that is another's, and who
//! may hear of what.
//!
//! [`permit`] compares; here stands with which ACL.

use std::sync::Arc;

use crate::lock::revoke::{REVOKE, asks_to_give_up};
use crate::state::{Changes, State};
use crate::tree::ops::permit;
use crate::tree::system_paths::{guarding_subtree, is_system};
use crate::{ADMIN, Acl, Error, EventKind, Identity, READ, Refusal, WRITE, ZPath, Znode, permits};

impl State {
    /// The ACL that counts for a znode: its own, but below `/zookeeper/quota` that of the subtree
    /// that it is about, or of the nearest ancestor that there is.
    pub fn acl_of<'a>(&'a self, path: &ZPath, node: &'a Znode) -> &'a Arc<[Acl]> {
        guarding_subtree(path.as_str()).map_or(&node.acl, |subtree| &self.nearest(subtree).1.acl)
    }

    /// Whether one who has proven these identities has one of the permissions on a znode.
    pub fn may(&self, path: &ZPath, node: &Znode, perms: u32, identities: &[Identity]) -> bool {
        permits(self.acl_of(path, node), perms, identities)
    }

    /// Whether one who has proven these identities may know what is at a path; nothing is as
    /// readable as anything.
    pub fn may_read(&self, path: &ZPath, identities: &[Identity]) -> bool {
        self.node(path).is_none_or(|node| self.may(path, node, READ, identities))
    }

    /// The same for the name of a znode, which stands in the list of its parent's children.
    pub fn may_read_name(&self, path: &ZPath, identities: &[Identity]) -> bool {
        path.parent().is_none_or(|parent| self.may_read(&parent, identities))
    }

    /// The ACL that counts for a znode, where not all clients may read it.
    pub(crate) fn readers(&self, path: &ZPath, node: &Znode) -> Option<Arc<[Acl]>> {
        let acl = self.acl_of(path, node);
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// The same for its parent: of those who may know its name.
    pub(crate) fn name_readers(&self, path: &ZPath) -> Option<Arc<[Acl]>> {
        let parent = path.parent_str()?;
        let acl = &self.tree.get(parent)?.acl;
        // Names in the directories of quotas are those of other directories.
        if is_system(parent) {
            let parent = path.parent()?;
            return self.readers(&parent, self.node(&parent)?);
        }
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// The nearest ancestor that exists, or the znode itself, with its path.
    pub(crate) fn nearest<'a>(&self, path: &'a str) -> (&'a str, &Znode) {
        let mut at = path;
        loop {
            if let Some(node) = self.tree.get(at) {
                return (at, node);
            }
            at = match at.rfind('/') {
                Some(0) | None => "/",
                Some(slash) => &at[..slash],
            };
        }
    }

    /// Whether a client may replace a znode's data. A ticket that an acquire made is its session's:
    /// others write only the words that ask for it, which Curator's Revoker writes from a session
    /// of its own, and only who may revoke.
    pub(crate) fn permit_data(&self, path: &ZPath, data: &[u8], changes: &Changes) -> Result<(), Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        if node.contender().is_none() {
            return permit(&node.acl, WRITE, changes).map_err(refuse);
        }
        if node.is_owned_by(changes.session) {
            return Ok(());
        }
        let lock = path.parent_str().filter(|_| asks_to_give_up(data));
        // An empty ACL is for the super user alone.
        let acl = lock.map_or(&[][..], |lock| &self.tree[lock].acl);
        permit(acl, REVOKE, changes).map_err(refuse)
    }

    /// Whether a client may replace a znode's ACL. That of a ticket that an acquire made is its
    /// session's.
    pub(crate) fn permit_acl(&self, path: &ZPath, node: &Znode, changes: &Changes) -> Result<(), Error> {
        match node.contender() {
            _ if is_system(path.as_str()) => Err(Error::NoAuth),
            Some(_) if node.is_owned_by(changes.session) => Ok(()),
            // An empty ACL is for the super user alone.
            Some(_) => permit(&[], ADMIN, changes),
            None => permit(&node.acl, ADMIN, changes),
        }
    }

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
