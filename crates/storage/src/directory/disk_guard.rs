//! Free space of the disk, and the ballast, a file that is deleted when the disk is full.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Checks the free space of the data directory's filesystem, and keeps the ballast file there.
///
/// sled cannot open on a full disk, not even to free space. Therefore the node refuses clients'
/// writes while [`DiskGuard::is_low`] is true. If the disk still becomes full, the next start
/// deletes the ballast to have room for opening.
#[derive(Clone, Debug)]
pub struct DiskGuard {
    dir: Arc<Path>,
    free_min_bytes: u64,
    ballast_bytes: u64,
    /// Result of the last [`DiskGuard::free_bytes`]; `u64::MAX` before the first.
    last_free_bytes: Arc<AtomicU64>,
}

impl DiskGuard {
    /// Returns a guard for the filesystem of `dir`. `free_min_bytes` is the low-water mark: the
    /// free space below which clients' writes are refused. `ballast_bytes` is the size of the
    /// ballast, 0 for none.
    pub fn new(dir: &Path, free_min_bytes: u64, ballast_bytes: u64) -> DiskGuard {
        let last_free_bytes = Arc::new(AtomicU64::new(u64::MAX));
        DiskGuard { dir: dir.into(), free_min_bytes, ballast_bytes, last_free_bytes }
    }

    /// Number of bytes that this process may still write to the filesystem. Costs one system call.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let space = statvfs(&*self.dir)?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        self.last_free_bytes.store(free_bytes, Ordering::Relaxed);
        Ok(free_bytes)
    }

    /// Result of the last [`DiskGuard::free_bytes`]; `None` before the first. Makes no system call,
    /// because a sick disk may hold one up.
    pub fn last_free_bytes(&self) -> Option<u64> {
        Some(self.last_free_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    /// Tells whether less space is free than the low-water mark: clients' writes should then be
    /// refused.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn is_low(&self) -> io::Result<bool> {
        Ok(self.free_bytes()? < self.free_min_bytes)
    }

    /// Creates the ballast if it is missing. Does nothing if less than twice its size is free above
    /// the low-water mark, so that the ballast itself does not cause a shortage.
    pub(crate) fn lay_ballast(&self) -> io::Result<()> {
        let path = self.ballast();
        if self.ballast_bytes == 0 || path.exists() {
            return Ok(());
        }
        if self.free_bytes()? < self.free_min_bytes.saturating_add(self.ballast_bytes.saturating_mul(2)) {
            return Ok(());
        }
        let laid = File::create(&path).and_then(|file| reserve(file, self.ballast_bytes));
        // After an error, the incomplete ballast is removed.
        laid.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Removes the ballast. Returns true when there was one.
    pub(crate) fn drop_ballast(&self) -> io::Result<bool> {
        match fs::remove_file(self.ballast()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }
}

fn reserve(mut file: File, bytes: u64) -> io::Result<()> {
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // Some filesystems do not support fallocate. Written zeros take up space there too, unless
        // the filesystem compresses.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = [0; 64 << 10];
            let mut left = bytes;
            while left > 0 {
                let n = left.min(zeros.len() as u64);
                file.write_all(&zeros[..n as usize])?;
                left -= n;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
