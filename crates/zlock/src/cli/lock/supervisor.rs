//! Supervisor: the process of `zlock lock` or `zlock session exec` while its command runs.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, getpgrp};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use zlock_client::Loss;

use super::super::failure::Failure;
use super::control::{Ended, Order, Report, now, send_order, send_stdin, understood};
use super::deadline::{OnLoss, Plan};
use super::held::Held;
use super::process_tree::{Process, adopt_orphans, descendants, end_all, is_stopped, signal_all};
use super::signals::{Signals, is_to_end, of_number};
use super::terminal::Terminal;
use super::watchdog::{Task, WATCHDOG};
use super::{LOST, say};
use crate::own_program;

/// Time between two checks whether heartbeats have moved the deadline. A moved deadline is sent to
/// the watchdog.
const TELL: Duration = Duration::from_millis(50);
/// Longest time that the watchdog may take to report the command's end after this process has
/// killed the command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Outcome of running a command.
pub(super) struct Outcome {
    /// The command's exit code.
    pub(super) code: u8,
    /// Whether the command was ended because the lock or session was lost, or was about to be.
    pub(super) lost: bool,
    /// Whether `zlock lock` received a signal that asks a program to end.
    pub(super) interrupted: bool,
    /// Reason of the loss; `None` without a reported loss, even if the command was ended at its
    /// deadline.
    pub(super) loss: Option<Loss>,
    /// Whether the lock or session was still held after the command's end, until `--hold-at-least`
    /// was over.
    pub(super) is_kept: bool,
}

/// Starts the watchdog, which runs the command, and waits until the command has ended.
pub(super) async fn supervise(
    held: &Held<'_>,
    plan: Plan,
    command: &[&OsString],
    signals: &mut Signals,
    is_quiet: bool,
) -> Result<Outcome, Failure> {
    // On a terminal the command shares this process's group, so that the terminal signals both,
    // both may read from it, and job control works.
    let shares_group = Terminal::of_this_process() != Terminal::Absent;
    // If the watchdog is killed, the command's processes become children of this process, so that
    // it can find and kill them.
    adopt_orphans();
    let spared = descendants(std::process::id(), &[]);
    let until = safe_until(now, || held.safe_for()).unwrap_or_else(now);
    let (mut watchdog, socket) = start(held, until, plan, command, shares_group)
        .map_err(|error| Failure::refused(format!("cannot start the watchdog: {error}")))?;
    let watched = watchdog.id().unwrap_or(0);
    let reports = BufReader::new(socket).lines();
    let mut supervisor = Supervisor {
        held,
        plan,
        reports,
        watchdog: watched,
        spared,
        told: until,
        is_quiet,
        is_interrupted: false,
        is_gone: false,
        loss: None,
    };
    let Ended { code, lost } = supervisor.run(signals, shares_group).await;
    // Kills the watchdog if it still runs.
    let _ = watchdog.start_kill();
    let _ = watchdog.wait().await;
    let loss = match supervisor.loss {
        // The reason may take a request, for which there is time after the command's end.
        None if supervisor.is_gone => Some(held.lost().await),
        loss => loss,
    };
    Ok(Outcome { code, lost, interrupted: supervisor.is_interrupted, loss, is_kept: false })
}

fn start(
    held: &Held<'_>,
    until: Duration,
    plan: Plan,
    command: &[&OsString],
    shares_group: bool,
) -> std::io::Result<(Child, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let group = if shares_group { getpgrp().as_raw_nonzero().get() } else { 0 };
    let task = Task { what: held.to_string(), plan, until, group };
    let mut watchdog = Command::from(own_program::command());
    watchdog.arg(WATCHDOG).arg(serde_json::to_string(&task)?).arg("--").args(command);
    for (variable, value) in held.environment() {
        match value {
            Some(value) => watchdog.env(variable, value),
            None => watchdog.env_remove(variable),
        };
    }
    send_stdin(&ours)?;
    watchdog.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
    let child = watchdog.spawn()?;
    ours.set_nonblocking(true)?;
    Ok((child, UnixStream::from_std(ours)?))
}

struct Supervisor<'a> {
    held: &'a Held<'a>,
    plan: Plan,
    /// Reports of the watchdog. The same socket carries orders to the watchdog.
    reports: Lines<BufReader<UnixStream>>,
    watchdog: u32,
    /// Children that this process had before it executed this program. They are not killed.
    spared: Vec<Process>,
    /// The deadline that was last sent to the watchdog, as a time since the machine was started.
    told: Duration,
    /// Whether the message about a suspended command is left out (`--quiet`).
    is_quiet: bool,
    /// Whether this process received a signal that asks the command to end.
    is_interrupted: bool,
    /// Whether the lock or session is known to be lost.
    is_gone: bool,
    /// Reason of the loss, once it is known.
    loss: Option<Loss>,
}

impl Supervisor<'_> {
    async fn run(&mut self, signals: &mut Signals, shares_group: bool) -> Ended {
        let held = self.held;
        let mut gone = Box::pin(held.gone());
        let mut lost = Box::pin(held.lost());
        let mut revoked = Box::pin(held.revoked());
        let mut is_revoked = false;
        let mut ticks = tokio::time::interval(TELL);
        // Time at which this process killed the command itself; `None` before.
        let mut ended_at: Option<Duration> = None;
        loop {
            tokio::select! {
                heard = self.hear() => {
                    match heard {
                        Some(Report::Ended(ended)) => return ended,
                        Some(Report::Stopped(pid)) => self.tell_of_a_stop(pid),
                        None => return self.end(),
                    }
                }
                () = &mut gone, if !self.is_gone => {
                    self.is_gone = true;
                    self.order(Order::Lost);
                }
                // Asked at once with `--on-loss warn`, as the command may run for longer than the
                // lock's history keeps the reason.
                loss = &mut lost, if self.is_gone && self.loss.is_none() && self.plan.on_loss == OnLoss::Warn => {
                    self.loss = Some(loss);
                }
                request = &mut revoked, if !is_revoked => {
                    is_revoked = true;
                    let by = request.session.map_or("another client".into(), |session| format!("session {session}"));
                    say(&format!("zlock: {by} asks for {held}"));
                }
                number = signals.next() => {
                    self.pass_on(number, shares_group);
                }
                _ = ticks.tick() => {
                    self.tell_deadline();
                    // The watchdog may be suspended, so this process kills the command at the
                    // deadline.
                    if self.plan.on_loss != OnLoss::Warn && self.is_due() {
                        signal_all(self.watchdog, Signal::KILL);
                        let began = *ended_at.get_or_insert_with(now);
                        if now() > began + PATIENCE {
                            return self.end();
                        }
                    }
                }
            }
        }
    }

    /// Waits for the watchdog's next report. `None` when the watchdog has ended without a report of
    /// the command's end.
    async fn hear(&mut self) -> Option<Report> {
        understood(self.reports.next_line().await.ok()??.as_bytes())
    }

    fn pass_on(&mut self, number: i32, shares_group: bool) {
        let is_foreground = shares_group && Terminal::of_this_process() == Terminal::Foreground;
        let is = |signal: Signal| signal.as_raw() == number;
        self.is_interrupted |= of_number(number).is_some_and(is_to_end);
        if is_foreground && (is(Signal::INT) || is(Signal::QUIT)) {
            // The terminal has already sent these signals to the whole group. A suspended command
            // receives them only after SIGCONT.
            self.order(Order::Signal(Signal::CONT.as_raw()));
        } else if !(is_foreground && is(Signal::WINCH)) {
            self.order(Order::Signal(number));
        }
    }

    /// Prints that a suspended command still holds its lock or session; nothing if the command runs
    /// again by now. After Ctrl-Z the command runs again, because Ctrl-Z suspends this process,
    /// too, and both are resumed together.
    fn tell_of_a_stop(&self, pid: u32) {
        if !self.is_quiet && is_stopped(pid) {
            let held = self.held;
            say(&format!("zlock: the command is stopped, and keeps {held}; `kill -CONT {pid}` lets it go on"));
        }
    }

    /// Kills all processes of the command, and the watchdog if it still runs. With `--on-loss
    /// warn`, kills none.
    fn end(&self) -> Ended {
        if self.plan.on_loss != OnLoss::Warn {
            end_all(std::process::id(), &self.spared);
        }
        Ended { code: LOST, lost: true }
    }

    /// Tells whether the deadline is over at which the watchdog should have killed the command. A
    /// reported loss does not change this time.
    fn is_due(&self) -> bool {
        now() + self.plan.margin / 2 >= self.told
    }

    fn tell_deadline(&mut self) {
        let held = self.held;
        // Without a new heartbeat the result differs by microseconds, the time between two reads of
        // the clock. So changes of up to 5 ms are ignored.
        let until = safe_until(now, || held.safe_for()).filter(|until| *until > self.told + Duration::from_millis(5));
        if let Some(until) = until {
            self.told = until;
            self.order(Order::Until(until));
        }
    }

    fn order(&mut self, order: Order) {
        send_order(self.reports.get_ref().get_ref(), order);
    }
}

/// Returns the time up to which the lock or session cannot expire, on the scale of `clock`; `None`
/// when it may have expired already.
///
/// The clock is read first. So if this process is suspended between the two reads, the result is
/// too early, but never too late.
fn safe_until(clock: impl FnOnce() -> Duration, safe_for: impl FnOnce() -> Duration) -> Option<Duration> {
    let now = clock();
    Some(safe_for()).filter(|safe_for| !safe_for.is_zero()).map(|safe_for| now + safe_for)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_process_that_was_stopped_between_two_looks_at_the_clock_promises_no_time_that_there_is_not() {
        let (deadline, time) = (Duration::from_secs(100), Cell::new(Duration::from_secs(60)));
        // Simulates a suspension of half a minute after each read of the clock.
        let look = |time: &Cell<Duration>| time.replace(time.get() + Duration::from_secs(30));
        let until = safe_until(|| look(&time), || deadline.saturating_sub(look(&time)));
        assert_eq!(until, Some(Duration::from_secs(70)));
        let until = safe_until(|| look(&time), || deadline.saturating_sub(look(&time)));
        assert_eq!(until, None, "it is past the deadline");
    }
}
