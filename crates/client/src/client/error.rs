//! What can go wrong, in three kinds that are never mixed.

use crate::api::{Problem, ProblemType};

/// Why a call did not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The cluster said no, and nothing was done. The same call is refused again unless the state
    /// or the call changes.
    #[error("refused: {message}")]
    Refused {
        /// What kind of refusal; `None` for one that this version does not know.
        code: Option<ProblemType>,
        /// In words.
        message: String,
        /// All that the cluster said: ZooKeeper's code, the path, which operation of a transaction.
        problem: Box<Problem>,
    },
    /// No node could take the call in time, and nothing was done.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// What the last node said, or why it could not be reached.
        reason: String,
    },
    /// The call was sent and no answer came: it may have been done, or may still be.
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// What is known.
        reason: String,
    },
}

impl Error {
    /// The kind of refusal; `None` for errors of the other kinds.
    pub fn code(&self) -> Option<ProblemType> {
        match self {
            Error::Refused { code, .. } => *code,
            Error::Unavailable { .. } | Error::Unknown { .. } => None,
        }
    }

    /// Whether the call was certainly not carried out.
    pub fn did_nothing(&self) -> bool {
        !matches!(self, Error::Unknown { .. })
    }

    /// Whether there is no znode at the path.
    pub fn is_no_node(&self) -> bool {
        self.code() == Some(ProblemType::NoNode)
    }

    /// Whether it says that there is no such ticket any more.
    pub(crate) fn is_gone(&self, ticket: &str) -> bool {
        match self {
            Error::Refused { code: Some(ProblemType::NoNode | ProblemType::TicketGone), problem, .. } => {
                problem.path.as_deref() == Some(ticket)
            }
            _ => false,
        }
    }

    /// What a problem document that refuses says.
    pub(crate) fn refused(problem: Problem) -> Error {
        let message = match &problem.path {
            Some(path) if !problem.detail.contains(path.as_str()) => format!("{} ({path})", problem.detail),
            _ => problem.detail.clone(),
        };
        Error::Refused { code: problem.kind(), message, problem: Box::new(problem) }
    }

    /// A refusal of the client's own, for what no node needs to be asked. Its status is 0: nobody
    /// answered.
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

    /// The session is gone, and what was waiting in it with it.
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
