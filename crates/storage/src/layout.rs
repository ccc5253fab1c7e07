//! The data directory: who may enter, and how its sled database is made and replaced as a whole.
//!
//! ```text
//! LOCK       held while a process has the directory open
//! ballast    space to give up when the disk is full
//! log/       raft-log
//! sled/      identity and snapshots
//! sled.new/  a database in the making; worthless
//! sled.old/  the database before it was replaced; good if there is no sled/
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::database::sync_dir;
use crate::error::{Doing, Error};
use crate::failpoint;

/// The places in a data directory.
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
}

/// How long the lock may take to come free: a killed process holds its files until the kernel has cleared it away, and a
/// process that is just being forked holds its parent's until it has become another program.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

impl Layout {
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn sled(&self) -> PathBuf {
        self.dir.join("sled")
    }

    pub(crate) fn sled_new(&self) -> PathBuf {
        self.dir.join("sled.new")
    }

    fn sled_old(&self) -> PathBuf {
        self.dir.join("sled.old")
    }

    /// Makes the directory, for this user only, and takes its lock. The lock is held as long as the file is open.
    pub(crate) fn enter(&self) -> Result<File, Error> {
        let dir = &self.dir;
        let doing = || format!("making the data directory {}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).doing(doing)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(doing)?;
        // Its name must last as well; a directory without a parent that can be named is the root or the current one.
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

    /// Ends what a crash interrupted: at most one database is left, and it is a whole one.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        if !self.sled().exists() && self.sled_old().exists() {
            fs::rename(self.sled_old(), self.sled())?;
            sync_dir(&self.dir)?;
        }
        for leftover in [self.sled_new(), self.sled_old()] {
            if leftover.exists() {
                fs::remove_dir_all(&leftover)?;
            }
        }
        Ok(())
    }

    /// Puts the finished `sled.new` in the place of `sled`. Both must be closed. Durable on return.
    pub(crate) fn swap(&self) -> io::Result<()> {
        failpoint::pass("db.swap")?;
        if self.sled().exists() {
            fs::rename(self.sled(), self.sled_old())?;
            failpoint::pass("db.swapped")?;
        }
        fs::rename(self.sled_new(), self.sled())?;
        sync_dir(&self.dir)?;
        failpoint::pass("meta.renamed")?;
        if self.sled_old().exists() {
            fs::remove_dir_all(self.sled_old())?;
        }
        Ok(())
    }

    /// True when there is a Raft log, begun or not.
    pub(crate) fn has_log(&self) -> bool {
        fs::read_dir(self.log()).is_ok_and(|mut entries| entries.next().is_some())
    }
}
