//! Heartbeats of sessions on their way to the leader. They never enter the log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use znode::Credential;

use crate::node::Node;
use crate::raft::transport::{Answer, Ask, TOUCHES_MAX, TouchAnswer};
use crate::read::reads::ask_leader;
use crate::write::retry::Retry;
use crate::{Error, Touch};

/// Heartbeats in one question to the leader.
const BATCH_MAX: usize = TOUCHES_MAX;
/// How long heartbeats that nobody waits for may gather. Far below any session timeout.
const LINGER: Duration = Duration::from_millis(50);

/// A heartbeat on its way.
pub(crate) struct Heartbeat {
    credential: Credential,
    waiter: Option<oneshot::Sender<Result<TouchAnswer, String>>>,
}

impl Node {
    /// See [`crate::Replica::touch`].
    pub(crate) async fn touch(&self, credential: Credential, deadline: Instant) -> Result<Touch, Error> {
        if let Some(end) = self.end() {
            return Err(Error::unavailable(end));
        }
        let mut tries = Retry::new(&self.config, deadline);
        loop {
            let answer = match self.heard_leader() {
                Some(leader) if leader == self.config.node_id => self.touch_here(&[credential]).map(|all| all[0]),
                Some(_) => self.touch_there(credential, deadline).await,
                None => Err("no leader is heard".into()),
            };
            let reason = match answer {
                Ok(TouchAnswer::Alive { timeout_ms }) => return Ok(Touch { session: credential.session, timeout_ms }),
                Ok(TouchAnswer::Refused(error)) => return Err(Error::Refused(error)),
                Ok(TouchAnswer::Expiring) => "the session is being expired".into(),
                Err(reason) => reason,
            };
            tries.again(self, reason).await?;
        }
    }

    /// See [`crate::Replica::touch_soon`].
    pub(crate) fn touch_soon(&self, credential: Credential) {
        if self.leader() == Some(self.config.node_id) {
            // Whether it counted matters to nobody.
            let _ = self.touch_here(&[credential]);
        } else {
            let _ = self.heartbeats.try_send(Heartbeat { credential, waiter: None });
        }
    }

    async fn touch_there(&self, credential: Credential, deadline: Instant) -> Result<TouchAnswer, String> {
        let (waiter, answer) = oneshot::channel();
        if self.heartbeats.try_send(Heartbeat { credential, waiter: Some(waiter) }).is_err() {
            return Err("too many heartbeats under way on this node".into());
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the node is shutting down".into()),
            Err(_) => Err("the leader has not answered in time".into()),
        }
    }

    pub(crate) fn touch_for_peer(&self, credentials: &[Credential]) -> Answer {
        if self.leader() != Some(self.config.node_id) {
            return Answer::NotLeader(self.leader());
        }
        self.touch_here(credentials).map_or_else(Answer::Refused, Answer::Touch)
    }
}

/// Passes heartbeats on to the leader, many at once.
pub(crate) async fn forward(node: Arc<Node>, mut queue: mpsc::Receiver<Heartbeat>) {
    let stopped = node.stopped();
    loop {
        let Some(batch) = gather(&mut queue, &stopped).await else {
            return;
        };
        tokio::select! {
            biased;
            () = stopped.wait() => return,
            () = pass_on(&node, batch) => {}
        }
    }
}

/// Heartbeats until a client waits for one, there are enough, or they have lingered. `None` at the
/// end.
async fn gather(queue: &mut mpsc::Receiver<Heartbeat>, stopped: &crate::stop::Stop) -> Option<Vec<Heartbeat>> {
    let mut batch = Vec::new();
    tokio::select! {
        biased;
        () = stopped.wait() => return None,
        count = queue.recv_many(&mut batch, BATCH_MAX) => if count == 0 { return None },
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

/// Leaves out heartbeats that nobody waits for and that say what another one says.
fn without_repetitions(mut batch: Vec<Heartbeat>) -> Vec<Heartbeat> {
    let mut heard = HashSet::new();
    batch.retain(|heartbeat| {
        // With the secret, which nobody has looked at yet: a stranger's heartbeat does not stand
        // for the session's own.
        let Credential { session, secret_hash } = heartbeat.credential;
        heartbeat.waiter.is_some() || heard.insert((session, secret_hash))
    });
    batch
}

async fn pass_on(node: &Node, batch: Vec<Heartbeat>) {
    let batch = without_repetitions(batch);
    let credentials: Vec<Credential> = batch.iter().map(|heartbeat| heartbeat.credential).collect();
    let answers = if node.leader() == Some(node.config.node_id) {
        node.touch_here(&credentials)
    } else {
        ask_leader(node, Ask::Touch(credentials), node.silence()).await.and_then(|answer| match answer {
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
