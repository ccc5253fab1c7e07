//! Why a file is refused. Shown to the operator, so each says what to do where that is not plain.

use std::io;

use crate::format::VERSION;

/// Why a file cannot be read as a backup.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is something else.
    #[error("this is no backup of zlock: it does not begin as one")]
    NotABackup,
    /// It is of a later program.
    #[error("its format has version {0}, and this program reads up to {VERSION}: use the zlock that wrote it")]
    Newer(u32),
    /// Bytes are missing at its end.
    #[error("it is cut off after {0} bytes: the copy is not complete, take another one")]
    Cut(u64),
    /// It is not what was written.
    #[error("it is damaged: {0}; take another copy")]
    Damaged(String),
    /// It is whole, and its state cannot be read by this program.
    #[error("its state cannot be read: {0}")]
    Decode(#[from] znode::DecodeError),
    /// The file system failed.
    #[error(transparent)]
    Io(io::Error),
}

impl Error {
    pub(crate) fn damaged(what: impl Into<String>) -> Error {
        Error::Damaged(what.into())
    }
}
