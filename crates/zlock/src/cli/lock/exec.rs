//! Process that the watchdog starts. On Linux it asks the kernel to kill it when the watchdog ends.
//! Then it executes the user's command in its own place.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;

use clap::{Arg, ArgMatches, Command};
use rustix::process::getppid;

/// Name of the hidden command that runs this process.
pub(crate) const EXEC: &str = "internal-exec";

/// Exit code, as in a shell, when the command exists but cannot be executed.
const CANNOT_RUN: u8 = 126;
/// Exit code, as in a shell, when the command does not exist.
const NOT_FOUND: u8 = 127;

pub(crate) fn command() -> Command {
    Command::new(EXEC)
        .hide(true)
        .about("Runs a command that ends when its parent ends; only for `zlock lock`")
        .arg(
            Arg::new("parent")
                .long("parent")
                .value_parser(clap::value_parser!(i32))
                .help("Process id of the parent with which the command ends; absent: the command may go on"),
        )
        .arg(super::words())
}

/// Asks the kernel to kill this process when its parent ends. Other systems than Linux cannot do
/// that: there the command goes on after a SIGKILL of the watchdog.
fn bind_to_parent() -> rustix::io::Result<()> {
    cfg_select! {
        target_os = "linux" => { rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) }
        _ => { Ok(()) }
    }
}

/// Replaces this process by the command. Returns an exit code only when that fails.
pub(crate) fn run(matches: &ArgMatches) -> u8 {
    if let Some(parent) = matches.get_one::<i32>("parent") {
        let bound = bind_to_parent();
        // If the parent ended before the call, the kernel will send no signal.
        if bound.is_err() || getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(*parent) {
            return CANNOT_RUN;
        }
    }
    let mut words = matches.get_many::<OsString>("command").expect("it is required");
    let program = words.next().expect("it has at least one word");
    let error = std::process::Command::new(program).args(words).exec();
    let _ = writeln!(std::io::stderr(), "zlock: cannot run {}: {error}", program.display());
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}
