//! A request that can be sent to any node, and its answer.

use std::fmt::Write as _;
use std::time::Duration;

use crate::api::{ProblemType, encode_path, headers};
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::clock::Moment;
use crate::client::error::Error;

/// Route of znodes.
pub(crate) const ZNODES: &str = "/v1/znodes";

/// Route of questions about fencing tokens.
pub(crate) const FENCE: &str = "/v1/fence";

/// Node that is preferred for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// The leader. This saves a hop for a request that another node would forward to the leader.
    Leader,
    /// Any node, which spreads requests that every node can answer.
    Any,
}

/// Rule for the repetition of a call whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The call reads, or carries an idempotency key, or does no harm when done twice.
    Safe,
    /// The call may be repeated only if it certainly did not reach a node.
    OnlyIfUnsent,
}

/// One request to the cluster. Sending it or its clone again is a retry.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) prefer: Prefer,
    pub(crate) repeat: Repeat,
    /// Longest time for which a long-poll asks the node to wait before it answers; zero for other
    /// calls.
    pub(crate) wait: Duration,
    /// Time that one try may take beyond `wait`; the client's setting when absent.
    pub(crate) attempt_timeout: Option<Duration>,
    /// Whether the call ends with `Refused` if the cluster has executed it, but has forgotten the
    /// result; with `Unknown` if false.
    pub(crate) tells_eviction: bool,
    /// Whether the cluster forgets the idempotency key when it refuses the call, so that a copy
    /// that arrives later is executed.
    pub(crate) is_forgotten: bool,
}

impl Call {
    fn new(method: Method, target: String, prefer: Prefer, repeat: Repeat) -> Call {
        Call {
            method,
            target,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            prefer,
            repeat,
            wait: Duration::ZERO,
            attempt_timeout: None,
            tells_eviction: false,
            is_forgotten: false,
        }
    }

    /// Returns a read that any node may answer and that may be repeated.
    pub(crate) fn get(target: String) -> Call {
        Call::new(Method::GET, target, Prefer::Any, Repeat::Safe)
    }

    /// Makes the call of a write, which goes to the leader if the client knows it. The call may be
    /// repeated only after [`Call::key`] gave it an idempotency key.
    pub(crate) fn write(method: Method, target: String) -> Call {
        Call::new(method, target, Prefer::Leader, Repeat::OnlyIfUnsent)
    }

    /// Marks an acquire whose ticket leaves the queue when the lock is not granted at once.
    pub(crate) fn forgotten(mut self) -> Call {
        self.is_forgotten = true;
        self
    }

    /// Turns such an acquire into one whose ticket stays in the queue until it is released. A
    /// release leaves the idempotency key remembered.
    pub(crate) fn kept(mut self) -> Call {
        if std::mem::take(&mut self.is_forgotten) {
            self.target.push_str(if self.target.contains('?') { "&keep=true" } else { "?keep=true" });
        }
        self
    }

    /// Returns the write that acquires a lock: a `POST` to `target`.
    pub(crate) fn acquire(target: Target) -> Call {
        Call::write(Method::POST, target.finish())
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Result<Call, Error> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::refused_here(ProblemType::BadRequest, format!("{name}: not ASCII text")))?;
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// Adds the header with the session key.
    pub(crate) fn session(mut self, key: &HeaderValue) -> Call {
        self.headers.insert(HeaderName::from_static(headers::SESSION_KEY), key.clone());
        self
    }

    /// Adds the idempotency key, so that the cluster applies the call once even if it is sent
    /// again.
    pub(crate) fn key(self, key: uuid::Uuid) -> Call {
        let call = self.header(headers::IDEMPOTENCY_KEY, &key.to_string()).expect("a UUID is ASCII");
        call.repeatable()
    }

    /// Tells whether the call has an idempotency key.
    pub(crate) fn is_keyed(&self) -> bool {
        self.headers.contains_key(headers::IDEMPOTENCY_KEY)
    }

    /// Marks a call as harmless when done twice.
    pub(crate) fn repeatable(mut self) -> Call {
        self.repeat = Repeat::Safe;
        self
    }

    /// Tells whether the call is a read. The loss of a read's answer leaves no unknown outcome.
    pub(crate) fn is_read(&self) -> bool {
        self.method == Method::GET
    }

    pub(crate) fn prefer(mut self, prefer: Prefer) -> Call {
        self.prefer = prefer;
        self
    }

    pub(crate) fn waiting(mut self, wait: Duration) -> Call {
        self.wait = wait;
        self
    }

    pub(crate) fn attempt_timeout(mut self, timeout: Duration) -> Call {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Makes the call end with `Refused` and `RequestKeyEvicted` if the cluster has executed it,
    /// but has forgotten the result. For a caller that does not need the result.
    pub(crate) fn telling_eviction(mut self) -> Call {
        self.tells_eviction = true;
        self
    }

    pub(crate) fn body(mut self, body: Bytes) -> Call {
        self.body = body;
        self
    }

    pub(crate) fn json(mut self, value: &impl Serialize) -> Call {
        self.body = serde_json::to_vec(value).expect("the protocol's types are JSON").into();
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self
    }
}

/// A URL's path and query, from a route, a znode path and parameters.
pub(crate) struct Target {
    text: String,
    has_query: bool,
}

impl Target {
    /// Returns the target `route`, without a znode path.
    pub(crate) fn route(route: &str) -> Target {
        Target { text: route.into(), has_query: false }
    }

    /// Returns the target `route` followed by a znode path.
    ///
    /// # Errors
    /// A path without a leading slash is refused here, because it would form another URL. The root
    /// is refused for locks and other recipes: no recipe works on the root, and its URL would be
    /// that of a list of all locks.
    pub(crate) fn path(route: &str, path: &str) -> Result<Target, Error> {
        let refused = |detail: String| Err(Error::refused_here(ProblemType::BadRequest, detail));
        if !path.starts_with('/') {
            return refused(format!("path: {path:?} does not begin with a slash"));
        }
        if path == "/" && route != ZNODES {
            return refused("path: the root is no lock: name a znode below it, as in /orders".to_owned());
        }
        Ok(Target { text: format!("{route}{}", encode_path(path)), has_query: false })
    }

    pub(crate) fn with(mut self, name: &str, value: impl std::fmt::Display) -> Target {
        let value = value.to_string();
        let separator = if self.has_query { '&' } else { '?' };
        let _ = write!(self.text, "{separator}{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC));
        self.has_query = true;
        self
    }

    pub(crate) fn with_some(self, name: &str, value: Option<impl std::fmt::Display>) -> Target {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// Successful answer of a node.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) body: Bytes,
    /// Zxid of the write, or of the state that was read, from the answer's header.
    pub(crate) zxid: u64,
    /// Time at which the client sent the request that got this answer. Durations in the body, such
    /// as `safe_for_ms`, count from this time.
    pub(crate) sent: Moment,
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Error::unknown(format!("an answer that is no answer of zlock's: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_escapes_paths_and_parameters() {
        let target = Target::path(ZNODES, "/a b/ü#?%").unwrap().with("label", "x&y=1+2 z").with("wait", 5);
        assert_eq!(target.finish(), "/v1/znodes/a%20b/%C3%BC%23%3F%25?label=x%26y%3D1%2B2%20z&wait=5");
    }

    #[test]
    fn a_path_without_its_slash_is_refused_before_it_is_sent() {
        let error = Target::path(ZNODES, "app").err().unwrap();
        assert_eq!(error.code(), Some(ProblemType::BadRequest));
    }

    // With the root as a lock's path, the URL would be that of the list of locks.
    #[test]
    fn the_root_is_a_znode_and_no_lock() {
        assert!(Target::path(ZNODES, "/").is_ok());
        let error = Target::path("/v1/locks", "/").err().unwrap();
        assert!(error.to_string().contains("the root is no lock"), "{error}");
    }
}
