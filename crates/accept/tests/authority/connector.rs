//! A client's side of a handshake, for tests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Takes connections through the handshake.
pub(crate) struct Connector(TlsConnector);

impl Connector {
    /// A client that trusts the authorities of a PEM file, and has a certificate and its key to
    /// show.
    pub(crate) fn load(ca: &Path, own: Option<(PathBuf, PathBuf)>) -> Connector {
        let mut roots = RootCertStore::empty();
        certificates(ca).into_iter().for_each(|certificate| roots.add(certificate).unwrap());
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(&std::fs::read(key).unwrap()).unwrap();
                builder.with_client_auth_cert(certificates(&certificate), key).unwrap()
            }
        };
        Connector(TlsConnector::from(Arc::new(config)))
    }

    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect(ServerName::try_from(host.to_owned()).unwrap(), stream).await
    }
}

fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(&std::fs::read(file).unwrap()).map(Result::unwrap).collect()
}
