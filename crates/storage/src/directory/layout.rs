//! The data directory: its lock, its entries, and the replacement of its log as a whole.
//!
//! ```text
//! LOCK       held while a process has the directory open
//! ballast    space to give up when the disk is full
//! node       identity of the node that owns the data
//! snapshot   number and manifest of the current snapshot
//! log/       raft-log
//! log.new/   new log of a node that has lost its state, until it is complete
//! log.lost/  the log that the new one replaced, until the node has joined again
//! sled/      snapshots
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::directory::place::{remove_all, sync_dir};
use crate::error::{Doing, Error};
use crate::failpoint;

/// Paths in a data directory.
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

/// Time to wait for the lock. A killed process holds its files until the kernel has cleaned it up,
/// and a process that is being forked holds its parent's files until it executes another program.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

impl Layout {
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn sled(&self) -> PathBuf {
        self.dir.join("sled")
    }

    pub(crate) fn log_new(&self) -> PathBuf {
        self.dir.join("log.new")
    }

    fn log_lost(&self) -> PathBuf {
        self.dir.join("log.lost")
    }

    /// Creates the directory, for this user only, and takes its lock. The lock lasts as long as the
    /// returned file is open.
    pub(crate) fn enter(&self) -> Result<File, Error> {
        let dir = &self.dir;
        let doing = || format!("making the data directory {}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).doing(doing)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(doing)?;
        // The directory's name must be durable as well. A path without a named parent is the root
        // or an entry of the current directory.
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_dir(parent).doing(doing)?;
        }
        let path = dir.join("LOCK");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).doing(doing)?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(Error::Locked { dir: dir.clone() }),
                Err(TryLockError::Error(source)) => {
                    return Err(Error::Io { doing: format!("locking {}", path.display()), source });
                }
            }
        }
    }

    /// Completes a replacement of the log that a crash interrupted: afterwards `log` exists if
    /// there was a log, and `log.new` does not.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        if !self.log().exists() {
            // A new log is complete before the old one is renamed.
            let whole = [self.log_new(), self.log_lost()].into_iter().find(|log| log.exists());
            if let Some(whole) = whole {
                fs::rename(whole, self.log())?;
                sync_dir(&self.dir)?;
            }
        }
        remove_all(&self.log_new())
    }

    /// Moves the complete `log.new` into the place of `log`, and keeps the latter as `log.lost`.
    /// Both must be closed. Durable on return.
    pub(crate) fn replace_log(&self) -> io::Result<()> {
        failpoint::pass("log.given-up")?;
        if self.log_lost().exists() {
            // Only the log that was lost first may have entries that other nodes lack.
            remove_all(&self.log())?;
        } else {
            fs::rename(self.log(), self.log_lost())?;
        }
        fs::rename(self.log_new(), self.log())?;
        sync_dir(&self.dir)?;
        failpoint::pass("log.replaced")
    }

    /// Removes the log that was given up.
    pub(crate) fn remove_lost_log(&self) -> io::Result<()> {
        remove_all(&self.log_lost())
    }

    /// Checks for a Raft log, begun or not.
    pub(crate) fn has_log(&self) -> bool {
        fs::read_dir(self.log()).is_ok_and(|mut entries| entries.next().is_some())
    }
}
