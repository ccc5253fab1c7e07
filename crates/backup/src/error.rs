//! Reasons for which a file is refused as a backup.

use std::io;

use crate::format::VERSION;

/// Reason for which a file cannot be read as a backup. The operator sees the message, so it says
/// what to do where that is not obvious.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin with the magic bytes of a backup.
    #[error("this is no backup of zlock: it does not begin as one")]
    NotABackup,
    /// The file has this version of the format, which is newer than this program can read.
    #[error("its format has version {0}, and this program reads up to {VERSION}: use the zlock that wrote it")]
    Newer(u32),
    /// Bytes are missing at the end of the file, which has this length in bytes.
    #[error("it is cut off after {0} bytes: the copy is not complete, take another one")]
    Cut(u64),
    /// The content of the file is invalid in the way that this text describes.
    #[error("it is damaged: {0}; take another copy")]
    Damaged(String),
    /// The file is complete and its hash is right, but this program cannot decode its state.
    #[error("its state cannot be read: {0}")]
    Decode(#[from] znode::DecodeError),
    /// The file system returned an error.
    #[error(transparent)]
    Io(io::Error),
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged(what.into())
    }
}
