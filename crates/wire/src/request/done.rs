//! Answers to requests whose turn has come.

use znode::Zxid;

/// The way in which a request that had to wait is answered.
pub(crate) enum Done {
    /// A body, or an error; at this zxid, or at that of the answer before it.
    Answer(Option<Zxid>, Result<Vec<u8>, i32>),
    /// A body, or an error, as of `Answer`; the connection ends behind it.
    Last(Option<Zxid>, Result<Vec<u8>, i32>),
    /// No answer: the connection ends, and the client finds out elsewhere.
    Cut(&'static str),
}

impl Done {
    /// The last answer of its connection.
    pub(crate) fn last(self) -> Done {
        match self {
            Done::Answer(at, body) => Done::Last(at, body),
            other => other,
        }
    }
}
