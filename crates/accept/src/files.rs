//! Reading of certificates and private keys from PEM files.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

/// Returns the cryptographic algorithms for TLS, which are those of the crate ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// Reads all certificates of a PEM file, in the order of the file.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(file)?;
    let bad = |reason: String| Error::Certificate { file: file.to_owned(), reason };
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() {
        return Err(bad("there is no certificate in it (BEGIN CERTIFICATE)".to_owned()));
    }
    Ok(found)
}

/// Reads the private key of a file in PKCS#8, PKCS#1 or SEC1.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let reason = match error {
            pem::Error::NoItemsFound => {
                "there is no private key in it (BEGIN PRIVATE KEY, without a password)".to_owned()
            }
            other => other.to_string(),
        };
        Error::Key { file: file.to_owned(), reason }
    })
}

/// Reads a PEM file with the certificate authorities that are trusted for the peer's certificate.
pub(crate) fn roots(file: &Path) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| Error::Certificate { file: file.to_owned(), reason: error.to_string() })?;
    }
    Ok(Arc::new(roots))
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|source| Error::Unreadable { file: file.to_owned(), source })
}
