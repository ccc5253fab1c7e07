//! Reasons why offline work is refused.

/// The reason why it is not done. Shown to the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no node's data.
    #[error("{0} is no data directory of a node: it has no identity")]
    NoData(std::path::PathBuf),
    /// The state is of no cluster that has begun.
    #[error("its cluster was never founded: there is nothing in it")]
    NotFounded,
    /// The node is not among the members.
    #[error("node {0} is none of the members that were decided on: {1:?}")]
    NoMember(u64, Vec<u64>),
    /// The members that were written cannot be what was meant: a bug, or members that contradict
    /// each other.
    #[error("the members: {0}")]
    Members(String),
    /// The data directory.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The disk.
    #[error("{doing}: {source}")]
    Io {
        /// The work that was being done.
        doing: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// An entry or a record cannot be read by this program.
    #[error("{what} cannot be read: {error}")]
    Decode {
        /// The entry or the record.
        what: String,
        /// The reason.
        error: znode::DecodeError,
    },
}
