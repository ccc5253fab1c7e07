//! Record of whether and why a held lock was lost.

use std::fmt;
use std::future::Future;

use tokio::sync::watch;

use crate::api::Actor;

/// Reason for which a lock is no longer held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The session has expired, or may have expired: its deadline passed on this machine's clock,
    /// or the cluster reported that it is gone.
    #[error("the session has expired, or may have")]
    Expired,
    /// The session was closed: by [`crate::Client::close`], or by another program that has its key.
    #[error("the session was closed")]
    Closed,
    /// A client asked for the release of the lock by a deadline ([`crate::Client::revoke`]), and
    /// the lock was taken away at the deadline.
    #[error("it was revoked{}", By(by.as_deref(), ""))]
    Revoked {
        /// Client that asked for the release; `None` unless the lock's history or
        /// [`crate::Guard::revoked`] named it.
        by: Option<Box<Actor>>,
    },
    /// Another client deleted the lock node, as `zlock break` does.
    #[error("its lock node was deleted{}", By(by.as_deref(), " by another client"))]
    Deleted {
        /// Client that deleted the lock node; `None` unless the lock's history names it.
        by: Option<Box<Actor>>,
    },
    /// The lock was released in its own session, for example by another guard of the same owner.
    #[error("it was released in its own session")]
    Released,
    /// The lock was given to another contender by [`crate::Guard::hand_over`].
    #[error("it was handed over")]
    HandedOver,
    /// The lock node is gone. The reason is unknown: the cluster has forgotten it, hides it from
    /// this client, or answered too late. The cluster never keeps the reason for a simple lock.
    #[error("it is gone, and why is not known")]
    Unknown,
}

/// End of a loss's message: ` by session 7 (web-1, pid 71)`, or the given words when the client
/// that took the lock away is unknown.
struct By<'a>(Option<&'a Actor>, &'static str);

impl fmt::Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(ToString::to_string).filter(|actor| !actor.is_empty()) {
            Some(actor) => write!(f, " by {actor}"),
            None => f.write_str(self.1),
        }
    }
}

/// Record of whether and why the lock of one claim was lost. Shared by the tasks that learn of the
/// loss and the tasks that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Fate(watch::Sender<FateFacts>);

#[derive(Clone, Debug, Default)]
struct FateFacts {
    gone: bool,
    loss: Option<Loss>,
    asked_by: Option<u64>,
}

impl Fate {
    /// Tells whether the lock is known to be lost.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.borrow().gone
    }

    /// Returns the reason for which the lock was lost; `None` until a reason is known.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.0.borrow().loss.clone()
    }

    /// Notes that the lock was lost, for a reason that is not known yet.
    pub(crate) fn tell_gone(&self) {
        self.0.send_if_modified(|facts| !std::mem::replace(&mut facts.gone, true));
    }

    /// Notes that the lock was lost, and the reason unless one was noted earlier. Returns the noted
    /// reason.
    pub(crate) fn tell(&self, loss: Loss) -> Loss {
        self.0.send_if_modified(|facts| {
            let news = facts.loss.is_none();
            facts.gone = true;
            facts.loss.get_or_insert(loss);
            news
        });
        self.loss().unwrap_or(Loss::Unknown)
    }

    /// Notes the session that asked the holder to release the lock; `None` when the request had no
    /// session.
    pub(crate) fn note_asked(&self, by: Option<u64>) {
        self.0.send_if_modified(|facts| {
            facts.asked_by = by.or(facts.asked_by);
            false
        });
    }

    /// Returns the session that asked the holder to release the lock; `None` if unknown.
    pub(crate) fn asked_by(&self) -> Option<u64> {
        self.0.borrow().asked_by
    }

    /// Waits until the lock is known to be lost.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + use<> {
        let mut facts = self.0.subscribe();
        async move {
            // An error means that the sender is dropped, and with it the guard whose owner could
            // wait.
            let _ = facts.wait_for(|facts| facts.gone).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_is_told_first_stays_and_wakes_who_waits() {
        let fate = Fate::default();
        let mut gone = Box::pin(fate.gone());
        assert!(!fate.is_gone() && gone.as_mut().now_or_never().is_none());
        fate.note_asked(Some(7));
        fate.note_asked(None);
        assert_eq!(fate.asked_by(), Some(7));
        fate.tell_gone();
        assert!(fate.is_gone() && gone.as_mut().now_or_never().is_some());
        assert_eq!(fate.loss(), None);
        let by = Some(Box::new(Actor { session: Some(7), ..Actor::default() }));
        assert_eq!(fate.tell(Loss::Revoked { by: by.clone() }), Loss::Revoked { by });
        assert_eq!(fate.tell(Loss::Expired).to_string(), "it was revoked by session 7");
    }

    #[test]
    fn a_loss_names_the_one_who_did_it() {
        let by = Some(Box::new(Actor { session: Some(7), ..Actor::default() }));
        assert_eq!(Loss::Deleted { by }.to_string(), "its lock node was deleted by session 7");
        for by in [None, Some(Box::default())] {
            assert_eq!(Loss::Deleted { by: by.clone() }.to_string(), "its lock node was deleted by another client");
            assert_eq!(Loss::Revoked { by }.to_string(), "it was revoked");
        }
    }
}
