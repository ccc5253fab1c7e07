//! The ACL that counts, and for whom: what a client may do with a ticket that is another's, and who
//! may hear of what.
//!
//! [`permit`] compares; here stands with which ACL.

use std::sync::Arc;

use crate::edits::context::Context;
use crate::queue::revocations::asks_to_give_up;
use crate::tree::system_paths::{CONFIG, Place, QUOTA, SYSTEM, guarding_subtree, is_system};
use crate::{
    ADMIN, ALL, Acl, CREATE, Create, CreateMode, DELETE, Error, Identity, KEEPER, READ, Refusal, State, WRITE, ZPath,
    Znode, ZnodeOp, permits,
};

/// Permissions on a lock's directory, of which each permits to take tickets of the lock away from
/// others, and to set what the lock is.
pub(crate) const REVOKE: u32 = DELETE | ADMIN;

impl State {
    /// The ACL that counts for a znode: its own, but below `/zookeeper/quota` that of the subtree
    /// that it is about, or of the nearest ancestor that there is.
    pub fn acl_of<'a>(&'a self, path: &ZPath, node: &'a Znode) -> &'a Arc<[Acl]> {
        guarding_subtree(path.as_str()).map_or(&node.acl, |subtree| &self.nearest(subtree).1.acl)
    }

    /// Tells whether one who has proven these identities has one of the permissions on a znode.
    pub fn may(&self, path: &ZPath, node: &Znode, perms: u32, identities: &[Identity]) -> bool {
        permits(self.acl_of(path, node), perms, identities)
    }

    /// Tells whether one who has proven these identities may know what is at a path; nothing is as
    /// readable as anything.
    pub fn may_read(&self, path: &ZPath, identities: &[Identity]) -> bool {
        self.node(path).is_none_or(|node| self.may(path, node, READ, identities))
    }

    /// Tells whether one who has proven these identities may know the name of a znode, which stands
    /// in the list of its parent's children.
    pub fn may_read_name(&self, path: &ZPath, identities: &[Identity]) -> bool {
        path.parent().is_none_or(|parent| self.may_read(&parent, identities))
    }

    /// The subtree below the root that weighs most, and how much, where one who has proven these
    /// identities may know its name. O(log n).
    pub fn largest_subtree_for(&self, identities: &[Identity]) -> Option<(&ZPath, u64)> {
        self.tree.subtrees().largest().filter(|(path, _)| self.may_read_name(path, identities))
    }

    /// The ACL that counts for a znode, where not all clients may read it.
    pub(crate) fn readers(&self, path: &ZPath, node: &Znode) -> Option<Arc<[Acl]>> {
        let acl = self.acl_of(path, node);
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// The ACL of the clients that may know the name of a znode, where not all may: its parent's.
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

    /// Checks whether a client may replace a znode's data. A ticket that an acquire made is its
    /// session's: others write only the words that ask for it, which Curator's Revoker writes from
    /// a session of its own, and only who may revoke.
    pub(crate) fn permit_data(&self, path: &ZPath, data: &[u8], context: &Context) -> Result<(), Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        if node.contender().is_none() {
            return permit(&node.acl, WRITE, context).map_err(refuse);
        }
        if node.is_owned_by(context.session) {
            return Ok(());
        }
        let lock = path.parent_str().filter(|_| asks_to_give_up(data));
        // An empty ACL is for the super user alone.
        let acl = lock.map_or(&[][..], |lock| &self.tree[lock].acl);
        permit(acl, REVOKE, context).map_err(refuse)
    }

    /// Checks whether a client may replace a znode's ACL. That of a ticket that an acquire made is
    /// its session's.
    pub(crate) fn permit_acl(&self, path: &ZPath, node: &Znode, context: &Context) -> Result<(), Error> {
        match node.contender() {
            _ if is_system(path.as_str()) => Err(Error::NoAuth),
            Some(_) if node.is_owned_by(context.session) => Ok(()),
            // An empty ACL is for the super user alone.
            Some(_) => permit(&[], ADMIN, context),
            None => permit(&node.acl, ADMIN, context),
        }
    }
}

/// The place of the ACL checks: every operation that a client asks for passes here before it
/// changes or tells anything.
///
/// # Errors
/// `NoAuth` when the ACL grants none of the permissions to the one who asks.
pub(crate) fn permit(acl: &[Acl], perms: u32, context: &Context) -> Result<(), Error> {
    if permits(acl, perms, &context.identities) { Ok(()) } else { Err(Error::NoAuth) }
}

/// Refuses what clients cannot do with any path of the system: to lock it, and what belongs to
/// that.
///
/// # Errors
/// `NoAuth`.
pub(crate) fn check_client_path(path: &ZPath) -> Result<(), Refusal> {
    if is_system(path.as_str()) { Err(Refusal::at(Error::NoAuth, path)) } else { Ok(()) }
}

impl State {
    /// Checks whether a client may do this at all where its path is one of the system's. What may
    /// be created there is persistent and has no ACL of its own.
    ///
    /// # Errors
    /// `NoAuth`; `BadArguments` for deleting what is always there, as in ZooKeeper
    /// (ZKDatabase.isSpecialPath).
    pub(crate) fn check_system_write(&self, op: &mut ZnodeOp, context: &Context) -> Result<(), Refusal> {
        match op {
            ZnodeOp::Create(create) => self.check_system_create(create, context),
            ZnodeOp::Delete { path, .. } | ZnodeOp::SetData { path, .. } if !is_system(path.as_str()) => Ok(()),
            ZnodeOp::Delete { path, .. } if [SYSTEM, CONFIG, QUOTA].contains(&path.as_str()) => {
                Err(Refusal::at(Error::BadArguments, path))
            }
            ZnodeOp::SetData { path, .. } if [SYSTEM, QUOTA].contains(&path.as_str()) => {
                Err(Refusal::at(Error::NoAuth, path))
            }
            ZnodeOp::Delete { path, .. } | ZnodeOp::SetData { path, .. } => {
                let perms = (Place::of(path.as_str()), ADMIN);
                if self.tree.contains(path) { self.permit_quota(perms, path, context) } else { Ok(()) }
            }
            ZnodeOp::Check { .. } => Ok(()),
        }
    }

    fn check_system_create(&self, create: &mut Create, context: &Context) -> Result<(), Refusal> {
        let Create { parent, name, data, mode, acl, .. } = create;
        let is_itself = parent.is_root() && *name == SYSTEM[1..];
        if !is_itself && !is_system(parent.as_str()) {
            return Ok(());
        }
        // The length of a path is bounded where its parent is there.
        if !self.tree.contains(parent) {
            return Ok(());
        }
        let path = parent.child(name).map_err(|error| Refusal::at(error, parent))?;
        if is_keeper(context) {
            return Ok(());
        }
        if *mode != CreateMode::Persistent {
            return Err(Refusal::at(Error::NoAuth, &path));
        }
        *acl = Acl::open();
        let place = Place::of(path.as_str());
        // Who may set a quota for a subtree need not have ADMIN above it, and a directory by itself
        // means nothing: any permission on the znode that it is named after will do. There is no
        // more than one for each znode, so that such directories cannot fill the state; one of no
        // znode needs what making that znode does.
        let perms = match place {
            Place::Directory(subtree) if data.is_empty() => {
                if self.nearest(subtree).0 == subtree {
                    ALL
                } else {
                    CREATE | ADMIN
                }
            }
            _ => ADMIN,
        };
        self.permit_quota((place, perms), &path, context)
    }

    fn permit_quota(&self, (place, perms): (Place<'_>, u32), path: &ZPath, context: &Context) -> Result<(), Refusal> {
        match place {
            _ if is_keeper(context) => Ok(()),
            Place::Quota(subtree) | Place::Directory(subtree) => {
                let (at, node) = self.nearest(subtree);
                let at = |error| ZPath::parse(at).map_or_else(Refusal::from, |at| Refusal::at(error, &at));
                permit(&node.acl, perms, context).map_err(at)
            }
            Place::System | Place::Client => Err(Refusal::at(Error::NoAuth, path)),
        }
    }
}

/// Tells whether it is a node that asks, for what it keeps itself.
fn is_keeper(context: &Context) -> bool {
    context.identities.iter().any(|identity| identity.scheme == KEEPER)
}
