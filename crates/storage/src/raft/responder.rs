//! Return of Raft's answer to the caller of a proposal.

use std::any::Any;
use std::sync::Arc;

use openraft::raft::responder;
use openraft::{OptionalSend, RaftTypeConfig};
use tokio::sync::oneshot;

/// Sender of Raft's answer to a proposer, with the resources that the proposal occupies until then.
///
/// Raft holds the responder as long as it holds the proposal: in its queue, in the log, and on the
/// way to the state machine, even if the caller no longer waits. A drop without an answer, when
/// Raft stops, releases the resources as well.
pub struct Responder<T> {
    // The first field: a drop takes the fields in order and releases this before the receiver is
    // woken.
    held: Arc<dyn Any + Send + Sync>,
    answer: oneshot::Sender<T>,
}

impl<T> Responder<T> {
    /// Returns a responder that keeps `held` until Raft lets go of the proposal, and the channel of
    /// its answer. An error of the channel means that Raft has stopped.
    pub fn new(held: Arc<dyn Any + Send + Sync>) -> (Responder<T>, oneshot::Receiver<T>) {
        let (answer, answered) = oneshot::channel();
        (Responder { held, answer }, answered)
    }
}

impl<C, T> responder::Responder<C, T> for Responder<T>
where
    C: RaftTypeConfig,
    T: OptionalSend + 'static,
{
    fn on_complete(self, result: T) {
        drop(self.held);
        // A caller that is gone needs no answer.
        drop(self.answer.send(result));
    }
}
