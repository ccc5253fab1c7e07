//! FUSE disks (`power-disk`) of the nodes, which the nemesis can break. This program serves them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use power_disk::{Cut, Disk, Mounted};

/// Disk of one node. It is unmounted when the value is dropped.
pub struct OwnDisk {
    mounted: Mounted,
    /// True while the disk has a fault.
    impaired: bool,
    /// Time at which a fault was last mended.
    mended: Option<Instant>,
}

impl OwnDisk {
    /// Makes a new disk for a node at `dir/disk`. Returns also the directory for its data.
    ///
    /// # Errors
    /// When mounting is not permitted.
    pub fn mount(dir: &Path) -> io::Result<(OwnDisk, PathBuf)> {
        let disk = dir.join("disk");
        fs::create_dir_all(&disk)?;
        let mounted = Mounted::on(&disk)?;
        let data = disk.join("data");
        fs::create_dir_all(&data)?;
        File::open(disk)?.sync_all()?;
        Ok((OwnDisk { mounted, impaired: false, mended: None }, data))
    }

    /// Makes a fault of the disk, as `how` says.
    pub fn impair(&mut self, how: impl FnOnce(&Disk)) {
        how(&self.mounted);
        self.impaired = true;
    }

    /// Returns the number of fsyncs that were slow or hung since the disk was mounted.
    pub fn delayed(&self) -> u64 {
        self.mounted.delayed()
    }

    /// Ends a fault of the disk: new fsyncs work, and waiting fsyncs succeed.
    pub fn mend(&mut self) {
        self.recover(Disk::mend);
    }

    /// Ends a fault of the disk, and makes waiting fsyncs fail. Called for a process that is being
    /// killed, because a process in a hanging fsync cannot end.
    pub fn let_go(&mut self) {
        self.recover(Disk::drop_hung);
    }

    /// Tells whether the disk has had no fault for longer than `time`.
    pub fn rested(&self, time: Duration) -> bool {
        !self.impaired && self.mended.is_none_or(|mended| mended.elapsed() > time)
    }

    fn recover(&mut self, how: fn(&Disk)) {
        if std::mem::take(&mut self.impaired) {
            self.mended = Some(Instant::now());
            how(&self.mounted);
        }
    }

    /// Cuts the power of the disk. The node must have been killed before. The seed decides which
    /// unsynced changes survive.
    pub fn lose_power(&self, seed: u64) -> Cut {
        self.mounted.cut(seed)
    }

    /// Copies the data to `saved-data` beside the disk, because the disk exists only in the memory
    /// of this process.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn save(&self) -> io::Result<()> {
        let beside = self.mounted.dir().with_file_name("saved-data");
        run(Command::new("cp").args(["-r", "--sparse=always"]).arg(self.mounted.dir().join("data")).arg(beside))
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
