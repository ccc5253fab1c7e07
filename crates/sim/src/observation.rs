//! What clients and nodes show from outside: all that the invariants may look at.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use replica::{EventBatch, WatchKey};
use znode::{Applied, FencingToken, Levels, RequestKey, SessionId, State, Term, Txn, ZPath, Zxid};

use crate::hub::MachineId;

/// A session by its client's own clock.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Its timeout; while it is not known, the shortest that it may be.
    pub timeout_ms: u32,
    /// The longest that its timeout may be.
    pub timeout_max_ms: u32,
    /// When the last heartbeat that was acknowledged was sent.
    pub sent_ms: u64,
    /// When the last request of the session, or an answer to one, was under way: a node may have
    /// taken it for a heartbeat.
    pub heard_ms: u64,
    /// The client knows that it is over, or has closed it.
    pub over: bool,
}

/// Something that a client saw.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A write was acknowledged.
    Acknowledged {
        /// The client.
        client: MachineId,
        /// Its idempotency key.
        key: Option<RequestKey>,
        /// What it was told.
        applied: Applied,
        /// When it first asked.
        began_ms: u64,
    },
    /// A node acknowledged the heartbeat of a client that does not have the session's secret.
    StrangerTouched {
        /// The session.
        session: SessionId,
    },
    /// A client entered a queue, and asked for a delay of the lock should its session expire.
    AskedForDelay {
        /// Its lock node.
        ticket: ZPath,
        /// The delay.
        delay_ms: u32,
    },
    /// A local read without a minimum was answered.
    Glimpsed {
        /// The node.
        node: MachineId,
        /// When it was asked.
        asked_ms: u64,
        /// The zxid of the state.
        zxid: Zxid,
    },
    /// A session was opened.
    Opened {
        /// The session; its client goes on writing to it.
        lease: Rc<RefCell<Lease>>,
    },
    /// A read was answered.
    Read {
        /// The client.
        client: MachineId,
        /// Or local, with a minimum.
        linearizable: bool,
        /// The zxid that it must not be older than.
        floor: Zxid,
        /// The zxid of the state.
        zxid: Zxid,
    },
    /// A batch of events came.
    Batch {
        /// The client.
        client: MachineId,
        /// Where it watches.
        key: WatchKey,
        /// Since when it asked.
        since: Zxid,
        /// What it got.
        batch: EventBatch,
    },
    /// A wait ended without what it waited for, though that was there.
    Missed {
        /// The client.
        client: MachineId,
        /// What it waited for.
        what: String,
        /// The state that had it.
        zxid: Zxid,
    },
    /// A client begins to wait for a lock.
    Waits {
        /// The client.
        client: MachineId,
        /// The lock node.
        ticket: ZPath,
    },
    /// A client does not wait any longer, and was not told that it holds.
    GaveUp {
        /// The lock node.
        ticket: ZPath,
    },
    /// A client was told that it holds a lock.
    Granted {
        /// The client.
        client: MachineId,
        /// The lock.
        lock: ZPath,
        /// The lock node.
        ticket: ZPath,
        /// Its token.
        token: FencingToken,
        /// Its session.
        lease: Rc<RefCell<Lease>>,
        /// Together with others.
        shared: bool,
    },
    /// A client begins to let go of a lock: from now on it does not count on it.
    LetGo {
        /// The client.
        client: MachineId,
        /// The lock node.
        ticket: ZPath,
    },
}

impl Observation {
    /// The newest entry that it tells of.
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

/// One entry that was committed.
pub struct Commit<'a> {
    /// Where.
    pub zxid: Zxid,
    /// The term in which it was written.
    pub term: Term,
    /// What it says; none for blank entries and memberships.
    pub txn: Option<&'a Txn>,
    /// The members from here on, if it says so.
    pub membership: Option<&'a storage::Membership>,
    /// What applying it came to.
    pub applied: Option<&'a Applied>,
    /// The state before.
    pub before: &'a State,
    /// The state after.
    pub after: &'a State,
    /// When a node first wrote it to its log.
    pub written_ms: u64,
    /// Now.
    pub now_ms: u64,
}

/// What a node that runs takes itself for.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its id.
    pub node: MachineId,
    /// Which start of it.
    pub boot: u64,
    /// How often it has lost something that it wrote, or its disk.
    pub losses: u64,
    /// What it has applied.
    pub applied: Zxid,
    /// The term in which it leads.
    pub leads: Option<Term>,
    /// The term in which it is sure to lead.
    pub sure: Option<Term>,
    /// Its term.
    pub term: Term,
    /// The sets of voters in its log; none unless it leads or stands for election.
    pub voters: Vec<BTreeSet<MachineId>>,
}

/// A node as it stands after a step.
pub struct NodeView {
    /// Its id.
    pub node: MachineId,
    /// Which start of it.
    pub boot: u64,
    /// Levels that its program knows.
    pub levels: Levels,
    /// What it has applied and shows.
    pub state: Arc<State>,
    /// The term in which it leads.
    pub leads: Option<Term>,
}
