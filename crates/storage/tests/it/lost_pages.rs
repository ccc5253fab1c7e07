//! Tests of pages that are not on disk although the kernel counts them as clean. After a failed
//! fsync, Linux keeps such pages in its page cache, where the next process reads them.
//!
//! The disk is an ext4 file system on a loop device, backed by a file on a small tmpfs. When the
//! tmpfs is full, ext4's write-back to new blocks fails. Without ext4 or the permission to mount,
//! the test passes with a note on stderr.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::Vote;
use tempfile::TempDir;

use crate::harness::{append, block_on, bytes_of, entry, open};

const IMAGE_BYTES: u64 = 24 << 20;

/// An ext4 file system without a journal. The drop unmounts it.
struct LoopDisk {
    parent: TempDir,
}

impl LoopDisk {
    /// Creates the file system and mounts it.
    ///
    /// # Errors
    /// Description of the command that failed, as when this user may not mount.
    fn mount() -> Result<LoopDisk, String> {
        let disk = LoopDisk { parent: tempfile::tempdir().unwrap() };
        for dir in [disk.below(), disk.dir()] {
            fs::create_dir(dir).unwrap();
        }
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=32m", "none"]).arg(disk.below()))?;
        File::create(disk.image()).unwrap().set_len(IMAGE_BYTES).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(disk.image()))?;
        disk.mount_image()?;
        Ok(disk)
    }

    fn mount_image(&self) -> Result<(), String> {
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(self.image()))?;
        // The loop driver reports a partial write as complete. So the size of a write is limited to
        // one page.
        let name = device.trim_start_matches("/dev/");
        let limited = fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4");
        let mounted = run(Command::new("mount").args(["-t", "ext4", &device]).arg(self.dir()));
        // The kernel removes the loop device once it is unmounted.
        run(Command::new("losetup").args(["--detach", &device]))?;
        limited.map_err(|error| format!("{name}: {error}"))?;
        mounted.map(drop)
    }

    /// Unmounts and mounts the disk, which drops the page cache like a power cut.
    fn lose_the_page_cache(&self) {
        run(Command::new("umount").arg(self.dir())).unwrap();
        self.mount_image().unwrap();
    }

    /// Fills the tmpfs that holds the disk's image. From now on, writes to blocks of the disk that
    /// were never written fail.
    fn fill(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        while filler.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
    }

    fn mend(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn below(&self) -> PathBuf {
        self.parent.path().join("below")
    }

    fn image(&self) -> PathBuf {
        self.below().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.below().join("filler")
    }

    fn dir(&self) -> PathBuf {
        self.parent.path().join("disk")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        for dir in [self.dir(), self.below()] {
            // An error is ignored: the directory may not be mounted.
            let _output = Command::new("umount").arg("-l").arg(dir).output();
        }
    }
}

/// Returns the output of a command.
fn run(command: &mut Command) -> Result<String, String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

/// Returns log entries with these indexes. Each is so large that its write needs new blocks of the
/// disk.
fn large(term: u64, indexes: std::ops::Range<u64>) -> Vec<storage::Entry> {
    indexes.map(|index| entry(term, index, &content(index))).collect()
}

fn content(index: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(index);
    std::iter::repeat_with(|| rng.u8(..)).take(50_000).collect()
}

#[test]
fn what_a_failed_fsync_left_in_the_page_cache_is_not_built_upon() {
    let disk = match LoopDisk::mount() {
        Ok(disk) => disk,
        Err(why) => {
            let test = "what_a_failed_fsync_left_in_the_page_cache_is_not_built_upon";
            return eprintln!("NOT TESTED: {test}: no ext4 on a loop device here: {why}");
        }
    };
    let dir = disk.dir().join("data");
    block_on(async {
        let storage = open(&dir).unwrap();
        storage.log.clone().save_vote(&Vote::new(1, 1)).await.unwrap();
        append(&storage, large(1, 0..4)).await.unwrap();
        disk.fill();
        append(&storage, large(1, 4..8)).await.unwrap_err();
    });
    assert!(reads(&dir.join("log"), &content(7)), "this system does not keep pages that it could not write");
    disk.mend();

    // The restarted node must keep the entries that it acknowledges now.
    let last = block_on(async {
        let storage = open(&dir).unwrap();
        let next = storage.log.last().map_or(0, |id| id.index + 1);
        append(&storage, large(2, next..next + 4)).await.unwrap();
        storage.log.last().unwrap()
    });
    disk.lose_the_page_cache();
    let storage = open(&dir).unwrap();
    assert_eq!(storage.log.last(), Some(last));
    let found = block_on(storage.log.clone().try_get_log_entries(..)).unwrap();
    assert!(last.index >= 7 && found.iter().zip(0..).all(|(entry, index)| bytes_of(entry) == content(index)));
}

/// Tells whether a file in `dir` contains `bytes`, read through the page cache.
fn reads(dir: &Path, bytes: &[u8]) -> bool {
    let files = fs::read_dir(dir).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap());
    files.into_iter().any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}
