//! A lock node that is held, and what its holder hears of it.

use std::time::Duration;

use crate::api::{Actor, EndedTicket, ProblemType, RevokeRequest, SimpleLock, Ticket, TicketEnd};

use crate::client::call::Target;
use crate::client::claim::{Claim, Kind, SIMPLE_LOCKS};
use crate::client::watch::{WatchKind, Watcher};
use crate::{Error, EventKind, Loss};

/// After a look that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long to ask why a lock is gone. The loss itself is known then, and to be told soon matters
/// more.
const WHY_MAX: Duration = Duration::from_millis(500);

/// Does the work until it ends, or until what it needs is gone: then it is dropped where it waits.
pub(crate) async fn while_held<T>(gone: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = gone => None,
        done = work => Some(done),
    }
}

/// A lock node of a claim that was granted.
pub(crate) struct Holding<'a> {
    pub(crate) claim: &'a Claim,
    /// The lock node's path.
    pub(crate) node: &'a str,
    /// The zxid at which it was granted.
    pub(crate) token: u64,
}

impl Holding<'_> {
    /// Returns when the lock is held no more. Why is not asked.
    pub(crate) async fn gone(&self) {
        let fate = self.claim.fate();
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

    /// Returns when the lock is held no more, and says why.
    pub(crate) async fn lost(&self) -> Loss {
        let fate = self.claim.fate();
        if let Some(loss) = fate.loss() {
            return loss;
        }
        let taken_away = async {
            tokio::select! {
                () = fate.gone() => {}
                // Told at once, whatever is still to be asked.
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

    /// Why the lock node is gone, as the lock remembers it.
    async fn why(&self) -> Loss {
        if self.claim.kind() == Kind::Simple {
            // Its end is not remembered. The session lives, so there is one other way.
            return Loss::Deleted { by: None };
        }
        let Some(past) = tokio::time::timeout(WHY_MAX, self.past()).await.ok().flatten() else { return Loss::Unknown };
        let by = past.by.map(Box::new);
        match past.end {
            TicketEnd::Released => Loss::Released,
            TicketEnd::Closed => Loss::Closed,
            TicketEnd::Expired => Loss::Expired,
            TicketEnd::Revoked => Loss::Revoked { by: by.or_else(|| self.asker()) },
            TicketEnd::Admin => Loss::Deleted { by },
            TicketEnd::Withdrawn | TicketEnd::Deadlock => Loss::Unknown,
        }
    }

    /// What the lock remembers of the ticket.
    async fn past(&self) -> Option<EndedTicket> {
        let (lock, _) = self.node.rsplit_once('/')?;
        let past = self.claim.client().lock_history(lock).await.ok()?.history;
        past.into_iter().find(|past| past.ticket.as_deref() == Some(self.node))
    }

    /// The session that asked for the lock, when that was told.
    fn asker(&self) -> Option<Box<Actor>> {
        let session = self.claim.fate().asked_by()?;
        Some(Box::new(Actor { session: Some(session), ..Actor::default() }))
    }

    /// Returns when the lock node is gone.
    async fn removed(&self) {
        let mut watcher = self.watcher();
        loop {
            match watcher.next_batch().await {
                Ok(events) if events.iter().any(|event| event.kind == EventKind::Deleted) => return,
                Ok(_) => {}
                // No longer known what happened since: look whether it is still there instead.
                Err(error) if error.code() == Some(ProblemType::EventsGone) => match self.look().await {
                    Ok(Some(zxid)) => watcher.resume_from(zxid),
                    Ok(None) => return,
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Returns when a client asks for the lock. Never for a simple lock, nor for one that is lost.
    pub(crate) async fn revoked(&self) -> RevokeRequest {
        if self.claim.kind() == Kind::Simple {
            return std::future::pending().await;
        }
        loop {
            match self.asked().await {
                Ok(Some(request)) => {
                    self.claim.fate().note_asked(request.by);
                    return request;
                }
                Ok(None) => {}
                // `lost` says why.
                Err(error) if error.code() == Some(ProblemType::TicketGone) => {
                    self.claim.fate().tell_gone();
                    return std::future::pending().await;
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The zxid at which the lock node was there; `None` when it is gone.
    async fn look(&self) -> Result<Option<u64>, Error> {
        let client = self.claim.client();
        if self.claim.kind() == Kind::Simple {
            // It has no ticket, and by now the znode may be another holder's.
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

    /// One long-poll for a client that wants the lock.
    async fn asked(&self) -> Result<Option<RevokeRequest>, Error> {
        let client = self.claim.client();
        let target = Target::path("/v1/tickets", self.node)?.with("until", "revoked");
        match client.poll(target, client.inner.transport.timeouts.poll).await? {
            Ticket::Held { revoke, .. } | Ticket::Waiting { revoke, .. } => Ok(revoke),
        }
    }

    /// What happens to the lock node since it was made.
    fn watcher(&self) -> Watcher {
        let mut watcher = self.claim.client().watch(self.node, WatchKind::Exists);
        watcher.resume_from(self.token);
        watcher
    }
}
