//! The watchdog process: starts the command, and kills it before the lock can be lost.
//!
//! The watchdog has its own process group. It waits only for its socket, the command and the clock,
//! so it goes on when `zlock lock` is suspended or killed. Signals that ask a program to end do not
//! end the watchdog, because service managers send them to all processes. `zlock lock` passes them
//! on to the command, and the watchdog ends after the command.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use super::LOST;
use super::control::{Ended, Order, Report, now, receive_stdin, report, understood};
use super::deadline::{Deadline, OnLoss, Plan, Step};
use super::exec::EXEC;
use super::process_tree::{adopt_orphans, end_all, pid, pidfd, reap, signal_all, signal_group};
use super::signals::{Signals, is_to_end, of_number};
use super::terminal::say_unstopped;
use crate::own_program;

/// Name of the hidden command that runs the watchdog.
pub(crate) const WATCHDOG: &str = "internal-watchdog";

/// Time between two checks of the deadline. Polled, because the kernel's timers stop while the
/// machine sleeps.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two checks for orphaned processes that have ended.
const REAP: Duration = Duration::from_secs(1);
/// Exit code when the command cannot be started.
const CANNOT_RUN: u8 = 126;

/// Parameters that the supervisor (the `zlock lock` process that holds the session) passes to the
/// watchdog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Name of the lock or session, for messages.
    pub(super) what: String,
    pub(super) plan: Plan,
    /// Time up to which the lock cannot be lost, as known at the watchdog's start. A time since the
    /// machine was started.
    pub(super) until: Duration,
    /// The process group for the command; 0 for a new group.
    pub(super) group: i32,
}

pub(crate) fn command() -> Command {
    let task = Arg::new("task").required(true).value_parser(|text: &str| serde_json::from_str::<Task>(text));
    Command::new(WATCHDOG)
        .hide(true)
        .about("Ends a command before its lock or session may be lost; only for `zlock lock`")
        .arg(task.help("Task from `zlock lock`, as JSON"))
        .arg(super::words())
}

pub(crate) fn run(matches: &ArgMatches) -> u8 {
    let Task { what, plan, until, group } = matches.get_one::<Task>("task").expect("it is required").clone();
    // Orphaned processes of the command become children of this process, so that it can find and
    // kill them.
    adopt_orphans();
    let deadline = Deadline::new(plan, until);
    if plan.on_loss != OnLoss::Warn && deadline.step(now()) != Step::Wait {
        // On a slow machine the deadline may be due already. Then the command is not started.
        report(Report::Ended(Ended { code: LOST, lost: true }));
        return LOST;
    }
    let started = catch_signals().and_then(|()| start(matches, group, plan.on_loss));
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            say_unstopped(&format!("zlock: cannot start the command: {error}"));
            report(Report::Ended(Ended { code: CANNOT_RUN, lost: false }));
            return CANNOT_RUN;
        }
    };
    let watchdog = Watchdog { child, what, plan, deadline, group, done: Step::Wait, supervised: true };
    let ended = watchdog.watch();
    report(Report::Ended(ended));
    ended.code
}

/// Installs handlers without effect for the signals that `zlock lock` passes on. They are not set
/// to be ignored, because the command would inherit that. Signals that were ignored before stay
/// ignored.
fn catch_signals() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    // The handlers stay installed after the listeners and the runtime are dropped.
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
    /// The process group that the command shares with the supervisor (the `zlock lock` process that
    /// holds the session); 0 when the command has its own group.
    group: i32,
    /// The most severe action that was taken against the command so far.
    done: Step,
    /// Whether the socket to the supervisor (the process that started the watchdog) is still open.
    supervised: bool,
}

impl Watchdog {
    /// Watches the command until it has ended.
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
            // Orphans are children of this process, and their exit status is read only here.
            if now() >= reaped + REAP {
                reap(self.child.id());
                reaped = now();
            }
        }
    }

    /// Waits for a message of the supervisor (the `zlock lock` process that holds the session), for
    /// the command's end, or for the next check of the clock. Returns true if the socket to the
    /// supervisor is readable.
    fn pause(&self) -> bool {
        let stdin = std::io::stdin();
        // Without a pidfd, the command's end is noticed at the next check of the clock.
        let process = pid(self.child.id()).and_then(|pid| pidfd(pid).ok());
        let mut waits = Vec::new();
        if self.supervised {
            waits.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
        }
        if let Some(process) = &process {
            waits.push(PollFd::new(process, PollFlags::IN));
        }
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // An interrupted wait counts as ended.
        let _ = poll(&mut waits, Some(&look));
        self.supervised && !waits[0].revents().is_empty()
    }

    /// Reads messages of the supervisor (the `zlock lock` process that holds the session) and
    /// carries them out. The end of the stream means that the supervisor has ended, which counts as
    /// a loss.
    fn listen(&mut self, line: &mut Vec<u8>) {
        let mut bytes = [0; 512];
        // Unbuffered, because `poll` does not see bytes in the buffer of the standard library.
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
        // The process id cannot be reused until this process has read the child's exit status.
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

    /// Reports to the supervisor (the `zlock lock` process that holds the session), once for each
    /// suspension, that the command was suspended.
    fn tell_of_a_stop(&self) {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if let Some(child) = pid(self.child.id())
            && matches!(waitid(WaitId::Pid(child), stopped), Ok(Some(_)))
            && self.supervised
        {
            report(Report::Stopped(self.child.id()));
        }
    }

    /// Takes the action against the command that is due now: none, SIGTERM, SIGKILL or a message.
    fn act(&mut self) {
        let due = self.deadline.step(now());
        if self.plan.on_loss == OnLoss::Warn {
            if due == Step::End && self.done != Step::End {
                self.done = Step::End;
                say_unstopped(&format!(
                    "zlock: {} may be lost, and the command goes on as --on-loss warn says",
                    self.what
                ));
            }
            return;
        }
        let me = std::process::id();
        // SIGTERM is sent once. SIGKILL is sent repeatedly, because processes may be started
        // meanwhile.
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
            // Processes that the command has started are killed, too.
            end_all(std::process::id(), &[]);
        }
        Ended { code, lost }
    }
}
