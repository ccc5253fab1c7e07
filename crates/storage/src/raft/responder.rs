//! Channel for Raft's answer to a proposal.

use std::any::Any;
use std::sync::Arc;

use openraft::raft::responder;
use openraft::{OptionalSend, RaftTypeConfig};
use tokio::sync::oneshot;

/// Sender of Raft's answer to a proposer. It keeps the resources that the proposal occupies until
/// the answer.
///
/// Raft keeps the responder until the proposal is applied or given up, even if the caller has
/// stopped waiting. A drop without an answer, when Raft stops, releases the resources as well.
pub struct Responder<T> {
    // Resources of the proposal. The first field, so that a drop releases them before it wakes the
    // receiver.
    held: Arc<dyn Any + Send + Sync>,
    answer: oneshot::Sender<T>,
}

impl<T> Responder<T> {
    /// Returns a responder and the receiver of its answer. The responder keeps `held` until it
    /// answers or is dropped. An error of the receiver means that Raft has stopped.
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
        // A failed send is ignored: the caller has stopped waiting.
        drop(self.answer.send(result));
    }
}
