//! PEM files with certificates, private keys and revocation lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::Error;

/// Returns the cryptographic algorithms for TLS, which are those of the crate ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// Path and content of a PEM file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PemFile {
    file: PathBuf,
    text: Vec<u8>,
}

impl PemFile {
    pub(crate) fn read(file: &Path) -> Result<PemFile, Error> {
        let text = std::fs::read(file).map_err(|source| Error::Unreadable { file: file.to_owned(), source })?;
        Ok(PemFile { file: file.to_owned(), text })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Parses all certificates, in the order of the file.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        self.items("there is no certificate in it (BEGIN CERTIFICATE)")
    }

    /// Parses the private key, which is in PKCS#8, PKCS#1 or SEC1.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| {
            let reason = match error {
                pem::Error::NoItemsFound => {
                    "there is no private key in it (BEGIN PRIVATE KEY, without a password)".to_owned()
                }
                other => other.to_string(),
            };
            Error::Key { file: self.file.clone(), reason }
        })
    }

    /// Parses the certificate authorities that are trusted for the certificate of the other end.
    pub(crate) fn roots(&self) -> Result<Arc<RootCertStore>, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error.to_string()))?;
        }
        Ok(Arc::new(roots))
    }

    /// Parses the lists of revoked certificates. A file without a list is an error.
    pub(crate) fn revocations(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
        self.items("there is no revocation list in it (BEGIN X509 CRL)")
    }

    /// Parses all items of one type; `missing` is the error of a file without one.
    fn items<T: PemObject>(&self, missing: &str) -> Result<Vec<T>, Error> {
        let found: Result<Vec<T>, pem::Error> = T::pem_slice_iter(&self.text).collect();
        let found = found.map_err(|error| self.unusable(error.to_string()))?;
        if found.is_empty() {
            return Err(self.unusable(missing.to_owned()));
        }
        Ok(found)
    }

    /// Makes the error of a file whose certificates or revocation lists cannot be used.
    pub(crate) fn unusable(&self, reason: String) -> Error {
        Error::Certificate { file: self.file.clone(), reason }
    }
}

/// Certificate chain of this program, and the private key of its first certificate.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OwnFiles {
    pub(crate) certificate: PemFile,
    pub(crate) key: PemFile,
}

impl OwnFiles {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<OwnFiles, Error> {
        Ok(OwnFiles { certificate: PemFile::read(certificate)?, key: PemFile::read(key)? })
    }

    pub(crate) fn files(&self) -> Vec<PemFile> {
        vec![self.certificate.clone(), self.key.clone()]
    }

    /// Parses the certificate chain. Puts the certificate that belongs to the private key first,
    /// because some tools write the authorities before it.
    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let mut chain = self.certificate.certificates()?;
        let key = provider().key_provider.load_private_key(self.key.key()?).map_err(|error| self.mismatch(&error))?;
        let is_own = |certificate: &CertificateDer<'static>| {
            CertifiedKey::new(vec![certificate.clone()], Arc::clone(&key)).keys_match().is_ok()
        };
        if let Some(own) = chain.iter().position(is_own) {
            chain[..=own].rotate_right(1);
        }
        Ok(chain)
    }

    /// Makes the error of a key that does not belong to the certificate.
    pub(crate) fn mismatch(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Mismatch {
            key: self.key.file.clone(),
            certificate: self.certificate.file.clone(),
            reason: error.to_string(),
        }
    }
}
