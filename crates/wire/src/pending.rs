//! Requests of one connection that are not answered yet, in their order.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use jute::Request;
use tokio::task::unconstrained;
use tokio::time::Instant;
use znode::State;

use crate::requests::Done;

/// Requests that wait for those before them.
#[derive(Default)]
pub(crate) struct Pending<'a> {
    queue: FuturesOrdered<BoxFuture<'a, Waited>>,
    /// Those whose turn has come, but that the first of them waits until the client has taken answers. What is behind it goes
    /// on meanwhile: writes must not keep their places from others because one client does not read.
    due: VecDeque<Waited>,
    bytes: usize,
    /// Those that are looked at only in their turn, and syncs: no write behind them is proposed before that.
    barriers: usize,
}

impl<'a> Pending<'a> {
    pub(crate) fn push(&mut self, bytes: usize, is_barrier: bool, waited: BoxFuture<'a, Waited>) {
        self.bytes += bytes;
        self.barriers += usize::from(is_barrier);
        self.queue.push_back(waited);
    }

    /// Waits until the next one has what it needs. Only when there is one.
    pub(crate) async fn advance(&mut self) {
        // Unconstrained: whoever is made to yield halfway is overtaken by those behind it, and refused for that.
        if let Some(waited) = unconstrained(self.queue.next()).await {
            self.due.push_back(waited);
        }
    }

    /// Whether there is one that does not have yet what it needs.
    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the turn of one has come that waits for room.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next one to answer, if its turn has come and there is room for its answer.
    pub(crate) fn take_due(&mut self, has_room: impl FnOnce() -> bool) -> Option<Waited> {
        let is_read = matches!(self.due.front()?.what, What::Now(_) | What::Then(..));
        if is_read && !has_room() {
            return None;
        }
        let waited = self.due.pop_front()?;
        self.bytes -= waited.bytes;
        self.barriers -= usize::from(waited.is_barrier);
        Some(waited)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.due.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a write behind those that wait would be seen by one of them.
    pub(crate) fn holds_writes_back(&self) -> bool {
        self.barriers > 0
    }
}

/// What became of a request that had to wait.
pub(crate) struct Waited {
    pub(crate) xid: i32,
    pub(crate) bytes: usize,
    pub(crate) since: Instant,
    pub(crate) is_barrier: bool,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// It is answered by these bytes, or this error.
    Done(Done),
    /// It is answered now, in its turn.
    Now(Box<Request>),
    /// It is answered from this state: that of its turn.
    Then(Box<Request>, Arc<State>),
}

/// Whether a request is looked at only in its turn: it has to do with watches, and so with what is to come.
pub(crate) fn is_about_watches(request: &Request) -> bool {
    match request {
        Request::Exists(which) | Request::GetData(which) => which.watch,
        Request::GetChildren(which) | Request::GetChildren2(which) => which.watch,
        Request::AddWatch(_) | Request::CheckWatches(_) | Request::RemoveWatches(_) => true,
        Request::SetWatches(_) | Request::SetWatches2(_) => true,
        _ => false,
    }
}
