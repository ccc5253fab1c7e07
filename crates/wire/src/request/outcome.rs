//! Outcomes of requests that could not be answered at once.

use znode::Zxid;

/// Outcome of a request that could not be answered at once.
pub(crate) enum Outcome {
    /// A body, or an error code. The zxid is for the answer's header; `None` stands for the zxid in
    /// the previous answer of the connection.
    Answer(Option<Zxid>, Result<Vec<u8>, i32>),
    /// An answer, as in `Answer`, after which the connection ends.
    Last(Option<Zxid>, Result<Vec<u8>, i32>),
    /// No answer: the connection ends, and the client must find out after reconnecting what
    /// happened. The text is the reason, for the log.
    Cut(&'static str),
}

impl Outcome {
    /// Turns `Answer` into `Last`, so that the connection ends after the answer.
    pub(crate) fn last(self) -> Outcome {
        match self {
            Outcome::Answer(at, body) => Outcome::Last(at, body),
            other => other,
        }
    }
}
