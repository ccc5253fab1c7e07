//! Znodes, their ACLs, children and events.

use serde::{Deserialize, Serialize};

/// The create modes of ZooKeeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Stays until it is deleted.
    #[default]
    Persistent,
    /// Goes with its session.
    Ephemeral,
    /// Persistent, with ten digits behind the name.
    PersistentSequential,
    /// Ephemeral, with ten digits behind the name.
    EphemeralSequential,
    /// Collected some time after its last child went.
    Container,
    /// Collected when it has no children and was not set for its TTL.
    PersistentTtl,
    /// The same, with ten digits behind the name.
    PersistentSequentialTtl,
}

/// ZooKeeper's Stat, all eleven fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stat {
    /// The zxid that created the znode.
    pub czxid: u64,
    /// The zxid that last set its data.
    pub mzxid: u64,
    /// When it was created, in milliseconds since 1970, by the leader's clock.
    pub ctime_ms: u64,
    /// When its data was last set.
    pub mtime_ms: u64,
    /// How often its data was set. The `ETag`.
    pub version: i32,
    /// How often its list of children changed.
    pub cversion: i32,
    /// How often its ACL was set.
    pub aversion: i32,
    /// The session of an ephemeral znode, 0 for a persistent one. Containers and TTL znodes carry
    /// ZooKeeper's marks, which are larger than 2^53.
    #[cfg_attr(feature = "schema", schema(format = "uint64", maximum = 18446744073709551615_u64))]
    pub ephemeral_owner: u64,
    /// The length of the data in bytes.
    pub data_length: u32,
    /// The number of children.
    pub num_children: u32,
    /// The zxid that last changed the list of children.
    pub pzxid: u64,
}

/// A znode. The data is text when it is UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ZnodeInfo {
    /// Where.
    pub path: String,
    /// The data, when it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The data in base64 (RFC 4648, padded), when it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Its facts.
    pub stat: Stat,
}

/// A znode was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Created {
    /// Where, ten digits included.
    pub path: String,
    /// Its facts.
    pub stat: Stat,
    /// The transaction.
    pub zxid: u64,
}

/// Data or ACL were set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NodeSet {
    /// Where.
    pub path: String,
    /// The facts after it.
    pub stat: Stat,
    /// The transaction.
    pub zxid: u64,
}

/// A znode or session was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Deleted {
    /// The transaction.
    pub zxid: u64,
}

/// A child with its facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NamedStat {
    /// The child's name.
    pub name: String,
    /// Its facts.
    pub stat: Stat,
}

/// `?children` and `?children=stat`: a page of children by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Children {
    /// The parent.
    pub path: String,
    /// Its facts.
    pub stat: Stat,
    /// The names, sorted.
    pub children: Vec<String>,
    /// With `?children=stat`: the facts of the same children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Vec<NamedStat>>,
    /// Ask again with `after` set to this for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An entry of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AclEntry {
    /// Letters out of `cdrwa`: create, delete, read, write, admin.
    #[cfg_attr(feature = "schema", schema(pattern = "^[cdrwa]*$"))]
    pub perms: String,
    /// `world`, `auth`, `digest`, `ip`, ...
    pub scheme: String,
    /// Whom the entry is about; `anyone` for `world`.
    #[cfg_attr(feature = "schema", schema(max_length = 255))]
    pub id: String,
}

/// `?acl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AclInfo {
    /// Where.
    pub path: String,
    /// The list.
    pub acl: Vec<AclEntry>,
    /// The facts; `aversion` is what `If-Match` compares when the ACL is set.
    pub stat: Stat,
}

/// ZooKeeper's event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
    /// A child of it was created or deleted.
    ChildrenChanged,
    /// The lock node got its lock. Told of semaphores, of locks in whose queue a multi-lock waits
    /// or waited, and of managed locks; of other locks a grant follows from a deletion. ZooKeeper
    /// has no such event.
    Granted,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EventInfo {
    /// The transaction that made it.
    pub zxid: u64,
    /// What happened.
    pub kind: EventKind,
    /// To which znode.
    pub path: String,
}

/// `?watch=`: what happened since `since`; empty when the wait ended first. Ask again with `since`
/// set to `upto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Events {
    /// In order of zxid.
    pub events: Vec<EventInfo>,
    /// Everything up to here is in the answer or did not match.
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
