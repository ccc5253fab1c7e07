//! Where runs are kept: `store/<workload>/<time>/`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cluster::NetworkKind;
use crate::runner::Options;

/// Makes the directory of a new run and points `store/<workload>/latest` to it.
///
/// # Errors
/// When it cannot be made.
pub fn new_run(store: &Path, workload: &str) -> io::Result<PathBuf> {
    let parent = store.join(workload);
    std::fs::create_dir_all(&parent)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for later in 0.. {
        let name = timestamp(now + later);
        match std::fs::create_dir(parent.join(&name)) {
            Ok(()) => {
                let latest = parent.join("latest");
                let _ = std::fs::remove_file(&latest);
                let _ = std::os::unix::fs::symlink(&name, latest);
                return Ok(parent.join(name));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && later < 100 => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// `20260102T030405Z`.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of year 0, leap days come last (Howard Hinnant, chrono-compatible low-level date algorithms).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The library that makes wall clocks jump.
///
/// # Errors
/// When it is not installed.
pub fn faketime() -> io::Result<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64"];
    let mut found = places.iter().map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1"));
    found.find(|path| path.is_file()).ok_or_else(|| {
        let message = "libfaketime was not found (Debian: apt-get install faketime)";
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// The command that runs this again.
pub fn command(options: &Options) -> String {
    let faults: Vec<&str> = options.faults.iter().map(|fault| fault.name()).collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(",") };
    let mut command = format!(
        "cargo run --release -p jepsen -- test --workload {} --nemesis {faults} --nodes {} --time {}s --concurrency {} --rate {} --seed {}",
        options.workload.name(),
        options.nodes,
        options.time.as_secs(),
        options.concurrency,
        options.rate,
        options.seed
    );
    if options.negative {
        command.push_str(" --negative");
    }
    let network = match options.network {
        NetworkKind::Proxies => "proxy",
        NetworkKind::Namespaces => "namespaces",
    };
    command.push_str(&format!(" --network {network}"));
    let pace = options.pace;
    command.push_str(&format!(" --calm {}ms --fault {}ms", pace.calm.as_millis(), pace.fault.as_millis()));
    for setting in options.settings.lines() {
        command.push_str(&format!(" --set '{setting}'"));
    }
    if !options.endpoints.is_empty() {
        command.push_str(&format!(" --endpoints {}", options.endpoints.join(",")));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(timestamp(0), "19700101T000000Z");
        assert_eq!(timestamp(951_782_400), "20000229T000000Z");
        assert_eq!(timestamp(1_795_250_096), "20261121T083456Z");
    }

    #[test]
    fn two_runs_of_one_second_have_two_directories() {
        let store = tempfile::tempdir().unwrap();
        let first = new_run(store.path(), "register").unwrap();
        let second = new_run(store.path(), "register").unwrap();
        assert_ne!(first, second);
    }
}
