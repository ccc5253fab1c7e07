//! Start of the running program as another process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Path of the program that runs in this process, even after an upgrade of its package has replaced
/// the file.
const RUNNING: &str = "/proc/self/exe";
/// Name that the kernel gives a process that was started by that path.
const NAMELESS: &str = "exe";

/// Starts the program that runs in this process again, under the name that it was called by.
pub(crate) fn command() -> Command {
    let mut command = Command::new(RUNNING);
    command.arg0(called_by());
    command
}

/// Gives a process that was started by [`command`] its name back, by which `ps` and `pgrep` know
/// it.
pub(crate) fn take_name() {
    const OWN: &str = "/proc/self/comm";
    let called_by = called_by();
    let name = Path::new(&called_by).file_name();
    // A process that cannot be named works as well.
    if let Some(name) = name
        && std::fs::read_to_string(OWN).is_ok_and(|own| own.trim_end() == NAMELESS)
    {
        let _ = std::fs::write(OWN, name.as_encoded_bytes());
    }
}

fn called_by() -> OsString {
    std::env::args_os().next().unwrap_or_else(|| "zlock".into())
}
