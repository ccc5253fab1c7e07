//! What is remembered: past tickets of a lock, and sessions that have ended.

use serde::{Deserialize, Serialize};

use super::{Actor, ClientInfo, LockMode};

/// Why a ticket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TicketEnd {
    /// It held, and its session gave it back.
    Released,
    /// Its session was closed.
    Closed,
    /// Its session expired.
    Expired,
    /// It was asked to give up and did not within the deadline.
    Revoked,
    /// Its wait was over, its session gave it up before it held, or its client had gone before it
    /// had the answer.
    Withdrawn,
    /// Another client deleted the lock node.
    Admin,
    /// It was never let in: waiting would have closed a cycle.
    Deadlock,
}

/// A ticket that has ended. Times are milliseconds since 1970, by the leader's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndedTicket {
    /// The lock node's path; absent when none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// How it wanted the lock.
    pub mode: LockMode,
    /// Its session.
    pub session: u64,
    /// Who, within the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The lock node's data, if that was a short text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The entry in which it entered the queue.
    pub enqueued_zxid: u64,
    /// When that was.
    pub enqueued_ms: u64,
    /// The entry in which it became a holder; absent when it waited in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_zxid: Option<u64>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_ms: Option<u64>,
    /// The token that it had as a holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// The entry in which it ended.
    pub ended_zxid: u64,
    /// When that was.
    pub ended_ms: u64,
    /// Why.
    pub end: TicketEnd,
    /// The label of its session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// With `revoked` and `admin`, as far as it is known: who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
}

/// `GET /v1/locks/{path}?history=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockHistory {
    /// The lock.
    pub lock: String,
    /// The last tickets that ended, the newest end first.
    pub history: Vec<EndedTicket>,
}

/// How a session ended: part of the problem that a look at it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionEnded {
    /// Its id.
    pub id: u64,
    /// `closed` by its client, `expired`, or `restored`: ended when the cluster was restored.
    pub why: SessionEnd,
    /// The entry in which it ended.
    pub ended_zxid: u64,
    /// When that was, in milliseconds since 1970, by the leader's clock.
    pub ended_ms: u64,
    /// When it was opened.
    pub opened_ms: u64,
    /// Its timeout.
    pub timeout_ms: u32,
    /// Free text of the one who opened it.
    pub label: String,
    /// How many ephemeral znodes went with it.
    pub ephemeral_count: u32,
    /// Its client, where the request may read a lock that remembers a ticket of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionEnd {
    /// Its client closed it.
    Closed,
    /// Nothing was heard of it for its timeout.
    Expired,
    /// The cluster was restored from a backup, which no session outlives.
    Restored,
}
