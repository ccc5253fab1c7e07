//! History: past tickets of a lock, and sessions that have ended.

use serde::{Deserialize, Serialize};

use super::{Actor, ClientInfo, LockMode};

/// Reason for the end of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TicketEnd {
    /// The ticket held the lock, and its session released it.
    Released,
    /// The ticket's session was closed.
    Closed,
    /// The ticket's session expired.
    Expired,
    /// A client asked for the lock back, and the ticket was not released within the deadline.
    Revoked,
    /// The wait ended, the session gave the ticket up before it held, or the client was gone before
    /// the answer reached it.
    Withdrawn,
    /// Another client deleted the lock node.
    Admin,
    /// The ticket never entered the queue, as its wait would have closed a cycle.
    Deadlock,
}

/// A ticket that has ended. Times are in milliseconds since 1970, by the leader's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndedTicket {
    /// The path of the lock node; absent when none was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The mode in which the ticket wanted the lock.
    pub mode: LockMode,
    /// The session of the ticket.
    pub session: u64,
    /// The owner within the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The data of the lock node, if that was a short text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The zxid of the entry in which the ticket entered the queue.
    pub enqueued_zxid: u64,
    /// The time at which the ticket entered the queue.
    pub enqueued_ms: u64,
    /// The zxid of the entry in which the ticket became a holder; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_zxid: Option<u64>,
    /// The time at which the ticket became a holder; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_ms: Option<u64>,
    /// The fencing token of the ticket; absent if it never held the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// The zxid of the entry in which the ticket ended.
    pub ended_zxid: u64,
    /// The time at which the ticket ended.
    pub ended_ms: u64,
    /// The reason for the end.
    pub end: TicketEnd,
    /// The label of the ticket's session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of the ticket's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// The client that ended the ticket, if known; only with `revoked` and `admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
}

/// Answer of `GET /v1/locks/{path}?history=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockHistory {
    /// The path of the lock.
    pub lock: String,
    /// The tickets that ended last, the newest end first.
    pub history: Vec<EndedTicket>,
}

/// End of a session: a part of the problem with which a request for that session is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionEnded {
    /// The id of the session.
    pub id: u64,
    /// The reason for the end: `closed` by its client, `expired`, or `restored` when the cluster
    /// was.
    pub why: SessionEnd,
    /// The zxid of the entry in which the session ended.
    pub ended_zxid: u64,
    /// The time at which the session ended, in milliseconds since 1970, by the leader's clock.
    pub ended_ms: u64,
    /// The time at which the session was opened, in milliseconds since 1970, by the leader's clock.
    pub opened_ms: u64,
    /// The timeout of the session in milliseconds.
    pub timeout_ms: u32,
    /// The label with which the session was opened.
    pub label: String,
    /// The number of ephemeral znodes that were deleted with the session.
    pub ephemeral_count: u32,
    /// The client of the session, if the request may read a lock that remembers a ticket of the
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}

/// Reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionEnd {
    /// The client closed the session.
    Closed,
    /// No heartbeat of the session arrived for its timeout.
    Expired,
    /// The cluster was restored from a backup, which ends all sessions.
    Restored,
}
