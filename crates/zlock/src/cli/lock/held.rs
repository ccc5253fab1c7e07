//! Lock or session that is held while a command runs. The command must end before the lock or
//! session is lost.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use zlock_client::{Guard, Loss, OpenedSession, RevokeRequest};

/// Environment variables for a command. A variable without a value is removed.
pub(crate) type Environment = Vec<(&'static str, Option<OsString>)>;

/// The held lock, or the session that is kept alive.
pub(crate) enum Held<'a> {
    Lock(&'a Guard),
    Session {
        session: &'a OpenedSession,
        /// Environment variables that the command gets.
        environment: Environment,
    },
}

impl Held<'_> {
    /// Returns the time from now for which the lock or session cannot be lost by expiry.
    pub(super) fn safe_for(&self) -> Duration {
        match self {
            Held::Lock(guard) => guard.safe_for(),
            Held::Session { session, .. } => session.safe_for(),
        }
    }

    /// Waits until the lock or session is lost.
    pub(super) async fn gone(&self) {
        match self {
            Held::Lock(guard) => guard.gone().await,
            // The reason for a session's end needs no request, so this is as fast.
            Held::Session { session, .. } => drop(session.lost().await),
        }
    }

    /// Waits until the lock or session is lost, and returns the reason, which may take a request to
    /// a node.
    pub(super) async fn lost(&self) -> Loss {
        match self {
            Held::Lock(guard) => guard.lost().await,
            Held::Session { session, .. } => session.lost().await,
        }
    }

    /// Waits until another client requests a release of the lock. Never returns for a session,
    /// because the command itself gets such requests for its locks.
    pub(super) async fn revoked(&self) -> RevokeRequest {
        match self {
            Held::Lock(guard) => guard.revoked().await,
            Held::Session { .. } => std::future::pending().await,
        }
    }

    /// Returns the environment variables for the command.
    pub(super) fn environment(&self) -> Environment {
        match self {
            Held::Lock(guard) => vec![
                ("ZLOCK_FENCING_TOKEN", Some(guard.fencing_token().to_string().into())),
                ("ZLOCK_TICKET", Some(guard.ticket().into())),
                ("ZLOCK_LOCK", Some(guard.lock().into())),
            ],
            Held::Session { environment, .. } => environment.clone(),
        }
    }
}

/// Name of the lock or session for messages.
impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Lock(guard) => write!(f, "the lock {}", guard.lock()),
            Held::Session { session, .. } => write!(f, "session {}", session.id()),
        }
    }
}
