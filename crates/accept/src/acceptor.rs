//! Server side of TLS handshakes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use crate::failures::Failures;
use crate::handshakes::Handshakes;
use crate::networks::{Networks, source};
use crate::stream::Stream;
use crate::{Error, files, subject};

/// Policy on clients without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Clients without a certificate are accepted, and have no identity from TLS.
    MayHaveCertificates,
    /// Clients without a certificate are refused.
    MustHaveCertificates,
}

/// Files and limits of a server's TLS handshakes.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// A PEM file with the server's certificate and the intermediate certificates of its chain.
    pub certificate: PathBuf,
    /// A PEM file with the private key of that certificate.
    pub key: PathBuf,
    /// A PEM file with the certificate authorities that are trusted for clients' certificates, and
    /// the policy on clients without a certificate. `None`: clients are not asked for a
    /// certificate.
    pub clients: Option<(PathBuf, Clients)>,
    /// Largest number of concurrent handshakes in total. An eighth of it is the largest number for
    /// one address. Further handshakes wait; their timeout includes the wait.
    pub handshakes_max: usize,
    /// Addresses that stand for many clients, such as a NAT. The limit of handshakes for one
    /// address does not apply to them.
    pub exempt: Networks,
    /// Time in milliseconds from the start of a connection to the end of its handshake, after which
    /// the connection is closed.
    pub handshake_timeout_ms: u64,
}

/// Server side of TLS handshakes. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    acceptor: TlsAcceptor,
    handshakes: Arc<Handshakes>,
    failures: Arc<Failures>,
    exempt: Networks,
    patience: Duration,
}

impl Acceptor {
    /// Reads the PEM files of the configuration.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn load(config: &AcceptorConfig) -> Result<Acceptor, Error> {
        let builder = ServerConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .expect("ring has what these versions need");
        let builder = match &config.clients {
            None => builder.with_no_client_auth(),
            Some((file, wanted)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(files::roots(file)?, files::provider());
                let verifier = match wanted {
                    Clients::MayHaveCertificates => verifier.allow_unauthenticated(),
                    Clients::MustHaveCertificates => verifier,
                };
                let unusable = |reason: String| Error::Certificate { file: file.clone(), reason };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(error.to_string()))?)
            }
        };
        let (certificates, key) = (files::certificates(&config.certificate)?, files::key(&config.key)?);
        let mut server = builder.with_single_cert(certificates, key).map_err(|error| Error::Mismatch {
            key: config.key.clone(),
            certificate: config.certificate.clone(),
            reason: error.to_string(),
        })?;
        // TLS sessions are not resumed: connections are long-lived, and each new one must check the
        // certificate again.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Acceptor {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            handshakes: Arc::new(Handshakes::new(config.handshakes_max)),
            failures: Arc::default(),
            exempt: config.exempt.clone(),
            patience: Duration::from_millis(config.handshake_timeout_ms),
        })
    }

    /// Performs the TLS handshake of a new connection. The reason of a failure is logged, with a
    /// limit of log lines for each address.
    ///
    /// # Errors
    /// An error when the client does not speak TLS, has no valid certificate although one is
    /// required, has an invalid certificate, or takes too long.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let Ok(addr) = stream.peer_addr() else {
            // The kernel returns no peer address for a connection that was reset.
            return Err(self.before_the_first_byte(io::ErrorKind::ConnectionReset.into()));
        };
        let handshake = async {
            // Until its first byte, a client does not count as a handshake, as load balancers
            // connect without sending a byte to check the port.
            match stream.peek(&mut [0]).await {
                Ok(0) => return Err(self.before_the_first_byte(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(self.before_the_first_byte(error)),
            }
            let shaken = self.shake_hands(stream, addr).await;
            shaken.inspect_err(|error| self.failures.note(addr, error))
        };
        let late = || {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long");
            self.failures.note(addr, &error);
            error
        };
        timeout(self.patience, handshake).await.unwrap_or_else(|_| Err(late()))
    }

    /// Counts a connection that was reset before its first byte, and returns `error`. An orderly
    /// close is not counted. Neither causes a log line.
    fn before_the_first_byte(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.failures.note_reset();
        }
        error
    }

    async fn shake_hands(&self, stream: TcpStream, addr: SocketAddr) -> io::Result<Stream> {
        let source = (!self.exempt.contain(addr.ip())).then(|| source(addr.ip()));
        let _place = self.handshakes.enter(source).await;
        let accepted = tokio::select! {
            accepted = self.acceptor.accept(stream) => accepted?,
            () = self.handshakes.wanted_by_others() => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the TLS handshake stalled, and others wait for its place",
                ));
            }
        };
        let shown = accepted.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let subject =
            shown.and_then(|shown| subject::of(shown).inspect_err(|why| self.failures.note_nobody(addr, why)).ok());
        Ok(Stream::accepted(accepted, subject))
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("patience", &self.patience).finish_non_exhaustive()
    }
}
