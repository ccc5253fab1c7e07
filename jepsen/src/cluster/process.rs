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
use super::cgroup::{Group, Scarcity};
use super::clock::Clock;
use super::{CLUSTER_ID, Place, Plan};
use crate::store::log_minute;

/// The super user of every node: `super:test`, as in the documentation of ZooKeeper. The nodes show
/// the digest of their state to this user alone.
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// Lines of a node's log that are shown when it ended.
const LAST_LINES: usize = 8;
/// Seconds by which a movable wall clock is behind at first. A node's first log lines must show
/// that time, which proves that libfaketime works.
const START_OFFSET_S: u64 = 3_600;
/// Largest number of ends of one node that are remembered. The first ones tell most.
const ENDS_MAX: usize = 50;

/// Longest time of a clean stop: more than a node gives itself before it cuts the stop short.
const STOP_MAX: Duration = Duration::from_secs(30);
/// Pause between two looks whether a node has stopped.
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// Words of a node that does not start on the data that it has.
const DAMAGED: &str = "is damaged: ";
/// Status of a process that the kernel has killed.
const KILLED: &str = "signal: 9";

/// An end of a node that the harness did not ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Number of the node.
    pub node: u64,
    /// Exit status of the process.
    pub how: String,
    /// True when the node's disk was broken during the process's life, or has left damaged data:
    /// the process has to end then.
    pub for_its_disk: bool,
    /// True when the kernel killed the process because its control group had no memory left.
    pub for_its_memory: bool,
    /// True when the node found its data damaged and refused to start; its message says to move the
    /// data away.
    pub refused_damage: bool,
    /// The end of the node's log.
    pub last_lines: Vec<String>,
}

impl Ended {
    /// Tells whether a broken disk or a lack of memory explains the end.
    pub fn is_excused(&self) -> bool {
        self.for_its_disk || self.for_its_memory
    }

    /// Tells whether the node's last line says that its data is damaged, whether or not its disk
    /// was broken.
    pub fn says_damaged(&self) -> bool {
        self.last_lines.last().is_some_and(|line| line.contains(DAMAGED))
    }
}

/// Program that a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The program that the node was first started with.
    First,
    /// The program that knows one level more.
    Next,
}

/// End of a process that was expected to end by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Exit code of the process, unless a signal ended it.
    pub code: Option<i32>,
    /// The end of the node's log.
    pub last_lines: Vec<String>,
}

/// Way in which a disk breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The disk takes no more bytes, and keeps what it has.
    Full,
    /// An fsync fails, and a part of a file may be lost.
    LosesWrites,
}

/// State of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Sound data: damage that a process finds is a bug.
    Sound,
    /// Data that was on a disk that loses writes.
    Suspect,
    /// Data that was suspect. The present process is the first to open it since, so it finds any
    /// damage.
    OnTrial,
}

/// State of a disk during the life of the present process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// The disk was not broken.
    Sound,
    /// The disk is broken now.
    Broken,
    /// The disk was broken, and a write that failed then may end the process yet.
    Mended,
}

/// A node of an own cluster.
pub struct Node {
    /// Id of the node, from 1.
    pub id: u64,
    /// Directory of the node's data.
    pub data_dir: PathBuf,
    /// The program that the node runs; then both programs that it may run.
    program: PathBuf,
    programs: (PathBuf, Option<PathBuf>),
    config: PathBuf,
    /// Beginning of the command: the way into the node's network namespace.
    enter: Vec<String>,
    log: PathBuf,
    faketime: Option<(PathBuf, PathBuf)>,
    process: Option<Process>,
    /// Time at which the process was started.
    started: Instant,
    paused: bool,
    /// Whether SIGKILL was sent, and the process is still to end.
    condemned: bool,
    disk: Disk,
    data: Data,
    /// The control group that bounds the node's memory or processor time.
    group: Option<Group>,
    ends: Vec<Ended>,
}

impl Node {
    /// Writes the configuration.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn prepare(plan: &Plan, id: u64, place: &Place, members: &str) -> io::Result<Node> {
        let dir = fs::canonicalize(&plan.dir)?.join(format!("node{id}"));
        fs::create_dir_all(&dir)?;
        let elsewhere = plan.data_dirs.get(id as usize - 1).cloned().flatten();
        let data_dir = elsewhere.unwrap_or_else(|| dir.join("data"));
        let config = dir.join("node.toml");
        let text = format!(
            "node.id = {id}\nnode.cluster_id = \"{CLUSTER_ID}\"\nnode.data_dir = \"{}\"\npeers.listen = \"{}\"\nzookeeper.listen = \"{}\"\nadmin.super_digest = \"{SUPER_DIGEST}\"\n{}\nnode.members = [\n{members}]\n",
            data_dir.display(),
            place.peer_listen,
            place.zookeeper,
            plan.settings,
        );
        fs::write(&config, text)?;
        let faketime = match &plan.faketime {
            Some(library) => {
                let offset = dir.join("clock");
                fs::write(&offset, format!("-{START_OFFSET_S}\n"))?;
                Some((library.clone(), offset))
            }
            None => None,
        };
        let log = dir.join("log");
        let (program, enter) = (fs::canonicalize(&plan.program)?, place.enter.clone());
        let programs = (program.clone(), plan.next.as_ref().map(fs::canonicalize).transpose()?);
        Ok(Node {
            id,
            data_dir,
            program,
            programs,
            config,
            enter,
            log,
            faketime,
            process: None,
            started: Instant::now(),
            paused: false,
            condemned: false,
            disk: Disk::Sound,
            data: Data::Sound,
            group: None,
            ends: Vec::new(),
        })
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

    /// Starts the process, which has to end by itself soon. This end is not among [`Node::ends`].
    ///
    /// # Errors
    /// When the process cannot be started, or goes on.
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

    /// Starts the process; its log goes on in the same file.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&mut self) -> io::Result<()> {
        let mut command = serve(&self.program, &self.config);
        if let [enter, words @ ..] = &self.enter[..] {
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
        self.paused = false;
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

    /// Tells whether the node runs. One that has ended by itself is remembered in [`Node::ends`].
    pub fn runs(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let Ok(Some(status)) = process.ended() else { return true };
        self.process = None;
        self.paused = false;
        self.note_end(status.to_string());
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

    /// Ends of the node that the harness did not ask for, since the beginning.
    pub fn ends(&self) -> &[Ended] {
        &self.ends
    }

    /// Notes that the node's disk is broken from now on.
    pub fn break_disk(&mut self, breakage: Breakage) {
        self.disk = Disk::Broken;
        if breakage == Breakage::LosesWrites {
            self.data = Data::Suspect;
        }
    }

    /// Notes that the node's disk is whole again.
    pub fn mend_disk(&mut self) {
        if self.disk == Disk::Broken {
            self.disk = if self.runs() { Disk::Mended } else { Disk::Sound };
        }
    }

    /// Tells whether the process has lived through a broken disk, so that it may still end because
    /// of it.
    pub fn must_prove_itself(&self) -> bool {
        self.process.is_some() && self.disk == Disk::Mended
    }

    /// Kills the process with SIGKILL, and returns when it is gone.
    pub fn kill(&mut self) {
        // A node that has ended by itself before is not excused by the kill.
        if !std::mem::take(&mut self.condemned) {
            self.runs();
        }
        // A stopped process dies of SIGKILL too.
        self.process = None;
        self.paused = false;
    }

    /// Sends SIGKILL without waiting, because a disk may keep the process from ending.
    /// [`Node::kill`] waits for the end.
    pub fn condemn(&mut self) {
        if self.runs()
            && let Some(process) = &self.process
        {
            let _ = process.signal(Signal::KILL);
            self.condemned = true;
        }
    }

    /// Sends SIGTERM, and waits for the end. A process that does not stop cleanly counts as ended
    /// by itself.
    pub async fn stop(&mut self) {
        self.pause(false);
        let told = self.runs() && self.process.as_ref().is_some_and(|process| process.signal(Signal::TERM).is_ok());
        if !told {
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

    /// Sends SIGSTOP, and returns when the process stands still, or SIGCONT.
    pub fn pause(&mut self, pause: bool) {
        let Some(process) = &self.process else { return };
        if (if pause { process.pause() } else { process.resume() }).is_ok() {
            self.paused = pause;
        }
    }

    /// Tells whether the process stands still.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Limits a resource of the process, until [`Node::release`].
    ///
    /// # Errors
    /// When the process does not run, or the control group cannot be made.
    pub fn starve(&mut self, scarcity: Scarcity) -> io::Result<()> {
        self.release()?;
        let process = self.process.as_ref().ok_or_else(|| io::Error::other("it does not run"))?;
        self.group = Some(Group::around(process.id(), scarcity)?);
        Ok(())
    }

    /// Number of times that the process has reached its limit.
    ///
    /// # Errors
    /// When the control group cannot say.
    pub fn bound_met(&self) -> io::Result<u64> {
        self.group.as_ref().map_or(Ok(0), Group::bound_met)
    }

    /// Lifts the limit of the process's resources.
    ///
    /// # Errors
    /// When the control group cannot be removed.
    pub fn release(&mut self) -> io::Result<()> {
        // The group tells whether the process ended for lack of memory, so an end is noted first.
        self.runs();
        self.group.take().map_or(Ok(()), Group::remove)
    }

    /// Throws the data of a stopped node away.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn wipe(&mut self) -> io::Result<()> {
        self.kill();
        self.data = Data::Sound;
        if !self.data_dir.exists() {
            return Ok(());
        }
        remove_inside(&self.data_dir)?;
        // The removal is synced, so that a loss of power brings nothing back.
        fs::File::open(&self.data_dir)?.sync_all()
    }

    /// Sets the wall clock. Nothing happens to a node that runs without libfaketime, which has the
    /// right time.
    ///
    /// # Errors
    /// When the file that libfaketime reads cannot be written, or the node runs without libfaketime
    /// and is to have another time.
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

    /// Checks in the log of a node that has just started that libfaketime works, and sets the clock
    /// right.
    ///
    /// # Errors
    /// When libfaketime does not work: no jump would have any effect.
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

    /// Number of lines of the log that contain this text.
    pub fn told(&self, message: &str) -> u64 {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.lines().filter(|line| line.contains(message)).count() as u64
    }

    /// Tells whether a node that was killed was writing, receiving or swapping a snapshot, by the
    /// files of its data directory (docs/dev/storage-format.md).
    pub fn has_unfinished_snapshot(&self) -> bool {
        let Ok(entries) = fs::read_dir(self.data_dir.join("sled")) else { return false };
        let names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        let being_written = names.iter().any(|path| path.extension().is_some_and(|end| end == "new"));
        let finished = names.iter().filter(|path| path.extension().is_none()).count();
        // There is a finished snapshot besides the current one.
        being_written || finished > usize::from(self.data_dir.join("snapshot").exists())
    }

    /// Lines of the log that show a bug.
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
