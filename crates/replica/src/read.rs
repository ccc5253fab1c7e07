//! Reads of the state: a linearizable read asks the leader which entry must be applied first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use accept::Defer;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::ReadPolicy;
use openraft::error::{LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use znode::{HistoryHash, State, Zxid};

use crate::local::vote_gate::VoteGate;
use crate::raft::agreement::DIVIDED;
use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask};
use crate::view::View;
use crate::view::life::Life;
use crate::write::propose::Proposer;
use crate::write::retry::Retry;
use crate::{Config, Error};

/// Guarantee about the age of the state that a read gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// A state that includes every write that any node acknowledged before the read began.
    Linearizable,
    /// The state that this node has applied, as soon as it includes `min_zxid`.
    Local {
        /// Zxid that the client has seen, which the state must include; 0 if any state will do.
        min_zxid: Zxid,
    },
}

/// Read index: the entry that the state of a linearizable read must include.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadIndex {
    zxid: Zxid,
    /// Log index of the entry, and the hash of the leader's history after it. `None` if this node
    /// leads, or if the leader has not told the hash.
    leader_history: Option<(u64, HistoryHash)>,
}

/// Sender to a reader that waits for a read index from the leader.
pub(crate) type IndexWaiter = oneshot::Sender<Result<ReadIndex, String>>;

/// Largest number of questions for a read index that are under way to the leader at once. Readers
/// that come meanwhile share the next question.
const ROUNDS_MAX: usize = 4;
/// Largest number of readers that share one question for a read index.
const READERS_MAX: usize = 4_096;

/// Reads of the state with the guarantee that the caller asks for.
pub(crate) struct Reads {
    pub(crate) consensus: Arc<Consensus>,
    config: Arc<Config>,
    pub(crate) view: Arc<View>,
    pub(crate) life: Arc<Life>,
    pub(crate) gate: Arc<VoteGate>,
    /// Zxid of the last entry that this node knew to be committed when it started. Until this entry
    /// is applied again, the state is older than before the restart.
    pub(crate) recover_to: Zxid,
    /// Number of reads under way.
    under_way: AtomicUsize,
    indexes: mpsc::Sender<IndexWaiter>,
}

impl Reads {
    /// Makes a `Reads`, and the queue from which [`forward`] takes its waiting readers.
    pub(crate) fn new(
        proposer: &Proposer,
        gate: Arc<VoteGate>,
        recover_to: Zxid,
    ) -> (Reads, mpsc::Receiver<IndexWaiter>) {
        let consensus = Arc::clone(&proposer.consensus);
        let (view, life, config) =
            (Arc::clone(&proposer.view), Arc::clone(&proposer.life), Arc::clone(&proposer.config));
        let (indexes, queue) = mpsc::channel(config.reads_max);
        (Reads { consensus, config, view, life, gate, recover_to, under_way: AtomicUsize::new(0), indexes }, queue)
    }

    /// Tells whether this node has a vote, is in a founded cluster, and has applied again all
    /// entries that it knew to be committed before its start.
    pub(crate) fn has_recovered(&self) -> bool {
        let applied = self.view.applied();
        self.gate.joined() && self.consensus.cluster.is_founded_at(applied) && applied >= self.recover_to
    }

    /// See [`crate::Replica::read`].
    pub(crate) async fn read(&self, consistency: Consistency, deadline: Instant) -> Result<Arc<State>, Error> {
        if let Some(end) = self.life.end() {
            return Err(Error::unavailable(end));
        }
        // After a restart, local reads wait until the node has applied again the entries that it
        // knew to be committed, so that its answers do not go back. A killed node stored this
        // position up to 20 ms before the kill. A client that must see all that it saw before
        // passes `min_zxid`.
        let local = |min_zxid: Zxid| min_zxid.max(self.recover_to);
        if let Consistency::Local { min_zxid } = consistency
            && self.view.applied() >= local(min_zxid)
            && self.gate.joined()
        {
            return Ok(self.view.state());
        }
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed);
        let _reading = Defer(|| _ = self.under_way.fetch_sub(1, Ordering::Relaxed));
        if under_way >= self.config.reads_max {
            return Err(Error::unavailable("too many reads under way on this node"));
        }
        let index = match consistency {
            Consistency::Local { min_zxid } => ReadIndex { zxid: local(min_zxid), leader_history: None },
            Consistency::Linearizable => {
                self.consensus.with_a_disk()?;
                self.consensus.agreement.check()?;
                self.read_index(deadline).await?
            }
        };
        if !self.gate.joined() && matches!(consistency, Consistency::Local { .. }) {
            return Err(Error::unavailable("this node has not caught up since its data directory was new"));
        }
        if self.view.applied_at_least(index.zxid, deadline).await {
            self.compare_with_leader(&index)?;
            return Ok(self.view.state());
        }
        Err(Error::unavailable(self.life.end().unwrap_or_else(|| "this node has not caught up in time".into())))
    }

    /// Fails if this node's history differs from the leader's at the read index.
    fn compare_with_leader(&self, index: &ReadIndex) -> Result<(), Error> {
        let Some((index, leaders)) = index.leader_history else { return Ok(()) };
        // A node that has installed a later snapshot does not have the hash.
        let own = self.view.histories.lock().at(index);
        own.map_or(Ok(()), |own| self.consensus.agreement.compare_with_leader(own, leaders))
    }

    /// Read index of a linearizable read that begins now.
    async fn read_index(&self, deadline: Instant) -> Result<ReadIndex, Error> {
        let mut tries = Retry::new(&self.consensus, deadline);
        loop {
            let index = match self.consensus.heard_leader() {
                Some(leader) if leader == self.consensus.node_id => {
                    let index = self.read_index_here(deadline).await;
                    index.map(|index| ReadIndex { zxid: self.consensus.zxid(index), leader_history: None })
                }
                Some(_) => self.read_index_there(deadline).await,
                None => Err("no leader is heard".into()),
            };
            match index {
                Ok(index) => return Ok(index),
                Err(reason) => tries.again(&self.life, &self.consensus, reason).await?,
            }
        }
    }

    /// Log index of a linearizable read, if this node leads.
    async fn read_index_here(&self, deadline: Instant) -> Result<u64, String> {
        if !self.consensus.cluster.is_founded_at(self.view.applied()) {
            return Err("the cluster is being founded".into());
        }
        if self.consensus.agreement.is_divided() {
            return Err(DIVIDED.into());
        }
        let began = Instant::now();
        let at = match timeout_at(deadline, self.consensus.raft.get_read_linearizer(ReadPolicy::ReadIndex)).await {
            Err(_) => return Err("no quorum confirmed the leader in time".into()),
            Ok(Ok(linearizer)) => *linearizer.read_log_id(),
            Ok(Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) => {
                return Err("the leader has no quorum".into());
            }
            Ok(Err(error)) => return Err(error.to_string()),
        };
        // Raft may have taken old answers for answers to what it has sent since. Mostly the right
        // ones are here, too.
        let give_up = deadline.min(Instant::now() + Duration::from_millis(self.config.lease_ms()));
        match timeout_at(give_up, self.consensus.followed_again(at.committed_leader_id().term, began)).await {
            Ok(()) => Ok(at.index()),
            Err(_) => Err("the leader has no quorum".into()),
        }
    }

    async fn read_index_there(&self, deadline: Instant) -> Result<ReadIndex, String> {
        let (waiter, index) = oneshot::channel();
        if self.indexes.try_send(waiter).is_err() {
            return Err("too many reads under way on this node".into());
        }
        match timeout_at(deadline, index).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the node is shutting down".into()),
            Err(_) => Err("the leader has not answered in time".into()),
        }
    }

    pub(crate) async fn read_index_for_peer(&self) -> Answer {
        if self.consensus.leader() != Some(self.consensus.node_id) {
            return Answer::NotLeader(self.consensus.leader());
        }
        let timeout = self.consensus.peer_timeout;
        let index = match self.read_index_here(Instant::now() + timeout).await {
            Ok(index) => index,
            Err(reason) => return Answer::Refused(reason),
        };
        let zxid = self.consensus.zxid(index);
        self.view.applied_at_least(zxid, Instant::now() + timeout / 2).await;
        let history = self.view.histories.lock().at(index).map(|hash| (index, hash.0));
        Answer::ReadIndex { zxid: zxid.0, history }
    }
}

/// Asks the leader for read indexes, with one question for all readers that wait. A reader takes
/// only the answer to a question that was sent after the reader came.
pub(crate) async fn forward(consensus: Arc<Consensus>, mut queue: mpsc::Receiver<IndexWaiter>) {
    let mut rounds = FuturesUnordered::new();
    loop {
        let mut waiters = Vec::new();
        tokio::select! {
            biased;
            Some(()) = rounds.next(), if !rounds.is_empty() => continue,
            count = queue.recv_many(&mut waiters, READERS_MAX), if rounds.len() < ROUNDS_MAX => {
                if count == 0 {
                    return;
                }
            }
        }
        rounds.push(round(&consensus, waiters));
    }
}

async fn round(consensus: &Consensus, waiters: Vec<IndexWaiter>) {
    let result = consensus.ask_leader(Ask::ReadIndex, consensus.peer_timeout).await.and_then(|answer| match answer {
        Answer::ReadIndex { zxid, history } => {
            let leader_history = history.map(|(index, hash)| (index, HistoryHash(hash)));
            Ok(ReadIndex { zxid: Zxid(zxid), leader_history })
        }
        other => Err(format!("the leader answered something else: {other:?}")),
    });
    for waiter in waiters {
        let _ = waiter.send(result.clone());
    }
}
