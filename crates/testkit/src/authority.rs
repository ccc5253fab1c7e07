//! Certificate authority and PEM files for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);

/// Certificate authority that signs certificates for tests.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    /// Number of certificates that the authority has signed; also the last one's serial number.
    signed: AtomicU64,
}

impl Authority {
    /// Creates an authority with a key of its own.
    ///
    /// # Panics
    /// If no key can be made.
    pub fn new(name: &str) -> Authority {
        Authority::signed_by(None, name)
    }

    fn signed_by(issuer: Option<&Issuer<'static, KeyPair>>, name: &str) -> Authority {
        let key = KeyPair::generate().expect("rcgen makes it");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = issuer.map_or_else(|| params.self_signed(&key), |issuer| params.signed_by(&key, issuer));
        let certificate = signed.expect("rcgen makes it");
        Authority { certificate, issuer: Issuer::new(params, key), signed: AtomicU64::default() }
    }

    /// Returns the certificate of the authority as PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Creates an authority whose certificate this authority has signed.
    ///
    /// # Panics
    /// If no key can be made.
    pub fn intermediate(&self, name: &str) -> Authority {
        Authority::signed_by(Some(&self.issuer), name)
    }

    /// Returns a new certificate and key for the server `host`, as PEM.
    pub fn server(&self, host: &str) -> (String, String) {
        let params = CertificateParams::new([host.to_owned(), "127.0.0.1".to_owned()]).expect("rcgen makes it");
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

    /// Returns a new certificate and key for a node, as PEM. The certificate has these URIs among
    /// its names, and is valid for `days` days from now.
    pub fn node(&self, uris: &[&str], days: i32) -> (String, String) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("rcgen makes it");
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("an ASCII text")));
        params.subject_alt_names.extend(uris);
        self.sign_for(params, days)
    }

    fn sign_for(&self, mut params: CertificateParams, days: i32) -> (String, String) {
        let now = SystemTime::now();
        params.not_before = (now - 30 * DAY).into();
        let days_of = DAY * days.unsigned_abs();
        params.not_after = if days < 0 { now - days_of } else { now + days_of }.into();
        self.sign(params)
    }

    /// Returns a list of revoked certificates, as PEM. `revoked` are serial numbers: the first
    /// certificate that the authority has signed has number 1.
    ///
    /// # Panics
    /// If the list cannot be made.
    pub fn crl(&self, revoked: &[u64]) -> String {
        let now = SystemTime::now();
        let revoked = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + DAY).into(),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|crl| crl.pem()).expect("rcgen makes the list")
    }

    fn sign(&self, mut params: CertificateParams) -> (String, String) {
        params.serial_number = Some((self.signed.fetch_add(1, Ordering::Relaxed) + 1).into());
        let key = KeyPair::generate().expect("rcgen makes it");
        (params.signed_by(&key, &self.issuer).expect("rcgen makes it").pem(), key.serialize_pem())
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
        std::fs::write(path, text).expect("rcgen makes it");
        path.to_owned()
    }
}
