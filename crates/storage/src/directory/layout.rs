//! The data directory: its lock, the names of its files, and the replacement of its log as a whole.
//!
//! ```text
//! LOCK       held while a process has the directory open
//! ballast    space to give up when the disk is full
//! node       identity of the node that owns the data
//! snapshot   number and manifest of the current snapshot
//! log/       raft-log
//! log.new/   new log of a node that has lost its state, until it is complete
//! log.old/   a log that is given up while `log.lost` is there, until it is removed
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

/// Time to wait for the lock before the open fails. The lock of a killed process lasts until the
/// kernel has closed its files, and a forked child holds its parent's lock until it executes
/// another program.
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

    fn log_old(&self) -> PathBuf {
        self.dir.join("log.old")
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
        // Makes the directory's name durable too. Skipped for the root and for a name in the
        // current directory, as both have no named parent.
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

    /// Completes a replacement of the log that a crash interrupted, and removes `log.new` and
    /// `log.old`. If `log` is missing, `log.new` becomes `log`.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        // A missing `log` means that `log.new` is complete, as it is completed before `log` is
        // renamed.
        if !self.log().exists() && self.log_new().exists() {
            fs::rename(self.log_new(), self.log())?;
            sync_dir(&self.dir)?;
        }
        remove_all(&self.log_old())?;
        remove_all(&self.log_new())
    }

    /// Renames `log` to `log.lost`, and the complete `log.new` to `log`. Both logs must be closed.
    /// Durable on return.
    pub(crate) fn replace_log(&self) -> io::Result<()> {
        failpoint::pass("log.given-up")?;
        if self.log_lost().exists() {
            // The log that was given up first stays in `log.lost`, as only it can have entries that
            // other nodes lack.
            fs::rename(self.log(), self.log_old())?;
        } else {
            fs::rename(self.log(), self.log_lost())?;
        }
        fs::rename(self.log_new(), self.log())?;
        sync_dir(&self.dir)?;
        remove_all(&self.log_old())?;
        failpoint::pass("log.replaced")
    }

    /// Removes `log.lost`, the log that [`Layout::replace_log`] has set aside.
    pub(crate) fn remove_lost_log(&self) -> io::Result<()> {
        remove_all(&self.log_lost())
    }

    /// Tells whether the directory `log` has any files.
    pub(crate) fn has_log(&self) -> bool {
        fs::read_dir(self.log()).is_ok_and(|mut entries| entries.next().is_some())
    }
}
