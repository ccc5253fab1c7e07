//! Server processes that tests start, signal, pause and kill.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::signal::unix::{self, SignalKind};

/// A server process. The drop kills it.
pub struct Process {
    child: Child,
    /// Write end of the pipe that is the server's stdin. `zlock serve --until-stdin-ends` stops
    /// when it is closed, so the server never outlives the tests.
    _stdin: Option<ChildStdin>,
}

/// Makes SIGINT, SIGQUIT and SIGHUP work in the processes that this process starts, even if this
/// process was started with these signals ignored (with `&` in a script, or by nohup). It installs
/// handlers, and a signal with a handler has its default action in a started program.
///
/// # Errors
/// An error when a handler cannot be installed.
///
/// # Panics
/// If called outside of a tokio runtime.
pub fn reset_ignored_signals() -> io::Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    for kind in [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()] {
        if ignored & (1 << (kind.as_raw_value() - 1)) != 0 {
            let _caught = unix::signal(kind)?;
        }
    }
    Ok(())
}

/// Returns the command that starts a node, which stops when the process that started it ends.
pub fn serve(program: &Path, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(config).arg("--until-stdin-ends");
    command
}

impl Process {
    /// Starts the command. Its output is appended to the file `log`.
    ///
    /// # Errors
    /// An error when the log cannot be opened, or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        Ok(Process { child, _stdin: stdin })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// An error when the process has ended and its exit status was read.
    pub fn signal(&self, which: Signal) -> io::Result<()> {
        signal(self.id(), which)
    }

    /// Sends SIGSTOP, and waits until all threads of the process are stopped. Without the wait, a
    /// running thread could still notice that its connections end.
    ///
    /// # Errors
    /// An error when the process has ended. Its exit status can still be read.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(pid(self.id())?), until) {
                Ok(status) if status.as_ref().is_some_and(|status| status.stopped()) => return Ok(()),
                Ok(status) => return Err(io::Error::other(format!("ended instead of stopping: {status:?}"))),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    /// As [`Process::signal`].
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// The exit status of the process; `None` while it runs. Does not block.
    ///
    /// # Errors
    /// When the system returns an error.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM, and blocks until the process has ended.
    ///
    /// # Errors
    /// When the system returns an error.
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.child.wait()
    }

    /// Sends SIGKILL, and blocks until the process has ended. Ends a stopped process, too.
    pub fn kill(&mut self) {
        // An error is ignored: the process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process that this one has started.
///
/// # Errors
/// An error when there is no such process.
pub fn signal(id: u32, which: Signal) -> io::Result<()> {
    Ok(kill_process(pid(id)?, which)?)
}

fn pid(id: u32) -> io::Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the last `count` lines of a log file, or all if there are fewer; none if it cannot be
/// read.
pub fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Process::start(command, Path::new("/dev/null")).expect("there is a shell")
    }

    #[test]
    fn a_paused_process_stands_until_it_is_resumed_and_then_ends_as_it_would() {
        let mut process = shell("read line; exit 7");
        for _ in 0..3 {
            process.pause().expect("it runs");
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it is there");
            assert!(stat.contains(") T "), "{stat}");
            process.resume().expect("it is there");
        }
        assert!(process.ended().expect("it is ours").is_none());
        drop(process._stdin.take());
        assert_eq!(process.child.wait().expect("it is ours").code(), Some(7));
    }

    #[test]
    fn a_pause_of_a_process_that_has_ended_fails_and_does_not_hide_how_it_ended() {
        let mut process = shell("exit 7");
        while process.pause().is_ok() {
            process.resume().expect("it is not waited for yet");
        }
        assert_eq!(process.ended().expect("it is ours").and_then(|status| status.code()), Some(7));
    }
}
