//! Access control lists, as ZooKeeper keeps them.

use bincode::{Decode, Encode};

/// Who may do what with one znode (not with its children).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Acl {
    /// A set of the bits [`READ`], [`WRITE`], [`CREATE`], [`DELETE`], [`ADMIN`].
    pub perms: u32,
    /// How `id` is to be read: `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// Whom the entry is about, in the words of the scheme; `anyone` for `world`.
    pub id: String,
}

/// May read data and list children.
pub const READ: u32 = 1;
/// May set data.
pub const WRITE: u32 = 2;
/// May create children.
pub const CREATE: u32 = 4;
/// May delete children.
pub const DELETE: u32 = 8;
/// May set the ACL.
pub const ADMIN: u32 = 16;
/// All of the above.
pub const ALL: u32 = 31;

impl Acl {
    /// `world:anyone:cdrwa`, the ACL of a znode created without one.
    pub fn open() -> Vec<Acl> {
        vec![Acl { perms: ALL, scheme: "world".into(), id: "anyone".into() }]
    }
}
