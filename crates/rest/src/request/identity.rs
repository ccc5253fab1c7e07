//! Identities that a client's certificate and its `Authorization` header prove, as ACLs write them.
//!
//! The identities are those of ZooKeeper clients, so that an ACL has one meaning in both protocols:
//! `x509:<subject>` by TLS, `digest:<user>:<hash>` by HTTP's Basic authentication, and the super
//! user by the digest that the operator has configured.

use axum::http::Extensions;
use axum::http::header::HeaderMap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};
use znode::{IDENTITY_BYTES_MAX, Identity, super_user};

use crate::http::peer::Peer;
use crate::problem::Problem;
use crate::request::caller::once;

/// Header with the credentials of the request's user.
pub(crate) const AUTHORIZATION: &str = "Authorization";

/// Returns all identities that a request has proven by its connection and by `header`, apart from
/// `world:anyone`. `header` is not [`AUTHORIZATION`] on routes where that header belongs to another
/// service.
///
/// # Errors
/// 400 for malformed `Basic` credentials. Other schemes are ignored: they are meant for a proxy in
/// front of this node.
pub(crate) fn identities(
    header: &str,
    extensions: &Extensions,
    headers: &HeaderMap,
    super_digest: &str,
) -> Result<Vec<Identity>, Problem> {
    let mut identities: Vec<_> = extensions.get::<Peer>().and_then(Peer::identity).into_iter().collect();
    let bad = |why: &str| Problem::bad(header, why);
    let (scheme, proof) = once(headers, header)?.and_then(|value| value.split_once(' ')).unwrap_or_default();
    if scheme.eq_ignore_ascii_case("basic") {
        let proof = BASE64_STANDARD.decode(proof.trim()).map_err(|_| bad("Basic is followed by base64"))?;
        let id = std::str::from_utf8(&proof)
            .ok()
            .and_then(digest)
            .ok_or_else(|| bad("Basic is followed by base64 of user:password"))?;
        if id.len() > IDENTITY_BYTES_MAX {
            return Err(bad(&format!("a user's name with the hash behind it has at most {IDENTITY_BYTES_MAX} bytes")));
        }
        if id == super_digest {
            identities.extend(super_user(&id));
        } else {
            identities.push(Identity { scheme: "digest".into(), id });
        }
    }
    Ok(identities)
}

/// Returns the digest of `user:password`, as ZooKeeper's
/// `DigestAuthenticationProvider.generateDigest` does: `user:base64(sha1(user:password))`. `None`
/// if `proof` has no colon.
pub fn digest(proof: &str) -> Option<String> {
    let user = proof.split_once(':')?.0;
    Some(format!("{user}:{}", BASE64_STANDARD.encode(Sha1::digest(proof))))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::http::header::AUTHORIZATION;

    use super::*;
    use crate::http::peer::Known;

    fn proven(values: &[&'static str]) -> Result<Vec<String>, Problem> {
        let (mut extensions, mut headers) = (Extensions::new(), HeaderMap::new());
        let (addr, subject) = ([192, 0, 2, 1].into(), Some("CN=a".into()));
        extensions.insert(Peer::new(Known {
            addr,
            place: None,
            is_exempt: false,
            on_loopback: false,
            is_secure: true,
            subject,
        }));
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        let identities = identities(super::AUTHORIZATION, &extensions, &headers, "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")?;
        Ok(identities.into_iter().map(|one| format!("{}:{}", one.scheme, one.id)).collect())
    }

    #[test]
    fn a_request_comes_from_whom_it_proves() {
        assert_eq!(proven(&[]).unwrap(), ["x509:CN=a"]);
        // The password is super:test, as in ZooKeeper's documentation.
        let all = ["x509:CN=a", "super:", "digest:super:"];
        assert_eq!(proven(&["Basic c3VwZXI6dGVzdA=="]).unwrap(), all);
        assert_eq!(proven(&["basic  c3VwZXI6dGVzdDE="]).unwrap().len(), 2);
        assert_eq!(proven(&["Bearer x"]).unwrap(), ["x509:CN=a"]);
        let of_bytes = |bytes: usize| {
            let proof = format!("{}:x", "u".repeat(bytes - ":".len() - 28));
            let value = format!("Basic {}", BASE64_STANDARD.encode(proof));
            proven(&[value.leak()]).map(|identities| identities[1].len() - "digest:".len())
        };
        assert_eq!(of_bytes(IDENTITY_BYTES_MAX).unwrap(), IDENTITY_BYTES_MAX);
        assert!(of_bytes(IDENTITY_BYTES_MAX + 1).is_err());
        for bad in [&["Basic !"][..], &["Basic bm9jb2xvbg=="], &["Basic /zo="], &["Bearer x", "Bearer x"]] {
            assert!(proven(bad).is_err(), "{bad:?}");
        }
    }
}
