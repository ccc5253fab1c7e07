//! Access control lists, as ZooKeeper keeps them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bincode::{Decode, Encode};

use crate::words::weight::{TEXT, text};

/// An entry of an ACL: the permissions of one client, or one set of clients, on a znode. The
/// znode's children have ACLs of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Acl {
    /// A set of the bits [`READ`], [`WRITE`], [`CREATE`], [`DELETE`], [`ADMIN`]; or [`NOTHING`].
    /// Other bits are kept and grant nothing.
    pub perms: u32,
    /// The scheme that says how `id` is read: `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// The client that the entry is about, written as the scheme wants; `anyone` for `world`.
    pub id: String,
}

/// Longest scheme and longest id of an identity, in bytes. The HTTP and ZooKeeper servers refuse a
/// longer identity, because each write of the client would carry it. Scheme and id of an ACL's
/// entry have the same limit.
pub const IDENTITY_BYTES_MAX: usize = 1_024;

/// Permission to read data and list children.
pub const READ: u32 = 1;
/// Permission to set data.
pub const WRITE: u32 = 2;
/// Permission to create children.
pub const CREATE: u32 = 4;
/// Permission to delete children.
pub const DELETE: u32 = 8;
/// Permission to set the ACL.
pub const ADMIN: u32 = 16;
/// All permissions.
pub const ALL: u32 = 31;
/// The bit that stands for "no permission". An entry that a client wrote with 0 gets this bit,
/// because the state takes no entry without a bit.
pub const NOTHING: u32 = 1 << 31;

impl Acl {
    /// `world:anyone:cdrwa`, the ACL of a znode that was created without an ACL.
    pub fn open() -> Vec<Acl> {
        vec![Acl { perms: ALL, scheme: "world".into(), id: "anyone".into() }]
    }

    /// The permissions as a client reads them: 0 for [`NOTHING`].
    pub fn shown_perms(&self) -> u32 {
        if self.perms == NOTHING { 0 } else { self.perms }
    }

    /// The id as a client reads it. A client that may not set the ACL sees `x` in place of a digest
    /// (FinalRequestProcessor, getACL).
    pub fn shown_id(&self, may_set: bool) -> String {
        if self.scheme == "digest" && !may_set { format!("{}:x", user(&self.id)) } else { self.id.clone() }
    }
}

/// The user name of a digest id: the part before its colon.
pub fn user(id: &str) -> &str {
    id.split(':').next().unwrap_or_default()
}

/// An ACL as a client wrote it, without duplicates, and with `auth` replaced by the identities that
/// the client has proven. `None` when the ACL is empty or malformed by the rules of ZooKeeper's
/// PrepRequestProcessor.fixupACL, or has more than `max` entries after the replacement.
pub fn fixed_acl(acl: impl IntoIterator<Item = Acl>, identities: &[Identity], max: usize) -> Option<Vec<Acl>> {
    let mut fixed: Vec<Acl> = Vec::new();
    // Permissions of the `auth` entries that were replaced: a repetition adds no entry.
    let mut replaced = BTreeSet::new();
    for mut entry in acl {
        if entry.perms == 0 {
            entry.perms = NOTHING;
        }
        let mut add = |entry: Acl| {
            if !fixed.contains(&entry) {
                fixed.push(entry);
            }
        };
        let id = &*entry.id;
        match entry.scheme.as_str() {
            "world" if id == "anyone" => add(entry),
            "digest" if id.matches(':').count() == 1 => add(entry),
            "ip" if network(id).is_some() => add(entry),
            "x509" if is_subject(id) => add(entry),
            "auth" => {
                let proof = |identity: &&Identity| identity.scheme != "ip" && identity.scheme != SUPER;
                let mut proven = identities.iter().filter(proof).peekable();
                proven.peek()?;
                let perms = entry.perms;
                if !replaced.insert(perms) {
                    continue;
                }
                proven.for_each(|one| add(Acl { perms, scheme: one.scheme.clone(), id: one.id.clone() }));
            }
            _ => return None,
        }
        if fixed.len() > max {
            return None;
        }
    }
    if fixed.is_empty() { None } else { Some(fixed) }
}

/// Tells whether the id looks like an X.509 subject in the form of RFC 2253. The types of
/// attributes are not checked.
fn is_subject(id: &str) -> bool {
    id.split_once('=').is_some_and(|(kind, _)| {
        !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
    })
}

/// Length in bits of the prefix `::ffff:0:0/96`, which marks an IPv6 address that stands for an
/// IPv4 address.
const MAPPED_BITS: u32 = 96;

/// Reads `address/bits` or a plain address. Returns the address and the length of its prefix in
/// bits; `None` if the text is malformed. A network of IPv4 addresses mapped to IPv6 becomes the
/// IPv4 network, because an IPv4 client is known by its IPv4 address.
fn network(id: &str) -> Option<(IpAddr, u32)> {
    let (addr, bits) = id.split_once('/').map_or((id, None), |(addr, bits)| (addr, Some(bits)));
    let addr: IpAddr = addr.parse().ok()?;
    let width = if addr.is_ipv4() { 32 } else { 128 };
    let bits: u32 = bits.map_or(Some(width), |bits| bits.parse().ok().filter(|bits| *bits <= width))?;
    Some(match (addr.to_canonical(), bits.checked_sub(MAPPED_BITS)) {
        (IpAddr::V4(inner), Some(bits)) if addr.is_ipv6() => (inner.into(), bits),
        _ => (addr, bits),
    })
}

/// An identity that a client has proven.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Identity {
    /// The scheme by which the client has proven the identity: `digest`, `ip`, `x509`, or
    /// [`SUPER`].
    pub scheme: String,
    /// The identity as the scheme writes it: `user:base64(sha1(user:password))` for `digest`, an
    /// address for `ip`.
    pub id: String,
}

/// The scheme of the super user, who may do everything, whatever an ACL says. The server that the
/// client connects to checks the proof; no ACL can name the scheme.
pub const SUPER: &str = "super";

/// Identities of a client that has proven the digest of the super user: [`SUPER`], and the user
/// name without the digest. The digest is left out, because the log stores the identities of each
/// request, and an ACL with the scheme `auth` stores them, too. No client can prove the shortened
/// identity with a password.
pub fn super_user(digest: &str) -> [Identity; 2] {
    let name = Identity { scheme: "digest".into(), id: format!("{}:", user(digest)) };
    [Identity { scheme: SUPER.into(), id: String::new() }, name]
}

/// The scheme of a node that writes znodes below `/zookeeper`. No client can prove it, and no ACL
/// can name it.
pub const KEEPER: &str = "keeper";

/// Tells whether an ACL grants one of the permissions in `perms` to a client with these identities.
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

/// Tells whether `id`, an address or a network `address/bits`, contains the address `addr`. False
/// if either text cannot be read.
fn covers(id: &str, addr: &str) -> bool {
    match (network(id), addr.parse()) {
        (Some((IpAddr::V4(first), bits)), Ok(IpAddr::V4(addr))) => {
            (u32::from(first) ^ u32::from(addr)).leading_zeros() >= bits
        }
        (Some((IpAddr::V6(first), bits)), Ok(IpAddr::V6(addr))) => {
            (u128::from(first) ^ u128::from(addr)).leading_zeros() >= bits
        }
        _ => false,
    }
}

/// Estimated memory of an ACL with its entry in the table of distinct ACLs, in bytes.
pub(crate) fn weight(acl: &[Acl]) -> u64 {
    let entry = |entry: &Acl| size_of::<Acl>() as u64 + text(&entry.scheme) + text(&entry.id);
    2 * TEXT + 2 * size_of::<(usize, u64)>() as u64 + acl.iter().map(entry).sum::<u64>()
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
        check("ip", "10.0.0.0/33", ("ip", "10.0.0.0"), false);
        check("ip", "::ffff:10.0.0.0/104", ("ip", "10.255.0.1"), true);
        check("ip", "::ffff:10.0.0.0/104", ("ip", "11.0.0.1"), false);
        check("ip", "::ffff:10.0.0.1", ("ip", "10.0.0.1"), true);
        check("ip", "::ffff:0:0/96", ("ip", "10.0.0.1"), true);
        check("ip", "::ffff:0:0/96", ("ip", "::1"), false);
        check("ip", "::/90", ("ip", "10.0.0.1"), false);
        assert!(!permits(&[], READ, &[]));
    }
}
