//! Errors of calls, of three kinds: refused, unavailable, and of unknown outcome.

use crate::api::{Problem, ProblemType};

/// Failure of a call. The kind tells whether the call may have been carried out. Reads fail with
/// `Refused` or `Unavailable`, and with `Unknown` only if the answer is malformed. Writes fail with
/// any kind.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The cluster refused the call, and nothing was done. The same call is refused again unless
    /// the state or the call changes.
    #[error("refused: {message}")]
    Refused {
        /// The kind of refusal; `None` for a kind that this version does not know.
        code: Option<ProblemType>,
        /// The refusal in words.
        message: String,
        /// The whole problem document: ZooKeeper's code, the path, the index of the operation in a
        /// transaction.
        problem: Box<Problem>,
    },
    /// No node accepted the call in time. Nothing was done.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// For each endpoint that was tried, its last answer, or the reason for which it could not
        /// be reached.
        reason: String,
    },
    /// The call was sent and no answer came: it may have been carried out, or may be carried out
    /// later.
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// Description of the failure, for people.
        reason: String,
    },
}

impl Error {
    /// The kind of refusal; `None` for `Unavailable`, `Unknown`, and an unknown kind of refusal.
    pub fn code(&self) -> Option<ProblemType> {
        match self {
            Error::Refused { code, .. } => *code,
            Error::Unavailable { .. } | Error::Unknown { .. } => None,
        }
    }

    /// Tells whether the call was certainly not carried out.
    pub fn did_nothing(&self) -> bool {
        !matches!(self, Error::Unknown { .. })
    }

    /// Tells whether there is no znode at the path.
    pub fn is_no_node(&self) -> bool {
        self.code() == Some(ProblemType::NoNode)
    }

    /// Tells whether the cluster refused the call because `ticket` is gone.
    pub(crate) fn is_gone(&self, ticket: &str) -> bool {
        match self {
            Error::Refused { code: Some(ProblemType::TicketGone), problem, .. } => {
                problem.path.as_deref() == Some(ticket)
            }
            _ => false,
        }
    }

    /// Converts the problem document of a refusal.
    pub(crate) fn refused(problem: Problem) -> Error {
        let message = match &problem.path {
            Some(path) if !problem.detail.contains(path.as_str()) => format!("{} ({path})", problem.detail),
            _ => problem.detail.clone(),
        };
        Error::Refused { code: problem.kind(), message, problem: Box::new(problem) }
    }

    /// Returns a refusal by the client itself, for a call that need not be sent. Its status is 0,
    /// as no node answered.
    pub(crate) fn refused_here(kind: ProblemType, detail: impl Into<String>) -> Error {
        let problem = serde_json::json!({
            "type": kind.uri(),
            "title": kind.title(),
            "status": 0,
            "detail": detail.into(),
            "outcome": "refused",
            "zxid": 0,
        });
        Error::refused(serde_json::from_value(problem).expect("it has all that a problem must have"))
    }

    /// Returns the error for a call that ended because its session was lost.
    pub(crate) fn session_lost(detail: &str) -> Error {
        Error::refused_here(ProblemType::SessionExpired, detail)
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
        Error::Unavailable { reason: reason.into() }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Error {
        Error::Unknown { reason: reason.into() }
    }
}
