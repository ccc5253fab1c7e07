//! Unanswered requests of one connection, in order.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use jute::Request;
use tokio::task::unconstrained;
use tokio::time::Instant;
use znode::State;

use crate::client::end::End;
use crate::client::outbox::Room;
use crate::request::operations::needs;
use crate::request::outcome::Outcome;

/// Requests that wait for those before them.
#[derive(Default)]
pub(crate) struct PendingRequests<'a> {
    queue: FuturesOrdered<BoxFuture<'a, DueRequest>>,
    /// Requests whose turn has come. The first of them waits until the client has taken answers.
    /// The ones in `queue` go on meanwhile, because writes must not keep their places from other
    /// clients when one client does not read.
    due: VecDeque<DueRequest>,
    /// The long read whose turn it is. Requests after it are answered later, and no write after it
    /// is proposed meanwhile.
    reading: Option<BoxFuture<'a, Option<End>>>,
    /// Work since the connection's turn began: 1 for a request, and 1 for each [`REQUEST_BYTES`] of
    /// answers.
    spent: usize,
    bytes: usize,
    /// Number of waiting syncs and of requests that are executed only at their turn. No write after
    /// them is proposed before that.
    barriers: usize,
}

/// Work after which other connections get their turn: as many requests take about 200 us.
const TURN: usize = 200;
/// Bytes of answers that take about as long as a request.
const REQUEST_BYTES: usize = 512;

impl<'a> PendingRequests<'a> {
    /// Counts a request that was taken, or an answer of `bytes` bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent += 1 + bytes / REQUEST_BYTES;
    }

    /// Tells whether other connections should get their turn.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= TURN
    }

    /// Begins a turn of this connection.
    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    /// Begins a long read, which the future answers.
    pub(crate) fn read(&mut self, reading: BoxFuture<'a, Option<End>>) {
        self.reading = Some(reading);
    }

    /// Tells whether a long read is under way.
    pub(crate) fn reads(&self) -> bool {
        self.reading.is_some()
    }

    pub(crate) fn push(&mut self, bytes: usize, is_barrier: bool, due: BoxFuture<'a, DueRequest>) {
        self.bytes += bytes;
        self.barriers += usize::from(is_barrier);
        self.queue.push_back(due);
    }

    /// Waits until the next request has what it needs, or the long read is answered. Returns the
    /// end of the connection if the long read brings it. May be called only if [`Pending::waits`].
    pub(crate) async fn go_on(&mut self) -> Option<End> {
        let PendingRequests { queue, due, reading, .. } = self;
        let read = async {
            match &mut *reading {
                Some(reading) => reading.await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            // Not constrained by tokio's budget: a write that had to yield here could be overtaken
            // by those after it, and be refused for that.
            Some(next) = unconstrained(queue.next()) => {
                due.push_back(next);
                None
            }
            end = read => {
                *reading = None;
                end
            }
        }
    }

    /// Tells whether a request does not have what it needs yet, or a long read is under way.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty() || self.reads()
    }

    /// The room that the next request to answer needs; `None` if its turn has not come, or it needs
    /// none.
    pub(crate) fn wanted(&self) -> Option<Room> {
        if self.reads() { None } else { self.due.front()?.resolution.wanted() }
    }

    /// Takes the next request to answer, if its turn has come and there is room for the answer.
    pub(crate) fn take_due(&mut self, has_room: impl FnOnce(Room) -> bool) -> Option<DueRequest> {
        if self.reads() || self.wanted().is_some_and(|wanted| !has_room(wanted)) {
            return None;
        }
        let due = self.due.pop_front()?;
        self.bytes -= due.bytes;
        self.barriers -= usize::from(due.is_barrier);
        Some(due)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.due.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0 && !self.reads()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells whether a waiting request could see the effect of a write that is proposed now.
    pub(crate) fn holds_writes_back(&self) -> bool {
        self.barriers > 0 || self.reads()
    }
}

/// A request that has what it waited for, or waited for nothing.
pub(crate) struct DueRequest {
    pub(crate) xid: i32,
    pub(crate) bytes: usize,
    pub(crate) since: Instant,
    pub(crate) is_barrier: bool,
    pub(crate) resolution: Resolution,
}

/// The way in which a due request is answered.
pub(crate) enum Resolution {
    /// The answer is known.
    Done(Outcome),
    /// The request is to be answered now, at its turn.
    Now(Box<Request>),
    /// The request is to be answered from this state, which has all of the client's writes up to
    /// the turn with this number.
    Then(Box<Request>, Arc<State>, u64),
}

impl Resolution {
    /// The room in the outbox that the request needs; `None` if its answer is known.
    pub(crate) fn wanted(&self) -> Option<Room> {
        match self {
            Resolution::Done(_) => None,
            Resolution::Now(request) | Resolution::Then(request, ..) => Some(needs(request).room),
        }
    }
}
