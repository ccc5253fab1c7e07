//! Acquires of several locks at once.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::ZnodePath;
use super::{LockMode, Millis};

/// Body of `POST /v1/multilocks`, which acquires all of the locks or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireAll {
    /// Locks to acquire, without duplicates. In later requests, the ticket of the first lock stands
    /// for the whole multi-lock.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 64))]
    pub locks: Vec<LockWish>,
    /// Whether later contenders may take free locks of the set while the multi-lock waits.
    #[serde(default)]
    pub policy: Policy,
    /// Owner in whose name the session acquires the locks: it tells the contenders of one session
    /// apart; empty for no owner. An acquire of all these locks by an owner that holds them adds
    /// one hold, which needs its own release. Deadlocks are detected between owners.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub owner: String,
    /// Free text for people, which becomes the data of all lock nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub label: String,
    /// Time for which other contenders are kept out of the locks after the session expired while it
    /// held them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_delay: Option<Millis>,
    /// The time to wait for the locks; not together with `wait` in the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Millis>,
    /// Whether to stay in the queues when the wait ends or the client disconnects; not together
    /// with `keep` in the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}

/// A lock in the request for a multi-lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockWish {
    /// The path of the lock.
    #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
    pub path: String,
    /// The mode in which the lock is wanted; not `election`.
    #[serde(default)]
    pub mode: LockMode,
    /// Number of permits to acquire, only of a semaphore; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub permits: Option<u32>,
    /// Total number of permits of the semaphore, which the first acquire sets. An acquire with
    /// another total is refused. When absent, the total in the lock's settings counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub permits_max: Option<u32>,
}

/// Policy of a waiting multi-lock towards contenders that come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Later contenders wait behind the multi-lock in the queue of each of its locks, even if the
    /// lock is free.
    #[default]
    Strict,
    /// Later contenders may take a free lock of the set while the multi-lock waits for another lock
    /// of the set.
    Backfill,
}

/// State of a multi-lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum MultiTicket {
    /// The multi-lock holds all its locks (200).
    Held {
        /// The ticket that stands for all locks in later requests and in the release.
        ticket: String,
        /// The locks, in the order of the request that created the multi-lock.
        locks: Vec<HeldPart>,
        /// Number of acquires of the owner that share the ticket. The locks are free after the same
        /// number of releases.
        holds: u32,
        /// Time in milliseconds, counted from the sending of the request, for which the session,
        /// and so the locks, cannot expire. 0 for a request without the session's key, and when the
        /// leader did not answer.
        safe_for_ms: u64,
    },
    /// The multi-lock waits and holds none of its locks (202).
    Waiting {
        /// The ticket that stands for all locks in later requests.
        ticket: String,
        /// Paths of the lock nodes, one in the queue of each lock, in the order of the request.
        tickets: Vec<String>,
        /// Path of a lock node for which the multi-lock waits; empty if the requester may not read
        /// that path.
        predecessor: String,
    },
}

/// A lock that a multi-lock holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldPart {
    /// The path of the lock.
    pub path: String,
    /// Path of the lock node in the queue of this lock.
    pub ticket: String,
    /// The fencing token to show to the resource that this lock protects.
    pub fencing_token: u64,
}
