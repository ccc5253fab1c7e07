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
use tokio_rustls::rustls::server::NoServerSessionStorage;

use crate::failures::Failures;
use crate::files::OwnFiles;
use crate::handshake_thread::HandshakeThread;
use crate::handshakes::Handshakes;
use crate::networks::{Networks, source};
use crate::reloadable::{Reloadable, TlsConfig};
use crate::stream::Stream;
use crate::trust::{Clients, Trust};
use crate::{Error, files, reloadable, subject};

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
    /// A PEM file with lists of certificates (CRLs) that the authorities in `clients` have revoked.
    /// A certificate whose issuer has no list does not count as revoked. `None`: no certificate
    /// counts as revoked.
    pub client_crl: Option<PathBuf>,
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

/// Server side of TLS handshakes, with a thread for them, on which addresses take turns. Cheap to
/// clone.
#[derive(Clone)]
pub struct Acceptor {
    tls: Arc<Reloadable<Arc<ServerConfig>>>,
    thread: Arc<HandshakeThread>,
    handshakes: Arc<Handshakes>,
    failures: Arc<Failures>,
    exempt: Networks,
    patience: Duration,
}

impl Acceptor {
    /// Reads the PEM files of the configuration, and starts the thread of handshakes.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used, or says that no thread can be started.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn load(config: &AcceptorConfig) -> Result<Acceptor, Error> {
        let files = config.clone();
        Ok(Acceptor {
            tls: Arc::new(Reloadable::new(move || server_config(&files))?),
            thread: Arc::new(HandshakeThread::start().map_err(Error::Thread)?),
            handshakes: Arc::new(Handshakes::new(config.handshakes_max)),
            failures: Arc::default(),
            exempt: config.exempt.clone(),
            patience: Duration::from_millis(config.handshake_timeout_ms),
        })
    }

    /// Reads the PEM files again, for new connections. Returns true if a file has changed.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used, or whose certificate has expired. New
    /// connections then still use the old files.
    pub fn reload(&self) -> Result<bool, Error> {
        self.tls.reload()
    }

    /// End of the validity of the server's certificate, in seconds since 1970.
    pub fn not_after_s(&self) -> u64 {
        self.tls.current().not_after_s
    }

    /// Performs the TLS handshake of a new connection of the client at `addr`. The reason of a
    /// failure is logged, with a limit of log lines for each address.
    ///
    /// # Errors
    /// An error when the client does not speak TLS, has no valid certificate although one is
    /// required, has an invalid certificate, or takes too long.
    pub async fn accept(&self, stream: TcpStream, addr: SocketAddr) -> io::Result<Stream> {
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
    /// close is not counted. A reset and an orderly close cause no log line.
    fn before_the_first_byte(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.failures.note_reset();
        }
        error
    }

    async fn shake_hands(&self, stream: TcpStream, addr: SocketAddr) -> io::Result<Stream> {
        let source = (!self.exempt.contain(addr.ip())).then(|| source(addr.ip()));
        let _place = self.handshakes.enter(source).await;
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls.current().config));
        let accepted = tokio::select! {
            accepted = self.thread.run(source, async move { acceptor.accept(stream).await }) => accepted?,
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

/// Makes the TLS configuration of a server from its PEM files.
fn server_config(config: &AcceptorConfig) -> Result<TlsConfig<Arc<ServerConfig>>, Error> {
    let own = OwnFiles::read(&config.certificate, &config.key)?;
    let mut files = own.files();
    let builder = ServerConfig::builder_with_provider(files::provider())
        .with_safe_default_protocol_versions()
        .expect("ring has what these versions need");
    let builder = match &config.clients {
        None => builder.with_no_client_auth(),
        Some((ca, wanted)) => {
            let trust = Trust::read(ca, config.client_crl.as_deref())?;
            files.extend(trust.files());
            builder.with_client_cert_verifier(trust.of_clients(*wanted)?)
        }
    };
    let certificates = own.chain()?;
    let not_after_s = reloadable::not_after_s(&certificates[0], &own.certificate)?;
    let server = builder.with_single_cert(certificates, own.key.key()?).map_err(|error| own.mismatch(&error))?;
    Ok(TlsConfig { config: Arc::new(without_resumption(server)), files, not_after_s })
}

/// Turns the resumption of TLS sessions off, so that each new connection checks the certificate
/// again.
pub(crate) fn without_resumption(mut server: ServerConfig) -> ServerConfig {
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("patience", &self.patience).finish_non_exhaustive()
    }
}
