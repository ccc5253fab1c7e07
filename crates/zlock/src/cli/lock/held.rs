//! Lock or session under which a command runs, and which the command must not outlive.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use zlock_client::{Guard, Loss, OpenedSession, RevokeRequest};

/// A lock that is held, or a session that lives.
pub(crate) enum Held<'a> {
    Lock(&'a Guard),
    Session {
        session: &'a OpenedSession,
        /// Variables in the command's environment.
        environment: Vec<(&'static str, OsString)>,
    },
}

impl Held<'_> {
    /// Time for which the lock or session cannot be lost by expiry.
    pub(super) fn safe_for(&self) -> Duration {
        match self {
            Held::Lock(guard) => guard.safe_for(),
            Held::Session { session, .. } => session.safe_for(),
        }
    }

    /// Returns when the lock or session is lost, without the reason.
    pub(super) async fn gone(&self) {
        match self {
            Held::Lock(guard) => guard.gone().await,
            // A session knows of its end without a request.
            Held::Session { session, .. } => drop(session.lost().await),
        }
    }

    /// Returns when the lock or session is lost, with the reason, which may take a request.
    pub(super) async fn lost(&self) -> Loss {
        match self {
            Held::Lock(guard) => guard.lost().await,
            Held::Session { session, .. } => session.lost().await,
        }
    }

    /// Returns when another client asks for the lock. Never returns for a session, because the
    /// command itself receives requests for its locks.
    pub(super) async fn revoked(&self) -> RevokeRequest {
        match self {
            Held::Lock(guard) => guard.revoked().await,
            Held::Session { .. } => std::future::pending().await,
        }
    }

    /// Variables in the command's environment.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        match self {
            Held::Lock(guard) => vec![
                ("ZLOCK_FENCING_TOKEN", guard.fencing_token().to_string().into()),
                ("ZLOCK_TICKET", guard.ticket().into()),
                ("ZLOCK_LOCK", guard.lock().into()),
            ],
            Held::Session { environment, .. } => environment.clone(),
        }
    }
}

/// Writes the name for a line that people read.
impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Lock(guard) => write!(f, "the lock {}", guard.lock()),
            Held::Session { session, .. } => write!(f, "session {}", session.id()),
        }
    }
}
