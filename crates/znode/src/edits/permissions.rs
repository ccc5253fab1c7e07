//! Permissions: the ACL that guards each operation, the rights to tickets of other sessions, and
//! the clients that may receive an event.
//!
//! [`permit`] compares an ACL with a client; its callers choose the ACL.

use std::sync::Arc;

use crate::edits::context::Context;
use crate::queue::revocations::asks_to_give_up;
use crate::tree::system_paths::{CONFIG, Place, QUOTA, SYSTEM, guarding_subtree, is_system};
use crate::{
    ADMIN, ALL, Acl, CREATE, Create, CreateMode, DELETE, Error, Identity, KEEPER, READ, Refusal, State, WRITE, ZPath,
    Znode, ZnodeOp, permits,
};

/// Permissions on a lock's directory, each of which allows a client to take tickets of the lock
/// away from other sessions, and to change the lock's settings.
pub(crate) const REVOKE: u32 = DELETE | ADMIN;

impl State {
    /// The ACL that guards a znode. It is the znode's own ACL, except below `/zookeeper/quota`:
    /// there it is the ACL of the subtree that the quota is for, or of the subtree's nearest
    /// existing ancestor.
    pub fn acl_of<'a>(&'a self, path: &ZPath, node: &'a Znode) -> &'a Arc<[Acl]> {
        guarding_subtree(path.as_str()).map_or(&node.acl, |subtree| &self.nearest(subtree).1.acl)
    }

    /// Tells whether a client with these identities has one of the permissions `perms` on a znode.
    pub fn may(&self, path: &ZPath, node: &Znode, perms: u32, identities: &[Identity]) -> bool {
        permits(self.acl_of(path, node), perms, identities)
    }

    /// Tells whether a client with these identities may read a path. True if no znode exists there.
    pub fn may_read(&self, path: &ZPath, identities: &[Identity]) -> bool {
        self.node(path).is_none_or(|node| self.may(path, node, READ, identities))
    }

    /// Tells whether a client with these identities may know the name of a znode, because it may
    /// list the parent's children.
    pub fn may_read_name(&self, path: &ZPath, identities: &[Identity]) -> bool {
        path.parent().is_none_or(|parent| self.may_read(&parent, identities))
    }

    /// The subtree below the root with the largest estimated memory, and this memory in bytes.
    /// `None` if a client with these identities may not know the subtree's name. Costs O(log n).
    pub fn largest_subtree_for(&self, identities: &[Identity]) -> Option<(&ZPath, u64)> {
        self.tree().subtrees().largest().filter(|(path, _)| self.may_read_name(path, identities))
    }

    /// The ACL that guards a znode; `None` if all clients may read it.
    pub(crate) fn readers(&self, path: &ZPath, node: &Znode) -> Option<Arc<[Acl]>> {
        let acl = self.acl_of(path, node);
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// The ACL of the parent, which guards the name of a znode; `None` if all clients may read the
    /// parent.
    pub(crate) fn name_readers(&self, path: &ZPath) -> Option<Arc<[Acl]>> {
        let parent = path.parent_str()?;
        let acl = &self.tree().get(parent)?.acl;
        // The name of a directory below `/zookeeper/quota` is also the name of a directory
        // elsewhere.
        if is_system(parent) {
            let parent = path.parent()?;
            return self.readers(&parent, self.node(&parent)?);
        }
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// The nearest existing ancestor of a path, or the znode at the path itself if it exists; with
    /// the path of the found znode.
    pub(crate) fn nearest<'a>(&self, path: &'a str) -> (&'a str, &Znode) {
        let mut at = path;
        loop {
            if let Some(node) = self.tree().get(at) {
                return (at, node);
            }
            at = match at.rfind('/') {
                Some(0) | None => "/",
                Some(slash) => &at[..slash],
            };
        }
    }

    /// Checks that a client may replace a znode's data. If an acquire made the znode, only the
    /// session of this ticket may write any data. Other clients, such as Curator's Revoker, may
    /// only write data that asks for the ticket's release, and need a permission of [`REVOKE`] on
    /// the lock.
    pub(crate) fn permit_data(&self, path: &ZPath, data: &[u8], context: &Context) -> Result<(), Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let node = self.existing(path)?;
        if node.contender().is_none() {
            return permit(&node.acl, WRITE, context).map_err(refuse);
        }
        if node.is_owned_by(context.session) {
            return Ok(());
        }
        let lock = path.parent_str().filter(|_| asks_to_give_up(data));
        // An empty ACL permits the super user alone.
        let acl = lock.map_or(&[][..], |lock| &self.tree()[lock].acl);
        permit(acl, REVOKE, context).map_err(refuse)
    }

    /// Checks that a client may replace a znode's ACL. The ACL of a ticket that an acquire made may
    /// be replaced by its session only.
    pub(crate) fn permit_acl(&self, path: &ZPath, node: &Znode, context: &Context) -> Result<(), Error> {
        match node.contender() {
            _ if is_system(path.as_str()) => Err(Error::NoAuth),
            Some(_) if node.is_owned_by(context.session) => Ok(()),
            // An empty ACL permits the super user alone.
            Some(_) => permit(&[], ADMIN, context),
            None => permit(&node.acl, ADMIN, context),
        }
    }
}

/// Checks that an ACL grants the requesting client at least one of the permissions `perms`. Every
/// operation of a client calls this function before it changes or reveals anything.
///
/// # Errors
/// `NoAuth` when the ACL grants the client none of the permissions.
pub(crate) fn permit(acl: &[Acl], perms: u32, context: &Context) -> Result<(), Error> {
    if permits(acl, perms, &context.identities) { Ok(()) } else { Err(Error::NoAuth) }
}

/// Refuses operations on locks at a path of the system: `/zookeeper` or below it.
///
/// # Errors
/// `NoAuth`.
pub(crate) fn check_client_path(path: &ZPath) -> Result<(), Refusal> {
    if is_system(path.as_str()) { Err(Refusal::at(Error::NoAuth, path)) } else { Ok(()) }
}

impl State {
    /// Checks that a client may do an operation on znodes at `/zookeeper` or below it. A create
    /// there must be persistent, and gets the open ACL. Operations on all other paths pass.
    ///
    /// # Errors
    /// `NoAuth` if the client may not write there; `BadArguments` for deleting a znode that always
    /// exists, as in ZooKeeper (ZKDatabase.isSpecialPath).
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
                if self.tree().contains(path) { self.permit_quota(perms, path, context) } else { Ok(()) }
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
        // A create with a missing parent is refused later, where the length of its path is checked,
        // too.
        if !self.tree().contains(parent) {
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
        // A directory below `/zookeeper/quota` without a quota in it has no effect, so any
        // permission on the znode of the same name is enough. One such directory for each znode
        // cannot fill the state. If the znode is missing, the client needs the permission to create
        // it.
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

/// Tells whether a node of the cluster sends the request, to write its own znodes below
/// `/zookeeper`.
fn is_keeper(context: &Context) -> bool {
    context.identities.iter().any(|identity| identity.scheme == KEEPER)
}
