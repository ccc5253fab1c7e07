//! Several locks at once.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::ZnodePath;
use super::{LockMode, Millis};

/// `POST /v1/multilocks`: all of the locks or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireAll {
    /// Each lock once. The ticket of the first stands for all.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 64))]
    pub locks: Vec<LockWish>,
    /// Whether others may pass while it waits.
    #[serde(default)]
    pub policy: Policy,
    /// Who, within the session: an equal owner that asks for the same locks again holds them once
    /// more; and the one whose waits are looked at for deadlocks. Empty is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub owner: String,
    /// Free text for people; becomes the data of all lock nodes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 256))]
    pub label: String,
    /// If the session expires while it holds the locks, others are kept out of them for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_delay: Option<Millis>,
    /// How long to wait for the locks; not together with `wait` in the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Millis>,
    /// Stay in the queues when the wait ends or the client goes; not together with `keep` in the
    /// query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}

/// One of the locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockWish {
    /// The lock.
    #[cfg_attr(feature = "schema", schema(value_type = ZnodePath))]
    pub path: String,
    /// How it is wanted; not `latch`.
    #[serde(default)]
    pub mode: LockMode,
    /// Of a semaphore: how many permits; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub permits: Option<u32>,
    /// Of a semaphore: how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub limit: Option<u32>,
}

/// What a waiting multi-lock does to those who come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// They wait behind it, on each of its locks.
    #[default]
    Strict,
    /// They pass while it waits for another of its locks.
    Backfill,
}

/// Where a multi-lock stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum MultiTicket {
    /// It holds all its locks (200).
    Held {
        /// The ticket that stands for all: to ask with, and to release.
        ticket: String,
        /// Its locks, in the order of the request that made it.
        locks: Vec<HeldPart>,
        /// How many acquires of the same owner share it.
        holds: u32,
        /// As in a ticket.
        safe_for_ms: u64,
    },
    /// It holds none of them (202).
    Waiting {
        /// The ticket that stands for all.
        ticket: String,
        /// The lock nodes, in the order of the request.
        tickets: Vec<String>,
        /// An owner that it waits for.
        predecessor: String,
    },
}

/// One of the locks that a multi-lock holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldPart {
    /// The lock.
    pub lock: String,
    /// The lock node in its queue.
    pub ticket: String,
    /// What to show to the resource behind this lock.
    pub fencing_token: u64,
}
