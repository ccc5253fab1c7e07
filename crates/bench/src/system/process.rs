//! Server processes that end with this program, and their memory and processor time.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::Process;

/// Starts `program`, with its log in the file `log`. The kernel kills the process when this program
/// ends for any reason.
pub(super) fn start(program: &Path, arguments: &[String], log: &Path) -> io::Result<Process> {
    // setpriv of util-linux sets the signal and executes the program, which keeps the process id.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
    Process::start(command, log)
}

/// Returns the memory of all these processes (PSS): a page that n processes share counts as an n-th
/// of a page for each.
pub(crate) fn memory_bytes(processes: impl Iterator<Item = u32>) -> io::Result<u64> {
    let one = |id| Ok(field_kb(&fs::read_to_string(format!("/proc/{id}/smaps_rollup"))?, "Pss:") * 1024);
    processes.map(one).sum()
}

/// Processor time that all these processes have used so far.
pub(crate) fn cpu_time(processes: impl Iterator<Item = u32>) -> io::Result<Duration> {
    processes.map(|id| cpu(&format!("/proc/{id}/stat"))).sum()
}

/// Processor time of this program.
pub(crate) fn own_cpu_time() -> io::Result<Duration> {
    cpu("/proc/self/stat")
}

fn cpu(path: &str) -> io::Result<Duration> {
    let stat = fs::read_to_string(path)?;
    let ticks = read_ticks(&stat).ok_or_else(|| io::Error::other(format!("{path} has no times")))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns user time plus system time in clock ticks, the 14th and the 15th field of
/// `/proc/<pid>/stat`. The second field may contain blanks, but ends at the last bracket.
fn read_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn field_kb(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_the_sum_of_user_and_system() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 123 45 0 0 20 0 1 0 1 1 1";
        assert_eq!(read_ticks(stat), Some(168));
        assert_eq!(read_ticks("nonsense"), None);
        assert_eq!(field_kb("Rss:   12 kB\nPss:  7 kB", "Pss:"), 7);
        assert!(memory_bytes(std::iter::once(std::process::id())).unwrap() > 0);
    }
}
