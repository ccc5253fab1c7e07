//! Access control lists, as ZooKeeper keeps them.

use std::net::IpAddr;

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

/// Whom a client has proven to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Identity {
    /// How it was proven: `digest`, `ip`, `x509`, or [`SUPER`].
    pub scheme: String,
    /// Who, in the words of the scheme: `user:base64(sha1(user:password))`, an address.
    pub id: String,
}

/// The scheme of those who may do everything, whatever an ACL says. A door proves it; no ACL can name it.
pub const SUPER: &str = "super";

/// Whether an ACL grants one of the permissions in `perms` to somebody with these identities.
pub fn permits(acl: &[Acl], perms: u32, identities: &[Identity]) -> bool {
    identities.iter().any(|identity| identity.scheme == SUPER)
        || acl.iter().any(|entry| {
            entry.perms & perms != 0
                && (entry.scheme == "world" && entry.id == "anyone"
                    || identities.iter().any(|identity| is_about(entry, identity)))
        })
}

fn is_about(entry: &Acl, identity: &Identity) -> bool {
    if entry.scheme != identity.scheme {
        return false;
    }
    if entry.scheme == "ip" { covers(&entry.id, &identity.id) } else { entry.id == identity.id }
}

/// Whether an address, or the network `address/bits`, covers an address. Nothing that cannot be read covers anything.
fn covers(network: &str, addr: &str) -> bool {
    let (base, bits) = match network.split_once('/') {
        Some((base, bits)) => (base, bits.parse::<u32>().ok()),
        None => (network, Some(u32::MAX)),
    };
    match (base.parse(), addr.parse(), bits) {
        (Ok(IpAddr::V4(base)), Ok(IpAddr::V4(addr)), Some(bits)) => {
            (u32::from(base) ^ u32::from(addr)).leading_zeros() >= bits.min(32)
        }
        (Ok(IpAddr::V6(base)), Ok(IpAddr::V6(addr)), Some(bits)) => {
            (u128::from(base) ^ u128::from(addr)).leading_zeros() >= bits.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheme: &str, id: &str, who: (&str, &str), expected: bool) {
        let acl = [Acl { perms: READ | WRITE, scheme: scheme.into(), id: id.into() }];
        let identities = [Identity { scheme: who.0.into(), id: who.1.into() }];
        assert_eq!(permits(&acl, WRITE, &identities), expected, "{scheme}:{id} for {who:?}");
        assert!(!permits(&acl, ADMIN, &identities), "{scheme}:{id} grants what it does not say");
    }

    #[test]
    fn an_entry_is_about_those_whom_it_names() {
        check("world", "anyone", ("ip", "10.0.0.1"), true);
        check("world", "somebody", ("ip", "10.0.0.1"), false);
        check("digest", "bob:x", ("digest", "bob:x"), true);
        check("digest", "bob:x", ("digest", "bob:y"), false);
        check("digest", "10.0.0.1", ("ip", "10.0.0.1"), false);
        check("ip", "10.0.0.1", ("ip", "10.0.0.1"), true);
        check("ip", "10.0.0.1", ("ip", "10.0.0.2"), false);
        check("ip", "10.0.0.0/24", ("ip", "10.0.0.2"), true);
        check("ip", "10.0.0.0/24", ("ip", "10.0.1.2"), false);
        check("ip", "0.0.0.0/0", ("ip", "10.0.1.2"), true);
        check("ip", "0.0.0.0/0", ("ip", "::1"), false);
        check("ip", "fe80::/10", ("ip", "fe80::1"), true);
        check("ip", "10.0.0.0/x", ("ip", "10.0.0.0"), false);
        assert!(!permits(&[], READ, &[]));
    }
}
