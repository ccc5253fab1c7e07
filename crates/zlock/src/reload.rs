//! Reload on SIGHUP: reopens the log file, and reads the configuration again for the keys that can
//! change while a node runs. TLS files are also reloaded without a signal.

use std::time::Duration;

use accept::Certificates;
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
}

impl Reload {
    pub(crate) fn new(read: ReadSettings, logs: Logs, running: Settings) -> Reload {
        Reload { read, logs, running }
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
                let needs_restart = waiting(&self.running, &settings).join(",");
                info!(log = settings.log, needs_restart, "the configuration was reloaded");
            }
        }
    }
}

/// Pause between two looks at the TLS files.
const TLS_PAUSE: Duration = Duration::from_secs(30);

/// Reads the TLS files of all ports again, at each SIGHUP and every [`TLS_PAUSE`]: Kubernetes
/// replaces files without a signal. `hangup` is `None` for a node that SIGHUP stops.
pub(crate) async fn reload_tls(certificates: Certificates, mut hangup: Option<Signal>) {
    loop {
        let look = certificates.clone();
        // Reading files blocks, so it runs on a blocking thread.
        if tokio::task::spawn_blocking(move || look.reload()).await.is_err() {
            return;
        }
        let signalled = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        // Waits until the pause ends or a signal comes.
        let _ = tokio::time::timeout(TLS_PAUSE, signalled).await;
    }
}

/// Returns the keys that differ between the two settings and need a restart.
fn waiting(running: &Settings, read: &Settings) -> Vec<&'static str> {
    let differs = KEYS.iter().filter(|key| (key.show)(running) != (key.show)(read));
    differs.map(|key| key.path).filter(|path| !AT_ONCE.contains(path)).collect()
}

#[cfg(test)]
mod tests {
    use accept::{CertificateFiles, MutualFiles, MutualTls};
    use testkit::{Authority, Files};
    use tokio::time::{Instant, interval, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_tls_files_are_found_without_a_signal() {
        let (authority, files) = (Authority::new("own"), Files::create());
        let (certificate, key) = files.put("own", &authority.node(&[], 30));
        let ca = files.put_certificate("ca", &authority.pem());
        let tls = MutualTls::load(MutualFiles { certificate, key, ca, crl: None, own_uri: None }).unwrap();
        let before = tls.not_after_s();
        let certificates: Certificates = [("peers", CertificateFiles::Peers(tls.clone()))].into_iter().collect();
        let began = Instant::now();
        tokio::spawn(reload_tls(certificates.clone(), None));
        // The paused clock goes on only while no file is read.
        let mut tick = interval(TLS_PAUSE / 10);
        tick.tick().await;
        tick.tick().await;
        files.put("own", &authority.node(&[], 60));
        let renewed = async {
            while tls.not_after_s() == before {
                tick.tick().await;
            }
        };
        timeout(2 * TLS_PAUSE, renewed).await.unwrap();
        assert!(began.elapsed() >= TLS_PAUSE, "{:?}", began.elapsed());
        let counts: Vec<_> = certificates.iter().map(|one| (one.reloads(), one.failures())).collect();
        assert_eq!(counts, [(1, 0)]);
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
