//! Caller of a request, and the conditions of the request, both from its headers.

use axum::http::HeaderMap;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::{Builder, Uuid};
use zlock_client::api::{SessionKey, headers};
use znode::{Credential, FencingToken, LockGuard, RequestKey, SecretHash, SessionId, ZPath, Zxid};

use crate::problem::Problem;
use crate::request::paths;

/// Moment at which the head of the request was complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival(pub(crate) Instant);

/// Credential from the session's header, as the outermost layer has parsed it, so that the secret
/// is hashed only once. `None` without the header.
#[derive(Clone, Copy)]
pub(crate) struct Proven(pub(crate) Option<Credential>);

/// Values of the request's headers.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) credential: Option<Credential>,
    pub(crate) key: Option<RequestKey>,
    pub(crate) guard: Option<LockGuard>,
    pub(crate) min_zxid: Zxid,
    /// The version in `If-Match`; -1 matches any version.
    pub(crate) version: i32,
    /// True for `If-None-Match: *`: the write requires that the znode does not exist.
    pub(crate) only_if_absent: bool,
}

impl Caller {
    pub(crate) fn read(headers: &HeaderMap, proven: Option<Proven>) -> Result<Caller, Problem> {
        Ok(Caller {
            credential: proven.map_or_else(|| credential(headers), |Proven(credential)| Ok(credential))?,
            key: request_key(headers)?,
            guard: lock_guard(headers)?,
            min_zxid: min_zxid(headers)?,
            version: version(headers)?,
            only_if_absent: only_if_absent(headers)?,
        })
    }

    /// Returns the session's credential.
    ///
    /// # Errors
    /// 401 when the request names no session.
    pub(crate) fn session(&self) -> Result<Credential, Problem> {
        self.credential.ok_or_else(|| znode::Error::SessionRequired.into())
    }
}

/// Parses the header `Zlock-Session-Key` to a credential, which has the hash of the secret. `None`
/// without the header.
pub(crate) fn credential(from: &HeaderMap) -> Result<Option<Credential>, Problem> {
    let Some(text) = text(from, headers::SESSION_KEY)? else { return Ok(None) };
    let key: SessionKey = text.parse().map_err(|error| Problem::bad("Zlock-Session-Key", error))?;
    Ok(Some(Credential { session: SessionId(key.id), secret_hash: secret_hash(&key) }))
}

/// Returns the hash of a session key's secret, in the form that the state keeps.
pub(crate) fn secret_hash(key: &SessionKey) -> SecretHash {
    znode::secret_hash(Sha256::digest(key.secret).into())
}

/// Largest length of an `Idempotency-Key` that is not a UUID, in characters.
const KEY_CHARS_MAX: usize = 128;

/// Returns the text of `Idempotency-Key` without quotes; `None` without the header. An acquire of a
/// simple lock (one ephemeral znode) without `owner` takes this text as its owner's name.
pub(crate) fn key_text(from: &HeaderMap) -> Result<Option<&str>, Problem> {
    // The draft standard for this header writes the key as a quoted string.
    let bare = |text| unquoted(text).unwrap_or(text);
    Ok(text(from, headers::IDEMPOTENCY_KEY)?.map(bare))
}

fn unquoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

fn request_key(from: &HeaderMap) -> Result<Option<RequestKey>, Problem> {
    let Some(text) = key_text(from)? else { return Ok(None) };
    if let Ok(uuid) = Uuid::try_parse(text) {
        return Ok(Some(RequestKey(uuid.into_bytes())));
    }
    let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if text.is_empty() || text.len() > KEY_CHARS_MAX || !printable {
        let why = "a UUID, or 1 to 128 printable ASCII characters";
        return Err(Problem::bad("Idempotency-Key", why));
    }
    // The state keeps 128 bits of a key, and uses them as the UUID in lock nodes' names.
    let digest: [u8; 32] = Sha256::digest(text).into();
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest[..16]);
    Ok(Some(RequestKey(Builder::from_custom_bytes(bits).into_uuid().into_bytes())))
}

/// Parses `If-Lock: <path>;<token>`, whose path is percent-encoded where a header cannot hold it.
fn lock_guard(from: &HeaderMap) -> Result<Option<LockGuard>, Problem> {
    let Some(text) = text(from, headers::IF_LOCK)? else { return Ok(None) };
    let bad = || Problem::bad("If-Lock", "write <lock path>;<fencing token>");
    let (path, token) = text.rsplit_once(';').ok_or_else(bad)?;
    let lock: ZPath = match path.starts_with('/').then(|| paths::decode(path)) {
        Some(Ok(lock)) => lock,
        Some(Err(_)) => return Err(Problem::bad("If-Lock", "not a znode path before the semicolon")),
        None => return Err(bad()),
    };
    let lock = paths::not_the_root("If-Lock", lock)?;
    let token = token.trim().parse().map_err(|_| bad())?;
    Ok(Some(LockGuard { lock, token: FencingToken(token) }))
}

fn min_zxid(from: &HeaderMap) -> Result<Zxid, Problem> {
    let Some(text) = text(from, headers::MIN_ZXID)? else { return Ok(Zxid(0)) };
    text.parse().map(Zxid).map_err(|error| Problem::bad("Zlock-Min-Zxid", error))
}

/// Parses `If-Match: "3"`, `W/"3"`, `3` or `*`; -1 stands for any version. A list is refused,
/// because a znode has one version. Weak tags are accepted, because compressing proxies turn strong
/// tags into weak ones.
fn version(from: &HeaderMap) -> Result<i32, Problem> {
    let Some(text) = text(from, IF_MATCH.as_str())? else { return Ok(-1) };
    if text == "*" {
        return Ok(-1);
    }
    let bare = unquoted(text.strip_prefix("W/").unwrap_or(text)).unwrap_or(text);
    let plain = !bare.starts_with(['+', '-']);
    bare.parse().ok().filter(|_| plain).ok_or_else(|| Problem::bad("If-Match", "one version, as `ETag` answered it"))
}

fn only_if_absent(from: &HeaderMap) -> Result<bool, Problem> {
    match text(from, IF_NONE_MATCH.as_str())? {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(_) => Err(Problem::bad("If-None-Match", "`*` is all that it may be")),
    }
}

/// Returns a header that may be given once; `None` when it is missing.
pub(crate) fn once<'a>(from: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = from.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad(name, "given twice"));
    }
    value.to_str().map(Some).map_err(|_| Problem::bad(name, "not ASCII"))
}

/// Returns a header that may be given once, without spaces around it.
fn text<'a>(from: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    Ok(once(from, name)?.map(str::trim))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(name: &'static str, value: &str) -> Result<Caller, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        Caller::read(&headers, None)
    }

    #[test]
    fn headers_are_read_as_documented() {
        let guard = read("if-lock", "/a%20b;17").unwrap().guard.unwrap();
        assert_eq!((guard.lock.as_str(), guard.token), ("/a b", FencingToken(17)));
        assert_eq!(read("if-match", "\"3\"").unwrap().version, 3);
        assert_eq!(read("if-match", "W/\"3\"").unwrap().version, 3);
        assert_eq!(read("if-match", "3").unwrap().version, 3);
        assert_eq!(read("if-match", "*").unwrap().version, -1);
        assert_eq!(read("zlock-min-zxid", "9").unwrap().min_zxid, Zxid(9));
        let key = read("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8").unwrap().key.unwrap();
        assert_eq!(key.to_string(), "67e55044-10b1-426f-9247-bb680e5fe0c8");
        let session = read("zlock-session-key", "5.000102030405060708090a0b0c0d0e0f").unwrap().session().unwrap();
        assert_eq!(session.session, SessionId(5));
    }

    #[test]
    fn a_malformed_header_is_refused() {
        for (name, value) in [
            ("if-lock", "/a"),
            ("if-lock", "a;1"),
            ("if-lock", "/a;x"),
            ("if-lock", "/a/../b;1"),
            ("if-lock", "/;1"),
            ("if-match", "W/3"),
            ("if-match", "w/\"3\""),
            ("if-none-match", "\"3\""),
            ("if-match", "\"1\", \"2\""),
            ("if-match", "-1"),
            ("if-match", "2147483648"),
            ("zlock-min-zxid", "-1"),
            ("idempotency-key", ""),
            ("idempotency-key", "\"\""),
            ("idempotency-key", "a\tb"),
            ("zlock-session-key", "5"),
        ] {
            assert!(read(name, value).is_err(), "{name}: {value}");
        }
    }
    #[test]
    fn any_printable_key_is_taken_and_one_that_is_no_uuid_is_hashed_to_one() {
        let key = |text: &str| read("idempotency-key", text).map(|caller| caller.key.unwrap().to_string());
        // The key is SHA-256 of the text, cut to 16 bytes, with the bits of a UUID of version 8.
        assert_eq!(key("deploy-42").unwrap(), "8f3e3985-0c0f-8251-bc6d-36845f3d69a4");
        assert_eq!(key("\"deploy-42\"").unwrap(), key("deploy-42").unwrap());
        assert_ne!(key("deploy-43").unwrap(), key("deploy-42").unwrap());
        assert_eq!(key("67E5504410B1426F9247BB680E5FE0C8").unwrap(), "67e55044-10b1-426f-9247-bb680e5fe0c8");
        assert!(key(&"~".repeat(128)).is_ok());
        assert!(key(&"~".repeat(129)).is_err());
    }
}
