//! Transactions of several operations.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::ZnodePath;
use super::{AclEntry, Millis, Mode, Stat};

/// Body of `POST /v1/txn`: operations that are applied all together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Txn {
    /// The operations in order.
    pub ops: Vec<TxnOp>,
}

/// One operation of a transaction. A `version` of -1, or an absent one, matches any version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum TxnOp {
    /// Creates a znode.
    Create {
        /// The path of the new znode; for the sequential modes, the part before the ten digits.
        #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
        path: String,
        /// The data as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The data in base64, instead of `data`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data_base64: Option<String>,
        /// The create mode.
        #[serde(default)]
        mode: Mode,
        /// The time to live, for the TTL modes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<Millis>,
        /// The ACL; open to all when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acl: Option<Vec<AclEntry>>,
    },
    /// Deletes a znode without children.
    Delete {
        /// The path of the znode.
        #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
        path: String,
        /// The expected version.
        #[serde(default = "any_version")]
        version: i32,
    },
    /// Replaces a znode's data.
    Set {
        /// The path of the znode.
        #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
        path: String,
        /// The data as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The data in base64, instead of `data`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data_base64: Option<String>,
        /// The expected version.
        #[serde(default = "any_version")]
        version: i32,
    },
    /// Fails unless the znode exists with the expected version.
    Check {
        /// The path of the znode.
        #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
        path: String,
        /// The expected version.
        #[serde(default = "any_version")]
        version: i32,
    },
}

fn any_version() -> i32 {
    -1
}

/// Answer to a transaction that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TxnAnswer {
    /// The zxid of the transaction, which all operations share.
    pub zxid: u64,
    /// One result for each operation, in order.
    pub results: Vec<TxnResult>,
}

/// Result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum TxnResult {
    /// A znode was created.
    Create {
        /// Path of the new znode, including the ten digits of a sequential znode.
        path: String,
        /// The stat of the znode.
        stat: Stat,
    },
    /// The data was set.
    Set {
        /// The stat of the znode after the operation.
        stat: Stat,
    },
    /// A delete or a check succeeded.
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_apart_by_op_and_versions_default_to_any() {
        let txn: Txn = serde_json::from_str(
            r#"{"ops":[{"op":"create","path":"/a","data":"x","mode":"persistent-ttl","ttl":"30s"},{"op":"check","path":"/b","version":3},{"op":"delete","path":"/c"}]}"#,
        )
        .unwrap();
        assert_eq!(
            txn.ops,
            [
                TxnOp::Create {
                    path: "/a".into(),
                    data: Some("x".into()),
                    data_base64: None,
                    mode: Mode::PersistentTtl,
                    ttl: Some(Millis(30_000)),
                    acl: None,
                },
                TxnOp::Check { path: "/b".into(), version: 3 },
                TxnOp::Delete { path: "/c".into(), version: -1 },
            ]
        );
    }

    #[test]
    fn an_unknown_field_is_refused() {
        assert!(serde_json::from_str::<Txn>(r#"{"ops":[{"op":"delete","path":"/c","versoin":1}]}"#).is_err());
        assert!(serde_json::from_str::<Txn>(r#"{"ops":[{"op":"drop","path":"/c"}]}"#).is_err());
    }
}
