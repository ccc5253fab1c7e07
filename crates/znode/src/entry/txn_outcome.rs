//! Results of the state machine: a reply to the one who asked, events for those who watch.

use std::sync::Arc;

use bincode::de::{BorrowDecoder, Decoder};
use bincode::error::DecodeError;
use bincode::{BorrowDecode, Decode, Encode};

use crate::words::weight::text;
use crate::{Acl, Error, FencingToken, Identity, READ, SessionId, Stat, ZPath, Zxid, permits};

/// The outcome of one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TxnOutcome {
    /// The zxid at which it was applied. For a repeated idempotency key: the one at which it was
    /// applied first.
    pub zxid: Zxid,
    /// The answer.
    pub reply: Result<Reply, Refusal>,
    /// The changes, in order; empty for a refusal and for a repeated key.
    pub events: Vec<Event>,
}

/// An answer. The order of variants is the format on disk: append only, and read it in
/// `Reply::read`.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub enum Reply {
    /// Done, with nothing to tell: delete, check, close, set limits.
    Done,
    /// A znode was created.
    Created {
        /// The path, ten digits included.
        path: ZPath,
        /// The znode's facts.
        stat: Stat,
    },
    /// Data or ACL were set.
    Set {
        /// The facts after it.
        stat: Stat,
    },
    /// A session was opened.
    SessionOpened {
        /// The session's id.
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
        /// The hold at this zxid; `None` while it waits.
        held: Option<TicketHolds>,
    },
    /// A hold was given back.
    Released {
        /// Holds that are left on the ticket; 0 when the lock node is gone.
        holds: u32,
    },
    /// The attempt was ended: nothing of it is left in the queue.
    Withdrawn,
    /// The withdrawal came too late: the lock is held, and stays so.
    StillHeld(TicketHolds),
    /// A later attempt has the ticket, which stays.
    Superseded,
    /// Znodes were collected, or sessions expired.
    Removed {
        /// Number of the candidates that were.
        count: u32,
    },
    /// Tickets were asked for; with a deadline of 0 they are gone.
    Revoking {
        /// The lock nodes.
        tickets: Vec<ZPath>,
    },
    /// An acquire was not let in: it would have waited for itself. It has no ticket.
    Deadlock {
        /// The waits, from the one who asked back to it.
        cycle: Vec<WaitsFor>,
    },
}

impl Reply {
    /// Reads one. By hand, because the derived way would follow a multi in a multi in a multi,
    /// which never is but which damaged bytes can say, until the stack ends.
    fn read<D: Decoder>(decoder: &mut D, in_multi: bool) -> Result<Reply, DecodeError>
    where
        Stat: Decode<D::Context>,
        TicketHolds: Decode<D::Context>,
        SessionId: Decode<D::Context>,
        WaitsFor: Decode<D::Context>,
    {
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
            _ => return Err(DecodeError::Other("not a reply")),
        })
    }
}

impl<C> Decode<C> for Reply {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Reply::read(decoder, false)
    }
}

impl<'de, C> BorrowDecode<'de, C> for Reply {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Reply::read(decoder, false)
    }
}

/// A change, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Event {
    /// The transaction that made it. Events of one zxid are delivered together or not at all.
    pub zxid: Zxid,
    /// The kind of change.
    pub kind: EventKind,
    /// The znode.
    pub path: ZPath,
}

/// An event with the ACLs that tell who may hear of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The event.
    pub event: Event,
    /// The ACL that the znode had when it happened, where not all clients might read it.
    pub acl: Option<Arc<[Acl]>>,
    /// The ACL that the znode's parent had then, where not all clients might read the parent: a
    /// reader of the parent may know the znode's name.
    pub parent_acl: Option<Arc<[Acl]>>,
}

impl From<Event> for EventRecord {
    fn from(event: Event) -> EventRecord {
        EventRecord { event, acl: None, parent_acl: None }
    }
}

impl EventRecord {
    /// Tells whether one who has named the znode may hear of it; a reader that is `None` may hear
    /// of everything.
    pub fn is_for(&self, reader: Option<&[Identity]>) -> bool {
        may_hear(self.acl.as_deref(), reader)
    }

    /// Tells whether the parent's ACL lets one know the znode's name who has not named it.
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

/// ZooKeeper's event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// The data was set.
    DataChanged,
    /// A child of it was created or deleted.
    ChildrenChanged,
    /// The lock node got the lock that it had waited for.
    Granted,
}

/// A longer path is not told back. Refusals are remembered under their idempotency keys, and a path
/// that is refused for its length may have some MiB.
const PATH_SHOWN_MAX: usize = 8 << 10;

/// A refused transaction: the error, and what it was about.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refusal {
    /// The error.
    pub error: Error,
    /// The path that the error is about, when there is one, and when it is not longer than any
    /// client can want to see.
    pub path: Option<ZPath>,
    /// The operation of a multi that failed, counted from 0.
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
    /// The token to show to resources.
    pub token: FencingToken,
    /// Number of times that the owner holds it.
    pub holds: u32,
}

/// One edge of a cycle: an owner that waits, and the ticket in its way, which is the next one's in
/// the cycle.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WaitsFor {
    /// The session of the one that waits.
    pub session: SessionId,
    /// The owner within the session.
    pub owner: String,
    /// The lock that it waits for.
    pub lock: ZPath,
    /// The ticket in its way.
    pub blocker: ZPath,
}

impl Reply {
    /// Weight of what it points to.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Reply::Created { path, .. } => text(path.as_str()),
            // The predecessor has a path about as long.
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
            | Reply::Removed { .. } => 0,
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
