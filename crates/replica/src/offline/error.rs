//! Why offline work is refused.

/// Why it is not done. Shown to the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no node's data.
    #[error("{0} is no data directory of a node: it has no identity")]
    NoData(std::path::PathBuf),
    /// The state is of no cluster that has begun.
    #[error("its cluster was never founded: there is nothing in it")]
    NotFounded,
    /// The node is not among the members.
    #[error("node {0} is none of the members that were decided on: {1:?}")]
    NoMember(u64, Vec<u64>),
    /// What was written cannot be what was meant: a bug, or members that contradict each other.
    #[error("the members: {0}")]
    Members(String),
    /// The data directory.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The disk.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// An entry or a record cannot be read by this program.
    #[error("{what} cannot be read: {error}")]
    Decode {
        /// Which.
        what: String,
        /// Why.
        error: znode::DecodeError,
    },
}
