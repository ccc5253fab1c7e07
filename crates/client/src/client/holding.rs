//! Watching of a granted lock node: waits for the loss of its lock and for requests to release it.

use std::time::Duration;

use crate::api::{Actor, EndCause, EndedTicket, Millis, ProblemType, RevokeRequest, SimpleLock, Ticket};

use crate::client::call::{Call, FENCE, Target};
use crate::client::claim::{Claim, ClaimAnswer as _, Kind, SIMPLE_LOCKS};
use crate::client::watch::WatchKind;
use crate::{Error, EventKind, Loss};

/// Pause after a failed request, before it is repeated.
const PAUSE: Duration = Duration::from_secs(1);
/// Shortest wait of a long-poll after nodes have refused longer ones.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Longest time that a request for the reason of a loss may take: longer than the election of a
/// leader. The loss itself is known before the request.
const WHY_MAX: Duration = Duration::from_secs(2);

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
            // A simple lock has no history. The session lives, so its owner may have released the
            // lock by another guard, or another client may have deleted the znode.
            return Loss::Unknown;
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

    /// Waits until the lock node is deleted. Works without the permission to read the lock.
    async fn removed(&self) {
        let mut wait = self.poll_time();
        loop {
            let removed = match self.claim.kind {
                Kind::Queue => self.is_ticket_gone(wait).await,
                Kind::Simple => self.is_znode_gone(wait).await,
            };
            match removed {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => wait = pause(&error, wait).await,
            }
        }
    }

    /// Waits for at most `wait` until the ticket has left the queue, and tells whether it has.
    async fn is_ticket_gone(&self, wait: Duration) -> Result<bool, Error> {
        let (asked, zxid) = match self.asked(wait).await {
            Err(error) if error.code() == Some(ProblemType::TicketGone) => return Ok(true),
            asked => asked?,
        };
        match asked {
            // Once a client has asked for the lock, a node answers the long-polls of the ticket at
            // once, so the wait is a watch. It is short, as it reports nothing to a client that may
            // not read the lock.
            Some(_) => self.is_deleted_after(zxid, wait.min(PAUSE)).await,
            None => Ok(false),
        }
    }

    /// Waits for at most `wait` until the znode of the simple lock is deleted, and tells whether it
    /// is. By now the znode at the path may belong to another holder.
    async fn is_znode_gone(&self, wait: Duration) -> Result<bool, Error> {
        let is_own = |view: &SimpleLock| view.holder.as_ref().is_some_and(|holder| holder.fencing_token == self.token);
        match self.claim.client.read(Target::path(SIMPLE_LOCKS, self.node)?).await {
            Ok((view, answer)) if is_own(&view) => self.is_deleted_after(answer.zxid, wait).await,
            Ok(_) => Ok(true),
            // A watch of a znode that the client may not read reports nothing.
            Err(error) if error.code() == Some(ProblemType::NoAuth) => {
                let is_gone = self.is_fenced().await?;
                if !is_gone {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(is_gone)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for at most `wait` for the deletion of the lock node after a zxid, by a watch on it,
    /// and tells whether it is deleted.
    async fn is_deleted_after(&self, zxid: u64, wait: Duration) -> Result<bool, Error> {
        let mut watcher = self.claim.client.watch(self.node, WatchKind::Exists);
        watcher.resume_from(zxid);
        let events = watcher.batch_within(wait).await?;
        Ok(events.iter().any(|event| event.kind == EventKind::Deleted))
    }

    /// Asks whether the fencing token of the simple lock no longer holds the lock. A session may
    /// ask this about its own locks without the permission to read them.
    async fn is_fenced(&self) -> Result<bool, Error> {
        let target = Target::route(FENCE).with("path", self.node).with("fencing_token", self.token);
        let call = Call::get(target.finish()).session(&self.claim.session.key);
        let client = &self.claim.client;
        match client.inner.transport.send(&call, client.deadline()).await {
            Ok(_) => Ok(false),
            // The token does not hold the lock, or does not hold it for this session.
            Err(error) if matches!(error.code(), Some(ProblemType::Fenced | ProblemType::NoAuth)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Waits until a client asks the holder to release the lock. Never returns for a lost lock,
    /// or for a simple lock (one znode without a queue).
    pub(crate) async fn revoked(&self) -> RevokeRequest {
        if self.claim.kind == Kind::Simple {
            return std::future::pending().await;
        }
        tokio::select! {
            biased;
            // The polls are heartbeats, which must not keep a session alive that is lost for this
            // client.
            _ = self.claim.session.ended() => std::future::pending().await,
            request = self.request() => request,
        }
    }

    /// Waits for a request to release the lock, by long-polls of the ticket.
    async fn request(&self) -> RevokeRequest {
        let mut wait = self.poll_time();
        loop {
            match self.asked(wait).await {
                Ok((Some(request), _)) => {
                    self.claim.fate.note_asked(request.session);
                    return request;
                }
                Ok((None, _)) => {}
                // The loss is reported by `lost`.
                Err(error) if error.code() == Some(ProblemType::TicketGone) => {
                    self.claim.fate.tell_gone();
                    return std::future::pending().await;
                }
                Err(error) => wait = pause(&error, wait).await,
            }
        }
    }

    /// Makes one long-poll of the ticket, which ends when a client asks for the release of the
    /// lock. Returns this request, and the zxid of the answer; `None` when no request came during
    /// the poll.
    ///
    /// A session may read its own tickets without the permission to read the lock, so the poll has
    /// the session key. The answer does not extend the session's deadline: only the heartbeats in
    /// the background and grants do.
    async fn asked(&self, wait: Duration) -> Result<(Option<RevokeRequest>, u64), Error> {
        let target = Target::path(Ticket::ROUTE, self.node)?.with("until", "revoked").with("wait", Millis::from(wait));
        let call = Call::get(target.finish()).session(&self.claim.session.key).waiting(wait);
        let client = &self.claim.client;
        let answer = client.inner.transport.send(&call, client.deadline().after(wait)).await?;
        match answer.json()? {
            Ticket::Held { revoke, .. } | Ticket::Waiting { revoke, .. } => Ok((revoke, answer.zxid)),
        }
    }

    fn poll_time(&self) -> Duration {
        self.claim.client.inner.transport.timeouts.poll
    }
}

/// Pauses after a failed long-poll, and returns the wait of the next one: shorter if the node
/// refused the request, as its setting `http.wait_max` may be shorter than the wait.
async fn pause(error: &Error, wait: Duration) -> Duration {
    tokio::time::sleep(PAUSE).await;
    match error.code() {
        Some(ProblemType::BadRequest) => (wait / 2).max(WAIT_MIN),
        _ => wait,
    }
}
