//! Groups and their members.

use serde::{Deserialize, Serialize};

/// Answer of `GET /v1/groups/{path}`: a page of a group's members, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Group {
    /// The path of the group.
    pub path: String,
    /// The number of members in the group.
    pub count: u32,
    /// The members on this page.
    pub members: Vec<GroupMember>,
    /// The zxid at which a member last joined or left: the value of `since` for a request that
    /// waits for the next change.
    pub upto: u64,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A member of a group. The member's data is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// The name of the member.
    pub member: String,
    /// The member's session; absent for a znode that is not ephemeral.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The data that the member published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The data in base64, when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// The time at which the member joined, in milliseconds since 1970, by the leader's clock.
    pub joined_at_ms: u64,
}
