//! Small disks that can be filled: a tmpfs for each node, and for failing fsyncs a sparse ext4 image on it.
//!
//! Needs root. A filled filesystem answers writes with "no space". When the tmpfs below the image is full, the image's
//! filesystem has space that is not there: writes succeed and the fsync behind them fails, as on a dying disk. What is
//! deleted in the image is given back (`discard`), or the image would soon have all the space that it promises.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the tmpfs.
const DISK_BYTES: u64 = 512 << 20;
/// Of the image, as its filesystem sees it. It fits, so that the image can be full by itself too.
const IMAGE_BYTES: u64 = 384 << 20;
/// The name of the file that takes the space.
const FILLER: &str = ".jepsen-filler";

/// Whether this process may mount disks.
pub fn available() -> bool {
    rustix::process::geteuid().is_root() && Command::new("mkfs.ext4").arg("-V").output().is_ok()
}

/// Mounts that are undone when this is dropped.
#[derive(Default)]
pub struct Disks {
    mounted: Vec<PathBuf>,
}

impl Drop for Disks {
    fn drop(&mut self) {
        while let Some(dir) = self.mounted.pop() {
            // Lazily: a node that is just being killed may still have files open.
            let _ = run(Command::new("umount").arg("-l").arg(&dir));
        }
    }
}

impl Disks {
    /// Gives a node a disk of its own at `dir/disk` and returns where its data goes.
    ///
    /// # Errors
    /// When mounting is not permitted, or a tool is missing.
    pub fn mount(&mut self, dir: &Path, failing_fsync: bool) -> io::Result<PathBuf> {
        let disk = dir.join("disk");
        fs::create_dir_all(&disk)?;
        let disk = fs::canonicalize(disk)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "jepsen"]).arg(&disk))?;
        self.mounted.push(disk.clone());
        if !failing_fsync {
            let data = disk.join("data");
            fs::create_dir_all(&data)?;
            return Ok(data);
        }
        let image = disk.join("image");
        File::create(&image)?.set_len(IMAGE_BYTES)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(&image))?;
        let inner = disk.join("inner");
        fs::create_dir_all(&inner)?;
        run(Command::new("mount").args(["-o", "loop,discard"]).arg(&image).arg(&inner))?;
        self.mounted.push(inner.clone());
        let data = inner.join("data");
        fs::create_dir_all(&data)?;
        Ok(data)
    }
}

/// Takes away what an earlier run that was cut off left mounted below `dir`.
pub fn unmount_below(dir: &Path) {
    let Ok(dir) = fs::canonicalize(dir) else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let below: Vec<PathBuf> = points.filter(|point| point.starts_with(&dir)).collect();
    // Undone from the last to the first: the image before the tmpfs that it lies on.
    drop(Disks { mounted: below });
}

/// Takes all the space of the disk that `data_dir` lies on.
///
/// # Errors
/// When the filler cannot be written for another reason than that the disk is full.
pub fn fill(data_dir: &Path) -> io::Result<()> {
    fill_file(&data_dir.parent().unwrap_or(data_dir).join(FILLER))
}

/// Takes the space from under the image that `data_dir` lies in.
///
/// # Errors
/// As `fill`.
pub fn fill_below(data_dir: &Path) -> io::Result<()> {
    let disk = data_dir.parent().and_then(Path::parent).unwrap_or(data_dir);
    fill_file(&disk.join(FILLER))
}

/// Gives the space back.
///
/// # Errors
/// When the filler cannot be removed.
pub fn mend(data_dir: &Path) -> io::Result<()> {
    for dir in data_dir.ancestors().skip(1).take(2) {
        match fs::remove_file(dir.join(FILLER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn fill_file(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    for block in [1 << 20, 4 << 10, 1] {
        let zeros = vec![0; block];
        loop {
            match file.write_all(&zeros) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{command:?}: {why}")))
}
