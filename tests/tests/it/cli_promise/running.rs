//! A command that `zlock` runs, in one of the ways in which users start it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::Signal;

use super::old_kernel::forbid_descriptors_of_processes;
use crate::cli::{parent, zlock};
use crate::harness::{Cluster, PROGRAM, kill, until};

/// Ways in which users run `zlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Without a terminal.
    Plain,
    /// On a system where `pidfd_open` fails with this error.
    WithoutDescriptors(Errno),
    /// With the command stopped by SIGSTOP when the tested event happens.
    Stopped,
    /// With the program's file replaced by another one while `zlock` runs.
    Replaced,
    /// In the foreground of a terminal.
    Terminal,
    /// As the first process of a container.
    Container,
}

/// `zlock`, its watchdog, the command, and a child of the command.
pub(super) struct Running {
    /// Process that the test has started: `zlock`, or the program that runs `zlock`.
    root: Child,
    pub(super) zlock: u32,
    pub(super) watchdog: u32,
    pub(super) command: [u32; 2],
    on_terminal: bool,
    _program: Option<tempfile::TempDir>,
}

impl Running {
    /// Starts `zlock` with these arguments, and waits until its command runs. If another client
    /// holds the lock, `give` makes it release the lock.
    pub(super) async fn start(place: Place, cluster: &Cluster, args: &[&str], give: impl AsyncFnOnce()) -> Running {
        let args = [args, &["--", "sh", "-c", "sleep 1000; true"]].concat();
        let mut command = zlock(cluster, &[]);
        let mut program = None;
        match place {
            Place::Plain | Place::WithoutDescriptors(_) | Place::Stopped => drop(command.args(&args)),
            Place::Replaced => {
                let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
                std::fs::hard_link(PROGRAM, dir.path().join("zlock")).unwrap();
                command = with_endpoints(&dir.path().join("zlock"), cluster);
                command.args(&args);
                program = Some(dir);
            }
            Place::Terminal => {
                command = with_endpoints(Path::new("script"), cluster);
                let words: Vec<String> =
                    [&[PROGRAM], &args[..]].concat().iter().map(|word| format!("'{word}'")).collect();
                command.args(["--quiet", "--return", "--flush", "--command", &words.join(" "), "/dev/null"]);
                command.env("SHELL", "/bin/sh").stdin(Stdio::piped());
            }
            Place::Container => {
                command = with_endpoints(Path::new("unshare"), cluster);
                command.args(CONTAINER).arg(PROGRAM).args(&args);
            }
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let root = start_in(place, command);
        if let Some(dir) = &program {
            until("zlock runs", async || (name(root.id())? == "zlock").then_some(())).await;
            std::fs::write(dir.path().join("new"), "no program").unwrap();
            std::fs::rename(dir.path().join("new"), dir.path().join("zlock")).unwrap();
        }
        give().await;
        let (zlock, watchdog, command) = until("the command runs", async || found(root.id())).await;
        let on_terminal = place == Place::Terminal;
        let running = Running { root, zlock, watchdog, command, on_terminal, _program: program };
        if place == Place::Stopped {
            running.command.iter().for_each(|pid| kill(*pid, Signal::STOP));
        }
        running
    }

    /// Types Ctrl-C on a terminal; elsewhere sends SIGINT.
    pub(super) fn interrupt(&mut self) {
        match self.root.stdin.as_mut().filter(|_| self.on_terminal) {
            Some(keys) => keys.write_all(b"\x03").unwrap(),
            None => kill(self.zlock, Signal::INT),
        }
    }

    /// Tells whether the command or its child runs.
    pub(super) fn runs(&self) -> bool {
        self.command.iter().any(|pid| parent(*pid).is_some())
    }

    /// Waits until the started program has ended, and returns its exit code; `None` when a signal
    /// ended it.
    pub(super) async fn exit(&mut self) -> Option<i32> {
        until("zlock has ended", async || self.root.try_wait().unwrap()).await.code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for pid in self.command.iter().chain([&self.watchdog, &self.zlock]).filter(|pid| parent(**pid).is_some()) {
            kill(*pid, Signal::KILL);
        }
        let _ = self.root.kill();
        let _ = self.root.wait();
    }
}

/// Options of `unshare` for a container with its own process ids, and with a /proc that shows them.
const CONTAINER: [&str; 6] = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Tells whether this user may make a container.
pub(super) fn can_contain() -> bool {
    Command::new("unshare").args(CONTAINER).arg("true").status().is_ok_and(|status| status.success())
}

fn with_endpoints(program: &Path, cluster: &Cluster) -> Command {
    let mut command = Command::new(program);
    command.env("ZLOCK_ENDPOINTS", cluster.endpoints().join(",")).stdin(Stdio::null());
    command
}

fn start_in(place: Place, mut command: Command) -> Child {
    let Place::WithoutDescriptors(errno) = place else { return command.spawn().unwrap() };
    // A thread cannot remove its seccomp filter, so a new thread installs it.
    let started = std::thread::spawn(move || {
        forbid_descriptors_of_processes(errno);
        command.spawn().unwrap()
    });
    started.join().unwrap()
}

/// Returns the process ids of `zlock`, the watchdog, and the command with its child; `None` until
/// the command has its child.
fn found(root: u32) -> Option<(u32, u32, [u32; 2])> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let only = |pid: u32| children.get(&pid)?.first().copied();
    let mut zlock = root;
    while !name(zlock)?.starts_with("zlock") {
        zlock = only(zlock)?;
    }
    let watchdog = only(zlock)?;
    let command = only(watchdog)?;
    let child = only(command)?;
    (name(child)? == "sleep").then_some((zlock, watchdog, [command, child]))
}

fn name(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}
