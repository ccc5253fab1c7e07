//! Znodes, their ACLs, children and events.

use serde::{Deserialize, Serialize};

/// The create modes of ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A znode that stays until it is deleted.
    #[default]
    Persistent,
    /// A znode that is deleted with its session.
    Ephemeral,
    /// A persistent znode with ten digits appended to the name.
    PersistentSequential,
    /// An ephemeral znode with ten digits appended to the name.
    EphemeralSequential,
    /// A znode that is deleted by the server some time after its last child was deleted.
    Container,
    /// A znode that is deleted when it has no children and its data was not set for the duration of
    /// its TTL.
    PersistentTtl,
    /// A persistent znode with a TTL and with ten digits appended to the name.
    PersistentSequentialTtl,
}

/// Stat of a znode with all eleven fields of ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stat {
    /// The zxid that created the znode.
    pub czxid: u64,
    /// The zxid that last set the data.
    pub mzxid: u64,
    /// The time of the creation, in milliseconds since 1970, by the leader's clock.
    pub ctime: u64,
    /// The time at which the data was last set, in milliseconds since 1970, by the leader's clock.
    pub mtime: u64,
    /// The number of times that the data was set, which is also the `ETag`.
    pub version: i32,
    /// The number of changes to the list of children.
    pub cversion: i32,
    /// The number of times that the ACL was set.
    pub aversion: i32,
    /// The session of an ephemeral znode, 0 for a persistent one. Containers and TTL znodes have
    /// ZooKeeper's special values here, which are larger than 2^53.
    #[cfg_attr(feature = "schema", schema(format = "uint64", maximum = 18446744073709551615_u64))]
    pub ephemeral_owner: u64,
    /// The length of the data in bytes.
    pub data_length: u32,
    /// The number of children.
    pub num_children: u32,
    /// The zxid that last changed the list of children.
    pub pzxid: u64,
}

/// A znode with its data, which is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ZnodeInfo {
    /// The path of the znode.
    pub path: String,
    /// The data, when it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The data in base64 (RFC 4648, padded), when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// The stat of the znode.
    pub stat: Stat,
}

/// Answer to the creation of a znode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedZnode {
    /// Path of the new znode, including the ten digits of a sequential znode.
    pub path: String,
    /// The stat of the znode.
    pub stat: Stat,
    /// The zxid of the transaction.
    pub zxid: u64,
}

/// Answer to a change of a znode's data or ACL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangedZnode {
    /// The path of the znode.
    pub path: String,
    /// The stat of the znode after the change.
    pub stat: Stat,
    /// The zxid of the transaction.
    pub zxid: u64,
}

/// Answer to the deletion of a znode or session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Deletion {
    /// The zxid of the transaction.
    pub zxid: u64,
}

/// A child with its stat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NamedStat {
    /// The child's name.
    pub name: String,
    /// The stat of the child.
    pub stat: Stat,
}

/// Answer of `?children` and `?children=stat`: a page of children, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Children {
    /// The path of the parent.
    pub path: String,
    /// The stat of the parent.
    pub stat: Stat,
    /// The names of the children.
    pub children: Vec<String>,
    /// The stats of the children in `children`; only with `?children=stat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Vec<NamedStat>>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// An entry of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AclEntry {
    /// Permissions as letters out of `cdrwa`: create, delete, read, write, admin.
    #[cfg_attr(feature = "schema", schema(pattern = "^[cdrwa]*$"))]
    pub perms: String,
    /// The scheme: `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// The identity in the scheme; `anyone` for `world`.
    #[cfg_attr(feature = "schema", schema(max_length = 255))]
    pub id: String,
}

/// Answer of `?acl`: the ACL of a znode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AclInfo {
    /// The path of the znode.
    pub path: String,
    /// The ACL.
    pub acl: Vec<AclEntry>,
    /// The stat of the znode. When the ACL is set, `If-Match` is compared with `aversion`.
    pub stat: Stat,
}

/// Kind of a change; all but `granted` are ZooKeeper's event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The znode's data was set.
    DataChanged,
    /// A child of the znode was created or deleted.
    ChildrenChanged,
    /// The lock node of a session became a holder of its lock, after it had waited. ZooKeeper has
    /// no such event.
    Granted,
}

/// A change of a znode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventInfo {
    /// The zxid of the transaction that made the change.
    pub zxid: u64,
    /// The kind of the change.
    pub kind: EventKind,
    /// The path of the changed znode.
    pub path: String,
}

/// Answer of `?watch=`: the changes after the zxid `since`; empty when the wait ended without a
/// change. The next request continues with the `upto` of this answer as its `since`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Events {
    /// The changes in order of zxid.
    pub events: Vec<EventInfo>,
    /// The zxid up to which the answer has all changes of the watch.
    pub upto: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_with_dashes() {
        let text = |mode| serde_json::to_string(&mode).unwrap();
        assert_eq!(text(Mode::Persistent), "\"persistent\"");
        assert_eq!(text(Mode::PersistentSequentialTtl), "\"persistent-sequential-ttl\"");
        assert_eq!(serde_json::from_str::<Mode>("\"ephemeral-sequential\"").unwrap(), Mode::EphemeralSequential);
    }
}
