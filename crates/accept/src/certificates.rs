//! Certificates that a node shows at its ports: reloads of their files, and their expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::acceptor::Acceptor;
use crate::mutex::Mutex;
use crate::mutual::MutualTls;

/// Days before the end of a certificate's validity at which a line is logged.
const WARNING_DAYS: [u64; 4] = [0, 1, 7, 30];
const DAY_S: u64 = 86_400;

/// Certificates of a node, one for each port with TLS. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Certificates(Arc<[Certificate]>);

/// Certificate of one port.
#[derive(Debug)]
pub struct Certificate {
    /// Name of the port: `http`, `zookeeper` or `peers`.
    pub port: &'static str,
    files: CertificateFiles,
    reloads: AtomicU64,
    failures: AtomicU64,
    told: Mutex<LoggedEvents>,
}

/// TLS of one port. It can read its files again.
#[derive(Clone, Debug)]
pub enum CertificateFiles {
    /// TLS of a port for clients.
    Clients(Acceptor),
    /// TLS of the port for peers.
    Peers(MutualTls),
}

/// Events that were logged last, so that each is logged once.
#[derive(Debug, Default)]
struct LoggedEvents {
    error: Option<String>,
    /// End of validity, and the entry of [`WARNING_DAYS`] for which a line was logged.
    expiry: Option<(u64, u64)>,
}

impl PartialEq for Certificates {
    /// Tells whether the two values share one list.
    fn eq(&self, other: &Certificates) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Certificates {}

impl FromIterator<(&'static str, CertificateFiles)> for Certificates {
    /// Makes the certificates from pairs of a port's name and its TLS.
    fn from_iter<I: IntoIterator<Item = (&'static str, CertificateFiles)>>(ports: I) -> Certificates {
        let certificate = |(port, files)| Certificate {
            port,
            files,
            reloads: AtomicU64::default(),
            failures: AtomicU64::default(),
            told: Mutex::default(),
        };
        Certificates(ports.into_iter().map(certificate).collect())
    }
}

impl Certificates {
    /// The certificates, one for each port with TLS.
    pub fn iter(&self) -> std::slice::Iter<'_, Certificate> {
        self.0.iter()
    }

    /// Reads the files of all ports again. Logs what has changed, files that cannot be used, and
    /// certificates whose validity ends soon. Blocks while it reads.
    pub fn reload(&self) {
        let now_s = now_s();
        self.iter().for_each(|certificate| certificate.reload(now_s));
    }

    /// Returns the port of a certificate that has expired; `None` if no certificate has expired.
    pub fn expired(&self) -> Option<&'static str> {
        let now_s = now_s();
        self.iter().find(|certificate| certificate.not_after_s() <= now_s).map(|certificate| certificate.port)
    }
}

impl Certificate {
    /// End of the validity in seconds since 1970.
    pub fn not_after_s(&self) -> u64 {
        match &self.files {
            CertificateFiles::Clients(acceptor) => acceptor.not_after_s(),
            CertificateFiles::Peers(tls) => tls.not_after_s(),
        }
    }

    /// Number of times that new files came into use.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Relaxed)
    }

    /// Number of times that the files were read again and could not be used.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    fn reload(&self, now_s: u64) {
        let reloaded = match &self.files {
            CertificateFiles::Clients(acceptor) => acceptor.reload(),
            CertificateFiles::Peers(tls) => tls.reload(),
        };
        let port = self.port;
        let mut told = self.told.lock();
        let error = reloaded.as_ref().err().map(ToString::to_string);
        if let Some(error) = error.as_ref() {
            self.failures.fetch_add(1, Relaxed);
            if told.error.as_ref() != Some(error) {
                tracing::warn!(port, error, "the TLS files of a port were not reloaded: the running ones stay");
            }
        }
        told.error = error;
        let days = self.not_after_s().saturating_sub(now_s) / DAY_S;
        if reloaded.is_ok_and(|is_new| is_new) {
            self.reloads.fetch_add(1, Relaxed);
            tracing::info!(port, days, "the TLS files of a port were reloaded");
        }
        let expiry = (self.not_after_s(), due(self.not_after_s(), now_s));
        if let (end, Some(due)) = expiry
            && told.expiry.replace((end, due)) != Some((end, due))
        {
            match due {
                0 => tracing::error!(port, "the certificate of a port has expired"),
                _ => tracing::warn!(port, days, "the certificate of a port expires soon"),
            }
        }
    }
}

/// Returns the smallest entry of [`WARNING_DAYS`] that is not below the time until `end_s`; `None`
/// if this time is above all entries.
fn due(end_s: u64, now_s: u64) -> Option<u64> {
    WARNING_DAYS.into_iter().find(|days| end_s <= now_s + days * DAY_S)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_due_a_month_a_week_and_a_day_before_its_end() {
        let check =
            |days: u64, expected| assert_eq!(due(1_000 * DAY_S + days * DAY_S, 1_000 * DAY_S), expected, "{days}");
        check(0, Some(0));
        check(1, Some(1));
        check(2, Some(7));
        check(30, Some(30));
        check(31, None);
        assert_eq!(due(5, 1_000), Some(0));
    }
}
