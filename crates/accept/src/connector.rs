//! Client side of TLS handshakes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::files::{OwnFiles, PemFile};
use crate::stream::Stream;
use crate::{Error, files};

/// PEM files for the client side of TLS handshakes.
#[derive(Clone, Debug)]
pub struct ConnectorConfig {
    /// A PEM file with the certificate authorities that are trusted for servers' certificates.
    pub ca: PathBuf,
    /// PEM files with the client's own certificate and its private key, for servers that ask for a
    /// certificate. `None`: the client has no certificate.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Client side of TLS handshakes. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    connector: TlsConnector,
}

impl Connector {
    /// Reads the PEM files of the configuration.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn load(config: &ConnectorConfig) -> Result<Connector, Error> {
        let builder = ClientConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has what these versions need")
            .with_root_certificates(PemFile::read(&config.ca)?.roots()?);
        let mut client = match &config.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let own = OwnFiles::read(certificate, key)?;
                let with_own = builder.with_client_auth_cert(own.chain()?, own.key.key()?);
                with_own.map_err(|error| own.mismatch(&error))?
            }
        };
        client.resumption = Resumption::disabled();
        Ok(Connector { connector: TlsConnector::from(Arc::new(client)) })
    }

    /// Performs the TLS handshake with the server `host`: a name, or an IP address with or without
    /// brackets. The server's certificate must be valid for `host`.
    ///
    /// # Errors
    /// An error when the server does not speak TLS, or has no valid certificate for `host`.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Stream> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {error}")))?;
        Ok(Stream::connected(self.connector.connect(name, stream).await?))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}
