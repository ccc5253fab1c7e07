//! FUSE disks (`power-disk`) of the nodes, which the nemesis can break. This program serves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use power_disk::{Cut, Disk, Mounted};

/// Disks of all nodes. They are unmounted when the value is dropped.
#[derive(Default)]
pub struct Disks {
    mounted: Vec<Mounted>,
    /// Data directories on disks with a fault.
    impaired: BTreeSet<PathBuf>,
    /// Time at which a fault of a disk was last mended, by data directory.
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

impl Disks {
    /// Makes a new disk for a node at `dir/disk`. Returns the directory for its data.
    ///
    /// # Errors
    /// When mounting is not permitted.
    pub fn mount(&mut self, dir: &Path) -> io::Result<PathBuf> {
        let disk = dir.join("disk");
        fs::create_dir_all(&disk)?;
        let disk = fs::canonicalize(disk)?;
        self.mounted.push(Mounted::on(&disk)?);
        let data = disk.join("data");
        fs::create_dir_all(&data)?;
        File::open(disk)?.sync_all()?;
        Ok(data)
    }

    /// Makes a fault of the disk of `data_dir`, as `how` says.
    ///
    /// # Errors
    /// When the node has no disk of its own.
    pub fn impair(&mut self, data_dir: &Path, how: impl FnOnce(&Disk)) -> io::Result<()> {
        how(self.disk(data_dir)?);
        self.impaired.insert(data_dir.to_owned());
        Ok(())
    }

    /// Returns the number of fsyncs that were slow or hung on the disk since it was mounted.
    ///
    /// # Errors
    /// As for `impair`.
    pub fn delayed(&self, data_dir: &Path) -> io::Result<u64> {
        self.disk(data_dir).map(|disk| disk.delayed())
    }

    /// Ends the faults of all disks: new fsyncs work, and waiting fsyncs succeed.
    pub fn mend(&mut self) {
        self.impaired.clone().iter().for_each(|data_dir| self.mend_one(data_dir));
    }

    /// Ends the fault of one disk, as [`Disks::mend`] does.
    pub fn mend_one(&mut self, data_dir: &Path) {
        self.recover(data_dir, Disk::mend);
    }

    /// Ends the faults of all disks, and makes waiting fsyncs fail. Called for processes that are
    /// being killed, because a process in a hanging fsync cannot end.
    pub fn let_go(&mut self) {
        self.impaired.clone().iter().for_each(|data_dir| self.let_go_of(data_dir));
    }

    /// Ends the fault of one disk, as [`Disks::let_go`] does.
    pub fn let_go_of(&mut self, data_dir: &Path) {
        self.recover(data_dir, Disk::drop_hung);
    }

    /// Tells whether a disk has had no fault for longer than `time`.
    pub fn rested(&self, data_dir: &Path, time: Duration) -> bool {
        !self.impaired.contains(data_dir) && self.mended.get(data_dir).is_none_or(|mended| mended.elapsed() > time)
    }

    fn recover(&mut self, data_dir: &Path, how: fn(&Disk)) {
        if self.impaired.remove(data_dir) {
            self.mended.insert(data_dir.to_owned(), Instant::now());
            let _ = self.disk(data_dir).map(|disk| how(disk));
        }
    }

    fn disk(&self, data_dir: &Path) -> io::Result<&Mounted> {
        let disk = self.mounted.iter().find(|disk| data_dir.starts_with(disk.dir()));
        disk.ok_or_else(|| io::Error::other("the node has no disk of its own"))
    }

    /// Cuts the power of the disk that `data_dir` lies on. The node must have been killed before.
    /// The seed decides which unsynced changes survive.
    ///
    /// # Errors
    /// When the node has no disk of its own.
    pub fn lose_power(&mut self, data_dir: &Path, seed: u64) -> io::Result<Cut> {
        let cut = self.disk(data_dir)?.cut(seed);
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

    /// Copies the data of each disk to `saved-data` beside the disk, because the disk exists
    /// only in the memory of this process.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn save(&self) -> io::Result<()> {
        for disk in &self.mounted {
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
    for point in points.filter(|point| point.starts_with(&dir)) {
        // `-l` unmounts lazily, because a node that is being killed may still have open files.
        let _ = run(Command::new("umount").arg("-l").arg(&point));
    }
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{command:?}: {why}")))
}
