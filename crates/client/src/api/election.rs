//! Elections.

use serde::{Deserialize, Serialize};

/// `GET /v1/elections/{path}`: who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Election {
    /// The election.
    pub election: String,
    /// Who stands, the leader included.
    pub candidates: u32,
    /// Who leads; absent when no candidate does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Ask again with `after` set to this to wait for another leader or another value.
    #[cfg_attr(feature = "schema", schema(pattern = r"^[0-9]+\.[0-9]+$"))]
    pub cursor: String,
}

/// A leader and what it said last. The value is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Leader {
    /// Its lock node.
    pub ticket: String,
    /// Its session; absent for a persistent znode that a client put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Who, within the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// What it proclaimed, or its label until it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The same when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// What it shows to resources. Rises with every leader.
    pub fencing_token: u64,
}
