//! TLS configurations that are made again when their PEM files change.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Error;
use crate::der;
use crate::files::PemFile;

/// TLS configuration in use, with the function that makes it from PEM files. New connections use
/// the newest configuration; open connections keep theirs.
pub(crate) struct Reloadable<T> {
    make: Box<dyn Fn() -> Result<TlsConfig<T>, Error> + Send + Sync>,
    current: RwLock<Arc<TlsConfig<T>>>,
}

/// TLS configuration and the facts that a reload needs.
pub(crate) struct TlsConfig<T> {
    pub(crate) config: T,
    /// Files from which the configuration was made, the certificate first. A reload compares their
    /// contents.
    pub(crate) files: Vec<PemFile>,
    /// End of the validity of this program's own certificate, in seconds since 1970.
    pub(crate) not_after_s: u64,
}

impl<T> Reloadable<T> {
    /// Makes the first configuration. Its certificate may have expired, so that a program can start
    /// and wait for a new file.
    pub(crate) fn new(make: impl Fn() -> Result<TlsConfig<T>, Error> + Send + Sync + 'static) -> Result<Self, Error> {
        let current = RwLock::new(Arc::new(make()?));
        Ok(Reloadable { make: Box::new(make), current })
    }

    pub(crate) fn current(&self) -> Arc<TlsConfig<T>> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files, and replaces the configuration if a file has changed. Returns true if the
    /// configuration was replaced. On an error the old configuration stays. A new certificate must
    /// not have expired. A certificate that has expired in use keeps out no new list of revoked
    /// certificates.
    pub(crate) fn reload(&self) -> Result<bool, Error> {
        let (made, current) = ((self.make)()?, self.current());
        if made.files == current.files {
            return Ok(false);
        }
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if made.not_after_s <= now_s && made.files[0] != current.files[0] {
            return Err(made.files[0].unusable("the certificate has expired".into()));
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(made);
        Ok(true)
    }
}

/// Returns the end of a certificate's validity in seconds since 1970.
pub(crate) fn not_after_s(certificate: &[u8], file: &PemFile) -> Result<u64, Error> {
    der::not_after_s(certificate).ok_or_else(|| file.unusable("the end of its validity is damaged".into()))
}

#[cfg(test)]
mod tests {
    use testkit::Files;

    use super::*;

    #[test]
    fn an_expired_certificate_keeps_out_no_new_list_of_revoked_ones() {
        let files = Files::create();
        let paths = [files.put_certificate("own", "old"), files.put_certificate("revoked", "none")];
        let make = move || {
            let files = paths.iter().map(|path| PemFile::read(path)).collect::<Result<_, _>>()?;
            Ok(TlsConfig { config: (), files, not_after_s: 1 })
        };
        let reloadable = Reloadable::new(make).unwrap();
        assert!(!reloadable.reload().unwrap());
        files.put_certificate("revoked", "bob");
        assert!(reloadable.reload().unwrap());
        files.put_certificate("own", "new");
        assert!(reloadable.reload().unwrap_err().to_string().contains("has expired"));
    }
}
