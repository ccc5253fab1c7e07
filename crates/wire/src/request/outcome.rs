//! Outcomes of requests that had to wait.

use znode::Zxid;

/// The outcome of a request that had to wait.
pub(crate) enum Outcome {
    /// A body, or an error; at this zxid, or at that of the answer before it.
    Answer(Option<Zxid>, Result<Vec<u8>, i32>),
    /// A body, or an error, as of `Answer`; the connection ends behind it.
    Last(Option<Zxid>, Result<Vec<u8>, i32>),
    /// No answer: the connection ends, and the client finds out elsewhere.
    Cut(&'static str),
}

impl Outcome {
    /// The last answer of its connection.
    pub(crate) fn last(self) -> Outcome {
        match self {
            Outcome::Answer(at, body) => Outcome::Last(at, body),
            other => other,
        }
    }
}
