//! Reload on SIGHUP: reopens the log file, and reads the configuration again for the keys that can
//! change while a node runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::config::{ConfigError, KEYS, Settings};
use crate::logging::Logs;

/// Function that reads the configuration again, from the same flags, variables and file.
pub(crate) type ReadSettings = Box<dyn Fn() -> Result<Settings, ConfigError> + Send>;

/// Keys whose new values a reload applies. All other keys need a restart.
const AT_ONCE: [&str; 2] = ["log.level", "log.file"];

/// Reloader of one node's configuration.
pub(crate) struct Reload {
    read: ReadSettings,
    logs: Logs,
    /// Settings at the start of the node.
    running: Settings,
    tls_files: TlsFiles,
}

impl Reload {
    pub(crate) fn new(read: ReadSettings, logs: Logs, running: Settings) -> Reload {
        let tls_files = TlsFiles::read(&running);
        Reload { read, logs, running, tls_files }
    }

    /// Reloads the configuration at each SIGHUP.
    pub(crate) async fn on(mut self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // Reading files blocks, so it runs on a blocking thread.
            let reloaded = tokio::task::spawn_blocking(move || {
                self.reload();
                self
            });
            let Ok(reload) = reloaded.await else { return };
            self = reload;
        }
    }

    fn reload(&mut self) {
        let read = (self.read)().map_err(|error| error.to_string());
        let changed = read.and_then(|settings| self.logs.change(&settings).map(|()| settings));
        match changed {
            Err(error) => error!(error, "the configuration was not reloaded: the running one stays"),
            Ok(settings) => {
                let mut needs_restart = waiting(&self.running, &settings);
                needs_restart.extend(self.tls_files.changed(&settings));
                let needs_restart = needs_restart.join(",");
                info!(log = settings.log, needs_restart, "the configuration was reloaded");
            }
        }
    }
}

/// Hashes of the TLS files' contents at the start of the node, each with its configuration key and
/// path. The files are read only at start, so a changed file needs a restart.
struct TlsFiles([(&'static str, PathBuf, Contents); 3]);

/// Hash of a file's content; `None` when the file cannot be read. It need not be cryptographic, as
/// it never leaves the process.
type Contents = Option<u64>;

impl TlsFiles {
    fn read(settings: &Settings) -> TlsFiles {
        TlsFiles(tls_files(settings).map(|(key, file)| (key, file.to_owned(), contents(file))))
    }

    /// Returns the keys whose file has the same path as at the start, but another content.
    fn changed(&self, settings: &Settings) -> Vec<&'static str> {
        let now = tls_files(settings);
        let both = self.0.iter().zip(now);
        let changed = both.filter(|((_, file, before), (_, named))| file == named && contents(named) != *before);
        changed.map(|((key, ..), _)| *key).collect()
    }
}

fn tls_files(settings: &Settings) -> [(&'static str, &Path); 3] {
    let tls = &settings.tls;
    [("tls.certificate", &tls.certificate), ("tls.key", &tls.key), ("tls.client_ca", &settings.tls_client_ca)]
        .map(|(key, file)| (key, file.as_path()))
}

fn contents(file: &Path) -> Contents {
    let mut hasher = DefaultHasher::new();
    std::fs::read(file).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns the keys that differ between the two settings and need a restart.
fn waiting(running: &Settings, read: &Settings) -> Vec<&'static str> {
    let differs = KEYS.iter().filter(|key| (key.show)(running) != (key.show)(read));
    differs.map(|key| key.path).filter(|path| !AT_ONCE.contains(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_file_that_was_replaced_needs_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let mut settings = Settings::default();
        settings.tls.certificate = file("server.pem");
        settings.tls.key = file("server-key.pem");
        for file in [&settings.tls.certificate, &settings.tls.key] {
            std::fs::write(file, "old").unwrap();
        }
        let running = TlsFiles::read(&settings);
        assert!(running.changed(&settings).is_empty());
        std::fs::write(&settings.tls.certificate, "new").unwrap();
        assert_eq!(running.changed(&settings), ["tls.certificate"]);
        std::fs::remove_file(&settings.tls.key).unwrap();
        assert_eq!(running.changed(&settings), ["tls.certificate", "tls.key"], "a file that has gone is told, too");
        // A key with another path is not reported here, but by the comparison of all keys.
        settings.tls.certificate = file("other.pem");
        settings.tls.key = file("other-key.pem");
        assert!(running.changed(&settings).is_empty());
    }

    #[test]
    fn keys_that_need_a_restart_are_named() {
        let running = Settings::default();
        let mut read = running.clone();
        assert!(waiting(&running, &read).is_empty());
        read.log = "debug".to_owned();
        read.log_file = "/var/log/zlock.log".into();
        assert!(waiting(&running, &read).is_empty());
        read.replica.heartbeat_ms += 1;
        read.rest.waits_max += 1;
        assert_eq!(waiting(&running, &read), ["http.waits_max", "raft.heartbeat_interval"]);
    }
}
