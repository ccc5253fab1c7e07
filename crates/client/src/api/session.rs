//! Sessions.

use serde::{Deserialize, Serialize};

use super::{ClientDetails, ClientInfo};

/// Body of `POST /v1/sessions`. An empty body asks for the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The wanted timeout in milliseconds, 30 s when absent. The answer has the timeout that was
    /// agreed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::duration::number_of_ms")]
    #[cfg_attr(feature = "schema", schema(maximum = 9007199254740991_u64))]
    pub timeout_ms: Option<u64>,
    /// Free text that tells people who the client is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub label: String,
    /// The program and machine of the client, shown to those who may read what the session holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientDetails>,
}

/// Answer to the opening of a session. The secret is not sent again later.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionOpened {
    /// The id of the session: the zxid that opened it.
    pub id: u64,
    /// The secret: 128 random bits in hex. A client with the secret can act as the session.
    #[cfg_attr(feature = "schema", schema(pattern = "^[0-9a-f]{32}$"))]
    pub secret: String,
    /// `<id>.<secret>`, ready for the header `Zlock-Session`.
    #[cfg_attr(feature = "schema", schema(pattern = r"^[0-9]+\.[0-9a-f]{32}$"))]
    pub session: String,
    /// The agreed timeout in milliseconds.
    pub timeout_ms: u32,
    /// The wanted timeout, if it was out of bounds and the nearest bound was agreed instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_asked_ms: Option<u64>,
    /// The time in milliseconds, from the sending of the request, for which the session cannot
    /// expire.
    pub safe_for_ms: u64,
}

/// Shows the id and the timeout, but not the secret.
impl std::fmt::Debug for SessionOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionOpened({}.***, {} ms)", self.id, self.timeout_ms)
    }
}

/// Answer to a keep-alive that the leader accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeptAlive {
    /// The id of the session.
    pub id: u64,
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
    /// The id of the session.
    pub id: u64,
    /// The timeout of the session in milliseconds.
    pub timeout_ms: u32,
    /// The label with which the session was opened.
    pub label: String,
    /// The time at which the session was opened, in milliseconds since 1970, by the leader's clock.
    pub opened_ms: u64,
    /// The number of ephemeral znodes that the session owns.
    pub ephemeral_count: u64,
    /// The client that opened the session. Shown to the session itself, to the super user, and to
    /// requests that may read a znode of the session, as the lock of that znode shows it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// The paths of the ephemeral znodes, sorted; only in the answer for a single session, and at
    /// most `limit` of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ephemerals: Vec<String>,
    /// The value of `after` for the rest of the paths; absent when there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Answer of `GET /v1/sessions`: a page of sessions, sorted by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionList {
    /// The sessions on this page.
    pub sessions: Vec<SessionInfo>,
    /// The value of `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_in_ms_is_a_number_and_a_text_is_refused_with_the_numbers_to_write() {
        let read = |text: &str| serde_json::from_str::<OpenSession>(text).map(|wish| wish.timeout_ms);
        assert_eq!(read(r#"{"timeout_ms":60000}"#).unwrap(), Some(60_000));
        assert_eq!(read(r#"{"timeout_ms":null}"#).unwrap(), None);
        assert_eq!(read(r#"{"timeout_ms":2000.0}"#).unwrap(), Some(2_000));
        for (text, said) in [
            (r#"{"timeout_ms":"60"}"#, "write 60 for 60ms or 60000 for 60s"),
            (r#"{"timeout_ms":"60s"}"#, "write 60000 for 60s"),
            (r#"{"timeout_ms":"soon"}"#, "timeout_ms is a JSON number of milliseconds"),
            (r#"{"timeout_ms":1.5}"#, "a JSON number of milliseconds"),
        ] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
