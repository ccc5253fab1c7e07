//! Elections, their leaders and candidates.

use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/elections/{path}`: the leader of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Election {
    /// The path of the election.
    pub path: String,
    /// The number of candidates, the leader included.
    pub candidates: u32,
    /// The leader; absent when no candidate leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Value to send as `since` in a request that waits for another leader or another value.
    #[cfg_attr(feature = "schema", schema(pattern = r"^[0-9]+\.[0-9]+$"))]
    pub upto: String,
}

/// A leader and the value that it proclaimed last. The value is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Leader {
    /// The path of the leader's lock node.
    pub ticket: String,
    /// The leader's session; absent for a persistent znode that a client put into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Owner that the acquire request named, which tells the contenders of one session apart; empty
    /// for no owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The value that the leader proclaimed last, if it is UTF-8. Until the leader has proclaimed a
    /// value, this is the leader's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The proclaimed value in base64, when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Token that the leader shows to resources. Each leader has a larger token than the leader
    /// before.
    pub fencing_token: u64,
}
