//! Queue of proposals for this node's Raft. Proposals from several slices of clients' requests go
//! to Raft together ([`caught_up`]).

use accept::caught_up;
use openraft::raft::ClientWriteResult;
use storage::{Command, Responder, TypeConfig};
use tokio::sync::mpsc;
use tokio::task::unconstrained;

use crate::raft::consensus::Raft;

struct Proposal {
    command: Command,
    responder: Responder<ClientWriteResult<TypeConfig>>,
}

/// Sender of proposals to the task that passes them to Raft, in order.
pub(crate) struct ProposalQueue(mpsc::UnboundedSender<Proposal>);

impl ProposalQueue {
    /// Starts the task. It ends when the queue is dropped or Raft has stopped. The queue needs no
    /// bound of its own: the callers' budgets bound the proposals.
    pub(crate) fn start(raft: Raft) -> ProposalQueue {
        let (queue, proposals) = mpsc::unbounded_channel();
        // Unconstrained by tokio's cooperative budget, which would split a batch.
        tokio::spawn(unconstrained(pass_on(raft, proposals)));
        ProposalQueue(queue)
    }

    /// Appends a proposal. If Raft has stopped, the responder is dropped without an answer.
    pub(crate) fn push(&self, command: Command, responder: Responder<ClientWriteResult<TypeConfig>>) {
        drop(self.0.send(Proposal { command, responder }));
    }
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
