//! Processes of a command: all descendants of its watchdog, in any process group or terminal
//! session.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};

/// Time after which a killed process that has not ended is no longer waited for, as it hangs in the
/// kernel.
const HANGS: Duration = Duration::from_secs(5);

/// Identity of a process. It differs from that of a later process with the same process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    /// Start time of the process: clock ticks since the machine was started, or a hash of the text
    /// that `ps` prints.
    started: u64,
}

/// Makes this process the parent of its descendants whose own parent ends, so that it still finds
/// them. Other systems than Linux give them to the first process, and they are not found then.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Returns the living descendants of the process `ancestor`, except the processes in `spared` and
/// their descendants.
pub(super) fn descendants(ancestor: u32, spared: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<(Process, bool)>> = BTreeMap::new();
    for seen in all() {
        children.entry(seen.parent).or_default().push((seen.process, seen.lives()));
    }
    let (mut found, mut open) = (Vec::new(), vec![ancestor]);
    while let Some(pid) = open.pop() {
        let born = children.remove(&pid).unwrap_or_default();
        for (child, lives) in born.into_iter().filter(|(child, _)| !spared.contains(child)) {
            // Ended processes are followed too: their children may have been listed before they got
            // a new parent.
            open.push(child.pid);
            if lives {
                found.push(child);
            }
        }
    }
    found
}

/// Reads the exit status of all ended children of this process (reaps them), except the child with
/// the process id `spared`, whose exit status is read elsewhere.
pub(super) fn reap(spared: u32) {
    // First checks whether any child has ended, which costs less than reading all of /proc.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, ended), Ok(Some(_))) {
        return;
    }
    let me = std::process::id();
    for seen in all().into_iter().filter(|seen| seen.parent == me && !seen.lives() && seen.process.pid != spared) {
        // Called only with a process id, as `waitpid` without one would reap any child.
        let _ = pid(seen.process.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
}

/// Signals every descendant of `ancestor`. Returns false if there was none.
pub(super) fn signal_all(ancestor: u32, signal: Signal) -> bool {
    let found = descendants(ancestor, &[]);
    found.iter().for_each(|process| signal_one(*process, signal));
    !found.is_empty()
}

/// Signals every descendant of `ancestor` that is in the process group `group`.
pub(super) fn signal_group(ancestor: u32, group: i32, signal: Signal) {
    let in_group = |process: &Process| look(process.pid).is_some_and(|seen| seen.group == group);
    descendants(ancestor, &[]).into_iter().filter(in_group).for_each(|process| signal_one(process, signal));
}

/// Kills every descendant of the process `ancestor`, except those in `spared`. Repeats this until
/// none is left, because processes may be started or get new parents meanwhile.
pub(super) fn end_all(ancestor: u32, spared: &[Process]) {
    let began = Instant::now();
    let mut empty_looks = 0;
    while empty_looks < 2 && began.elapsed() < HANGS {
        let found = descendants(ancestor, spared);
        empty_looks = if found.is_empty() { empty_looks + 1 } else { 0 };
        found.into_iter().for_each(|process| signal_one(process, Signal::KILL));
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
    }
}

/// Converts a process id to the type that system calls take.
pub(super) fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Opens a pidfd, which refers to one process for ever.
///
/// # Errors
/// Systems other than Linux have none, nor have kernels before 5.3. Old seccomp profiles forbid
/// them.
pub(super) fn pidfd(pid: Pid) -> rustix::io::Result<OwnedFd> {
    cfg_select! {
        target_os = "linux" => { rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) }
        _ => { let _ = pid; Err(Errno::NOSYS) }
    }
}

/// Signals one process. A process that has ended meanwhile is no error.
fn signal_one(process: Process, signal: Signal) {
    let Some(pid) = pid(process.pid) else { return };
    let is_there = || look(process.pid).is_some_and(|seen| seen.lives() && seen.process == process);
    // The identity is checked after the pidfd was opened, so a later process with the same process
    // id is not signalled.
    let sent = pidfd(pid).and_then(|descriptor| if is_there() { send(&descriptor, signal) } else { Err(Errno::SRCH) });
    // Without a pidfd, another process is signalled only if this one ends, and its process id is
    // reused, between the check and the signal.
    if sent.is_err_and(|error| error != Errno::SRCH) && is_there() {
        let _ = kill_process(pid, signal);
    }
}

/// Sends a signal to the process of a pidfd.
fn send(descriptor: &OwnedFd, signal: Signal) -> rustix::io::Result<()> {
    cfg_select! {
        target_os = "linux" => { rustix::process::pidfd_send_signal(descriptor, signal) }
        _ => { let _ = (descriptor, signal); Err(Errno::NOSYS) }
    }
}

/// Lists all processes, from /proc or `ps`.
fn all() -> Vec<Seen> {
    if !cfg!(target_os = "linux") {
        return listed(&["-A"]);
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(look).collect()
}

/// Lists the processes that `ps` prints with the options `which`, except `ps` itself. For systems
/// without /proc.
fn listed(which: &[&str]) -> Vec<Seen> {
    let mut ps = Command::new("/bin/ps");
    ps.args(which).args(["-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "state=", "-o", "lstart="]);
    // The time zone and the language are set, as the text of the start time depends on them.
    ps.env("TZ", "UTC").env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(ps) = ps.spawn() else { return Vec::new() };
    let own = ps.id();
    let Ok(output) = ps.wait_with_output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(Seen::in_line).filter(|seen| seen.process.pid != own).collect()
}

/// State of one process, from its `stat` file in /proc or a line of `ps`.
struct Seen {
    process: Process,
    parent: u32,
    group: i32,
    state: char,
}

impl Seen {
    /// Tells whether the process has not ended. A zombie counts as ended.
    fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Parses a line of `ps` with the fields: process id, parent, process group, state, start time.
    fn in_line(line: &str) -> Option<Seen> {
        let mut fields = line.split_whitespace();
        let pid = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let state = fields.next()?.chars().next()?;
        let mut started = DefaultHasher::new();
        fields.for_each(|field| field.hash(&mut started));
        Some(Seen { process: Process { pid, started: started.finish() }, parent, group, state })
    }
}

/// Tells whether a process is suspended by a signal.
pub(super) fn is_stopped(pid: u32) -> bool {
    look(pid).is_some_and(|seen| seen.state == 'T')
}

fn look(pid: u32) -> Option<Seen> {
    if !cfg!(target_os = "linux") {
        return listed(&["-p", &pid.to_string()]).pop();
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may itself contain blanks and parentheses.
    // So the fields are counted from the last closing one.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let started = fields.nth(22 - 6)?.parse().ok()?;
    Some(Seen { process: Process { pid, started }, parent, group, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ps_is_read() {
        let read = |line| Seen::in_line(line).map(|seen| (seen.process, seen.parent, seen.group, seen.state));
        let (process, parent, group, state) = read("   71    70   -71 Ss+  Sat Nov 28 00:37:50 2026").unwrap();
        assert_eq!((process.pid, parent, group, state), (71, 70, -71, 'S'));
        let later = read("71 70 -71 Z Sat Nov 28 00:37:51 2026").unwrap();
        assert_ne!(later.0, process, "another process got the process id");
        let same = read("71 1 71 T Sat Nov 28 00:37:50 2026").unwrap();
        assert_eq!(same.0, process);
        assert!(read("").is_none() && read("71 70 71").is_none() && read("PID PPID PGID STAT STARTED").is_none());
    }

    #[test]
    fn grandchildren_are_found_and_ended_and_the_ended_are_not_found() {
        let mut shell = Command::new("sh").args(["-c", "cat; true"]).stdin(Stdio::piped()).spawn().unwrap();
        let me = std::process::id();
        let began = std::time::Instant::now();
        let cat = loop {
            let found = descendants(shell.id(), &[]);
            if let [cat] = found[..] {
                break cat;
            }
            assert!(began.elapsed().as_secs() < 30, "the shell starts its command");
            std::thread::yield_now();
        };
        let pids = |spared: &[Process]| descendants(me, spared).into_iter().map(|found| found.pid).collect::<Vec<_>>();
        let all = pids(&[]);
        assert!(all.contains(&cat.pid) && all.contains(&shell.id()), "{all:?}");
        let others = pids(&[look(shell.id()).unwrap().process]);
        assert!(!others.contains(&cat.pid) && !others.contains(&shell.id()), "{others:?}");
        assert!(signal_all(shell.id(), Signal::KILL));
        assert!(shell.wait().unwrap().success(), "the shell itself was left alone");
        assert!(descendants(shell.id(), &[]).is_empty());
    }
}
