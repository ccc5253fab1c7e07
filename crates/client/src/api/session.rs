//! Sessions.

use serde::{Deserialize, Serialize};

use super::{ClientDetails, ClientInfo, Millis};

/// Body of `POST /v1/sessions`. An empty body asks for the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The wanted timeout, 30 s when absent. The answer has the timeout that was agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// Free text that describes the client for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub label: String,
    /// The program and machine of the client. They are shown to clients that may read a znode of
    /// the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientDetails>,
}

/// Answer to the opening of a session, the only answer with the session's key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewSession {
    /// The number of the session: the zxid that opened it.
    pub session: u64,
    /// The value of the header `Zlock-Session-Key`: the session's number, a point, and 128 random
    /// bits in hex. A client with the key can act as the session.
    #[cfg_attr(feature = "schema", schema(pattern = r"^[0-9]+\.[0-9a-f]{32}$"))]
    pub session_key: String,
    /// The agreed timeout in milliseconds.
    pub timeout_ms: u32,
    /// The wanted timeout, if it was out of bounds and the nearest bound was agreed instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_asked_ms: Option<u64>,
    /// The time in milliseconds, from the sending of the request, for which the session cannot
    /// expire.
    pub safe_for_ms: u64,
}

/// Writes the session's number and timeout, but not its key.
impl std::fmt::Debug for NewSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewSession({}.***, {} ms)", self.session, self.timeout_ms)
    }
}

/// Answer to a keep-alive that the leader accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeepAlive {
    /// The number of the session.
    pub session: u64,
    /// The timeout of the session in milliseconds.
    pub timeout_ms: u32,
    /// The time in milliseconds, from the sending of the request, for which the session cannot
    /// expire.
    pub safe_for_ms: u64,
}

/// A session, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// The number of the session.
    pub session: u64,
    /// The timeout of the session in milliseconds.
    pub timeout_ms: u32,
    /// The label with which the session was opened.
    pub label: String,
    /// The time at which the session was opened, in milliseconds since 1970, by the leader's clock.
    pub opened_at_ms: u64,
    /// The number of ephemeral znodes that the session owns.
    pub ephemeral_count: u64,
    /// Client that opened the session. Shown to the session itself, to the super user, and to
    /// requests that may read a znode of the session, because a lock's queue shows such requests
    /// the client, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Paths of the session's ephemeral znodes, sorted, at most `page_size` of them; only in the
    /// answer for a single session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ephemerals: Vec<String>,
    /// The value of `after` for the next page of paths; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Answer of `GET /v1/sessions`: a page of sessions, sorted by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionList {
    /// The sessions on this page.
    pub sessions: Vec<SessionInfo>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}
