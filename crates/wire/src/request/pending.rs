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

/// Requests of one connection that wait for their answers. They are answered in the order in which
/// they came.
#[derive(Default)]
pub(crate) struct PendingRequests<'a> {
    queue: FuturesOrdered<BoxFuture<'a, DueRequest>>,
    /// Requests that have what they waited for. The first one may still wait for room, until the
    /// client reads its answers. Requests in `queue` go on meanwhile: a client that does not read
    /// must not keep places for writes from other clients.
    due: VecDeque<DueRequest>,
    /// The long read that is being answered. Requests after it are answered later, and no write
    /// after it is proposed meanwhile.
    reading: Option<BoxFuture<'a, Option<End>>>,
    /// Work since the connection's turn on the thread began: 1 for a request, and 1 for each
    /// [`REQUEST_BYTES`] of answers.
    spent: usize,
    bytes: usize,
    /// Number of waiting syncs and of other requests that must not see later writes of the client.
    /// No later write is proposed until they are answered.
    barriers: usize,
}

/// Work after which other connections get their turn on the thread: this number of requests takes
/// about 200 us.
const TURN: usize = 200;
/// Bytes of answers that take about as long as a request.
const REQUEST_BYTES: usize = 512;

impl<'a> PendingRequests<'a> {
    /// Counts the work of a request, or of an answer, of `bytes` bytes.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent += 1 + bytes / REQUEST_BYTES;
    }

    /// Tells whether other connections should get their turn on the thread.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= TURN
    }

    /// Begins a new turn of this connection on the thread.
    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    /// Begins a long read. The future answers it, and resolves to the connection's end if the read
    /// causes it.
    pub(crate) fn read(&mut self, reading: BoxFuture<'a, Option<End>>) {
        self.reading = Some(reading);
    }

    /// Tells whether a long read is in progress.
    pub(crate) fn reads(&self) -> bool {
        self.reading.is_some()
    }

    pub(crate) fn push(&mut self, bytes: usize, is_barrier: bool, due: BoxFuture<'a, DueRequest>) {
        self.bytes += bytes;
        self.barriers += usize::from(is_barrier);
        self.queue.push_back(due);
    }

    /// Waits until the next request has what it needs, or the long read is answered. Returns the
    /// end of the connection if the long read causes it. May be called only if
    /// [`PendingRequests::waits`] is true.
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
            // tokio's budget must not make a write yield here, because later writes could overtake
            // it, and it would be refused.
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

    /// Tells whether a request still waits for what it needs, or a long read is in progress.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty() || self.reads()
    }

    /// Returns the room that the next request to answer needs; `None` if it needs none, or there is
    /// no request to answer.
    pub(crate) fn wanted(&self) -> Option<Room> {
        if self.reads() { None } else { self.due.front()?.resolution.wanted() }
    }

    /// Takes the next request to answer, if it has what it waited for and there is room for its
    /// answer.
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

/// A request that can be answered when the requests before it are answered.
pub(crate) struct DueRequest {
    pub(crate) xid: i32,
    pub(crate) bytes: usize,
    pub(crate) since: Instant,
    pub(crate) is_barrier: bool,
    pub(crate) resolution: Resolution,
}

/// Way to answer a due request.
pub(crate) enum Resolution {
    /// The answer is known.
    Done(Outcome),
    /// The request is answered from the present state, when the requests before it are answered.
    Now(Box<Request>),
    /// The request is answered from this state, which has the client's writes up to the one with
    /// this number.
    Then(Box<Request>, Arc<State>, u64),
}

impl Resolution {
    /// Returns the room in the outbox that the request needs; `None` if its answer is known.
    pub(crate) fn wanted(&self) -> Option<Room> {
        match self {
            Resolution::Done(_) => None,
            Resolution::Now(request) | Resolution::Then(request, ..) => Some(needs(request).room),
        }
    }
}
