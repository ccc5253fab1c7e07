//! Detection of this process's controlling terminal, and messages to it from the background.

use std::fs::File;
use std::mem::MaybeUninit;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use super::say;

/// Relation of this process to its controlling terminal. Stdin and stdout do not matter: a command
/// in a pipeline can open `/dev/tty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    /// The process has no controlling terminal, as under a service manager.
    Absent,
    /// The process is in the background, as with `&` in a shell, and is suspended if it reads from
    /// the terminal.
    Background,
    /// The process is in the foreground, so Ctrl-C and Ctrl-Z signal its process group.
    Foreground,
}

impl Terminal {
    pub(super) fn of_this_process() -> Terminal {
        if !cfg!(target_os = "linux") {
            return Terminal::of_device().unwrap_or(Terminal::Absent);
        }
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Terminal::in_stat(&stat).unwrap_or(Terminal::Absent)
    }

    /// Asks the terminal for its foreground process group; `None` if it cannot be opened. For
    /// systems without `/proc`.
    fn of_device() -> Option<Terminal> {
        let foreground = tcgetpgrp(File::open("/dev/tty").ok()?).ok()?;
        Some(if foreground == getpgrp() { Terminal::Foreground } else { Terminal::Background })
    }

    /// Parses the content of `/proc/PID/stat`; `None` if it is malformed. The fields after the name
    /// in parentheses are: state, parent, process group, session, terminal, foreground process
    /// group.
    fn in_stat(stat: &str) -> Option<Terminal> {
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(2);
        let (group, _session) = (fields.next()?, fields.next()?);
        let (terminal, foreground) = (fields.next()?, fields.next()?);
        Some(match terminal {
            "0" => Terminal::Absent,
            _ if group == foreground => Terminal::Foreground,
            _ => Terminal::Background,
        })
    }
}

/// Prints a line to stderr from a process that must not be suspended. A write from the background
/// to a terminal with `stty tostop` sends SIGTTOU unless this signal is blocked.
#[expect(unsafe_code, reason = "neither std nor rustix changes the signals that are blocked")]
pub(super) fn say_unstopped(line: &str) {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigemptyset` initialises `blocked`, and `pthread_sigmask` initialises `before`: it
    // fails only for a wrong first argument.
    unsafe {
        libc::sigemptyset(blocked.as_mut_ptr());
        libc::sigaddset(blocked.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
    }
    say(line);
    // SAFETY: `before` is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &str, expected: Option<Terminal>) {
        assert_eq!(Terminal::in_stat(stat), expected, "{stat}");
    }

    #[test]
    fn the_controlling_terminal_and_its_foreground_are_told() {
        check("71 (a b) S 1 71 71 0 -1 4194304", Some(Terminal::Absent));
        check("71 () 9) S 1 71 60 34816 71 4194304", Some(Terminal::Foreground));
        check("71 (zlock) S 1 71 60 34816 60 4194304", Some(Terminal::Background));
        check("", None);
    }
}
