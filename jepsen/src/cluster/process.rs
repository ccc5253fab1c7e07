//! One node: a `zlock serve` process with its configuration, data and log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use testkit::{Process, last_lines, serve};
use tokio::time::{Instant, sleep};

use super::alarms::alarms;
use super::cgroup::{Group, Resource};
use super::clock::Clock;
use super::disk::OwnDisk;
use super::ended::{DAMAGED, Ended, Refused};
use super::{CLUSTER_ID, Place, Plan};
use crate::store::log_minute;

/// Credentials (`super:test`, hashed) of the super user in every node's configuration, as in the
/// documentation of ZooKeeper. The nodes show the digest of their state only to this user.
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
/// HTTP basic authentication as this user.
pub const SUPER: &str = "Basic c3VwZXI6dGVzdA==";

/// Number of lines from the end of a node's log that are reported when its process ends.
const LAST_LINES: usize = 8;
/// Seconds by which a node's wall clock is behind at its first start, if faults change clocks. The
/// times in its first log lines must be behind as well, which proves that libfaketime works.
const START_OFFSET_S: u64 = 3_600;
/// Largest number of unexpected process ends that are kept for one node. Later ends are not
/// recorded.
const ENDS_MAX: usize = 50;

/// Time within which a node must stop after SIGTERM: longer than the node's own limit for a clean
/// stop.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Pause between two checks whether a node has stopped.
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Text in the exit status of a process that was killed by SIGKILL.
const KILLED: &str = "signal: 9";
/// Exit code of a node that was removed from the members.
const REMOVED: i32 = 4;

/// Choice of the program that a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The program that the node was first started with.
    First,
    /// The program that knows one level (version of the data format) more.
    Next,
}

/// Way in which a disk breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The disk accepts no more bytes, and keeps its data.
    Full,
    /// An fsync fails, and a part of a file may be lost.
    LosesWrites,
}

/// Whether a broken disk may have damaged a node's data. Otherwise, damaged data is a bug of zlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Sound data: if a process finds damage, that is a bug.
    Sound,
    /// Data from a disk that lost writes. No process has opened it since the disk was mended.
    Suspect,
    /// Data that was suspect. The present process is the first that opened it after the mend, so
    /// this process finds any damage.
    OnTrial,
}

/// State of a node's disk while the present process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// The disk was not broken.
    Sound,
    /// The disk is broken now.
    Broken,
    /// The disk was broken earlier, and a write that failed then may still end the process.
    Mended,
}

/// A node of a cluster that the harness started.
pub struct Node {
    /// Id of the node, from 1.
    pub id: u64,
    /// Directory of the node's data.
    pub data_dir: PathBuf,
    /// Program that the node runs from its next start on. `programs` has the two choices.
    pub(super) program: PathBuf,
    programs: (PathBuf, Option<PathBuf>),
    /// Addresses of the node, and the beginning of its command line.
    pub place: Place,
    config: PathBuf,
    /// Text of the configuration file without the members.
    settings: String,
    /// True for a node that joins a cluster, and never starts a new one.
    pub(super) joins: bool,
    /// True once an operator removes the node from the members. Then its process may end with the
    /// exit code of a removed node.
    pub leaves: bool,
    log: PathBuf,
    faketime: Option<(PathBuf, PathBuf)>,
    pub(super) process: Option<Process>,
    /// Disk with the node's data, if faults need one. The field is after `process`, so that the
    /// process ends before the disk is unmounted.
    own_disk: Option<OwnDisk>,
    /// Time of the last start of the node's process.
    started: Instant,
    disk: Disk,
    data: Data,
    /// Control group that limits the node's memory or processor time; `None` without a limit.
    group: Option<Group>,
    ends: Vec<Ended>,
}

impl Node {
    /// Returns a node that is not started yet. [`Node::configure`] writes its configuration file.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn prepare(plan: &Plan, id: u64, place: &Place) -> io::Result<Node> {
        let dir = fs::canonicalize(&plan.dir)?.join(format!("node{id}"));
        fs::create_dir_all(&dir)?;
        let (own_disk, data_dir) = if plan.own_disks {
            let (disk, data_dir) = OwnDisk::mount(&dir)?;
            (Some(disk), data_dir)
        } else {
            (None, dir.join("data"))
        };
        let config = dir.join("node.toml");
        let settings = format!(
            "node.id = {id}\nnode.cluster_id = \"{CLUSTER_ID}\"\nnode.data_dir = \"{}\"\npeers.listen = \"{}\"\nzookeeper.listen = \"{}\"\nadmin.super_digest = \"{SUPER_DIGEST}\"\n{}\n",
            data_dir.display(),
            place.peer_listen,
            place.zookeeper,
            plan.settings_of(id)?,
        );
        let faketime = match &plan.faketime {
            Some(library) => {
                let offset = dir.join("clock");
                fs::write(&offset, format!("-{START_OFFSET_S}\n"))?;
                Some((library.clone(), offset))
            }
            None => None,
        };
        let log = dir.join("log");
        let program = fs::canonicalize(&plan.program)?;
        let programs = (program.clone(), plan.next.as_ref().map(fs::canonicalize).transpose()?);
        Ok(Node {
            id,
            data_dir,
            program,
            programs,
            place: place.clone(),
            config,
            settings,
            joins: id > plan.nodes,
            leaves: false,
            log,
            faketime,
            process: None,
            own_disk,
            started: Instant::now(),
            disk: Disk::Sound,
            data: Data::Sound,
            group: None,
            ends: Vec::new(),
        })
    }

    /// Writes the configuration file, with these lines of `node.members`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&self, members: &str) -> io::Result<()> {
        let joining = if self.joins { "node.joining = true\n" } else { "" };
        fs::write(&self.config, format!("{}{joining}node.members = [\n{members}]\n", self.settings))
    }

    /// Tells whether the process was ever started.
    pub fn was_used(&self) -> bool {
        self.log.exists()
    }

    /// Chooses the program that the node runs from its next start on.
    ///
    /// # Errors
    /// When there is no second program.
    pub fn run_program(&mut self, which: Which) -> Result<(), String> {
        self.program = match (which, &self.programs) {
            (Which::First, (first, _)) => first.clone(),
            (Which::Next, (_, Some(next))) => next.clone(),
            (Which::Next, (_, None)) => return Err("there is no second program".into()),
        };
        Ok(())
    }

    /// Starts the process and waits until it ends by itself. This end is expected, so it is not
    /// added to [`Node::ends`].
    ///
    /// # Errors
    /// When the process cannot be started, or still runs after 30 s.
    pub async fn start_to_the_end(&mut self) -> io::Result<Refused> {
        self.start()?;
        let deadline = Instant::now() + STOP_MAX;
        loop {
            let process = self.process.as_mut().ok_or_else(|| io::Error::other("it does not run"))?;
            if let Some(status) = process.ended()? {
                self.process = None;
                return Ok(Refused { code: status.code(), last_lines: last_lines(&self.log, LAST_LINES) });
            }
            if Instant::now() > deadline {
                let what = format!("node {} was to end by itself and has not after {} s", self.id, STOP_MAX.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            sleep(STOP_PAUSE).await;
        }
    }

    /// Starts the process. Its log is appended to the file of earlier starts.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&mut self) -> io::Result<()> {
        let mut command = serve(&self.program, &self.config);
        if let [enter, words @ ..] = &self.place.enter[..] {
            let inside = command;
            command = Command::new(enter);
            command.args(words).arg(inside.get_program()).args(inside.get_args());
        }
        if let Some((library, offset)) = &self.faketime {
            // Only the wall clock is changed: a monotonic clock that jumps makes the standard
            // library's waits hang.
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", offset);
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        self.started = Instant::now();
        self.process = Some(Process::start(command, &self.log)?);
        if self.disk == Disk::Mended {
            self.disk = Disk::Sound;
        }
        self.data = match (self.disk, self.data) {
            (Disk::Broken, data) => data,
            (_, Data::Suspect) => Data::OnTrial,
            (_, Data::OnTrial | Data::Sound) => Data::Sound,
        };
        Ok(())
    }

    /// Tells whether the node's process runs. An unexpected end that is noticed here is added to
    /// [`Node::ends`].
    pub fn runs(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let Ok(Some(status)) = process.ended() else { return true };
        self.process = None;
        if !(self.leaves && status.code() == Some(REMOVED)) {
            self.note_end(status.to_string());
        }
        false
    }

    fn note_end(&mut self, how: String) {
        if self.ends.len() < ENDS_MAX {
            let last_lines = last_lines(&self.log, LAST_LINES);
            let refused_damage =
                self.data != Data::Sound && last_lines.last().is_some_and(|line| line.contains(DAMAGED));
            let for_its_disk = self.disk != Disk::Sound || refused_damage;
            let for_its_memory = how.contains(KILLED) && self.group.as_ref().is_some_and(Group::has_killed);
            let node = self.id;
            self.ends.push(Ended { node, how, for_its_disk, for_its_memory, refused_damage, last_lines });
        }
    }

    /// Returns the unexpected ends of the node's process since its first start, up to a fixed
    /// number.
    pub fn ends(&self) -> &[Ended] {
        &self.ends
    }

    /// Returns the node's disk.
    ///
    /// # Errors
    /// When the node has no disk of its own.
    pub fn own_disk(&mut self) -> Result<&mut OwnDisk, String> {
        self.own_disk.as_mut().ok_or_else(|| format!("node {} has no disk of its own", self.id))
    }

    /// Copies the data of the node's own disk, as [`OwnDisk::save`] does.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn save_disk(&self) -> io::Result<()> {
        self.own_disk.as_ref().map_or(Ok(()), OwnDisk::save)
    }

    /// Marks the node's disk as broken from now on. The caller breaks it.
    pub fn break_disk(&mut self, breakage: Breakage) {
        self.disk = Disk::Broken;
        if breakage == Breakage::LosesWrites {
            self.data = Data::Suspect;
        }
    }

    /// Mends the node's disk, and marks it as whole again.
    pub fn mend_disk(&mut self) {
        self.own_disk.iter_mut().for_each(OwnDisk::mend);
        if self.disk == Disk::Broken {
            self.disk = if self.runs() { Disk::Mended } else { Disk::Sound };
        }
    }

    /// Tells whether the disk was broken and mended while the process ran. Then the process may
    /// still end because of a write that failed.
    pub fn must_prove_itself(&self) -> bool {
        self.process.is_some() && self.disk == Disk::Mended
    }

    /// Kills the process with SIGKILL, and returns when it is gone.
    pub fn kill(&mut self) {
        self.condemn();
        // The drop of `Process` waits for its end.
        self.process = None;
    }

    /// Sends SIGKILL, and makes hanging fsyncs of the disk fail, so that the process can end. If
    /// the node has ended by itself before, that counts as an unexpected end.
    pub(super) fn condemn(&mut self) {
        if self.runs() {
            let _ = self.signal(Signal::KILL);
        }
        self.own_disk.iter_mut().for_each(OwnDisk::let_go);
    }

    /// Sends SIGTERM and waits for the end. The node's disk is mended before. A process that does
    /// not stop cleanly in time is added to [`Node::ends`].
    pub async fn stop(&mut self) {
        self.own_disk.iter_mut().for_each(OwnDisk::mend);
        self.pause(false);
        if !self.runs() || self.signal(Signal::TERM).is_err() {
            return;
        }
        let deadline = Instant::now() + STOP_MAX;
        while let Some(process) = &mut self.process {
            match process.ended() {
                Ok(Some(status)) if status.success() => self.process = None,
                Ok(None) if Instant::now() < deadline => sleep(STOP_PAUSE).await,
                Ok(None) => {
                    self.process = None;
                    self.note_end(format!("was told to stop and had not after {} s", STOP_MAX.as_secs()));
                }
                Ok(Some(_)) | Err(_) => {
                    self.runs();
                    return;
                }
            }
        }
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// When the process does not run.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.as_ref().ok_or_else(|| io::Error::other("it does not run"))?.signal(signal)
    }

    /// Pauses the process with SIGSTOP and waits until it is paused, or resumes it with SIGCONT.
    pub fn pause(&mut self, pause: bool) {
        if let Some(process) = &self.process {
            let _ = if pause { process.pause() } else { process.resume() };
        }
    }

    /// Limits a resource of the process to an amount as in [`Group::around`], until
    /// [`Node::release`].
    ///
    /// # Errors
    /// When the process does not run, or the control group cannot be made.
    pub fn starve(&mut self, resource: Resource, amount: u64) -> io::Result<()> {
        self.release()?;
        let process = self.process.as_ref().ok_or_else(|| io::Error::other("it does not run"))?;
        self.group = Some(Group::around(process.id(), resource, amount)?);
        Ok(())
    }

    /// Returns the number of times that the process has reached its limit; 0 without a limit.
    ///
    /// # Errors
    /// When the files of the control group cannot be read.
    pub fn bound_met(&self) -> io::Result<u64> {
        self.group.as_ref().map_or(Ok(0), Group::bound_met)
    }

    /// Lifts the limit that [`Node::starve`] set.
    ///
    /// # Errors
    /// When the control group cannot be removed.
    pub fn release(&mut self) -> io::Result<()> {
        // The group tells whether the process ended for lack of memory, so an end is noted first.
        self.runs();
        self.group.take().map_or(Ok(()), Group::remove)
    }

    /// Kills the node if it runs, and empties its data directory.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn wipe(&mut self) -> io::Result<()> {
        self.kill();
        self.data = Data::Sound;
        if !self.data_dir.exists() {
            return Ok(());
        }
        remove_inside(&self.data_dir)?;
        // The removal is synced, so that no file comes back after a loss of power.
        fs::File::open(&self.data_dir)?.sync_all()
    }

    /// Sets the node's wall clock, by the file that libfaketime reads.
    ///
    /// # Errors
    /// When the file cannot be written, or when a node without libfaketime is to get another clock
    /// than [`Clock::RIGHT`].
    pub fn set_clock(&mut self, clock: Clock) -> io::Result<()> {
        match &self.faketime {
            Some((_, file)) => {
                let next = file.with_extension("next");
                fs::write(&next, clock.told(self.started.elapsed()))?;
                fs::rename(next, file)
            }
            None if clock == Clock::RIGHT => Ok(()),
            None => Err(io::Error::other("the node runs without libfaketime")),
        }
    }

    /// Checks in the log of a node that has just started that libfaketime works, and then sets the
    /// clock right. Does nothing without libfaketime.
    ///
    /// # Errors
    /// When libfaketime does not work, so that faults of clocks would have no effect.
    pub fn check_clock(&mut self) -> io::Result<()> {
        if self.faketime.is_none() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let minutes: Vec<String> = (0..=3).map(|ago| log_minute(now - START_OFFSET_S - ago * 60)).collect();
        let log = fs::read_to_string(&self.log)?;
        if !log.lines().any(|line| minutes.iter().any(|minute| line.starts_with(minute))) {
            let message = format!("libfaketime does not reach node {}: no line of its log is an hour old", self.id);
            return Err(io::Error::other(message));
        }
        self.set_clock(Clock::RIGHT)
    }

    /// Returns the number of lines of the node's log that contain this text.
    pub fn told(&self, message: &str) -> u64 {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains(message)).count() as u64
    }

    /// Tells by the files in the data directory (docs/dev/storage-format.md) whether a node that
    /// was killed had just been writing, receiving or installing a snapshot.
    pub fn has_unfinished_snapshot(&self) -> bool {
        let Ok(entries) = fs::read_dir(self.data_dir.join("sled")) else { return false };
        let names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let being_written = names.iter().any(|path| path.extension().is_some_and(|end| end == "new"));
        let finished = names.iter().filter(|path| path.extension().is_none()).count();
        // A second finished snapshot beside the current one was about to be installed.
        being_written || finished > usize::from(self.data_dir.join("snapshot").exists())
    }

    /// Returns the lines of the node's log that show a bug.
    pub fn alarms(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let excused = self.ends.iter().filter(|end| end.is_excused()).count();
        alarms(&log, excused).into_iter().map(|line| format!("node {}: {line}", self.id)).collect()
    }
}

/// Empties a directory that may be a mount point.
fn remove_inside(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
