//! A command's processes: all that descend from its watchdog, whatever groups and sessions they
//! have made.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};
use rustix::process::{pidfd_open, pidfd_send_signal, waitid, waitpid};

/// What a kill does not end within this time hangs in the kernel.
const HANGS: Duration = Duration::from_secs(5);

/// The living processes that descend from `ancestor`, but those that are spared and what descends
/// from them.
pub(super) fn descendants(ancestor: u32, spared: &[u32]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<(u32, bool)>> = BTreeMap::new();
    for (pid, Seen { parent, lives }) in all() {
        children.entry(parent).or_default().push((pid, lives));
    }
    let (mut found, mut open) = (Vec::new(), vec![ancestor]);
    while let Some(pid) = open.pop() {
        let born = children.remove(&pid).unwrap_or_default();
        for (child, lives) in born.into_iter().filter(|(child, _)| !spared.contains(child)) {
            // One that has ended counts as a link: its children may have been seen before they got
            // another parent.
            open.push(child);
            if lives {
                found.push(child);
            }
        }
    }
    found
}

/// Lets go of this process's children that have ended, but of the spared one: another thread asks
/// how that one ended.
pub(super) fn reap(spared: u32) {
    // A look that reaps nothing, and costs less than to read all of /proc.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !matches!(waitid(WaitId::All, ended), Ok(Some(_))) {
        return;
    }
    let me = std::process::id();
    for (pid, _) in all().filter(|(pid, seen)| seen.parent == me && !seen.lives && *pid != spared) {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // Without a number it would be any child.
        let _ = raw.map(|raw| waitpid(Some(raw), WaitOptions::NOHANG));
    }
}

/// Signals every descendant. Answers whether there was one.
pub(super) fn signal_all(ancestor: u32, signal: Signal) -> bool {
    let found = descendants(ancestor, &[]);
    for pid in &found {
        signal_one(*pid, signal);
    }
    !found.is_empty()
}

/// Kills every descendant but those that are spared, until none is left: processes may be born, and
/// get other parents, meanwhile.
pub(super) fn end_all(ancestor: u32, spared: &[u32]) {
    let began = Instant::now();
    let mut empty_looks = 0;
    while empty_looks < 2 && began.elapsed() < HANGS {
        let found = descendants(ancestor, spared);
        empty_looks = if found.is_empty() { empty_looks + 1 } else { 0 };
        found.into_iter().for_each(|pid| signal_one(pid, Signal::KILL));
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
    }
}

/// Signals one process. That it has ended meanwhile is no error.
pub(super) fn signal_one(pid: u32, signal: Signal) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // A descriptor stays with its process: a number that another process has got by now is not hit,
    // because that one is no descendant that was alive a moment ago.
    if let Ok(process) = pidfd_open(raw, PidfdFlags::empty())
        && look(pid).is_some_and(|seen| seen.lives)
    {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// All processes, by their numbers.
fn all() -> impl Iterator<Item = (u32, Seen)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, look(pid)?)))
}

/// A process as it was seen.
struct Seen {
    parent: u32,
    /// Not when it has ended and waits to be asked how.
    lives: bool,
}

fn look(pid: u32) -> Option<Seen> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, parentheses included.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Seen { parent, lives: !matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

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
        let all = descendants(me, &[]);
        assert!(all.contains(&cat) && all.contains(&shell.id()), "{all:?}");
        let others = descendants(me, &[shell.id()]);
        assert!(!others.contains(&cat) && !others.contains(&shell.id()), "{others:?}");
        assert!(signal_all(shell.id(), Signal::KILL));
        assert!(shell.wait().unwrap().success(), "the shell itself was left alone");
        assert!(descendants(shell.id(), &[]).is_empty());
    }
}
