//! Heartbeats of sessions on their way to the leader. They never enter the log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use znode::{Credential, SessionId};

use crate::Error;
use crate::leader::leadership::Leadership;
use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, TOUCHES_MAX, TouchAnswer};
use crate::view::View;
use crate::view::life::Life;
use crate::write::propose::Proposer;
use crate::write::retry::Retry;

/// A session's heartbeat that the leader has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The session.
    pub session: SessionId,
    /// Timeout of the session in milliseconds. The session cannot expire until this long after the
    /// client *sent* the heartbeat.
    pub timeout_ms: u32,
}

/// Largest number of heartbeats in one message to the leader.
const BATCH_MAX: usize = TOUCHES_MAX;
/// Time for which heartbeats are gathered for one message to the leader, as long as no caller waits
/// for one of them. Far below any session timeout.
const LINGER: Duration = Duration::from_millis(50);
/// Divisor of a session's timeout: a heartbeat without an answer fails after a third of the
/// timeout. Then the client still has time to try other nodes before its session ends.
const SHARE_OF_TIMEOUT: u32 = 3;

/// A heartbeat on its way to the leader. `waiter` is `None` if no caller waits for the answer.
pub(crate) struct Heartbeat {
    credential: Credential,
    waiter: Option<oneshot::Sender<Result<TouchAnswer, String>>>,
}

/// Heartbeats of this node's clients and of peers' clients, on their way to the leader.
pub(crate) struct SessionHeartbeats {
    consensus: Arc<Consensus>,
    view: Arc<View>,
    life: Arc<Life>,
    pub(crate) leadership: Arc<Leadership>,
    queue: mpsc::Sender<Heartbeat>,
}

impl SessionHeartbeats {
    /// Makes a `SessionHeartbeats`, and the queue from which [`forward`] takes its heartbeats.
    pub(crate) fn new(
        proposer: &Proposer,
        leadership: Arc<Leadership>,
    ) -> (SessionHeartbeats, mpsc::Receiver<Heartbeat>) {
        let (consensus, life) = (Arc::clone(&proposer.consensus), Arc::clone(&proposer.life));
        let view = Arc::clone(&proposer.view);
        let (queue, heartbeats) = mpsc::channel(proposer.config.reads_max);
        (SessionHeartbeats { consensus, view, life, leadership, queue }, heartbeats)
    }

    /// See [`crate::Replica::touch`].
    pub(crate) async fn touch(&self, credential: Credential, deadline: Instant) -> Result<Touch, Error> {
        if let Some(end) = self.life.end() {
            return Err(Error::unavailable(end));
        }
        let deadline = deadline.min(Instant::now() + self.timeout_of(credential.session) / SHARE_OF_TIMEOUT);
        let mut tries = Retry::new(&self.consensus, deadline);
        loop {
            let answer = match self.consensus.heard_leader() {
                Some(leader) if leader == self.consensus.node_id => {
                    self.leadership.touch_here(&[credential]).map(|all| all[0])
                }
                Some(_) => self.touch_there(credential, deadline).await,
                None => Err("no leader is heard".into()),
            };
            let reason = match answer {
                Ok(TouchAnswer::Alive { timeout_ms }) => return Ok(Touch { session: credential.session, timeout_ms }),
                Ok(TouchAnswer::Refused(error)) => return Err(Error::Refused(error)),
                Ok(TouchAnswer::Expiring) => "the session is being expired".into(),
                Err(reason) => reason,
            };
            tries.again(&self.life, &self.consensus, reason).await?;
        }
    }

    /// See [`crate::Replica::touch_soon`].
    pub(crate) fn touch_soon(&self, credential: Credential) {
        if self.consensus.leader() == Some(self.consensus.node_id) {
            // No caller waits for the outcome.
            let _ = self.leadership.touch_here(&[credential]);
        } else {
            let _ = self.queue.try_send(Heartbeat { credential, waiter: None });
        }
    }

    /// Timeout of a session; the shortest allowed timeout if this node does not know the session.
    fn timeout_of(&self, session: SessionId) -> Duration {
        let state = self.view.state();
        let shortest = state.limits().session_timeout_min_ms;
        Duration::from_millis(state.session(session).map_or(shortest, |session| session.timeout_ms).into())
    }

    async fn touch_there(&self, credential: Credential, deadline: Instant) -> Result<TouchAnswer, String> {
        let (waiter, answer) = oneshot::channel();
        if self.queue.try_send(Heartbeat { credential, waiter: Some(waiter) }).is_err() {
            return Err("too many heartbeats under way on this node".into());
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the node is shutting down".into()),
            Err(_) => Err("the leader has not answered in time".into()),
        }
    }

    pub(crate) fn touch_for_peer(&self, credentials: &[Credential]) -> Answer {
        if self.consensus.leader() != Some(self.consensus.node_id) {
            return Answer::NotLeader(self.consensus.leader());
        }
        self.leadership.touch_here(credentials).map_or_else(Answer::Refused, Answer::Touch)
    }

    async fn pass_on(&self, batch: Vec<Heartbeat>) {
        let batch = without_repetitions(batch);
        let credentials: Vec<Credential> = batch.iter().map(|heartbeat| heartbeat.credential).collect();
        let answers = if self.consensus.leader() == Some(self.consensus.node_id) {
            self.leadership.touch_here(&credentials)
        } else {
            let within = self.consensus.peer_timeout;
            self.consensus.ask_leader(Ask::Touch(credentials), within).await.and_then(|answer| match answer {
                Answer::Touch(answers) if answers.len() == batch.len() => Ok(answers),
                other => Err(format!("the leader answered something else: {other:?}")),
            })
        };
        for (at, heartbeat) in batch.into_iter().enumerate() {
            if let Some(waiter) = heartbeat.waiter {
                let _ = waiter.send(answers.as_ref().map(|answers| answers[at]).map_err(Clone::clone));
            }
        }
    }
}

/// Forwards queued heartbeats to the leader, many in one message.
pub(crate) async fn forward(heartbeats: Arc<SessionHeartbeats>, mut queue: mpsc::Receiver<Heartbeat>) {
    while let Some(batch) = gather(&mut queue).await {
        heartbeats.pass_on(batch).await;
    }
}

/// Gathers heartbeats for one message: until a caller waits for one of them, the message is full,
/// or [`LINGER`] is over. `None` when no caller is left.
async fn gather(queue: &mut mpsc::Receiver<Heartbeat>) -> Option<Vec<Heartbeat>> {
    let mut batch = Vec::new();
    if queue.recv_many(&mut batch, BATCH_MAX).await == 0 {
        return None;
    }
    let deadline = Instant::now() + LINGER;
    while batch.len() < BATCH_MAX && batch.iter().all(|heartbeat| heartbeat.waiter.is_none()) {
        let room = BATCH_MAX - batch.len();
        match timeout_at(deadline, queue.recv_many(&mut batch, room)).await {
            Ok(0) => return None,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Some(batch)
}

/// Drops a heartbeat that repeats another one, if no caller waits for its answer.
fn without_repetitions(mut batch: Vec<Heartbeat>) -> Vec<Heartbeat> {
    let mut heard = HashSet::new();
    batch.retain(|heartbeat| {
        // Heartbeats with different secrets do not repeat each other. No node has checked the
        // secrets yet, and a stranger's heartbeat must not replace the session's own.
        let Credential { session, secret_hash } = heartbeat.credential;
        heartbeat.waiter.is_some() || heard.insert((session, secret_hash))
    });
    batch
}

#[cfg(test)]
mod tests {
    use znode::SessionId;

    use super::*;

    #[test]
    fn a_heartbeat_stands_for_the_same_one_and_not_for_a_strangers() {
        let own = Credential { session: SessionId(1), secret_hash: [1; 16] };
        let stranger = Credential { secret_hash: [2; 16], ..own };
        let waiter = || Some(oneshot::channel().0);
        let batch = [(stranger, None), (own, None), (own, None), (own, waiter()), (stranger, None), (own, waiter())];
        let batch = batch.into_iter().map(|(credential, waiter)| Heartbeat { credential, waiter }).collect();
        let passed_on: Vec<_> =
            without_repetitions(batch).iter().map(|it| (it.credential, it.waiter.is_some())).collect();
        assert_eq!(passed_on, [(stranger, false), (own, false), (own, true), (own, true)]);
    }
}
