//! Start of another process with the program that runs in this process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Path of the running program on Linux. It stays valid when an upgrade replaces the program's
/// file.
const RUNNING: &str = "/proc/self/exe";
/// Name that the kernel gives to a process started by the path [`RUNNING`].
const NAMELESS: &str = "exe";

/// Returns a command that starts the running program again. Its `argv[0]` is that of this process.
pub(crate) fn command() -> Command {
    let running = if cfg!(target_os = "linux") { Ok(RUNNING.into()) } else { std::env::current_exe() };
    // Without a path, the shell's search finds the program again.
    let mut command = Command::new(running.unwrap_or_else(|_| called_by().into()));
    command.arg0(called_by());
    command
}

/// Sets the name of a process that was started by [`command`], for `ps` and `pgrep`.
pub(crate) fn take_name() {
    const OWN: &str = "/proc/self/comm";
    let called_by = called_by();
    let name = Path::new(&called_by).file_name();
    // An error is ignored, as the name is only for tools.
    if let Some(name) = name
        && std::fs::read_to_string(OWN).is_ok_and(|own| own.trim_end() == NAMELESS)
    {
        let _ = std::fs::write(OWN, name.as_encoded_bytes());
    }
}

fn called_by() -> OsString {
    std::env::args_os().next().unwrap_or_else(|| "zlock".into())
}
