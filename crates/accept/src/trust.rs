//! Authorities that are trusted for the certificate of the other end, and certificates that they
//! have revoked.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::CertificateError;
use tokio_rustls::rustls::Error::InvalidCertificate;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use crate::Error;
use crate::files::{self, PemFile};

/// Policy on clients without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Clients without a certificate are accepted, and have no identity from TLS.
    MayHaveCertificates,
    /// Clients without a certificate are refused.
    MustHaveCertificates,
}

/// Files with trusted authorities and with revocations.
pub(crate) struct Trust {
    ca: PemFile,
    crl: Option<PemFile>,
}

impl Trust {
    pub(crate) fn read(ca: &Path, crl: Option<&Path>) -> Result<Trust, Error> {
        Ok(Trust { ca: PemFile::read(ca)?, crl: crl.map(PemFile::read).transpose()? })
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = PemFile> {
        [Some(&self.ca), self.crl.as_ref()].into_iter().flatten().cloned()
    }

    /// Makes the verifier of clients' certificates.
    pub(crate) fn of_clients(&self, wanted: Clients) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.ca.roots()?, files::provider());
        let verifier = match wanted {
            Clients::MayHaveCertificates => verifier.allow_unauthenticated(),
            Clients::MustHaveCertificates => verifier,
        };
        let verifier = verifier.with_crls(self.revocations()?).allow_unknown_revocation_status();
        verifier.build().map_err(|error| self.faulty().unusable(error.to_string()))
    }

    /// Makes the verifier of servers' certificates.
    pub(crate) fn of_servers(&self) -> Result<Arc<WebPkiServerVerifier>, Error> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.ca.roots()?, files::provider());
        let verifier = verifier.with_crls(self.revocations()?).allow_unknown_revocation_status();
        verifier.build().map_err(|error| self.faulty().unusable(error.to_string()))
    }

    /// Reads the lists of revocations. Without any, a verifier checks no revocation.
    fn revocations(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
        self.crl.as_ref().map_or_else(|| Ok(Vec::new()), PemFile::revocations)
    }

    /// Checks that one of these authorities has signed this program's own certificate, the first of
    /// `chain`. An expired certificate passes the check.
    pub(crate) fn check_own(&self, chain: &[CertificateDer<'_>], file: &PemFile) -> Result<(), Error> {
        let verified =
            self.of_clients(Clients::MustHaveCertificates)?.verify_client_cert(&chain[0], &chain[1..], UnixTime::now());
        match verified {
            Ok(_) | Err(InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
                Ok(())
            }
            Err(error) => Err(file.unusable(format!("{} does not vouch for it: {error}", self.ca.path().display()))),
        }
    }

    /// File to blame when no verifier can be made: the revocation lists if there are any, because
    /// the authorities were parsed without an error.
    fn faulty(&self) -> &PemFile {
        self.crl.as_ref().unwrap_or(&self.ca)
    }
}
