//! Certificate authority and PEM files for tests.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// Certificate authority that signs certificates for tests.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority with a key of its own.
    ///
    /// # Panics
    /// If no key can be made.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("rcgen and the disk work");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("rcgen and the disk work");
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// Returns the certificate of the authority as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Returns a new certificate and key for the server `host`, as PEM.
    pub fn server(&self, host: &str) -> (String, String) {
        let params =
            CertificateParams::new([host.to_owned(), "127.0.0.1".to_owned()]).expect("rcgen and the disk work");
        self.sign(params)
    }

    /// Returns a new certificate and key for a client, as PEM. The certificate is valid for `days`
    /// days from now.
    pub fn client(&self, name: &str, days: i32) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "zlock");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for(params, days)
    }

    /// Returns a new certificate and key for a node, as PEM. The certificate has the URI `uri`
    /// among its names, and is valid for `days` days from now.
    pub fn node(&self, uri: &str, days: i32) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("an ASCII text"))];
        self.sign_for(params, days)
    }

    fn sign_for(&self, mut params: CertificateParams, days: i32) -> (String, String) {
        let now = SystemTime::now();
        params.not_before = (now - 30 * DAY).into();
        let days_of = DAY * days.unsigned_abs();
        params.not_after = if days < 0 { now - days_of } else { now + days_of }.into();
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("rcgen and the disk work");
        (params.signed_by(&key, &self.issuer).expect("rcgen and the disk work").pem(), key.serialize_pem())
    }
}

/// A temporary directory for PEM files.
pub struct Files {
    dir: TempDir,
}

impl Files {
    /// Creates an empty directory.
    ///
    /// # Panics
    /// If the directory cannot be created.
    pub fn create() -> Files {
        Files { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// Returns the path of the file `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes `name.pem` and `name-key.pem`.
    pub fn put(&self, name: &str, (certificate, key): &(String, String)) -> (PathBuf, PathBuf) {
        (self.put_certificate(name, certificate), self.write(&format!("{name}-key.pem"), key))
    }

    /// Writes `name.pem`, and returns its path.
    pub fn put_certificate(&self, name: &str, certificate: &str) -> PathBuf {
        self.write(&format!("{name}.pem"), certificate)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path: &Path = &self.path(name);
        std::fs::write(path, text).expect("rcgen and the disk work");
        path.to_owned()
    }
}
