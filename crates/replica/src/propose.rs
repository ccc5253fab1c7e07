//! Writes: to the leader, and back when this node has applied them.

use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::{ClientWriteError, ForwardReason, RaftError};
use storage::Command;
use tokio::time::{Instant, sleep, timeout_at};
use znode::{
    Acl, Acquire, AcquireAll, Applied, BYTES_MAX, DecodeError, Identity, Op, ProvenOp, Request, SessionId, TurnOp, Txn,
    ZPath, ZnodeOp, Zxid, decode_request, decode_txn, encode_request, encode_txn,
};

use crate::Error;
use crate::node::Node;
use crate::planted;
use crate::state_machine::Proposed;
use crate::transport::{Answer, Ask, ChannelError, ProposeAnswer};
use crate::tries::Tries;

/// Beside the encoded operation: names, the credential and so on. Only for the budget.
const REQUEST_BYTES: usize = 256;
/// What is not longer can be read back, whatever it is: one byte of it never becomes 64 in memory, which is what a
/// reader bounds.
const SURELY_READABLE_BYTES: usize = BYTES_MAX / 64;

/// What one try came to.
enum Try {
    Applied {
        at: Zxid,
        applied: Applied,
    },
    /// Nothing was proposed, and another try may do better.
    Again(String),
    Failed(Error),
}

impl Node {
    /// See [`crate::Replica::propose`].
    pub(crate) async fn propose(&self, mut request: Request, deadline: Instant) -> Result<Applied, Error> {
        planted::spare_a_permit(&mut request.op);
        let bytes = request_bytes(&request);
        let (count_max, bytes_max) = (self.config.proposals_max, self.config.proposal_bytes_max);
        let Some(_place) = self.proposals.take(bytes, count_max, bytes_max) else {
            return Err(Error::unavailable("too many writes under way on this node"));
        };
        self.writable()?;
        let mut tries = Tries::new(&self.config, deadline);
        loop {
            let tried = match self.heard_leader() {
                Some(leader) if leader == self.config.node_id => {
                    let (command, again) = self.command(request);
                    request = again;
                    self.propose_here(command, deadline).await
                }
                Some(leader) => self.propose_there(leader, &request, deadline).await,
                None => Try::Again("no leader is heard".into()),
            };
            match tried {
                Try::Applied { at, applied } => {
                    if self.view.applied_at_least(at, deadline).await {
                        return Ok(applied);
                    }
                    return Err(Error::unknown("the write is done, but this node has not caught up with it in time"));
                }
                Try::Failed(error) => return Err(error),
                Try::Again(reason) => tries.again(self, reason).await?,
            }
        }
    }

    /// A peer's proposal. It is not passed on: the peer finds the leader itself.
    pub(crate) async fn propose_for_peer(&self, request: &[u8], deadline: Instant) -> Answer {
        if let Some(end) = self.end() {
            return Answer::Refused(end);
        }
        let bytes = request.len();
        // Every other member may have as many under way as this node itself.
        let others = self.config.members.len().max(2) - 1;
        let (count_max, bytes_max) = (self.config.proposals_max * others, self.config.proposal_bytes_max * others);
        let refused = match self.peer_proposals.take(bytes, count_max, bytes_max) {
            None => Error::unavailable("too many writes under way at the leader"),
            Some(_place) => match self.writable() {
                Err(error) => error,
                Ok(()) => match decode_request(request) {
                    Ok(request) => return self.propose_as_leader(request, deadline).await,
                    Err(error) => Error::unavailable(format!("the leader cannot read the request: {error}")),
                },
            },
        };
        Answer::Propose(refused.into())
    }

    async fn propose_as_leader(&self, mut request: Request, deadline: Instant) -> Answer {
        let mut tries = Tries::new(&self.config, deadline);
        loop {
            if self.leader() != Some(self.config.node_id) {
                return Answer::NotLeader(self.leader());
            }
            let (command, again) = self.command(request);
            request = again;
            match self.propose_here(command, deadline).await {
                Try::Applied { at, applied } => return Answer::Propose(ProposeAnswer::Applied { at: at.0, applied }),
                Try::Failed(error) => return Answer::Propose(error.into()),
                Try::Again(reason) => {
                    if let Err(error) = tries.again(self, reason).await {
                        // The peer soon finds another leader.
                        return self.end().map_or_else(|| Answer::Propose(error.into()), Answer::Refused);
                    }
                }
            }
        }
    }

    /// Proposes to this node's own Raft.
    async fn propose_here(&self, command: Command, deadline: Instant) -> Try {
        if Instant::now() >= deadline {
            return Try::Failed(Error::unavailable("the deadline has passed"));
        }
        // An entry that no replica could read back would end them all, again and again.
        if !is_readable(&command.0, decode_txn) {
            return Try::Failed(Error::Refused(znode::Error::DataTooLarge));
        }
        let write = self.raft.client_write(command);
        let Ok(written) = timeout_at(deadline, write).await else {
            return Try::Failed(Error::unknown("not committed before the deadline"));
        };
        match written {
            Ok(response) => {
                let proposed = response.data.0.downcast_ref::<Proposed>();
                let Proposed { at, applied } = proposed.expect("the state machine answers nothing else");
                Try::Applied { at: *at, applied: applied.clone() }
            }
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => Try::Again(match forward.reason {
                ForwardReason::LeaseExpired => "the leader has no quorum".into(),
                ForwardReason::LeadershipTransfer => "leadership is changing hands".into(),
                ForwardReason::NotLeader => "this node does not lead".into(),
            }),
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => {
                Try::Failed(Error::unknown("the leader changed before the write was committed"))
            }
            // Raft may have stopped with the entry in its log.
            Err(error) => Try::Failed(Error::unknown(error.to_string())),
        }
    }

    /// Hands a proposal to the leader.
    async fn propose_there(&self, leader: u64, request: &Request, deadline: Instant) -> Try {
        let Some(peer) = self.peers.get(leader) else {
            return Try::Again(format!("the leader, node {leader}, is not in this node's configuration"));
        };
        let within = deadline.saturating_duration_since(Instant::now());
        if within.is_zero() {
            return Try::Failed(Error::unavailable("the deadline has passed"));
        }
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let request = encode_request(request);
        if !is_readable(&request, decode_request) {
            return Try::Failed(Error::Refused(znode::Error::DataTooLarge));
        }
        let ask = Ask::Propose { request, within_ms };
        let answer = tokio::select! {
            biased;
            answer = peer.forward.ask(ask, deadline) => answer,
            () = self.deposed(leader) => Err(ChannelError::Lost(format!("node {leader} was deposed meanwhile"))),
        };
        match answer {
            Ok(Answer::Propose(ProposeAnswer::Applied { at, applied })) => Try::Applied { at: Zxid(at), applied },
            Ok(Answer::Propose(ProposeAnswer::Unavailable { reason, retry_after_ms })) => {
                Try::Failed(Error::Unavailable { reason, retry_after_ms })
            }
            Ok(Answer::Propose(ProposeAnswer::Refused(error))) => Try::Failed(Error::Refused(error)),
            Ok(Answer::Propose(ProposeAnswer::Unknown(reason))) => Try::Failed(Error::Unknown { reason }),
            Ok(Answer::NotLeader(_)) => Try::Again(format!("node {leader} does not lead any more")),
            Ok(Answer::Refused(reason)) | Err(ChannelError::NotSent(reason)) => Try::Again(reason),
            Ok(other) => Try::Failed(Error::unknown(format!("the leader answered something else: {other:?}"))),
            Err(ChannelError::Lost(reason)) => Try::Failed(Error::unknown(reason)),
        }
    }

    /// Waits until another leader has been there for as long as a peer may be silent. One that handed over in good order
    /// has answered by then.
    async fn deposed(&self, leader: u64) {
        let mut changes = self.role_changes();
        while self.leader().is_none_or(|other| other == leader) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        sleep(self.silence()).await;
    }

    /// The bytes of an entry, with this node's time on it. The request comes back, for another try.
    pub(crate) fn command(&self, request: Request) -> (Command, Request) {
        let txn = Txn { time_ms: self.entry_clock.now_ms(self.view.time_ms()), request };
        (Command(encode_txn(&txn).into()), txn.request)
    }

    /// Whether clients may write.
    fn writable(&self) -> Result<(), Error> {
        if let Some(end) = self.end() {
            return Err(Error::unavailable(end));
        }
        if self.disk_low.load(std::sync::atomic::Ordering::Relaxed) {
            let reason = "the disk is low on free space; this node takes no writes".into();
            return Err(Error::Unavailable { reason, retry_after_ms: 5_000 });
        }
        Ok(())
    }
}

/// Whether bytes that were just encoded can be decoded again: a reader bounds what they become in memory.
fn is_readable<T>(bytes: &[u8], decode: fn(&[u8]) -> Result<T, DecodeError>) -> bool {
    bytes.len() <= SURELY_READABLE_BYTES || (bytes.len() <= BYTES_MAX && decode(bytes).is_ok())
}

/// About as many bytes as the request takes up.
fn request_bytes(request: &Request) -> usize {
    REQUEST_BYTES + op_bytes(&request.op)
}

/// All that a client can make long.
fn op_bytes(op: &Op) -> usize {
    let path = |path: &ZPath| path.as_str().len();
    match op {
        Op::Znode(op) => znode_bytes(op),
        Op::Multi(ops) => multi_bytes(ops),
        Op::SetAcl { path: at, acl, .. } => path(at) + acl_bytes(acl),
        Op::Acquire(acquire) | Op::AcquireUrgent { acquire, .. } => acquire_bytes(acquire),
        Op::AcquireAll(all) => acquire_all_bytes(all),
        Op::AcquireAllAs { wish, owner } => acquire_all_bytes(wish) + owner.len(),
        Op::Upgrade(upgrade) => path(&upgrade.ticket) + upgrade.label.len(),
        Op::Release { ticket } | Op::Withdraw { ticket, .. } => path(ticket),
        Op::HandOver { ticket, to } => path(ticket) + path(to),
        Op::Revoke { path: at, .. } | Op::SetLock { lock: at, .. } => path(at),
        Op::OpenSession { label, .. } => label.len(),
        Op::InTurn(write) => identity_bytes(&write.identities) + turn_bytes(&write.op),
        Op::Proven(proven) => identity_bytes(&proven.identities) + proven_bytes(&proven.op),
        Op::Reap { candidates } => candidates.len() * REQUEST_BYTES,
        Op::ExpireSessions { sessions, .. } => sessions.len() * size_of::<SessionId>(),
        Op::CloseSession { .. } | Op::AttachSession { .. } | Op::SetLimits(_) | Op::SetLockLimits(_) => 0,
    }
}

fn turn_bytes(op: &TurnOp) -> usize {
    match op {
        TurnOp::Znode(op) => znode_bytes(op),
        TurnOp::Multi(ops) => multi_bytes(ops),
        TurnOp::SetAcl { path, acl, .. } => path.as_str().len() + acl_bytes(acl),
        TurnOp::CloseSession => 0,
    }
}

fn proven_bytes(op: &ProvenOp) -> usize {
    match op {
        ProvenOp::Znode(op) => znode_bytes(op),
        ProvenOp::Multi(ops) => multi_bytes(ops),
        ProvenOp::SetAcl { path, acl, .. } => path.as_str().len() + acl_bytes(acl),
        ProvenOp::Acquire { acquire, .. } => acquire_bytes(acquire),
        ProvenOp::AcquireAll(all) => acquire_all_bytes(all),
        ProvenOp::AcquireAllAs { wish, owner } => acquire_all_bytes(wish) + owner.len(),
        ProvenOp::Upgrade(upgrade) => upgrade.ticket.as_str().len() + upgrade.label.len(),
        ProvenOp::SetLock { lock: path, .. } | ProvenOp::Revoke { path, .. } => path.as_str().len(),
    }
}

fn acquire_bytes(acquire: &Acquire) -> usize {
    acquire.lock.as_str().len() + acquire.label.len() + acquire.owner.len()
}

fn acquire_all_bytes(all: &AcquireAll) -> usize {
    all.label.len() + all.parts.iter().map(|(lock, _)| REQUEST_BYTES + lock.as_str().len()).sum::<usize>()
}

fn multi_bytes(ops: &[ZnodeOp]) -> usize {
    ops.iter().map(|op| REQUEST_BYTES + znode_bytes(op)).sum()
}

fn znode_bytes(op: &ZnodeOp) -> usize {
    match op {
        ZnodeOp::Create(create) => {
            create.data.len() + create.parent.as_str().len() + create.name.len() + acl_bytes(&create.acl)
        }
        ZnodeOp::SetData { path, data, .. } => data.len() + path.as_str().len(),
        ZnodeOp::Delete { path, .. } | ZnodeOp::Check { path, .. } => path.as_str().len(),
    }
}

fn acl_bytes(acl: &[Acl]) -> usize {
    acl.iter().map(|entry| size_of::<Acl>() + entry.scheme.len() + entry.id.len()).sum()
}

fn identity_bytes(identities: &[Identity]) -> usize {
    identities.iter().map(|one| size_of::<Identity>() + one.scheme.len() + one.id.len()).sum()
}

impl From<Error> for ProposeAnswer {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { reason, retry_after_ms } => ProposeAnswer::Unavailable { reason, retry_after_ms },
            Error::Unknown { reason } => ProposeAnswer::Unknown(reason),
            Error::Refused(error) => ProposeAnswer::Refused(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use znode::InTurn;

    use super::*;

    /// What is bounded by its bytes must count them, whichever door it comes through.
    #[test]
    fn the_bytes_of_every_door_count() {
        let (path, data) = (ZPath::root(), vec![0; 1 << 20]);
        let set = || ZnodeOp::SetData { path: path.clone(), data: data.clone(), version: -1 };
        let in_turn = |op| Op::InTurn(InTurn { connection: 0, turn: 1, identities: Vec::new(), op });
        let long = ZPath::parse(&format!("/{}", "x".repeat(1 << 20))).unwrap();
        let all = [
            Op::Znode(set()),
            Op::Multi(vec![set()]),
            in_turn(TurnOp::Znode(set())),
            in_turn(TurnOp::Multi(vec![set()])),
            Op::Release { ticket: long },
        ];
        for op in all {
            assert!(request_bytes(&Request::new(op)) >= 1 << 20);
        }
    }

    fn multi(ops: usize) -> Vec<u8> {
        let check = ZnodeOp::Check { path: ZPath::root(), version: -1 };
        encode_request(&Request::new(Op::Multi(vec![check; ops])))
    }

    #[test]
    fn what_counts_as_surely_readable_is() {
        // The smallest operations grow most.
        let bytes_each = multi(2_001).len() - multi(2_000).len();
        let most = multi(SURELY_READABLE_BYTES / bytes_each - 10);
        assert!(most.len() > SURELY_READABLE_BYTES - 1_000 && most.len() <= SURELY_READABLE_BYTES);
        assert!(decode_request(&most).is_ok());
        let beyond = multi(BYTES_MAX / bytes_each / 2);
        assert!(beyond.len() <= BYTES_MAX && !is_readable(&beyond, decode_request));
    }
}
