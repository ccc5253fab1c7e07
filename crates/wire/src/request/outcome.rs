//! Outcomes of requests that had to wait.

use znode::Zxid;

/// The outcome of a request that had to wait.
pub(crate) enum Outcome {
    /// A body, or an error code. The zxid is the answer's; `None` for that of the answer before.
    Answer(Option<Zxid>, Result<Vec<u8>, i32>),
    /// As `Answer`, but the connection ends after it.
    Last(Option<Zxid>, Result<Vec<u8>, i32>),
    /// No answer: the connection ends, and the client learns the outcome elsewhere.
    Cut(&'static str),
}

impl Outcome {
    /// Makes this the last answer of its connection.
    pub(crate) fn last(self) -> Outcome {
        match self {
            Outcome::Answer(at, body) => Outcome::Last(at, body),
            other => other,
        }
    }
}
