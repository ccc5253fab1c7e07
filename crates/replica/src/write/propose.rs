//! Writes: each is proposed by the leader, and answered when this node has applied it.

use std::sync::Arc;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::{ClientWriteError, ForwardReason};
use openraft::raft::ClientWriteResult;
use storage::{Command, Responder, TypeConfig};
use tokio::time::{Instant, sleep, timeout_at};
use znode::{
    Asker, BYTES_MAX, DecodeError, Op, Request, Txn, TxnOutcome, Zxid, decode_request, decode_txn, encode_request,
    encode_txn,
};

use crate::local::disk_space::DiskSpace;
use crate::local::disk_watch::STALLED;
use crate::local::entry_clock::EntryClock;
use crate::raft::consensus::Consensus;
use crate::raft::state_machine::ProposalResult;
use crate::raft::transport::{Answer, Ask, ChannelError, DropGuard, ProposeAnswer};
use crate::view::View;
use crate::view::life::Life;
use crate::write::budget::{Budget, BudgetShare};
use crate::write::closings::{Closings, closes};
use crate::write::proposal_queue::ProposalQueue;
use crate::write::retry::Retry;
use crate::{Bound, Config, Error};

/// Size in bytes up to which an entry can surely be decoded. A decoder limits the memory that an
/// entry takes, and no byte of an entry takes more than 64 bytes of memory.
const SURELY_READABLE_BYTES: usize = BYTES_MAX / 64;

/// Milliseconds after which a client may ask again for a lock that a restored cluster refuses.
const RESTORING_RETRY_MS: u64 = 2_000;

/// Outcome of one try to propose.
enum Try {
    Applied {
        at: Zxid,
        applied: TxnOutcome,
    },
    /// Nothing was proposed, and another try may succeed.
    Again(String),
    Failed(Error),
}

/// Proposes the writes of this node's clients, and the writes that peers forward.
pub(crate) struct Proposer {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) config: Arc<Config>,
    pub(crate) view: Arc<View>,
    pub(crate) life: Arc<Life>,
    pub(crate) space: Arc<DiskSpace>,
    pub(crate) entry_clock: Arc<EntryClock>,
    /// Way of proposals to this node's Raft.
    pub(crate) queue: ProposalQueue,
    /// Proposals of this node's clients that are under way. A proposal for which no client waits
    /// any more counts until Raft has dropped it.
    pub(crate) proposals: Arc<Budget>,
    /// Proposals of peers' clients, which peers forwarded, that are under way.
    pub(crate) peer_proposals: Arc<Budget>,
    /// Limit on the large sessions that are being closed at the same time.
    pub(crate) closings: Closings,
}

impl Proposer {
    /// See [`crate::Replica::propose`].
    pub(crate) async fn propose(&self, mut request: Request, deadline: Instant) -> Result<TxnOutcome, Error> {
        let bytes = request.bytes();
        let (count_max, bytes_max) = (self.config.proposals_max, self.config.proposal_bytes_max);
        let Some(place) = self.proposals.take(bytes, count_max, bytes_max) else {
            self.view.counters.refused(Bound::Proposals);
            return Err(Error::unavailable("too many writes under way on this node"));
        };
        let place = Arc::new(place);
        self.writable()?;
        self.check_grace(&request)?;
        let (began, mut tries) = (Instant::now(), Retry::new(&self.consensus, deadline));
        loop {
            let tried = match self.consensus.heard_leader() {
                Some(leader) if leader == self.consensus.node_id => {
                    self.check_grace(&request)?;
                    self.check(&request)?;
                    let held = self.held_with(&request, &place, deadline).await?;
                    let (command, again) = self.command(request);
                    request = again;
                    self.propose_here(command, held, deadline).await
                }
                Some(leader) => self.propose_there(leader, &request, &place, deadline).await,
                None => Try::Again("no leader is heard".into()),
            };
            match tried {
                Try::Applied { at, applied } => {
                    if self.is_applied_here(at, deadline).await {
                        self.view.times.commit.note(began.elapsed());
                        return Ok(applied);
                    }
                    return Err(Error::unknown("the write is done, but this node has not caught up with it in time"));
                }
                Try::Failed(error) => return Err(error),
                Try::Again(reason) => tries.again(&self.life, &self.consensus, reason).await?,
            }
        }
    }

    /// Waits until a committed entry is applied here. Returns false when the deadline comes first,
    /// or when the node stops or fails. Unlike other waits, this wait does not end while the node
    /// cannot serve, because the write is done and its answer would be lost.
    pub(crate) async fn is_applied_here(&self, at: Zxid, deadline: Instant) -> bool {
        while !self.view.applied_at_least(at, deadline).await {
            if Instant::now() >= deadline || self.life.end().is_some() {
                return false;
            }
        }
        true
    }

    /// Proposes a request that a peer forwarded. This node does not forward it further, because the
    /// peer finds the leader itself.
    pub(crate) async fn propose_for_peer(&self, request: &[u8], deadline: Instant) -> Answer {
        if let Some(end) = self.life.end() {
            return Answer::Refused(end);
        }
        if self.consensus.with_a_disk().is_err() {
            // The peer tries again, and soon with another leader.
            return Answer::Refused(STALLED.into());
        }
        let bytes = request.len();
        // The proposals of the other members together may use the limit for this node's own
        // proposals once for each member.
        let others = self.consensus.members().len().max(2) - 1;
        let (count_max, bytes_max) = (self.config.proposals_max * others, self.config.proposal_bytes_max * others);
        let refused = match self.peer_proposals.take(bytes, count_max, bytes_max) {
            None => Error::unavailable("too many writes under way at the leader"),
            Some(place) => match self.writable() {
                Err(error) => error,
                Ok(()) => match decode_request(request) {
                    Ok(request) if request.op.row().asker == Asker::Leader => {
                        Error::Refused(znode::Error::BadArguments)
                    }
                    Ok(request) => return self.propose_as_leader(request, place, deadline).await,
                    Err(error) => Error::unavailable(format!("the leader cannot read the request: {error}")),
                },
            },
        };
        Answer::Propose(refused.into())
    }

    async fn propose_as_leader(&self, mut request: Request, place: BudgetShare, deadline: Instant) -> Answer {
        let place = Arc::new(place);
        let mut tries = Retry::new(&self.consensus, deadline);
        loop {
            if self.consensus.leader() != Some(self.consensus.node_id) {
                return Answer::NotLeader(self.consensus.leader());
            }
            let held = match self.check_grace(&request).and_then(|()| self.check(&request)) {
                Ok(()) => self.held_with(&request, &place, deadline).await,
                Err(error) => Err(error),
            };
            let held = match held {
                Ok(held) => held,
                Err(error) => return Answer::Propose(error.into()),
            };
            let (command, again) = self.command(request);
            request = again;
            match self.propose_here(command, held, deadline).await {
                Try::Applied { at, applied } => return Answer::Propose(ProposeAnswer::Applied { at: at.0, applied }),
                Try::Failed(error) => return Answer::Propose(error.into()),
                Try::Again(reason) => {
                    if let Err(error) = tries.again(&self.life, &self.consensus, reason).await {
                        // `Refused` makes the peer try again, soon with another leader.
                        return self.life.end().map_or_else(|| Answer::Propose(error.into()), Answer::Refused);
                    }
                }
            }
        }
    }

    /// Proposes an operation to this node's own Raft, once and without forwarding. Returns the
    /// entry's zxid and the result.
    pub(crate) async fn propose_own(&self, op: Op, deadline: Instant) -> Result<(Zxid, TxnOutcome), Error> {
        self.writable()?;
        let (command, _) = self.command(Request::new(op));
        match self.propose_here(command, Arc::new(()), deadline).await {
            Try::Applied { at, applied } => Ok((at, applied)),
            Try::Failed(error) => Err(error),
            Try::Again(reason) => Err(Error::unavailable(reason)),
        }
    }

    /// Takes the permits that a proposal to end a large session needs. Returns what stays in use
    /// until Raft drops the proposal: its share of the budget, and these permits.
    async fn held_with(
        &self,
        request: &Request,
        place: &Arc<BudgetShare>,
        deadline: Instant,
    ) -> Result<DropGuard, Error> {
        let own = Arc::<BudgetShare>::clone(place);
        let Some(credential) = closes(request) else { return Ok(own) };
        // Only a close with the session's own secret takes permits. Any other close ends no
        // session, and another client may send any number of them.
        let cost = || {
            let state = self.view.state();
            state.authenticate(credential).map_or(0, |session| state.cost_of_ending(session.id))
        };
        let room = self.closings.room(cost(), deadline).await?;
        // An earlier copy of the request may have ended the session meanwhile.
        Ok(match room.filter(|_| cost() > 0) {
            None => own,
            Some(room) => Arc::new((own, room)),
        })
    }

    /// Proposes an entry to this node's own Raft. Raft drops `held` only with the proposal.
    async fn propose_here(&self, command: Command, held: DropGuard, deadline: Instant) -> Try {
        if Instant::now() >= deadline {
            return Try::Failed(Error::unavailable("the deadline has passed"));
        }
        if !self.consensus.cluster.is_founded_at(self.view.applied()) {
            return Try::Again("the cluster is being founded".into());
        }
        // An entry that no replica could decode would end all replicas, and again at each start.
        if !is_readable(&command.0, decode_txn) {
            return Try::Failed(Error::Refused(znode::Error::DataTooLarge));
        }
        let (responder, answer) = Responder::new(held);
        let write = async {
            self.consensus.unheld().await;
            self.queue.push(command, responder);
            answer.await.map_err(|_| "raft has stopped".into())
        };
        match timeout_at(deadline, write).await {
            Err(_) => Try::Failed(Error::unknown("not committed before the deadline")),
            // The entry may be in this node's log.
            Ok(Err(stopped)) => Try::Failed(Error::Unknown { reason: stopped }),
            Ok(Ok(result)) => tried(result),
        }
    }

    /// Forwards a proposal to the leader. The proposal counts as under way until its message is
    /// sent.
    async fn propose_there(&self, leader: u64, request: &Request, place: &Arc<BudgetShare>, deadline: Instant) -> Try {
        let Some(peer) = self.consensus.peers.get(leader) else {
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
            answer = peer.forward.ask_holding(ask, Arc::<BudgetShare>::clone(place), deadline) => answer,
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

    /// Waits until, as far as this node knows, another node than `leader` has led for
    /// `peer_timeout`. In that time, a former leader that handed over in good order has answered
    /// the proposals that it took.
    async fn deposed(&self, leader: u64) {
        let mut changes = self.consensus.role_changes();
        while self.consensus.leader().is_none_or(|other| other == leader) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        sleep(self.consensus.peer_timeout).await;
    }

    /// Refuses a request that might grant a lock while a restored cluster grants none. A certain
    /// znode marks that time: it is in the restored state of every node, and the leader proposes
    /// its deletion when the time is over.
    fn check_grace(&self, request: &Request) -> Result<(), Error> {
        if request.op.may_grant() && self.view.state().is_restoring() {
            return Err(Error::Restoring { retry_after_ms: RESTORING_RETRY_MS });
        }
        Ok(())
    }

    /// Refuses a request that does too much for one entry. A request with an idempotency key or a
    /// [`znode::WriteTurn`] passes: the state must record its refusal. Also refuses an operation of
    /// a format level above the cluster's, because a member whose program does not know it would
    /// fail at the entry.
    fn check(&self, request: &Request) -> Result<(), Error> {
        match &request.op {
            op if op.row().level > self.view.state().level() => Err(Error::Refused(znode::Error::LevelTooLow)),
            Op::Multi(_) | Op::Revoke { .. } => self.view.state().check_cost(request).map_err(Error::Refused),
            _ => Ok(()),
        }
    }

    /// Makes the entry of a request, with this node's time. Also returns the request, for another
    /// try.
    ///
    /// A session's correct secret is left out of the entry, which says instead that it was checked.
    /// A wrong secret, or one of a session that this node does not know yet, stays in the entry,
    /// and is checked when the entry is applied.
    pub(crate) fn command(&self, request: Request) -> (Command, Request) {
        let proven = request.credential.is_some_and(|credential| self.view.state().authenticate(&credential).is_ok());
        let txn = Txn { time_ms: self.entry_clock.now_ms(self.view.time_ms()), proven, request };
        (Command(encode_txn(&txn).into()), txn.request)
    }

    /// Fails if clients may not write: the node stops or has failed, or its disk is low on space or
    /// does not answer.
    fn writable(&self) -> Result<(), Error> {
        if let Some(end) = self.life.end() {
            return Err(Error::unavailable(end));
        }
        self.space.check()?;
        self.consensus.agreement.check()?;
        self.consensus.with_a_disk()
    }
}

/// Converts Raft's result of a proposal.
fn tried(result: ClientWriteResult<TypeConfig>) -> Try {
    match result {
        Ok(response) => {
            let proposed = response.data.0.downcast_ref::<ProposalResult>();
            let ProposalResult { at, applied } = proposed.expect("the state machine answers nothing else");
            Try::Applied { at: *at, applied: applied.clone() }
        }
        Err(ClientWriteError::ForwardToLeader(forward)) => Try::Again(match forward.reason {
            ForwardReason::LeaseExpired => "the leader has no quorum".into(),
            ForwardReason::LeadershipTransfer => "leadership is changing hands".into(),
            ForwardReason::NotLeader => "this node does not lead".into(),
        }),
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            Try::Failed(Error::unknown("the leader changed before the write was committed"))
        }
        Err(error) => Try::Failed(Error::unknown(error.to_string())),
    }
}

/// Tells whether bytes that were just encoded can be decoded again. A decoder refuses bytes whose
/// decoded form would take too much memory.
fn is_readable<T>(bytes: &[u8], decode: fn(&[u8]) -> Result<T, DecodeError>) -> bool {
    bytes.len() <= SURELY_READABLE_BYTES || (bytes.len() <= BYTES_MAX && decode(bytes).is_ok())
}

impl From<Error> for ProposeAnswer {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { reason, retry_after_ms } => ProposeAnswer::Unavailable { reason, retry_after_ms },
            Error::Restoring { retry_after_ms } => {
                ProposeAnswer::Unavailable { reason: error.to_string(), retry_after_ms }
            }
            Error::Unknown { reason } => ProposeAnswer::Unknown(reason),
            Error::Refused(error) => ProposeAnswer::Refused(error),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
