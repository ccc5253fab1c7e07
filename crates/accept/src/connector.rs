//! The client's side of a handshake.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::stream::Stream;
use crate::{Error, files};

/// Files that a client needs.
#[derive(Clone, Debug)]
pub struct ConnectorConfig {
    /// A PEM file with the authorities that may have signed a server's certificate.
    pub ca: PathBuf,
    /// PEM files with the own certificate and its private key, to show to servers that ask.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Client side of TLS handshakes. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    connector: TlsConnector,
}

impl Connector {
    /// Reads the files of the configuration.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn load(config: &ConnectorConfig) -> Result<Connector, Error> {
        let builder = ClientConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has what these versions need")
            .with_root_certificates(files::roots(&config.ca)?);
        let mut client = match &config.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let own = builder.with_client_auth_cert(files::certificates(certificate)?, files::key(key)?);
                own.map_err(|error| Error::Mismatch {
                    key: key.clone(),
                    certificate: certificate.clone(),
                    reason: error.to_string(),
                })?
            }
        };
        client.resumption = Resumption::disabled();
        Ok(Connector { connector: TlsConnector::from(Arc::new(client)) })
    }

    /// Carries out the handshake with the server `host`: a name, or an IP address with or without
    /// brackets. The server's certificate must have that name.
    ///
    /// # Errors
    /// When the server does not speak TLS, or shows no good certificate for that name.
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
