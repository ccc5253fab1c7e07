//! What Raft answers a proposal with.

use std::any::Any;
use std::sync::Arc;

use openraft::raft::responder;
use openraft::{OptionalSend, RaftTypeConfig};
use tokio::sync::oneshot;

/// The way of an answer back to a proposer, and what the proposal takes up until then.
///
/// Raft has it for as long as it has the proposal, whether its caller still waits or not: in its
/// queue, in the log, on the way to the state machine. That it drops it unanswered when it stops
/// counts as an answer, too.
pub struct Responder<T> {
    // Goes before the receiver hears of it, also in a drop, which takes the fields in this order.
    held: Arc<dyn Any + Send + Sync>,
    answer: oneshot::Sender<T>,
}

impl<T> Responder<T> {
    /// A responder that keeps `held` until Raft lets go of the proposal, and where its answer
    /// arrives. An error there means that Raft has stopped.
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
        // A caller that has gone wants no answer.
        drop(self.answer.send(result));
    }
}
