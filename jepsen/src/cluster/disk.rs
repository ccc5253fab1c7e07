//! Small disks that the nemesis can break: a tmpfs for each node, and on it an ext4 image if fsyncs
//! are to fail.
//!
//! Needs root. A filled filesystem answers writes with "no space". When the tmpfs below the image
//! is full, the image's filesystem believes that it still has space: writes succeed and the
//! following fsync fails, as on a dying disk. The image is mounted with `discard`, so that deleted
//! files free space in the tmpfs. Otherwise the image would soon occupy its full size, and no write
//! would fail.
//!
//! For losses of power, and for fsyncs that are slow or hang, a node has a FUSE disk
//! (`power-disk`), which this program serves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use power_disk::{Cut, Disk, Mounted};

/// Size of the tmpfs that is a node's disk or contains its disk image.
const DISK_BYTES: u64 = 512 << 20;
/// Size of the disk image in the tmpfs of [`DiskKind::FailingFsync`]. The image is smaller than the
/// tmpfs, so that its filesystem can be full while the tmpfs is not.
const IMAGE_BYTES: u64 = 384 << 20;
/// Name of the file that fills a filesystem.
const FILLER: &str = ".jepsen-filler";

/// Tells whether this process can make disks: it needs root and the tool `mkfs.ext4`.
pub fn available() -> bool {
    rustix::process::geteuid().is_root() && Command::new("mkfs.ext4").arg("-V").output().is_ok()
}

/// Kind of a node's disk, by the ways in which it can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// A disk that can be full.
    Full,
    /// A disk whose fsync can fail.
    FailingFsync,
    /// A FUSE disk that can lose unsynced data, and whose fsync can be slow or hang.
    Powered,
}

impl DiskKind {
    /// Returns the kind of disk that can break in the ways of both kinds; `None` if no kind can.
    pub fn with(self, other: DiskKind) -> Option<DiskKind> {
        match (self, other) {
            (one, other) if one == other => Some(one),
            (DiskKind::Full, DiskKind::FailingFsync) | (DiskKind::FailingFsync, DiskKind::Full) => {
                Some(DiskKind::FailingFsync)
            }
            _ => None,
        }
    }
}

/// Disks of all nodes. They are unmounted when the value is dropped.
#[derive(Default)]
pub struct Disks {
    mounted: Vec<PathBuf>,
    powered: Vec<Mounted>,
    /// Data directories on disks with slow or hanging fsyncs.
    impaired: BTreeSet<PathBuf>,
    /// Time at which slow or hanging fsyncs of a disk were last mended, by data directory.
    mended: BTreeMap<PathBuf, Instant>,
    losses: Losses,
}

/// Count of the losses of power so far, and their effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of times that a node lost power.
    pub nodes: u64,
    /// Sums of the unsynced pages and names that the FUSE disks have lost and kept.
    pub cut: Cut,
}

impl Drop for Disks {
    fn drop(&mut self) {
        self.powered.clear();
        while let Some(dir) = self.mounted.pop() {
            // `-l` unmounts lazily, because a node that is being killed may still have open files.
            let _ = run(Command::new("umount").arg("-l").arg(&dir));
        }
    }
}

impl Disks {
    /// Makes a new disk for a node at `dir/disk`. Returns the directory for its data.
    ///
    /// # Errors
    /// When mounting is not permitted, or a tool is missing.
    pub fn mount(&mut self, dir: &Path, kind: DiskKind) -> io::Result<PathBuf> {
        let disk = dir.join("disk");
        fs::create_dir_all(&disk)?;
        let disk = fs::canonicalize(disk)?;
        if kind == DiskKind::Powered {
            self.powered.push(Mounted::on(&disk)?);
            let data = disk.join("data");
            fs::create_dir_all(&data)?;
            File::open(disk)?.sync_all()?;
            return Ok(data);
        }
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "jepsen"]).arg(&disk))?;
        self.mounted.push(disk.clone());
        let mut below = disk.clone();
        if kind == DiskKind::FailingFsync {
            let image = disk.join("image");
            File::create(&image)?.set_len(IMAGE_BYTES)?;
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(&image))?;
            below = disk.join("inner");
            fs::create_dir_all(&below)?;
            run(Command::new("mount").args(["-o", "loop,discard"]).arg(&image).arg(&below))?;
            self.mounted.push(below.clone());
        }
        let data = below.join("data");
        fs::create_dir_all(&data)?;
        Ok(data)
    }

    /// Makes every fsync on the disk of `data_dir` slow, or hang, as `how` says.
    ///
    /// # Errors
    /// When the disk is not of the kind [`DiskKind::Powered`].
    pub fn impair(&mut self, data_dir: &Path, how: impl FnOnce(&Disk)) -> io::Result<()> {
        how(self.powered(data_dir)?);
        self.impaired.insert(data_dir.to_owned());
        Ok(())
    }

    /// Returns the number of fsyncs that were slow or hung on the disk since it was mounted.
    ///
    /// # Errors
    /// As for `impair`.
    pub fn delayed(&self, data_dir: &Path) -> io::Result<u64> {
        self.powered(data_dir).map(|disk| disk.delayed())
    }

    /// Ends slow and hanging fsyncs on all disks: new fsyncs work, and waiting fsyncs succeed.
    pub fn mend(&mut self) {
        self.impaired.clone().iter().for_each(|data_dir| self.mend_one(data_dir));
    }

    /// Ends slow and hanging fsyncs on one disk, as [`Disks::mend`] does.
    pub fn mend_one(&mut self, data_dir: &Path) {
        self.recover(data_dir, Disk::mend);
    }

    /// Makes all waiting fsyncs of all disks fail, and new fsyncs work. Called for processes that
    /// are being killed, because a process in a hanging fsync cannot end.
    pub fn let_go(&mut self) {
        self.impaired.clone().iter().for_each(|data_dir| self.let_go_of(data_dir));
    }

    /// Makes the waiting fsyncs of one disk fail, as [`Disks::let_go`] does.
    pub fn let_go_of(&mut self, data_dir: &Path) {
        self.recover(data_dir, Disk::drop_hung);
    }

    /// Tells whether the fsyncs of a disk have worked at full speed for longer than `time`.
    pub fn rested(&self, data_dir: &Path, time: Duration) -> bool {
        !self.impaired.contains(data_dir) && self.mended.get(data_dir).is_none_or(|mended| mended.elapsed() > time)
    }

    fn recover(&mut self, data_dir: &Path, how: fn(&Disk)) {
        if self.impaired.remove(data_dir) {
            self.mended.insert(data_dir.to_owned(), Instant::now());
            let _ = self.powered(data_dir).map(|disk| how(disk));
        }
    }

    fn powered(&self, data_dir: &Path) -> io::Result<&Mounted> {
        let disk = self.powered.iter().find(|disk| data_dir.starts_with(disk.dir()));
        disk.ok_or_else(|| io::Error::other("it is no FUSE disk"))
    }

    /// Cuts the power of the disk that `data_dir` lies on. The node must have been killed before.
    /// The seed decides which unsynced changes survive.
    ///
    /// # Errors
    /// When the disk is not of the kind [`DiskKind::Powered`].
    pub fn lose_power(&mut self, data_dir: &Path, seed: u64) -> io::Result<Cut> {
        let cut = self.powered(data_dir)?.cut(seed);
        self.losses.nodes += 1;
        let sum = &mut self.losses.cut;
        sum.pages_kept += cut.pages_kept;
        sum.pages_lost += cut.pages_lost;
        sum.names_kept += cut.names_kept;
        sum.names_lost += cut.names_lost;
        Ok(cut)
    }

    /// Returns the losses of power so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }

    /// Copies the data of each FUSE disk to `saved-data` beside the disk, because the disk exists
    /// only in the memory of this process.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn save(&self) -> io::Result<()> {
        for disk in &self.powered {
            let beside = disk.dir().with_file_name("saved-data");
            run(Command::new("cp").args(["-r", "--sparse=always"]).arg(disk.dir().join("data")).arg(beside))?;
        }
        Ok(())
    }
}

/// Unmounts the disks that an interrupted run left mounted below `dir`.
pub fn unmount_below(dir: &Path) {
    let Ok(dir) = fs::canonicalize(dir) else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    let below: Vec<PathBuf> = points.filter(|point| point.starts_with(&dir)).collect();
    // The drop unmounts from the last to the first: the image before the tmpfs that it lies on.
    let mut disks = Disks::default();
    disks.mounted = below;
    drop(disks);
}

/// Fills the disk that `data_dir` lies on.
///
/// # Errors
/// When writing the filler fails before the disk is full.
pub fn fill(data_dir: &Path) -> io::Result<()> {
    fill_file(&data_dir.parent().unwrap_or(data_dir).join(FILLER))
}

/// Fills the tmpfs that contains the disk image with `data_dir`, so that writes to the image fail.
pub fn fill_below(data_dir: &Path) -> io::Result<()> {
    let disk = data_dir.parent().and_then(Path::parent).unwrap_or(data_dir);
    fill_file(&disk.join(FILLER))
}

/// Removes the fillers of [`fill`] and [`fill_below`], if there are any.
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
