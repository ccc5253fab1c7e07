//! Directories of runs: `store/<workload>/<time>/`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Creates the directory of a new run and points `store/<workload>/latest` to it.
///
/// # Errors
/// When the directory cannot be created.
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

/// Formats a time as `20260102T030405Z`.
fn timestamp(seconds: u64) -> String {
    date(seconds).replace(['-', ':'], "")
}

/// Formats a time as `2026-01-02T03:04`, the beginning of a node's log lines in that minute.
pub(crate) fn log_minute(seconds: u64) -> String {
    date(seconds)[..16].to_owned()
}

/// Formats a time as `2026-01-02T03:04:05Z`.
fn date(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(timestamp(0), "19700101T000000Z");
        assert_eq!(timestamp(951_782_400), "20000229T000000Z");
        assert_eq!(timestamp(1_795_250_096), "20261121T083456Z");
        assert_eq!(log_minute(1_795_250_096), "2026-11-21T08:34");
    }

    #[test]
    fn two_runs_of_one_second_have_two_directories() {
        let store = tempfile::tempdir().unwrap();
        let first = new_run(store.path(), "register").unwrap();
        let second = new_run(store.path(), "register").unwrap();
        assert_ne!(first, second);
    }
}
