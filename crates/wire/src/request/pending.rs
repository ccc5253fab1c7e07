//! Unanswered requests of one connection, in order.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use jute::{DecodeError, Request, error};
use tokio::task::unconstrained;
use tokio::time::Instant;
use znode::State;

use crate::client::end::End;
use crate::client::outbox::Room;
use crate::request::operations::needs;
use crate::request::outcome::Outcome;
use crate::request::watches::Comeback;

/// Unanswered requests of one connection. They are answered in the order in which they came.
#[derive(Default)]
pub(crate) struct PendingRequests<'a> {
    queue: FuturesOrdered<BoxFuture<'a, DueRequest>>,
    /// Requests that can be answered now, such as applied writes. The first one may still wait for
    /// room in the outbox, until the client reads its answers. Requests in `queue` go on meanwhile,
    /// so that the writes of a client that does not read do not keep other clients' writes waiting.
    due: VecDeque<DueRequest>,
    /// The long read that is being answered. Requests after it are answered later, and no write
    /// after it is proposed meanwhile.
    reading: Option<BoxFuture<'a, Option<End>>>,
    /// Work since the connection's time slice on the thread began: 1 for each request, and 1 for
    /// each [`REQUEST_BYTES`] of answers.
    spent: usize,
    bytes: usize,
    /// Number of unanswered requests that must not see later writes of the client, such as syncs.
    /// No later write is proposed until they are answered.
    barriers: usize,
}

/// Work of one time slice, after which other connections are served on the thread. So many requests
/// take about 200 us.
const TURN: usize = 200;
/// Number of bytes of an answer that take about as long as one request.
const REQUEST_BYTES: usize = 512;

impl<'a> PendingRequests<'a> {
    /// Adds the work of a request or of an answer, of `bytes` bytes, to the work of this time
    /// slice.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.spent += 1 + bytes / REQUEST_BYTES;
    }

    /// Tells whether the connection's time slice is used up, so that other connections should be
    /// served.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= TURN
    }

    /// Begins a new time slice of this connection on the thread.
    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    /// Begins a long read. The future `reading` answers it. Its result is `None`, or the end of the
    /// connection if the read causes that.
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

    /// Waits until the next request of the queue can be answered, or the long read is answered.
    /// Returns the end of the connection if the long read causes it. May be called only if
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

    /// Tells whether a request of the queue cannot be answered yet, or a long read is in progress.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty() || self.reads()
    }

    /// Returns the kind of answer for which the next request needs room in the outbox. `None` if
    /// its answer needs no room, or no request can be answered now.
    pub(crate) fn wanted(&self) -> Option<Room> {
        if self.reads() { None } else { self.due.front()?.resolution.wanted() }
    }

    /// Takes the next request if it can be answered now and the outbox has room for its answer.
    /// `has_room` tells whether there is room for a kind of answer.
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

    /// Tells whether a new write of the client must not be proposed yet, because an unanswered
    /// request could see its effect.
    pub(crate) fn holds_writes_back(&self) -> bool {
        self.barriers > 0 || self.reads()
    }
}

/// Time at which a request arrived, and the request's operation.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// The protocol's code of the operation.
    pub(crate) op: i32,
}

/// A request that can be answered once the requests before it are answered.
pub(crate) struct DueRequest {
    pub(crate) xid: i32,
    pub(crate) bytes: usize,
    pub(crate) arrival: Arrival,
    pub(crate) is_barrier: bool,
    pub(crate) resolution: Resolution,
}

/// Way to answer a due request.
pub(crate) enum Resolution {
    /// The answer is known.
    Done(Outcome),
    /// The request is answered from the state at the moment when all requests before it are
    /// answered.
    Now(Box<Request>),
    /// The request is answered from this state, which shows the client's writes up to the write
    /// with this number.
    Then(Box<Request>, Arc<State>, u64),
    /// The watches of the client's former connection are set again when all requests before this
    /// one are answered.
    Back(Comeback),
}

impl Resolution {
    /// Makes the resolution of a request that cannot be decoded.
    pub(crate) fn undecodable(reason: DecodeError) -> Resolution {
        let code = if reason == DecodeError::TooManyOps { error::BAD_ARGUMENTS } else { error::MARSHALLING };
        Resolution::Done(Outcome::Answer(None, Err(code)))
    }

    /// Makes the resolution of a setWatches or setWatches2 request with this body.
    pub(crate) fn back(op: i32, body: &[u8]) -> Resolution {
        Comeback::new(op, body).map_or_else(Resolution::undecodable, Resolution::Back)
    }

    /// Returns the kind of answer for which the outbox must have room; `None` if the answer is
    /// known.
    pub(crate) fn wanted(&self) -> Option<Room> {
        match self {
            Resolution::Done(_) => None,
            Resolution::Now(request) | Resolution::Then(request, ..) => Some(needs(request).room),
            Resolution::Back(_) => Some(Room::Read),
        }
    }
}
