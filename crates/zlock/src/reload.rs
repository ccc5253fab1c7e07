//! SIGHUP: the log's file is opened anew, and the configuration is read again for what can change while a node runs.

use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::config::{ConfigError, KEYS, Settings};
use crate::logging::Logs;

/// Reads the configuration again: the same flags, variables and file.
pub(crate) type ReadSettings = Box<dyn Fn() -> Result<Settings, ConfigError> + Send>;

/// Keys whose new values count at once. Those of all others count after a restart.
const AT_ONCE: [&str; 2] = ["log", "log_file"];

/// What a reload needs.
pub(crate) struct Reload {
    read: ReadSettings,
    logs: Logs,
    /// With which the node runs.
    running: Settings,
}

impl Reload {
    pub(crate) fn new(read: ReadSettings, logs: Logs, running: Settings) -> Reload {
        Reload { read, logs, running }
    }

    /// Reloads each time the signal comes.
    pub(crate) async fn on(mut self, mut hangup: Signal) {
        while hangup.recv().await.is_some() {
            // Files are read, which may take its time.
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
                let needs_restart = waiting(&self.running, &settings).join(",");
                info!(log = settings.log, needs_restart, "the configuration was reloaded");
            }
        }
    }
}

/// Keys that a reload does not change, and that differ.
fn waiting(running: &Settings, read: &Settings) -> Vec<&'static str> {
    let differs = KEYS.iter().filter(|key| (key.show)(running) != (key.show)(read));
    differs.map(|key| key.name).filter(|name| !AT_ONCE.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(waiting(&running, &read), ["heartbeat", "waits_max"]);
    }
}
