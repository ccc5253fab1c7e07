//! Certificate authority and PEM files for tests.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// Certificate authority that signs certificates for tests.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Returns a new certificate and key for the server `host`, as PEM.
    pub(crate) fn server(&self, host: &str) -> (String, String) {
        let params = CertificateParams::new([host.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        self.sign(params)
    }

    /// Returns a new certificate and key for a client, as PEM. The certificate is valid for `days`
    /// days from now.
    pub(crate) fn client(&self, name: &str, days: i32) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "zlock");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now();
        params.not_before = (now - 30 * DAY).into();
        let days_of = DAY * days.unsigned_abs();
        params.not_after = if days < 0 { now - days_of } else { now + days_of }.into();
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A temporary directory for PEM files.
pub(crate) struct Files {
    dir: TempDir,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes `name.pem` and `name-key.pem`.
    pub(crate) fn put(&self, name: &str, (certificate, key): &(String, String)) -> (PathBuf, PathBuf) {
        (self.put_certificate(name, certificate), self.write(&format!("{name}-key.pem"), key))
    }

    pub(crate) fn put_certificate(&self, name: &str, certificate: &str) -> PathBuf {
        self.write(&format!("{name}.pem"), certificate)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path: &Path = &self.path(name);
        std::fs::write(path, text).unwrap();
        path.to_owned()
    }
}
