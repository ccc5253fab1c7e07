//! The distinct ACLs of the tree. Each is stored once, however many znodes have it.

use std::sync::Arc;

use imbl::OrdMap;

use crate::words::acl;
use crate::{ALL, Acl};

/// The distinct ACLs in use. The open ACL, which most znodes have, is not counted.
#[derive(Clone, Debug)]
pub(crate) struct Acls {
    open: Arc<[Acl]>,
    /// ACLs in use, with the number of znodes that have each.
    used: OrdMap<Arc<[Acl]>, u64>,
    /// Estimated memory of the ACLs in `used`, in bytes.
    bytes: u64,
}

impl Default for Acls {
    fn default() -> Acls {
        Acls { open: Acl::open().into(), used: OrdMap::new(), bytes: 0 }
    }
}

impl Acls {
    /// Counts one more znode with this ACL. Returns the shared copy, which the znode is to keep.
    pub(crate) fn take(&mut self, acl: Arc<[Acl]>) -> Arc<[Acl]> {
        if self.is_open(&acl) {
            return Arc::clone(&self.open);
        }
        if let Some((known, _)) = self.used.get_key_value(&*acl) {
            let known = Arc::clone(known);
            *self.used.get_mut(&*acl).expect("it was found just above") += 1;
            return known;
        }
        self.bytes += acl::weight(&acl);
        self.used.insert(Arc::clone(&acl), 1);
        acl
    }

    /// Counts one znode less with this ACL, and forgets the ACL when no znode has it.
    pub(crate) fn release(&mut self, acl: &Arc<[Acl]>) {
        if self.is_open(acl) {
            return;
        }
        let count = self.used.get_mut(&**acl).expect("an ACL in the tree is counted");
        *count -= 1;
        if *count == 0 {
            self.used.remove(&**acl);
            self.bytes -= acl::weight(acl);
        }
    }

    /// Bytes by which the state grows when one more znode has this ACL.
    pub(crate) fn growth(&self, acl: &[Acl]) -> u64 {
        let is_open = matches!(acl, [only] if is_open(only));
        if is_open || self.used.contains_key(acl) { 0 } else { acl::weight(acl) }
    }

    /// Estimated memory of the ACLs, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Compares the counts with counts made anew from the znodes, for tests.
    pub(crate) fn check(&self, anew: &Acls) -> Result<(), String> {
        let same = anew.used == self.used && anew.bytes == self.bytes;
        if same { Ok(()) } else { Err(format!("ACLs are {anew:?} and kept as {self:?}")) }
    }

    fn is_open(&self, acl: &Arc<[Acl]>) -> bool {
        Arc::ptr_eq(acl, &self.open) || matches!(&**acl, [only] if is_open(only))
    }
}

fn is_open(entry: &Acl) -> bool {
    entry.perms == ALL && entry.scheme == "world" && entry.id == "anyone"
}
