//! Locks and their queues of tickets. A ticket is a lock node: a znode that queues for a lock, then
//! holds it.

use serde::{Deserialize, Serialize};

use super::{Actor, ClientInfo};

/// Mode in which a contender wants a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// A single holder.
    #[default]
    Exclusive,
    /// A reader, which shares the lock with other readers.
    Read,
    /// A writer, which holds the lock without readers and other writers.
    Write,
    /// A candidate of an election. The single holder leads.
    Election,
    /// A contender for one or several permits of a semaphore.
    Semaphore,
}

/// State of a ticket, which is a lock node in a lock's queue: the answer to an acquire and to a
/// request for a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Ticket {
    /// The ticket holds the lock (200).
    Held {
        /// The path of the lock node.
        ticket: String,
        /// The path of the lock.
        path: String,
        /// Token to show to resources. It is larger than the token of every earlier grant of the
        /// lock.
        fencing_token: u64,
        /// Number of acquires of the owner that share this ticket. The lock is free after the same
        /// number of releases.
        holds: u32,
        /// Time in milliseconds, counted from the sending of the request, for which the session,
        /// and so the lock, cannot expire. 0 for a request without the session's key, and when the
        /// leader did not answer.
        safe_for_ms: u64,
        /// Request of another client to release the lock; absent when no client asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoke: Option<RevokeRequest>,
    },
    /// The ticket waits (202).
    Waiting {
        /// The path of the lock node.
        ticket: String,
        /// The path of the lock.
        path: String,
        /// The number of contenders before the ticket in the queue, holders included.
        position: u32,
        /// Path of the lock node whose removal may make this ticket a holder; empty if the
        /// requester may not read that path.
        predecessor: String,
        /// Request of another client to release the ticket; absent when no client asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoke: Option<RevokeRequest>,
    },
}

/// Request of another client that the ticket's owner finish its work and release the ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RevokeRequest {
    /// Zxid of the first request to release the ticket.
    pub zxid: u64,
    /// The time of the first request, in milliseconds since 1970, by the leader's clock.
    pub asked_at_ms: u64,
    /// Session in which the release was requested; absent for a request without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Deadline in milliseconds since 1970, at which the cluster removes a ticket that is not
    /// released; absent if the request has no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<u64>,
    /// The client that requested the release, if known; only in answers that show a lock's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<Actor>>,
}

/// Answer of `POST /v1/revocations/{path}`, which asks the holders of a lock to release it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Revocation {
    /// Tickets of the holders that were asked to release; empty when no ticket holds the lock.
    pub tickets: Vec<String>,
    /// The zxid of the transaction.
    pub zxid: u64,
}

/// A fault of a queue that clients of different libraries share: clients of one library ignore the
/// lock nodes of another library, so that clients of both may hold the lock at the same time. Or
/// the lock's znode has a child that is no lock node, and Curator's clients wait for the child;
/// then `unseen` is `data`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MixedClients {
    /// Library of the clients that ignore the lock nodes, recognized by the names of their own lock
    /// nodes: `curator`, `curator-rw`, `curator-latch`, `kazoo`, `kazoo-reader`, `kazoo-semaphore`,
    /// `zookeeper-recipe`; `zlock` if `unseen` is `data`.
    pub clients: String,
    /// Library whose lock nodes these clients ignore: a name as in `clients`, or `other`, `zlock`,
    /// `zlock-reader` or `zlock-semaphore`; `data` for children that are no lock nodes.
    pub unseen: String,
    /// Name of the first child that is no lock node; only if `unseen` is `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
}

/// One edge of a cycle of waits: an owner, and the ticket for whose release it waits. The ticket
/// belongs to the owner of the next edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitsFor {
    /// Session of the waiting owner.
    pub session: u64,
    /// Owner that the acquire request named, which tells the contenders of one session apart; empty
    /// for no owner.
    pub owner: String,
    /// The path of the lock for which the owner waits.
    pub path: String,
    /// Path of the ticket for whose release the owner waits.
    pub blocker: String,
}

/// Answer to the release of a ticket, or to its hand-over to a waiter: `DELETE
/// /v1/tickets/{ticket}` and `POST /v1/hand-overs/{ticket}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Release {
    /// Number of acquires of the ticket that are still unreleased; 0 when the lock node is gone.
    pub holds: u32,
    /// The zxid of the transaction.
    pub zxid: u64,
}

/// A contender in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Contender {
    /// Path of the contender's ticket, its znode in the lock's queue.
    pub ticket: String,
    /// Number of contenders before this contender in the queue.
    pub position: u32,
    /// The mode in which the contender wants the lock. For a lock node of another client library,
    /// such as Curator, the mode is derived from the node's name.
    pub mode: LockMode,
    /// The contender's session; absent for a persistent znode that a client put into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The label of the contender's session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of the contender's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Owner that the acquire request named, which tells the contenders of one session apart; empty
    /// for no owner.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Data of the lock node, if it is text; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The time at which the contender entered the queue, in milliseconds since 1970, by the
    /// leader's clock.
    pub enqueued_at_ms: u64,
    /// The fencing token of the holder; absent while the contender waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// The time at which the contender became a holder, in milliseconds since 1970; absent while it
    /// waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at_ms: Option<u64>,
    /// Request of another client to release the ticket; absent when no client asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoke: Option<RevokeRequest>,
    /// Number of unreleased acquires of the owner that share the ticket.
    pub holds: u32,
    /// The number of permits that the contender has or wants; only in a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Priority with which the contender waits, 0 when absent; only in a lock with the setting
    /// `managed`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// The end of the lock-delay of a holder whose session expired, in milliseconds since 1970.
    /// Until then no other contender gets the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lingers_until_at_ms: Option<u64>,
    /// Time in milliseconds since the last heartbeat of the session; only in a list of locks that
    /// the leader itself returns. A new leader that has received no heartbeat of the session counts
    /// from the beginning of its term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_for_ms: Option<u64>,
    /// Time in milliseconds after which the session expires without another heartbeat; only in a
    /// list of locks that the leader itself returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// Body of `PUT /v1/settings/{path}`: the settings of a lock. A setting that is left out gets its
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockSettings {
    /// Whether lock nodes enter the queue only by acquires. If true, clients cannot create lock
    /// nodes as znodes. Only with `managed`, waiters can have priorities, and a holder can hand the
    /// lock over to a chosen waiter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// Largest number of contenders that may wait in the queue; absent if only the cluster's limit
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 4294967295_u64))]
    pub waiters_max: Option<u32>,
    /// Number of permits of a semaphore; absent for other locks, and not allowed together with
    /// `managed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub permits_max: Option<u32>,
}

/// Answer of `/v1/settings/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockSettingsInfo {
    /// The path of the lock.
    pub path: String,
    /// The settings of the lock.
    pub settings: LockSettings,
    /// The zxid of the change, or of the state that was read.
    pub zxid: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Answer of `GET /v1/locks/{path}`: a page of the queue. A lock without contenders has an empty
/// queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockQueue {
    /// The path of the lock.
    pub path: String,
    /// The number of contenders, holders included.
    pub contenders: u32,
    /// Number of permits that the semaphore has; absent for other locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits_max: Option<u32>,
    /// Number of permits that are taken; absent for other locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits_held: Option<u32>,
    /// Settings of the lock; absent when all have their defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<LockSettings>,
    /// Holders, which are the first contenders in the queue: one exclusive holder, several readers,
    /// or several holders of a semaphore's permits.
    pub holders: Vec<Contender>,
    /// Former holders whose sessions have expired while their lock-delay is not over. During the
    /// delay no ticket holds the lock, and the waiters still wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lingering: Vec<Contender>,
    /// The waiters, in order.
    pub waiters: Vec<Contender>,
    /// Client libraries in the queue that ignore each other's lock nodes, so that two clients may
    /// hold the lock at once; absent when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixed_clients: Vec<MixedClients>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<usize>,
}

/// A lock in the answer of `GET /v1/locks`, which lists only locks with contenders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockSummary {
    /// The path of the lock.
    pub path: String,
    /// The number of contenders, holders included.
    pub contenders: u32,
    /// The first contender in the queue.
    pub first: Contender,
    /// First page of the queue; only with `queues=true`, and absent when the node cannot read the
    /// queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<LockQueue>,
}

/// Answer of `GET /v1/locks?prefix=`: a page of locks, sorted by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockList {
    /// The locks on this page.
    pub locks: Vec<LockSummary>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Answer of `GET /v1/simple-locks/{path}`. A simple lock is one znode and has no queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimpleLock {
    /// Path of the lock, and of the znode that exists while the lock is held.
    pub path: String,
    /// The holder; absent when the lock is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<SimpleHolder>,
}

/// The holder of a simple lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimpleHolder {
    /// The holder's session; absent for a znode that is not ephemeral.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The label of the holder's session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of the holder's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Owner, which tells the contenders of one session apart: the name in the acquire request,
    /// else the request's idempotency key, else a UUID that the node chose.
    pub owner: String,
    /// The token that the holder shows to resources.
    pub fencing_token: u64,
    /// The time at which the holder got the lock, in milliseconds since 1970, by the leader's
    /// clock.
    pub granted_at_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_its_state() {
        let held = Ticket::Held {
            ticket: "/a/_c_x-lock-0000000000".into(),
            path: "/a".into(),
            fencing_token: 7,
            holds: 1,
            safe_for_ms: 29_000,
            revoke: None,
        };
        let text = r#"{"state":"held","ticket":"/a/_c_x-lock-0000000000","path":"/a","fencing_token":7,"holds":1,"safe_for_ms":29000}"#;
        assert_eq!(serde_json::to_string(&held).unwrap(), text);
        assert_eq!(serde_json::from_str::<Ticket>(text).unwrap(), held);
    }
}
