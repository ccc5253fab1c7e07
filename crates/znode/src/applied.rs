//! What comes out of the state machine: a reply to the one who asked, events for those who watch.

use bincode::{Decode, Encode};

use crate::lock::LockStatus;
use crate::{Refusal, SessionId, Stat, ZPath, Zxid};

/// The outcome of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Applied {
    /// Where it was applied. For a repeated idempotency key: where it was applied first.
    pub zxid: Zxid,
    /// The answer.
    pub reply: Result<Reply, Refusal>,
    /// What changed, in order; empty for a refusal and for a repeated key.
    pub events: Vec<Event>,
}

/// An answer. The order of variants is the format on disk: append only.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reply {
    /// Done, with nothing to tell: delete, check, close, set limits.
    Done,
    /// A znode was created.
    Created {
        /// Where, ten digits included.
        path: ZPath,
        /// Its facts.
        stat: Stat,
    },
    /// Data or ACL were set.
    Set {
        /// The facts after it.
        stat: Stat,
    },
    /// A session was opened.
    SessionOpened {
        /// Its id.
        session: SessionId,
        /// The agreed timeout.
        timeout_ms: u32,
    },
    /// A multi was applied; one reply for each operation.
    Multi(Vec<Reply>),
    /// An acquire has a ticket.
    Acquired {
        /// The lock node.
        ticket: ZPath,
        /// Where it stands at this zxid.
        status: LockStatus,
    },
    /// A hold was given back.
    Released {
        /// Holds that are left on the ticket; 0 when the lock node is gone.
        holds: u32,
    },
    /// The attempt was ended: nothing of it is left in the queue.
    Withdrawn,
    /// The withdrawal came too late: the lock is held, and stays so.
    StillHeld(LockStatus),
    /// A later attempt has the ticket, which stays.
    Superseded,
    /// What was collected or expired.
    Removed {
        /// How many of the candidates.
        count: u32,
    },
}

/// A change, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Event {
    /// The transaction that made it. Events of one zxid are delivered together or not at all.
    pub zxid: Zxid,
    /// What happened to `path`.
    pub kind: EventKind,
    /// Where.
    pub path: ZPath,
}

/// ZooKeeper's event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
    /// A child of it was created or deleted.
    ChildrenChanged,
}
