//! Descriptions of a client for people.

use serde::{Deserialize, Serialize};

/// Description that a client gives of itself when it opens a session. Each text has no control or
/// invisible characters, and at most 256 bytes unless `limits.label_bytes_max` sets another limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClientDetails {
    /// The name of the client's machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the client's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of the client's program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
}

/// The client of a session: its description of itself, which is not verified, and the address that
/// the node saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClientInfo {
    /// The name of the client's machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the client's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The name of the client's program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// IP address of the client in the connection over which it opened the session; absent if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The client that asked for the release of a ticket, took the ticket away, or deleted it. Unknown
/// fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Actor {
    /// Session of the request; absent for a request without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Label of the session in `session`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Identity of the client as ACLs name it, without the secret or its hash: `x509:CN=ops`,
    /// `digest:bob`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// Client that opened the session. For a request without a session, only the address is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}

/// Writes one line such as `web-1, pid 71, backup, 10.0.0.7`, without the unknown parts.
impl std::fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            Some(self.host.clone()).filter(|host| !host.is_empty()),
            self.pid.map(|pid| format!("pid {pid}")),
            Some(self.program.clone()).filter(|program| !program.is_empty()),
            self.address.clone(),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Writes one line such as `session 7 digest:bob (web-1, pid 71)`, without the unknown parts.
impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let session = self.session.map(|session| format!("session {session}"));
        let identity = Some(self.identity.clone()).filter(|identity| !identity.is_empty());
        let who = [session, identity].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let client = self.client.as_ref().map(ToString::to_string).unwrap_or_default();
        match (who.is_empty(), client.is_empty()) {
            (false, false) => write!(f, "{who} ({client})"),
            // For a request without a session, only the address may be known.
            _ => write!(f, "{who}{client}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_in_one_line() {
        let mut client = ClientInfo { host: "web-1".into(), pid: Some(71), ..ClientInfo::default() };
        assert_eq!(client.to_string(), "web-1, pid 71");
        (client.program, client.address) = ("backup".into(), Some("10.0.0.7".into()));
        assert_eq!(client.to_string(), "web-1, pid 71, backup, 10.0.0.7");
        assert_eq!(ClientInfo::default().to_string(), "");
    }

    #[test]
    fn an_actor_is_told_in_one_line() {
        let client = ClientInfo { host: "web-1".into(), pid: Some(71), ..ClientInfo::default() };
        let mut actor = Actor { session: Some(7), client: Some(client), ..Actor::default() };
        assert_eq!(actor.to_string(), "session 7 (web-1, pid 71)");
        (actor.session, actor.identity) = (None, "digest:bob".into());
        assert_eq!(actor.to_string(), "digest:bob (web-1, pid 71)");
        assert_eq!(Actor { identity: String::new(), ..actor.clone() }.to_string(), "web-1, pid 71");
        actor.client = Some(ClientInfo::default());
        assert_eq!(actor.to_string(), "digest:bob");
        assert_eq!(Actor::default().to_string(), "");
    }
}
