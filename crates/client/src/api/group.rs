//! Groups.

use serde::{Deserialize, Serialize};

/// `GET /v1/groups/{path}`: a page of a group's members by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Group {
    /// The group.
    pub group: String,
    /// How many there are.
    pub count: u32,
    /// The page.
    pub members: Vec<GroupMember>,
    /// The zxid at which a member joined or left last. Ask again with `since` set to this to wait
    /// for the next time.
    pub changed: u64,
    /// Ask again with `after` set to this for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A member of a group. Its data is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// Its name.
    pub member: String,
    /// Its session; absent for a znode that is not ephemeral.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// What it says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The same when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// When it joined, in milliseconds since 1970, by the leader's clock.
    pub since_ms: u64,
}
