//! Watching of a granted lock node: waits for the loss of its lock and for requests to release it.

use std::time::Duration;

use crate::api::{Actor, EndCause, EndedTicket, ProblemType, RevokeRequest, SimpleLock, Ticket};

use crate::client::call::Target;
use crate::client::claim::{Claim, Kind, SIMPLE_LOCKS};
use crate::client::watch::{WatchKind, Watcher};
use crate::{Error, EventKind, Loss};

/// Pause after a failed request, before it is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time that a request for the reason of a loss may take. The loss itself is known before
/// the request, and must be reported soon.
const WHY_MAX: Duration = Duration::from_millis(500);

/// Runs the work until it ends, or until `gone` resolves. In the second case, drops the work at its
/// next await and returns `None`.
pub(crate) async fn while_held<T>(gone: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = gone => None,
        done = work => Some(done),
    }
}

/// The lock node of a granted claim, for the tasks that wait for its end.
pub(crate) struct Holding<'a> {
    pub(crate) claim: &'a Claim,
    /// The path of the lock node.
    pub(crate) node: &'a str,
    /// Fencing token of the grant, which is the zxid at which the lock was granted.
    pub(crate) token: u64,
}

impl Holding<'_> {
    /// Waits until the lock is no longer held. Does not ask for the reason.
    pub(crate) async fn gone(&self) {
        let fate = &self.claim.fate;
        if fate.loss().is_some() {
            return;
        }
        tokio::select! {
            biased;
            _ = self.claim.session.ended() => {}
            () = fate.gone() => {}
            () = self.removed() => fate.tell_gone(),
        }
    }

    /// Waits until the lock is no longer held, and returns the reason.
    pub(crate) async fn lost(&self) -> Loss {
        let fate = &self.claim.fate;
        if let Some(loss) = fate.loss() {
            return loss;
        }
        let taken_away = async {
            tokio::select! {
                () = fate.gone() => {}
                // The loss is noted at once, before the request for its reason.
                () = self.removed() => fate.tell_gone(),
            }
            self.why().await
        };
        let loss = tokio::select! {
            biased;
            loss = self.claim.session.ended() => loss,
            loss = taken_away => loss,
        };
        fate.tell(loss)
    }

    /// Reads in the lock's history why the lock node is gone.
    async fn why(&self) -> Loss {
        if self.claim.kind == Kind::Simple {
            // A simple lock has no history. The session lives, so only another client can have
            // deleted the znode.
            return Loss::Deleted { by: None };
        }
        let Some(past) = tokio::time::timeout(WHY_MAX, self.past()).await.ok().flatten() else { return Loss::Unknown };
        let by = past.ended.by.map(Box::new);
        match past.ended.how {
            EndCause::Released => Loss::Released,
            EndCause::Closed => Loss::Closed,
            EndCause::Expired => Loss::Expired,
            EndCause::Revoked => Loss::Revoked { by: by.or_else(|| self.asker()) },
            EndCause::Deleted => Loss::Deleted { by },
            EndCause::Withdrawn | EndCause::Deadlock | EndCause::Restored => Loss::Unknown,
        }
    }

    /// Reads the ticket's entry in the lock's history.
    async fn past(&self) -> Option<EndedTicket> {
        let (lock, _) = self.node.rsplit_once('/')?;
        let past = self.claim.client.lock_history(lock).await.ok()?.history;
        past.into_iter().find(|past| past.ticket.as_deref() == Some(self.node))
    }

    /// Returns the client that asked the holder to release the lock, as an [`Actor`] with only the
    /// session set; `None` when that session is unknown.
    fn asker(&self) -> Option<Box<Actor>> {
        let session = self.claim.fate.asked_by()?;
        Some(Box::new(Actor { session: Some(session), ..Actor::default() }))
    }

    /// Waits until the lock node is deleted, by a watch on it.
    async fn removed(&self) {
        let mut watcher = self.watcher();
        loop {
            match watcher.next_batch().await {
                Ok(events) if events.iter().any(|event| event.kind == EventKind::Deleted) => return,
                Ok(_) => {}
                // Events after the watcher's position are no longer kept, so a read shows whether
                // the lock node still exists.
                Err(error) if error.code() == Some(ProblemType::EventsGone) => match self.look().await {
                    Ok(Some(zxid)) => watcher.resume_from(zxid),
                    Ok(None) => return,
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Waits until a client asks the holder to release the lock. Never returns for a lost lock,
    /// or for a simple lock (one znode without a queue).
    pub(crate) async fn revoked(&self) -> RevokeRequest {
        if self.claim.kind == Kind::Simple {
            return std::future::pending().await;
        }
        loop {
            match self.asked().await {
                Ok(Some(request)) => {
                    self.claim.fate.note_asked(request.session);
                    return request;
                }
                Ok(None) => {}
                // The loss is reported by `lost`.
                Err(error) if error.code() == Some(ProblemType::TicketGone) => {
                    self.claim.fate.tell_gone();
                    return std::future::pending().await;
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Reads whether the lock node exists. Returns the zxid of the read, or `None` when the node is
    /// gone.
    async fn look(&self) -> Result<Option<u64>, Error> {
        let client = &self.claim.client;
        if self.claim.kind == Kind::Simple {
            // A simple lock has no ticket, and by now the znode may belong to another holder.
            let (view, answer) = client.read::<SimpleLock>(Target::path(SIMPLE_LOCKS, self.node)?).await?;
            let is_own = view.holder.is_some_and(|holder| holder.fencing_token == self.token);
            return Ok(is_own.then_some(answer.zxid));
        }
        match client.read::<Ticket>(Target::path("/v1/tickets", self.node)?).await {
            Ok((_, answer)) => Ok(Some(answer.zxid)),
            Err(error) if error.code() == Some(ProblemType::TicketGone) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes one long-poll for a request to release the lock; `None` when no such request came
    /// during the poll.
    async fn asked(&self) -> Result<Option<RevokeRequest>, Error> {
        let client = &self.claim.client;
        let target = Target::path("/v1/tickets", self.node)?.with("until", "revoked");
        match client.poll(target, client.inner.transport.timeouts.poll).await? {
            Ticket::Held { revoke, .. } | Ticket::Waiting { revoke, .. } => Ok(revoke),
        }
    }

    /// Returns a watcher of the lock node's events since the grant.
    fn watcher(&self) -> Watcher {
        let mut watcher = self.claim.client.watch(self.node, WatchKind::Exists);
        watcher.resume_from(self.token);
        watcher
    }
}
