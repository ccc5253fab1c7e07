//! Queue of proposals for this node's Raft. Proposals from several slices of clients' requests go
//! to Raft together ([`caught_up`]).

use accept::caught_up;
use openraft::raft::ClientWriteResult;
use storage::{Command, Responder, TypeConfig};
use tokio::sync::mpsc;
use tokio::task::unconstrained;

use crate::raft::consensus::Raft;

pub(crate) struct Proposal {
    command: Command,
    responder: Responder<ClientWriteResult<TypeConfig>>,
}

/// Sender of proposals to the task [`forward`], which passes them to Raft, in order.
pub(crate) struct ProposalQueue(mpsc::UnboundedSender<Proposal>);

impl ProposalQueue {
    /// Makes the queue, and the end from which [`forward`] takes the proposals. The queue needs no
    /// bound of its own: the callers' budgets bound the proposals.
    pub(crate) fn new() -> (ProposalQueue, mpsc::UnboundedReceiver<Proposal>) {
        let (queue, proposals) = mpsc::unbounded_channel();
        (ProposalQueue(queue), proposals)
    }

    /// Appends a proposal. If the node has stopped, the responder is dropped without an answer.
    pub(crate) fn push(&self, command: Command, responder: Responder<ClientWriteResult<TypeConfig>>) {
        drop(self.0.send(Proposal { command, responder }));
    }
}

/// Passes the proposals to Raft, until Raft has stopped.
pub(crate) async fn forward(raft: Raft, proposals: mpsc::UnboundedReceiver<Proposal>) {
    // Unconstrained by tokio's cooperative budget, which would split a batch.
    unconstrained(pass_on(raft, proposals)).await;
}

async fn pass_on(raft: Raft, mut proposals: mpsc::UnboundedReceiver<Proposal>) {
    while let Some(first) = proposals.recv().await {
        caught_up().await;
        let mut next = Some(first);
        while let Some(Proposal { command, responder }) = next {
            if raft.client_write_ff(command, Some(responder)).await.is_err() {
                return;
            }
            next = proposals.try_recv().ok();
        }
    }
}
