//! History: past tickets of a lock, and sessions that have ended.

use serde::{Deserialize, Serialize};

use super::{Actor, ClientInfo, LockMode};

/// Cause of the end of a ticket or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EndCause {
    /// The ticket held the lock, and its session released it.
    Released,
    /// The session was closed by its client.
    Closed,
    /// No heartbeat of the session arrived within the session's timeout.
    Expired,
    /// A client asked for the lock back, and the ticket was not released before the deadline.
    Revoked,
    /// The wait timed out, the session withdrew the waiting ticket, or the client disconnected
    /// before it received the answer to the acquire.
    Withdrawn,
    /// Another client deleted the lock node.
    Deleted,
    /// The ticket never entered the queue, because its wait would have closed a cycle of waits.
    Deadlock,
    /// The cluster was restored from a backup, which ends all sessions.
    Restored,
}

/// Cause and time of the end of a ticket or a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct End {
    /// The reason why the ticket or the session ended.
    pub how: EndCause,
    /// The zxid of the log entry that ended the ticket or the session.
    pub zxid: u64,
    /// The time of the end, in milliseconds since 1970, by the leader's clock.
    pub at_ms: u64,
    /// The client that ended the ticket, if known; only with `revoked` and `deleted`, and only in a
    /// lock's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
}

/// A ticket that has ended. Times are in milliseconds since 1970, by the leader's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndedTicket {
    /// The path of the lock node; absent when no lock node was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The mode in which the ticket wanted the lock.
    pub mode: LockMode,
    /// The session of the ticket.
    pub session: u64,
    /// Owner that the acquire request named, which tells the contenders of one session apart; empty
    /// for no owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Data of the lock node, if it was short text that all readers of the history may read;
    /// otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Zxid of the log entry in which the ticket entered the queue.
    pub enqueued_zxid: u64,
    /// The time at which the ticket entered the queue.
    pub enqueued_at_ms: u64,
    /// Zxid of the log entry that granted the lock to the ticket; absent if the ticket never held
    /// the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_zxid: Option<u64>,
    /// Time at which the lock was granted to the ticket; absent if the ticket never held the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at_ms: Option<u64>,
    /// The fencing token of the ticket; absent if it never held the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// Cause and time of the ticket's end.
    pub ended: End,
    /// The label of the ticket's session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of the ticket's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}

/// Answer of `GET /v1/history/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockHistory {
    /// The path of the lock.
    pub path: String,
    /// The tickets that ended last, the newest end first.
    pub history: Vec<EndedTicket>,
}

/// A session that has ended, as described in the problem document that answers a request for the
/// session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndedSession {
    /// Id of the session.
    pub session: u64,
    /// The time at which the session was opened, in milliseconds since 1970, by the leader's clock.
    pub opened_at_ms: u64,
    /// The timeout of the session in milliseconds.
    pub timeout_ms: u32,
    /// The label with which the session was opened.
    pub label: String,
    /// The number of ephemeral znodes that were deleted with the session.
    pub ephemeral_count: u32,
    /// Client of the session. Shown only to a requester that may read a lock in whose history the
    /// session has a ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}
