//! Requests of one connection that are not answered yet, in their order.

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
    /// Requests whose turn has come, but that the first of them waits until the client has taken
    /// answers. Those behind it go on meanwhile: writes must not keep their places from others
    /// because one client does not read.
    due: VecDeque<DueRequest>,
    /// The long read whose turn it is. Nothing behind it is answered before, and no write behind it
    /// is proposed.
    reading: Option<BoxFuture<'a, Option<End>>>,
    /// Work that has been done since others had their turn: one for a request, and for some bytes
    /// of an answer.
    spent: usize,
    bytes: usize,
    /// Number of requests that are looked at only in their turn, and of syncs: no write behind them
    /// is proposed before that.
    barriers: usize,
}

/// Requests, or as much as takes as long, after which others have their turn: about a fifth of a
/// millisecond.
const TURN: usize = 200;
/// Bytes of answers that take as long as a request.
const REQUEST_BYTES: usize = 512;

impl<'a> PendingRequests<'a> {
    /// Counts a request that was taken, or an answer of this length that was made.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent += 1 + bytes / REQUEST_BYTES;
    }

    /// Tells whether others should have their turn.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= TURN
    }

    /// Begins a turn, after others have had theirs.
    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    /// A long read begins: it is answered by what this comes to.
    pub(crate) fn read(&mut self, reading: BoxFuture<'a, Option<End>>) {
        self.reading = Some(reading);
    }

    /// Tells whether there is a long read under way.
    pub(crate) fn reads(&self) -> bool {
        self.reading.is_some()
    }

    pub(crate) fn push(&mut self, bytes: usize, is_barrier: bool, due: BoxFuture<'a, DueRequest>) {
        self.bytes += bytes;
        self.barriers += usize::from(is_barrier);
        self.queue.push_back(due);
    }

    /// Waits until the next one has what it needs, or the long read is answered: its end, if that
    /// is the connection's. Only when there is one of them.
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
            // Unconstrained: a task that is made to yield halfway is overtaken by those behind it,
            // and refused for that.
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

    /// Tells whether there is one that does not have yet what it needs, or a long read.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty() || self.reads()
    }

    /// The room that the next one to answer wants, if its turn has come and it wants any.
    pub(crate) fn wanted(&self) -> Option<Room> {
        if self.reads() { None } else { self.due.front()?.resolution.wanted() }
    }

    /// The next one to answer, if its turn has come and there is room for its answer.
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

    /// Tells whether a write behind those that wait would be seen by one of them.
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
    /// The request is answered by these bytes, or this error.
    Done(Outcome),
    /// The request is answered now, in its turn.
    Now(Box<Request>),
    /// The request is answered from this state: that of its turn, behind the client's write with
    /// this number.
    Then(Box<Request>, Arc<State>, u64),
}

impl Resolution {
    /// The room that the request wants, when it is a read.
    pub(crate) fn wanted(&self) -> Option<Room> {
        match self {
            Resolution::Done(_) => None,
            Resolution::Now(request) | Resolution::Then(request, ..) => Some(needs(request).room),
        }
    }
}
