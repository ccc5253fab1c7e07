//! A disk that the kernel has mounted.

use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Config, MountOption};
use rustix::mount::{UnmountFlags, unmount};

use crate::disk::Disk;

/// Checks that this process may mount a disk.
///
/// # Errors
/// The reason why it may not.
pub fn available() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("only root mounts without fusermount3"));
    }
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| io::Error::new(error.kind(), format!("/dev/fuse: {error}")))
}

/// A mounted disk, which threads of this process serve. When the value is dropped, hanging fsyncs
/// fail and the disk is unmounted.
#[derive(Debug)]
pub struct Mounted {
    disk: Disk,
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts an empty disk on `dir`.
    ///
    /// # Errors
    /// The failure of the mount.
    pub fn on(dir: &Path) -> io::Result<Mounted> {
        let disk = Disk::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("power-disk".into()), MountOption::NoAtime];
        let session = Some(fuser::spawn_mount(disk.clone(), dir, &config)?);
        Ok(Mounted { disk, dir: dir.to_owned(), session })
    }

    /// Directory on which the disk is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Deref for Mounted {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.disk
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.disk.drop_hung();
        // The unmount is lazy: the serving thread ends when the last file is closed, or with the
        // process.
        let _gone = unmount(&self.dir, UnmountFlags::DETACH);
        std::mem::forget(self.session.take());
    }
}
