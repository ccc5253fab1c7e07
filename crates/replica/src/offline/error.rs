//! Errors of work on the data of stopped nodes.

/// Reason why work on the data of a stopped node is not done. Operators read the message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no data of a node.
    #[error("{0} is no data directory of a node: it has no identity")]
    NoData(std::path::PathBuf),
    /// The state has no founding entry, so it is not that of a cluster.
    #[error("its cluster was never founded: there is nothing in it")]
    NotFounded,
    /// The node is not among the members.
    #[error("node {0} is none of the members that were decided on: {1:?}")]
    NoMember(u64, Vec<u64>),
    /// The membership would be invalid: the members contradict each other, or this is a bug.
    #[error("the members: {0}")]
    Members(String),
    /// The data directory could not be opened or written.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// An IO error.
    #[error("{doing}: {source}")]
    Io {
        /// Operation that failed.
        doing: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// This program cannot decode a log entry or a record of a snapshot.
    #[error("{what} cannot be read: {error}")]
    Decode {
        /// Description of the log entry or the record, for people.
        what: String,
        /// Reason why the entry or the record cannot be read.
        error: znode::DecodeError,
    },
}
