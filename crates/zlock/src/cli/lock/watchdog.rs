//! The watchdog: starts the command, and ends it before the lock may be lost.
//!
//! The watchdog is a process in a process group of its own. It waits only for its socket, the
//! command and the clock. What stops or kills `zlock lock` does not stop the watchdog. Signals that
//! ask a program to end do not end it either, because service managers send them to all processes.
//! The watchdog ends after the command, to which `zlock lock` passes such signals on.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, waitid};
use rustix::process::{kill_process_group, pidfd_open, set_child_subreaper};
use serde::{Deserialize, Serialize};

use super::control::{Ended, Order, Report, now, receive_stdin, report, understood};
use super::deadline::{Deadline, OnLoss, Plan, Step};
use super::exec::EXEC;
use super::process_tree::{end_all, pid, reap, signal_all, signal_group};
use super::signals::{Signals, is_to_end, of_number};
use super::{LOST, say};
use crate::own_program;

/// The name of the hidden command.
pub(crate) const WATCHDOG: &str = "internal-watchdog";

/// Pause between looks at the clock: the kernel's timers do not count the time that the machine
/// sleeps.
const LOOK: Duration = Duration::from_millis(20);
/// Pause between looks for orphans that have ended.
const REAP: Duration = Duration::from_secs(1);
/// Exit code for a command that cannot be started.
const CANNOT_RUN: u8 = 126;

/// Task that `zlock lock` gives its watchdog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The lock or session that may be lost, as messages name it.
    pub(super) what: String,
    pub(super) plan: Plan,
    /// The first deadline, as a time since the machine was started.
    pub(super) until: Duration,
    /// The process group of the command; 0 for a group of its own.
    pub(super) group: i32,
}

pub(crate) fn command() -> Command {
    let task = Arg::new("task").required(true).value_parser(|text: &str| serde_json::from_str::<Task>(text));
    Command::new(WATCHDOG)
        .hide(true)
        .about("Ends a command before a lock or a session may be lost; for `zlock lock`")
        .arg(task.help("What it is to do, from `zlock lock`"))
        .arg(super::words())
}

pub(crate) fn run(matches: &ArgMatches) -> u8 {
    let Task { what, plan, until, group } = matches.get_one::<Task>("task").expect("it is required").clone();
    // Processes of the command whose parents end become children of this process, so that it finds
    // them.
    let _ = set_child_subreaper(Some(getpid()));
    let deadline = Deadline::new(plan, until);
    if plan.on_loss != OnLoss::Warn && deadline.step(now()) != Step::Wait {
        // The machine was slow: a command that would have to be ended at once is not started.
        report(Report::Ended(Ended { code: LOST, lost: true }));
        return LOST;
    }
    let started = catch_signals().and_then(|()| start(matches, group, plan.on_loss));
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            say(&format!("zlock: cannot start the command: {error}"));
            report(Report::Ended(Ended { code: CANNOT_RUN, lost: false }));
            return CANNOT_RUN;
        }
    };
    let watchdog = Watchdog { child, what, plan, deadline, group, done: Step::Wait, supervised: true };
    let ended = watchdog.watch();
    report(Report::Ended(ended));
    ended.code
}

/// Catches the signals that `zlock lock` passes on, and does nothing then. They are not ignored,
/// because the command would inherit that. Signals that were ignored before stay ignored.
fn catch_signals() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    // The handlers stay when no task listens any more, and when the runtime has gone.
    Signals::listen().map(drop)
}

fn start(matches: &ArgMatches, group: i32, on_loss: OnLoss) -> std::io::Result<Child> {
    let stdin = receive_stdin()?;
    let mut exec = own_program::command();
    exec.arg(EXEC);
    if on_loss != OnLoss::Warn {
        exec.arg("--parent").arg(std::process::id().to_string());
    }
    exec.arg("--").args(matches.get_many::<OsString>("command").expect("it is required"));
    exec.stdin(Stdio::from(stdin)).process_group(group).spawn()
}

struct Watchdog {
    child: Child,
    what: String,
    plan: Plan,
    deadline: Deadline,
    /// The process group that the command shares; 0 when the command has a group of its own.
    group: i32,
    /// The last action on the command.
    done: Step,
    /// Whether the supervisor still runs.
    supervised: bool,
}

impl Watchdog {
    /// Watches until the command has ended.
    fn watch(mut self) -> Ended {
        let mut line = Vec::new();
        let mut reaped = now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return self.ended(status);
            }
            if self.pause() {
                self.listen(&mut line);
            }
            self.act();
            self.tell_of_a_stop();
            // Orphans are this process's children, and no other part reads their exit status.
            if now() >= reaped + REAP {
                reap(self.child.id());
                reaped = now();
            }
        }
    }

    /// Waits for an order, for the command's end, or for the next look at the clock. Returns true
    /// if there is an order.
    fn pause(&self) -> bool {
        let stdin = std::io::stdin();
        // Without a descriptor of the process, the next look at the clock comes soon.
        let process = pid(self.child.id()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut waits = Vec::new();
        if self.supervised {
            waits.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        if let Some(process) = &process {
            waits.push(PollFd::new(process, PollFlags::IN));
        }
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // An interrupted wait counts as one that is over.
        let _ = poll(&mut waits, Some(&look));
        self.supervised && !waits[0].revents().is_empty()
    }

    /// Reads orders. The end of the stream means that the supervisor has gone.
    fn listen(&mut self, line: &mut Vec<u8>) {
        let mut bytes = [0; 512];
        // Not through the library's buffer, because `poll` would not see the bytes in it.
        let read = rustix::io::retry_on_intr(|| rustix::io::read(std::io::stdin(), &mut bytes));
        let count = read.unwrap_or(0);
        if count == 0 {
            self.supervised = false;
            self.deadline.lose(now());
            return;
        }
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                line.push(*byte);
                continue;
            }
            match understood(line) {
                Some(Order::Until(until)) => self.deadline.extend(until),
                Some(Order::Signal(number)) => self.pass_on(number),
                Some(Order::Lost) => self.deadline.lose(now()),
                None => {}
            }
            line.clear();
        }
    }

    fn pass_on(&self, number: i32) {
        // The number belongs to the child until this process has read the child's exit status.
        let (Some(signal), Some(child)) = (of_number(number), pid(self.child.id())) else { return };
        let send = |signal| match self.group {
            0 => drop(kill_process_group(child, signal)),
            shared => signal_group(std::process::id(), shared, signal),
        };
        send(signal);
        if is_to_end(signal) {
            send(Signal::CONT);
        }
    }

    /// Reports each suspension of the command to the supervisor, once.
    fn tell_of_a_stop(&self) {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if let Some(child) = pid(self.child.id())
            && matches!(waitid(WaitId::Pid(child), stopped), Ok(Some(_)))
            && self.supervised
        {
            report(Report::Stopped(self.child.id()));
        }
    }

    /// Carries out the step that is due.
    fn act(&mut self) {
        let due = self.deadline.step(now());
        if self.plan.on_loss == OnLoss::Warn {
            if due == Step::End && self.done != Step::End {
                self.done = Step::End;
                say(&format!("zlock: {} may be lost, and the command goes on as --on-loss warn says", self.what));
            }
            return;
        }
        let me = std::process::id();
        // SIGTERM is sent once. SIGKILL is sent until no process is left, because processes may be
        // born meanwhile.
        if due == Step::End {
            signal_all(me, Signal::KILL);
        } else if due == Step::Ask && self.done == Step::Wait {
            signal_all(me, Signal::TERM);
            signal_all(me, Signal::CONT);
        }
        self.done = self.done.max(due);
    }

    fn ended(self, status: ExitStatus) -> Ended {
        let code = match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, signal) => signal.and_then(|number| u8::try_from(128 + number).ok()).unwrap_or(u8::MAX),
        };
        let lost = self.plan.on_loss != OnLoss::Warn && self.done != Step::Wait;
        if lost {
            // The processes that the command has started go with it.
            end_all(std::process::id(), &[]);
        }
        Ended { code, lost }
    }
}
