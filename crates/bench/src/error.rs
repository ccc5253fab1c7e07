//! Error type of the program.

use std::io;

/// Reason for which something could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The operating system refused a call, or a connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A server gave an answer that the workload cannot go on with.
    #[error("unexpected answer: {0}")]
    Answer(String),
    /// The session or lease has ended.
    #[error("the session has ended")]
    Gone,
    /// A system cannot be started here, or lacks an operation; the text says why or what to do.
    #[error("{0}")]
    Absent(String),
}

impl Error {
    /// Returns an error that shows an unexpected answer as text.
    pub(crate) fn answer(what: &str, bytes: &[u8]) -> Error {
        Error::Answer(format!("{what}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)])))
    }
}
