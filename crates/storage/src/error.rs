//! Errors of opening a node's storage.

use std::io;
use std::path::PathBuf;

/// Error of opening a node's storage. Every message says what to do; see docs/storage-trouble.md.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the directory open.
    #[error("{dir} is in use by another process; stop that one first, or give this node a data directory of its own")]
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// The directory belongs to another node of the ensemble.
    #[error(
        "{dir} holds the data of node {found}, but this is node {wanted}; point node.data_dir at this node's own \
         directory (two nodes that share one identity can break the quorum, so nothing was changed)"
    )]
    OtherNode {
        /// The data directory.
        dir: PathBuf,
        /// Id of the node whose data the directory holds.
        found: u64,
        /// Id of the node that tried to open the directory.
        wanted: u64,
    },
    /// The directory belongs to a node of another cluster.
    #[error(
        "{dir} holds data of the cluster {found:?}, but this node is configured for {wanted:?}; correct \
         node.cluster_id or node.data_dir"
    )]
    OtherCluster {
        /// The data directory.
        dir: PathBuf,
        /// Name of the cluster whose data the directory holds.
        found: String,
        /// Name of the cluster in the node's configuration.
        wanted: String,
    },
    /// A newer version of the program wrote the directory.
    #[error("{dir} has format {found}, this program knows up to {known}; start it with the newer program again")]
    NewerFormat {
        /// The data directory.
        dir: PathBuf,
        /// Format number of the directory.
        found: u32,
        /// Newest format number that this program reads.
        known: u32,
    },
    /// A build from before the first release wrote the directory.
    #[error(
        "{dir} has format {found} of an early build, and this program reads format {known} alone; start the cluster \
         with empty directories, or go on with the earlier program"
    )]
    OlderFormat {
        /// The data directory.
        dir: PathBuf,
        /// Format number of the directory.
        found: u32,
        /// The only format number that this program reads.
        known: u32,
    },
    /// Data on disk differs from what was written, or is gone.
    #[error(
        "{dir} is damaged: {what}. This node's data cannot be trusted. If a majority of the other nodes is healthy: \
         stop this node, move {dir} away and start it again; it comes back empty and fetches everything from the leader"
    )]
    Damaged {
        /// The data directory.
        dir: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The directory for a new node is not empty.
    #[error(
        "{dir} is not empty: a new node needs a directory of its own; move away what is there, or name another one"
    )]
    NotEmpty {
        /// The directory for the new node.
        dir: PathBuf,
    },
    /// The disk is full, and deleting the ballast (a file that reserves space) did not help: it was
    /// missing or too small, or only the next start can use the freed space.
    #[error("the disk of {dir} is full, and opening needs some space; free some and start again ({source})")]
    DiskFull {
        /// The data directory.
        dir: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Any other IO error.
    #[error("{doing}: {source}")]
    Io {
        /// Operation that failed.
        doing: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Error::DiskFull { .. } => true,
            Error::Io { source, .. } => is_full(source),
            _ => false,
        }
    }
}

/// Tells whether an error means lack of space: the disk is full, or the disk quota of the process's
/// user is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Tells whether an error means damaged data. Errors of the operating system are no damage, and
/// neither is a snapshot copy that does not fit on the disk.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    error.raw_os_error().is_none() && matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
}

/// Returns the error for data that differs from what was written.
pub(crate) fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Conversion of an IO error to [`Error::Io`], with a description of the operation that failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}
