//! Observations of clients and nodes: all that the invariants may use.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use replica::{EventBatch, WatchKey};
use znode::{FencingToken, Levels, RequestKey, SessionId, State, Term, TxnOutcome, ZPath, Zxid};

use crate::network::MachineId;

/// Lease of a session as its client counts it, by the client's own clock.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Shortest timeout that may apply to the session. While a change of the timeout is unanswered,
    /// the client does not know whether the old or the new timeout applies.
    pub timeout_ms: u32,
    /// Longest timeout that may apply to the session. Differs from `timeout_ms` only after an
    /// unanswered change.
    pub timeout_max_ms: u32,
    /// The time at which the last acknowledged heartbeat was sent.
    pub sent_ms: u64,
    /// The last time at which a request of the session, or its answer, was under way. A node may
    /// have counted that as a heartbeat.
    pub heard_ms: u64,
    /// Whether the client knows that the session is over, or has closed it.
    pub over: bool,
}

/// An observation of a client.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A write was acknowledged.
    Acknowledged {
        /// The client.
        client: MachineId,
        /// The idempotency key.
        key: Option<RequestKey>,
        /// The acknowledgement.
        applied: TxnOutcome,
        /// The time of the first try.
        began_ms: u64,
    },
    /// A node acknowledged the heartbeat of a client that does not have the session's secret.
    StrangerTouched {
        /// Session whose deadline the heartbeat extended.
        session: SessionId,
    },
    /// A client joined a lock's queue, and asked for a lock-delay in case its session expires.
    AskedForDelay {
        /// Path of the client's ticket.
        ticket: ZPath,
        /// The lock-delay in milliseconds.
        delay_ms: u32,
    },
    /// A local read without a minimum zxid was answered.
    Glimpsed {
        /// The node.
        node: MachineId,
        /// The time of the request.
        asked_ms: u64,
        /// The zxid of the state.
        zxid: Zxid,
    },
    /// A session was opened.
    Opened {
        /// The session's lease, which its client keeps up to date.
        lease: Rc<RefCell<Lease>>,
    },
    /// A read was answered.
    Read {
        /// The client.
        client: MachineId,
        /// True for a linearizable read, false for a local read with a minimum zxid.
        linearizable: bool,
        /// The smallest zxid that the state may have.
        floor: Zxid,
        /// The zxid of the state.
        zxid: Zxid,
    },
    /// A batch of events came.
    Batch {
        /// The client.
        client: MachineId,
        /// The watched znodes.
        key: WatchKey,
        /// The zxid after which events were asked for.
        since: Zxid,
        /// The events.
        batch: EventBatch,
    },
    /// A wait ended late or without its condition, although the condition was true.
    Missed {
        /// The client.
        client: MachineId,
        /// The call of the wait.
        what: String,
        /// The zxid of the state in which the condition was true.
        zxid: Zxid,
    },
    /// A client begins to wait for a lock.
    Waits {
        /// The client.
        client: MachineId,
        /// Path of the client's ticket.
        ticket: ZPath,
    },
    /// A client gave up its wait before it was told of a grant.
    GaveUp {
        /// Path of the client's ticket.
        ticket: ZPath,
    },
    /// A client was told that it holds a lock.
    Granted {
        /// The client.
        client: MachineId,
        /// Path of the lock.
        lock: ZPath,
        /// Path of the client's ticket.
        ticket: ZPath,
        /// The fencing token.
        token: FencingToken,
        /// The lease of the client's session.
        lease: Rc<RefCell<Lease>>,
        /// Whether the client holds the lock for reading, so that other readers may hold it, too.
        shared: bool,
    },
    /// A client begins to release a lock, and no longer counts on holding it.
    LetGo {
        /// The client.
        client: MachineId,
        /// Path of the client's ticket.
        ticket: ZPath,
    },
}

impl Observation {
    /// Zxid of the newest log entry on which the observation depends; 0 if it depends on no entry.
    pub fn zxid(&self) -> Zxid {
        match self {
            Observation::Acknowledged { applied, .. } => applied.zxid,
            Observation::Read { zxid, .. } | Observation::Missed { zxid, .. } | Observation::Glimpsed { zxid, .. } => {
                *zxid
            }
            Observation::Batch { batch, .. } => batch.upto,
            Observation::Granted { token, .. } => Zxid(token.0),
            Observation::Opened { .. }
            | Observation::StrangerTouched { .. }
            | Observation::AskedForDelay { .. }
            | Observation::Waits { .. }
            | Observation::GaveUp { .. }
            | Observation::LetGo { .. } => Zxid(0),
        }
    }
}

/// Role and state of a running node by its own view.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The id of the node.
    pub node: MachineId,
    /// The number of the node's start.
    pub boot: u64,
    /// Number of times that the node lost written data, or its disk.
    pub losses: u64,
    /// Zxid of the last entry that the node has applied.
    pub applied: Zxid,
    /// The term in which the node leads; `None` if it does not.
    pub leads: Option<Term>,
    /// The term in which the node has a valid leader's lease; `None` without a lease.
    pub sure: Option<Term>,
    /// The node's current term.
    pub term: Term,
    /// The sets of voters in the node's log; empty unless it leads or stands for election.
    pub voters: Vec<BTreeSet<MachineId>>,
}

/// Visible state of a node after a step.
pub struct NodeView {
    /// The id of the node.
    pub node: MachineId,
    /// The number of the node's start.
    pub boot: u64,
    /// Format levels that the node's program knows.
    pub levels: Levels,
    /// The state that the node has applied and shows.
    pub state: Arc<State>,
    /// The term in which the node leads; `None` if it does not.
    pub leads: Option<Term>,
}
