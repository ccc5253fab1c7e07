//! Locks and tickets.

use serde::{Deserialize, Serialize};

use super::{Actor, ClientInfo};

/// How a contender wants a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other readers.
    Read,
    /// Alone, among readers.
    Write,
    /// Alone, in an election.
    Latch,
    /// Some of the permits of a semaphore.
    Semaphore,
}

/// Where a ticket stands: the answer to an acquire and to a look at a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Ticket {
    /// It holds the lock (200).
    Held {
        /// The lock node's path.
        ticket: String,
        /// The lock.
        lock: String,
        /// What to show to resources. Rises with every grant of the lock.
        fencing_token: u64,
        /// How often the owner holds it; each needs its release.
        holds: u32,
        /// How long, from the moment the request was sent, the session, and so the lock, cannot be
        /// lost. 0 when the request came without the session or the leader could not be asked.
        safe_for_ms: u64,
        /// A client wants it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoke: Option<RevokeRequest>,
    },
    /// It waits (202).
    Waiting {
        /// The lock node's path.
        ticket: String,
        /// The lock.
        lock: String,
        /// Contenders before it in the queue, holders included.
        position: u32,
        /// The contender whose going may make it the holder.
        predecessor: String,
        /// A client wants it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revoke: Option<RevokeRequest>,
    },
}

/// A ticket is asked for: finish, and release it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RevokeRequest {
    /// The entry that asked first.
    pub zxid: u64,
    /// When that was, in milliseconds since 1970, by the leader's clock.
    pub asked_ms: u64,
    /// The session that asked; absent when none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u64>,
    /// From when on the ticket may be taken away; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ms: Option<u64>,
    /// Who asked, as far as it is known; only where a lock's queue is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Box<Actor>>,
}

/// `POST /v1/revoke/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// The tickets that were asked for; none when no ticket holds the lock.
    pub tickets: Vec<String>,
    /// The transaction.
    pub zxid: u64,
}

/// Clients that queue for a lock beside others whose lock nodes they do not count: they may hold it
/// at the same time. With `data`, Curator's clients wait for a child that is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BlindSpot {
    /// Whose clients, by the names of their lock nodes: `curator`, `curator-rw`, `curator-latch`,
    /// `kazoo`, `kazoo-reader`, `kazoo-semaphore`, `zookeeper-recipe`; `zlock` with `data`.
    pub clients: String,
    /// What they do not see; also `other`, `zlock`, `zlock-reader`, `zlock-semaphore` and `data`.
    pub unseen: String,
    /// Name of the first child that is `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
}

/// One edge of a cycle of waits: an owner that waits, and the ticket in its way, which is the next
/// one's in the cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WaitsFor {
    /// The session of the one that waits.
    pub session: u64,
    /// Its owner within the session.
    pub owner: String,
    /// What it waits for.
    pub lock: String,
    /// The ticket in its way.
    pub blocker: String,
}

/// `DELETE /v1/tickets/{ticket}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Released {
    /// Holds that are left on the ticket; 0 when the lock node is gone.
    pub holds: u32,
    /// The transaction.
    pub zxid: u64,
}

/// One in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Contender {
    /// The lock node's path.
    pub ticket: String,
    /// Contenders before it.
    pub position: u32,
    /// How it wants the lock; told by its name when another client made it.
    pub mode: LockMode,
    /// Its session; absent for a persistent znode that a client put into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The label of its session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Who, within the session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The lock node's data, if that is text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// When it entered the queue, in milliseconds since 1970, by the leader's clock.
    pub since_ms: u64,
    /// Its czxid: the fencing token that it has, or will have when it holds the lock.
    pub fencing_token: u64,
    /// Since when it holds the lock; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since_ms: Option<u64>,
    /// A client wants it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoke: Option<RevokeRequest>,
    /// Acquires that share the ticket.
    pub holds: u32,
    /// In a semaphore: the permits that it has, or wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// In a managed lock: the priority with which it waits; 0 when absent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Its session expired while it held the lock: until when it keeps others out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lingers_until_ms: Option<u64>,
    /// In a list of locks, if the leader answers: how long ago its session was heard, in
    /// milliseconds; of a leader that is new since when it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms_ago: Option<u64>,
    /// The same: when its session expires if it is not heard, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// `PUT /v1/locks/{path}`: what a lock is. What is left out is as in any lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockSettings {
    /// Only acquires enter the queue, not lock nodes that clients make themselves: there may be
    /// priorities and hand-overs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// How many may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 4294967295_u64))]
    pub waiters_max: Option<u32>,
    /// The permits of a semaphore; not together with `managed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 4294967295_u64))]
    pub limit: Option<u32>,
}

/// The settings of a lock were set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockSet {
    /// The lock.
    pub lock: String,
    /// Its settings.
    pub settings: LockSettings,
    /// The transaction.
    pub zxid: u64,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Permits {
    /// How many there are.
    pub limit: u32,
    /// How many of them are taken.
    pub held: u32,
}

/// `GET /v1/locks/{path}`: a page of the queue. A lock that no client wants has an empty one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockQueue {
    /// The lock.
    pub lock: String,
    /// All contenders, holders included.
    pub contenders: u32,
    /// Of a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<Permits>,
    /// What was set for the lock; absent when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<LockSettings>,
    /// Who holds it: one, or several readers. They come first in the queue.
    pub holders: Vec<Contender>,
    /// Dead holders whose lock-delay is not over: no ticket holds, and others still wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lingering: Vec<Contender>,
    /// Who waits, in order.
    pub waiters: Vec<Contender>,
    /// Clients that queue here and do not see each other; not there when all is well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blind_spots: Vec<BlindSpot>,
    /// Ask again with `from` set to this for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// A lock in a list: one that has contenders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockSummary {
    /// The lock.
    pub lock: String,
    /// All contenders, holders included.
    pub contenders: u32,
    /// The first in the queue.
    pub first: Contender,
    /// With `queues=true`: the first page of the queue. Absent also where it cannot be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<LockQueue>,
}

/// `GET /v1/locks?prefix=`: a page of locks by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LockList {
    /// The page.
    pub locks: Vec<LockSummary>,
    /// Ask again with `after` set to this for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `GET /v1/simple-locks/{path}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimpleLock {
    /// The lock, and the znode that it is.
    pub lock: String,
    /// Who holds it; absent when no ticket does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<SimpleHolder>,
}

/// The holder of a simple lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimpleHolder {
    /// Its session; absent for a znode that is not ephemeral.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The label of its session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_label: String,
    /// The client of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// Who, within the session.
    pub owner: String,
    /// What it shows to resources.
    pub fencing_token: u64,
    /// Since when, in milliseconds since 1970, by the leader's clock.
    pub since_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_its_state() {
        let held = Ticket::Held {
            ticket: "/a/_c_x-lock-0000000000".into(),
            lock: "/a".into(),
            fencing_token: 7,
            holds: 1,
            safe_for_ms: 29_000,
            revoke: None,
        };
        let text = r#"{"state":"held","ticket":"/a/_c_x-lock-0000000000","lock":"/a","fencing_token":7,"holds":1,"safe_for_ms":29000}"#;
        assert_eq!(serde_json::to_string(&held).unwrap(), text);
        assert_eq!(serde_json::from_str::<Ticket>(text).unwrap(), held);
    }
}
