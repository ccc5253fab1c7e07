//! Sessions.

use serde::{Deserialize, Serialize};

use super::{ClientDetails, ClientInfo};

/// `POST /v1/sessions`. An empty body asks for the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenSession {
    /// The wish, a number of milliseconds; the answer says what was agreed. Default 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::duration::number_of_ms")]
    #[cfg_attr(feature = "schema", schema(maximum = 9007199254740991_u64))]
    pub timeout_ms: Option<u64>,
    /// Free text for people: who are you?
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub label: String,
    /// Which program asks, where: shown to those who may read what the session holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientDetails>,
}

/// A session was opened. No client is told the secret again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionOpened {
    /// Its id: the zxid that opened it.
    pub id: u64,
    /// 128 random bits in hex. Who has it can act as the session.
    #[cfg_attr(feature = "schema", schema(pattern = "^[0-9a-f]{32}$"))]
    pub secret: String,
    /// `<id>.<secret>`, ready for the header `Zlock-Session`.
    #[cfg_attr(feature = "schema", schema(pattern = r"^[0-9]+\.[0-9a-f]{32}$"))]
    pub session: String,
    /// The agreed timeout.
    pub timeout_ms: u32,
    /// What was asked for, when that is out of bounds and the nearest bound was agreed instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_asked_ms: Option<u64>,
    /// How long, from the moment the request was sent, the session cannot expire.
    pub safe_for_ms: u64,
}

/// Keeps the secret out of logs.
impl std::fmt::Debug for SessionOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionOpened({}.***, {} ms)", self.id, self.timeout_ms)
    }
}

/// A keep-alive that the leader took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeptAlive {
    /// The session.
    pub id: u64,
    /// Its timeout.
    pub timeout_ms: u32,
    /// How long, from the moment the request was sent, the session cannot expire.
    pub safe_for_ms: u64,
}

/// A session, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionInfo {
    /// Its id.
    pub id: u64,
    /// Its timeout.
    pub timeout_ms: u32,
    /// Free text of the one who opened it.
    pub label: String,
    /// When it was opened, in milliseconds since 1970, by the leader's clock.
    pub opened_ms: u64,
    /// How many ephemeral znodes it owns.
    pub ephemeral_count: u64,
    /// The client that opened it. Told to the session itself, to the super user, and where the
    /// request may read a znode that the session owns: that znode's lock tells it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Their paths, sorted; only when one session is asked for, and at most `limit` of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ephemerals: Vec<String>,
    /// Ask again with `after` set to this for the rest of the paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `GET /v1/sessions`: a page of sessions by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionList {
    /// The page.
    pub sessions: Vec<SessionInfo>,
    /// Ask again with `after` set to this for the next page; absent on the last one.
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
