//! A client for TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Client side of TLS handshakes. Does not resume TLS sessions.
pub struct TlsClient {
    connector: TlsConnector,
}

impl TlsClient {
    /// Reads PEM files: `ca` has the certificate authorities that are trusted for servers'
    /// certificates, and `own` are the client's certificate and its private key.
    ///
    /// # Panics
    /// If a file cannot be used.
    pub fn new(ca: &Path, own: Option<(PathBuf, PathBuf)>) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(ca));
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has what these versions need")
            .with_root_certificates(roots);
        let mut client = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).expect("a file with a key");
                builder.with_client_auth_cert(certificates(&certificate), key).expect("the certificate's key")
            }
        };
        client.resumption = Resumption::disabled();
        TlsClient { connector: TlsConnector::from(Arc::new(client)) }
    }

    /// Performs the TLS handshake with the server `host`. The server's certificate must be valid
    /// for `host`.
    ///
    /// # Errors
    /// An error when the server does not speak TLS, or has no valid certificate for `host`.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.connector.connect(name, stream).await
    }
}

/// Reads the certificates of a PEM file.
fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(file).expect("a file with certificates");
    found.map(|certificate| certificate.expect("a certificate")).collect()
}
