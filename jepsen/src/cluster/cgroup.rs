//! Control groups of Linux, by which a process gets less memory or processor time than it needs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Resource that can be made scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Memory, including the page cache of files.
    Memory,
    /// Processor time.
    Cpu,
}

/// Directory in which the kernel shows its control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// Period in which a CPU quota limits a group's processor time, in microseconds.
const PERIOD_US: u64 = 100_000;

/// Names of the files of a control group, which differ between versions 1 and 2.
struct Files {
    limit: &'static str,
    met: (&'static str, &'static str),
    killed: (&'static str, &'static str),
}

const MEMORY_1: Files =
    Files { limit: "memory.limit_in_bytes", met: ("memory.failcnt", ""), killed: ("memory.oom_control", "oom_kill ") };
const MEMORY_2: Files =
    Files { limit: "memory.max", met: ("memory.events", "max "), killed: ("memory.events", "oom_kill ") };

/// Version of the kernel's control groups, with the parent directory for groups of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1: one tree of groups for each resource.
    One(PathBuf),
    /// Version 2: one tree of groups for all resources.
    Two(PathBuf),
}

impl Hierarchy {
    fn of(resource: Resource) -> io::Result<Hierarchy> {
        let name = match resource {
            Resource::Memory => "memory",
            Resource::Cpu => "cpu",
        };
        let own = Path::new(ROOT).join(name);
        if own.join("cgroup.procs").exists() {
            return Ok(Hierarchy::One(own));
        }
        let all = PathBuf::from(ROOT);
        let controllers = fs::read_to_string(all.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|controller| controller == name) {
            return Ok(Hierarchy::Two(all));
        }
        let message = format!("{ROOT} has no control groups for {name}");
        Err(io::Error::new(io::ErrorKind::NotFound, message))
    }

    fn dir(&self) -> &Path {
        match self {
            Hierarchy::One(dir) | Hierarchy::Two(dir) => dir,
        }
    }
}

/// Checks that control groups for this resource can be created on this machine.
///
/// # Errors
/// The reason why not: groups need root, and a kernel that has them.
pub fn available(resource: Resource) -> io::Result<()> {
    let hierarchy = Hierarchy::of(resource)?;
    if let Hierarchy::Two(dir) = &hierarchy {
        let name = if resource == Resource::Memory { "+memory" } else { "+cpu" };
        fs::write(dir.join("cgroup.subtree_control"), name)?;
    }
    let probe = hierarchy.dir().join(format!("jepsen-{}-probe", std::process::id()));
    fs::create_dir(&probe)?;
    fs::remove_dir(&probe)
}

/// A control group with one process.
#[derive(Debug)]
pub struct Group {
    hierarchy: Hierarchy,
    dir: PathBuf,
    resource: Resource,
}

impl Group {
    /// Moves a process into a new group with this amount of the resource: bytes of memory that the
    /// process may use in addition, or microseconds of processor time in every 100,000. The present
    /// memory of the process stays charged to its earlier control group.
    ///
    /// # Errors
    /// When the group cannot be made.
    pub fn around(process: u32, resource: Resource, amount: u64) -> io::Result<Group> {
        let hierarchy = Hierarchy::of(resource)?;
        let dir = hierarchy.dir().join(format!("jepsen-{}-{process}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Group { hierarchy, dir, resource };
        match group.fill(process, amount) {
            Ok(()) => Ok(group),
            Err(error) => {
                let _ = group.remove();
                Err(error)
            }
        }
    }

    fn fill(&self, process: u32, amount: u64) -> io::Result<()> {
        match (self.resource, &self.hierarchy) {
            (Resource::Memory, _) => self.write(self.files().limit, &amount.to_string())?,
            (Resource::Cpu, Hierarchy::One(_)) => {
                self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                self.write("cpu.cfs_quota_us", &amount.to_string())?;
            }
            (Resource::Cpu, Hierarchy::Two(_)) => self.write("cpu.max", &format!("{amount} {PERIOD_US}"))?,
        }
        self.write("cgroup.procs", &process.to_string())
    }

    /// Returns the number of times that the process reached its limit.
    ///
    /// # Errors
    /// When the kernel's files cannot be read.
    pub fn bound_met(&self) -> io::Result<u64> {
        match self.resource {
            Resource::Memory => self.count(self.files().met),
            Resource::Cpu => self.count(("cpu.stat", "nr_throttled ")),
        }
    }

    /// Tells whether the kernel has killed the process because there was no memory left.
    pub fn has_killed(&self) -> bool {
        self.resource == Resource::Memory && self.count(self.files().killed).is_ok_and(|killed| killed > 0)
    }

    /// Moves the processes of the group to the parent group, and removes the group.
    ///
    /// # Errors
    /// When the kernel does not remove the group.
    pub fn remove(self) -> io::Result<()> {
        for process in self.read("cgroup.procs")?.lines() {
            // The process may have ended meanwhile.
            let _ = fs::write(self.hierarchy.dir().join("cgroup.procs"), process);
        }
        fs::remove_dir(&self.dir)
    }

    fn files(&self) -> Files {
        match self.hierarchy {
            Hierarchy::One(_) => MEMORY_1,
            Hierarchy::Two(_) => MEMORY_2,
        }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.dir.join(name))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Returns the number behind `word` in the first line that begins with `word`, in the control
    /// group's file `name`; 0 without such a line.
    fn count(&self, (name, word): (&str, &str)) -> io::Result<u64> {
        Ok(number(&self.read(name)?, word))
    }
}

fn number(text: &str, word: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_read_by_its_word() {
        assert_eq!(number("low 0\nmax 12\noom_kill 1\n", "max "), 12);
        assert_eq!(number("7\n", ""), 7);
        assert_eq!(number("nr_periods 3\n", "nr_throttled "), 0);
    }
}
