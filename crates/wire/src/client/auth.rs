//! Identities of a client, and ACLs as a client writes and reads them.

use std::net::IpAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jute::{Acl as WireAcl, AuthRequest, ClientInfo};
use sha1::{Digest, Sha1};
use znode::{Acl, IDENTITY_BYTES_MAX, Identity, super_user, user};

/// Largest number of identities that one connection may prove. Further auth packets are refused.
const IDENTITIES_MAX: usize = 64;

/// Returns the identities of a client that has sent no auth packet: its address, and the subject of
/// its certificate.
pub(crate) fn known(addr: IpAddr, subject: Option<&str>) -> Vec<Identity> {
    let addr = Identity { scheme: "ip".into(), id: addr.to_canonical().to_string() };
    let subject = subject.map(|subject| Identity { scheme: "x509".into(), id: subject.to_owned() });
    std::iter::once(addr).chain(subject).collect()
}

/// Adds the identities that an auth packet proves. False if it proves none; the client is then
/// answered with an error and disconnected.
pub(crate) fn prove(auth: AuthRequest, identities: &mut Vec<Identity>, super_digest: &str) -> bool {
    match auth.scheme.as_str() {
        // The address is known already.
        "ip" => true,
        "x509" => identities.iter().any(|identity| identity.scheme == "x509"),
        // A missing proof is refused. An empty one would be hashed to a valid digest.
        "digest" if auth.auth.0.is_none() => false,
        "digest" => {
            let identity = Identity { scheme: auth.scheme, id: digest(&auth.auth.into_bytes()) };
            let proven = identities.iter().filter(|identity| identity.scheme == "digest").count();
            let is_known = identities.contains(&identity);
            if identity.id.len() > IDENTITY_BYTES_MAX || proven >= IDENTITIES_MAX && !is_known {
                return false;
            }
            // As in DigestAuthenticationProvider, the super user has both identities.
            let proven = if identity.id == super_digest { super_user(&identity.id).into() } else { vec![identity] };
            for identity in proven {
                if !identities.contains(&identity) {
                    identities.push(identity);
                }
            }
            true
        }
        _ => false,
    }
}

/// Returns the digest `user:base64(sha1(user:password))` of `user:password`, as ZooKeeper's
/// `DigestAuthenticationProvider.generateDigest` does. A text without a colon is accepted, too.
fn digest(proof: &[u8]) -> String {
    let user = proof.split(|byte| *byte == b':').next().unwrap_or_default();
    format!("{}:{}", String::from_utf8_lossy(user), BASE64_STANDARD.encode(Sha1::digest(proof)))
}

/// Makes the answer to whoAmI: the identities, without the password hashes.
pub(crate) fn who(identities: &[Identity]) -> Vec<ClientInfo> {
    let one = |identity: &Identity| ClientInfo {
        scheme: identity.scheme.clone(),
        user: if identity.scheme == "digest" { user(&identity.id).to_owned() } else { identity.id.clone() },
    };
    identities.iter().map(one).collect()
}

/// Checks and completes an ACL that a client wrote; see [`znode::fixed_acl`].
pub(crate) fn fixed_acl(acl: Vec<WireAcl>, identities: &[Identity], max: usize) -> Option<Vec<Acl>> {
    let entry = |WireAcl { perms, scheme, id }| Acl { perms: perms as u32, scheme, id };
    znode::fixed_acl(acl.into_iter().map(entry), identities, max)
}

/// Converts an ACL for a client. Password hashes are shown only if the client may set the ACL
/// (`may_set`).
pub(crate) fn shown_acl(acl: &[Acl], may_set: bool) -> Vec<WireAcl> {
    let entry =
        |one: &Acl| WireAcl { perms: one.shown_perms() as i32, scheme: one.scheme.clone(), id: one.shown_id(may_set) };
    acl.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(scheme: &str, id: &str) -> Vec<WireAcl> {
        vec![WireAcl { perms: 31, scheme: scheme.into(), id: id.into() }]
    }

    fn identities(proofs: &[&str]) -> Vec<Identity> {
        let mut identities = known("::ffff:127.0.0.1".parse().unwrap(), None);
        for proof in proofs {
            let auth = AuthRequest { kind: 0, scheme: "digest".into(), auth: proof.as_bytes().into() };
            assert!(prove(auth, &mut identities, "super:D/InIHSb7yEEbrWz8b9l71RjZJU="));
        }
        identities
    }

    #[test]
    fn digests_are_those_of_zookeeper() {
        // `DigestAuthenticationProvider super:test` of ZooKeeper 3.8 prints the same.
        let identities = identities(&["super:test", "super:test", "nocolon"]);
        let ids: Vec<&str> = identities.iter().map(|identity| &*identity.id).collect();
        assert_eq!(ids[..3], ["127.0.0.1", "", "super:"]);
        assert!(ids[3].starts_with("nocolon:") && ids.len() == 4);
        let who: Vec<String> = who(&identities).into_iter().map(|one| format!("{}:{}", one.scheme, one.user)).collect();
        assert_eq!(who, ["ip:127.0.0.1", "super:", "digest:super", "digest:nocolon"]);
    }

    #[test]
    fn other_proofs_are_none() {
        for (scheme, proves) in
            [("ip", true), ("x509", false), ("super", false), ("world", false), ("sasl", false), ("", false)]
        {
            let mut identities = Vec::new();
            let auth = AuthRequest { kind: 0, scheme: scheme.into(), auth: b"x:y".as_slice().into() };
            assert_eq!((prove(auth, &mut identities, ""), identities.len()), (proves, 0), "{scheme}");
        }
    }

    #[test]
    fn an_acl_is_fixed_as_zookeeper_does() {
        let bob = identities(&["bob:x"]);
        let good = |entry: &str, id: &str| fixed_acl(acl(entry, id), &bob, 2).is_some();
        assert!(good("world", "anyone") && good("digest", "a:b") && good("ip", "10.0.0.1") && good("ip", "::1/64"));
        assert!(!good("world", "bob") && !good("digest", "a") && !good("digest", "a:b:c") && !good("x", "y"));
        assert!(!good("ip", "10.0.0.1/33") && !good("ip", "10.0.0.1/x") && !good("ip", "host") && !good("", ""));
        assert_eq!(fixed_acl(Vec::new(), &bob, 2), None);
        assert!(good("x509", "CN=a,O=b") && good("x509", "2.5.4.5=#13") && !good("x509", "bob") && !good("super", ""));
        assert_eq!(fixed_acl(acl("auth", ""), &identities(&[]), 2), None);
        let certified = known("10.0.0.1".parse().unwrap(), Some("CN=a"));
        let fixed = fixed_acl(acl("auth", ""), &certified, 2).unwrap();
        assert_eq!((fixed.len(), &*fixed[0].scheme, &*fixed[0].id), (1, "x509", "CN=a"));
        let fixed = fixed_acl([acl("auth", ""), acl("digest", &bob[1].id)].concat(), &bob, 1).unwrap();
        assert_eq!(fixed, [Acl { perms: 31, scheme: "digest".into(), id: bob[1].id.clone() }]);
        assert_eq!(fixed_acl(acl("auth", ""), &identities(&["a:x", "b:x"]), 1), None);
    }

    #[test]
    fn digests_are_shown_to_those_who_may_set_them() {
        let acl = [Acl { perms: 1, scheme: "digest".into(), id: "bob:hash".into() }];
        assert_eq!(shown_acl(&acl, true)[0].id, "bob:hash");
        assert_eq!(shown_acl(&acl, false)[0].id, "bob:x");
    }
}
