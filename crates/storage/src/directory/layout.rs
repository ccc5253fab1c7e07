//! The data directory: who may enter, and how its log is replaced as a whole.
//!
//! ```text
//! LOCK       held while a process has the directory open
//! ballast    space to give up when the disk is full
//! node       whose data this is
//! snapshot   which snapshot is current
//! log/       raft-log
//! log.new/   a log in the making, by which a node that has lost its state replaces its own
//! log.lost/  that own log, until the node has joined again
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

/// The places in a data directory.
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

/// How long the lock may take to come free: a killed process holds its files until the kernel has
/// cleared it away, and a process that is just being forked holds its parent's until it has become
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

    fn log_lost(&self) -> PathBuf {
        self.dir.join("log.lost")
    }

    /// Makes the directory, for this user only, and takes its lock. The lock is held as long as the
    /// file is open.
    pub(crate) fn enter(&self) -> Result<File, Error> {
        let dir = &self.dir;
        let doing = || format!("making the data directory {}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).doing(doing)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(doing)?;
        // Its name must last as well; a directory without a parent that can be named is the root or
        // the current one.
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

    /// Ends what a crash interrupted: there is a log if there was one, and none in the making.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        if !self.log().exists() {
            // A new log was whole before the old one gave way to it.
            let whole = [self.log_new(), self.log_lost()].into_iter().find(|log| log.exists());
            if let Some(whole) = whole {
                fs::rename(whole, self.log())?;
                sync_dir(&self.dir)?;
            }
        }
        remove_all(&self.log_new())
    }

    /// Puts the finished `log.new` in the place of `log`, which is kept. Both must be closed.
    /// Durable on return.
    pub(crate) fn replace_log(&self) -> io::Result<()> {
        failpoint::pass("log.given-up")?;
        if self.log_lost().exists() {
            // The first one that was lost is the one that may hold what others have not.
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

    /// True when there is a Raft log, begun or not.
    pub(crate) fn has_log(&self) -> bool {
        fs::read_dir(self.log()).is_ok_and(|mut entries| entries.next().is_some())
    }
}
