//! Results of the state machine: a reply for the client that asked, and events for watchers.

use std::sync::Arc;

use bincode::de::Decoder;
use bincode::error::DecodeError;
use bincode::{Decode, Encode};

use crate::words::weight::text;
use crate::{Acl, Error, FencingToken, Identity, READ, RecordKey, SessionId, Stat, ZPath, Zxid, permits};

/// The outcome of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TxnOutcome {
    /// The zxid of the entry that the reply comes from. For a reply that was kept under an
    /// idempotency key, this is the earlier entry in which the key was first used.
    pub zxid: Zxid,
    /// The reply, or the reason of the refusal.
    pub reply: Result<Reply, Refusal>,
    /// The changes of the state, in order; empty for a refusal and for a repeated idempotency key.
    pub events: Vec<Event>,
}

/// An answer. The order of variants is the format on disk: add new ones at the end, and read them
/// in `Reply::read`.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub enum Reply {
    /// Success with nothing to tell: delete, check, close, set limits.
    Done,
    /// A znode was created.
    Created {
        /// The path, with the ten digits of a sequential znode.
        path: ZPath,
        /// Facts about the znode.
        stat: Stat,
    },
    /// The data or the ACL was set.
    Set {
        /// Facts about the znode after the change.
        stat: Stat,
    },
    /// A session was opened.
    SessionOpened {
        /// Id of the new session.
        session: SessionId,
        /// The timeout that the session got, in milliseconds.
        timeout_ms: u32,
    },
    /// A multi was applied; one reply for each operation.
    Multi(Vec<Reply>),
    /// An acquire has a ticket, which holds the lock or waits for it.
    Acquired {
        /// Path of the lock node.
        ticket: ZPath,
        /// The ticket's fencing token and its number of holds; `None` while the ticket waits.
        held: Option<TicketHolds>,
    },
    /// One hold of a ticket (one of the acquires that share it) was given back.
    Released {
        /// Number of holds that are left on the ticket; 0 when the lock node was deleted.
        holds: u32,
    },
    /// `Withdraw` ended the last attempt of an acquire, and removed its hold from the ticket.
    Withdrawn,
    /// `Withdraw` changed nothing, because the ticket holds the lock by now and keeps it.
    StillHeld(TicketHolds),
    /// `Withdraw` kept the ticket, because another attempt of the same acquire uses the ticket.
    Superseded,
    /// Znodes were deleted because their time was over, or sessions expired.
    Removed {
        /// Number of znodes or sessions that were removed.
        count: u32,
    },
    /// Holders were asked to release their tickets, or the tickets were deleted if the deadline was
    /// 0.
    Revoking {
        /// Paths of the lock nodes.
        tickets: Vec<ZPath>,
    },
    /// An acquire or upgrade was refused, because its wait would have closed a cycle of waits.
    Deadlock {
        /// The cycle of waits, in order: from the owner that sent the request back to that owner.
        cycle: Vec<WaitsFor>,
    },
    /// Some records of the state were hashed.
    Scrubbed {
        /// The hash of the records.
        hash: u64,
        /// The last record that was hashed; `None` if it was the last one of the state.
        last: Option<RecordKey>,
    },
}

impl Reply {
    /// Reads a reply, and refuses a multi in a multi. The derived code would follow nested multis
    /// in damaged bytes until the stack overflows.
    fn read<C, D: Decoder<Context = C>>(decoder: &mut D, in_multi: bool) -> Result<Reply, DecodeError> {
        Ok(match u32::decode(decoder)? {
            0 => Reply::Done,
            1 => Reply::Created { path: Decode::decode(decoder)?, stat: Decode::decode(decoder)? },
            2 => Reply::Set { stat: Decode::decode(decoder)? },
            3 => Reply::SessionOpened { session: Decode::decode(decoder)?, timeout_ms: Decode::decode(decoder)? },
            4 if !in_multi => {
                let count = usize::decode(decoder)?;
                decoder.claim_container_read::<Reply>(count)?;
                let mut replies = Vec::with_capacity(count);
                for _ in 0..count {
                    decoder.unclaim_bytes_read(size_of::<Reply>());
                    replies.push(Reply::read(decoder, true)?);
                }
                Reply::Multi(replies)
            }
            5 => Reply::Acquired { ticket: Decode::decode(decoder)?, held: Decode::decode(decoder)? },
            6 => Reply::Released { holds: Decode::decode(decoder)? },
            7 => Reply::Withdrawn,
            8 => Reply::StillHeld(Decode::decode(decoder)?),
            9 => Reply::Superseded,
            10 => Reply::Removed { count: Decode::decode(decoder)? },
            11 => Reply::Revoking { tickets: Decode::decode(decoder)? },
            12 => Reply::Deadlock { cycle: Decode::decode(decoder)? },
            13 => Reply::Scrubbed { hash: Decode::decode(decoder)?, last: Decode::decode(decoder)? },
            _ => return Err(DecodeError::Other("not a reply")),
        })
    }
}

impl<C> Decode<C> for Reply {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Reply::read(decoder, false)
    }
}

bincode::impl_borrow_decode!(Reply);

/// A change of the state, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Event {
    /// The zxid of the transaction. Events of one zxid are delivered together or not at all.
    pub zxid: Zxid,
    /// The kind of change.
    pub kind: EventKind,
    /// The znode that changed.
    pub path: ZPath,
}

/// An event with the ACLs that decide which clients receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The event itself, as watchers receive it.
    pub event: Event,
    /// The ACL that the znode had at the event; `None` where all clients might read the znode.
    pub acl: Option<Arc<[Acl]>>,
    /// The ACL that the znode's parent had at the event; `None` where all clients might read the
    /// parent. A client that may read the parent may know the znode's name.
    pub parent_acl: Option<Arc<[Acl]>>,
}

impl From<Event> for EventRecord {
    fn from(event: Event) -> EventRecord {
        EventRecord { event, acl: None, parent_acl: None }
    }
}

impl EventRecord {
    /// Tells whether a client may receive the event if it knows the znode's path already, for
    /// example from setting a watch there. `None` as `reader` stands for a reader that may receive
    /// all events.
    pub fn is_for(&self, reader: Option<&[Identity]>) -> bool {
        may_hear(self.acl.as_deref(), reader)
    }

    /// Tells whether a client may learn the znode's path from the event, because it may read the
    /// parent. `None` as `reader` stands for a reader that may learn all paths.
    pub fn names_it_to(&self, reader: Option<&[Identity]>) -> bool {
        may_hear(self.parent_acl.as_deref(), reader)
    }
}

fn may_hear(acl: Option<&[Acl]>, reader: Option<&[Identity]>) -> bool {
    match (acl, reader) {
        (Some(acl), Some(identities)) => permits(acl, READ, identities),
        _ => true,
    }
}

/// Kinds of events: those of ZooKeeper, and the grant of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The data was set.
    DataChanged,
    /// A child of the znode was created or deleted.
    ChildrenChanged,
    /// The lock node was granted the lock that it had waited for.
    Granted,
}

/// Longest path that a refusal keeps, in bytes. Refusals are stored under their idempotency keys,
/// and a path that is refused for its length may have some MiB.
const PATH_SHOWN_MAX: usize = 8 << 10;

/// A refused transaction: the error, and the path or operation that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refusal {
    /// The reason of the refusal.
    pub error: Error,
    /// The path that the error is about. `None` if there is none, or if it is longer than
    /// `PATH_SHOWN_MAX`.
    pub path: Option<ZPath>,
    /// Index of the operation of a multi that failed, from 0; `None` outside a multi.
    pub op_index: Option<u32>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal { error, path: None, op_index: None }
    }
}

impl Refusal {
    /// A refusal about a path.
    pub fn at(error: Error, path: &ZPath) -> Self {
        let path = Some(path).filter(|path| path.as_str().len() <= PATH_SHOWN_MAX).cloned();
        Refusal { error, path, op_index: None }
    }
}

/// The token of a ticket that holds its lock, and its number of holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TicketHolds {
    /// The fencing token, which the client shows to the resource that the lock protects.
    pub token: FencingToken,
    /// Number of acquires that share the ticket and were not given back.
    pub holds: u32,
}

/// One edge of a cycle of waits (deadlock): an owner (a user of locks within a session) that waits,
/// and the ticket that blocks it. The owner of that ticket waits in the next edge.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WaitsFor {
    /// The session that waits.
    pub session: SessionId,
    /// The waiting owner within the session; empty if the acquire named no owner.
    pub owner: String,
    /// The lock that the owner waits for.
    pub lock: ZPath,
    /// The ticket that blocks the owner.
    pub blocker: ZPath,
}

impl Reply {
    /// Estimated memory of the reply's paths, texts and lists on the heap, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Reply::Created { path, .. } => text(path.as_str()),
            // Twice the path, not once: the weight decides about refusals, so it must stay as it is
            // on all nodes.
            Reply::Acquired { ticket, .. } => 2 * text(ticket.as_str()),
            Reply::Multi(replies) => replies.iter().map(|one| size_of::<Reply>() as u64 + one.weight()).sum(),
            Reply::Revoking { tickets } => tickets.iter().map(|ticket| text(ticket.as_str())).sum(),
            Reply::Deadlock { cycle } => {
                let edge = |edge: &WaitsFor| text(&edge.owner) + text(edge.lock.as_str()) + text(edge.blocker.as_str());
                cycle.iter().map(|one| size_of::<WaitsFor>() as u64 + edge(one)).sum()
            }
            Reply::StillHeld(_)
            | Reply::Done
            | Reply::Set { .. }
            | Reply::SessionOpened { .. }
            | Reply::Released { .. }
            | Reply::Withdrawn
            | Reply::Superseded
            | Reply::Removed { .. }
            // No session keeps the reply to a leader's own operation.
            | Reply::Scrubbed { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_does_not_keep_a_path_of_any_length() {
        let path = |length: usize| ZPath::parse(&format!("/{}", "x".repeat(length))).unwrap();
        let kept = |length| Refusal::at(Error::PathTooLong, &path(length)).path;
        assert_eq!((kept(2_000), kept(PATH_SHOWN_MAX)), (Some(path(2_000)), None));
    }
}
