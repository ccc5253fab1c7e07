//! TLS in which both ends show a certificate of the same authority, as between nodes.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme, version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Error;
use crate::acceptor::without_resumption;
use crate::files::{self, OwnFiles};
use crate::handshake_thread::HandshakeThread;
use crate::networks::source;
use crate::reloadable::{self, Reloadable, TlsConfig};
use crate::stream::{self, OtherEnd, Stream};
use crate::trust::{Clients, Trust};

/// PEM files for TLS in which both ends show a certificate.
#[derive(Clone, Debug)]
pub struct MutualFiles {
    /// A PEM file with this program's certificate and the intermediate certificates of its chain.
    pub certificate: PathBuf,
    /// A PEM file with the private key of that certificate.
    pub key: PathBuf,
    /// A PEM file with the certificate authorities that are trusted for the certificate of the
    /// other end. One of them must have signed this program's certificate, too.
    pub ca: PathBuf,
    /// A PEM file with lists of certificates (CRLs) that the authorities in `ca` have revoked. A
    /// certificate whose issuer has no list does not count as revoked. `None`: no certificate
    /// counts as revoked.
    pub crl: Option<PathBuf>,
    /// URI that this program's certificate must have among its names; `None` if it needs no URI.
    pub own_uri: Option<String>,
}

/// Client side and server side of TLS in which both ends show a certificate. Accepts only TLS 1.3.
/// The caller must check the name of the other end ([`Stream::uris`]). Cheap to clone.
#[derive(Clone)]
pub struct MutualTls(Arc<MutualState>);

struct MutualState {
    tls: Reloadable<Ends>,
    /// Sender of a notice each time that the files were read again.
    looks: watch::Sender<()>,
}

/// Server side of [`MutualTls`], with a thread for all handshakes, on which addresses take turns.
/// The caller must limit the number of handshakes.
#[derive(Debug)]
pub struct MutualAcceptor {
    tls: MutualTls,
    thread: HandshakeThread,
}

/// TLS configurations for both ends of a connection.
struct Ends {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// Verifiers of the certificates of clients and of servers.
    verifiers: (Arc<dyn ClientCertVerifier>, Arc<AnyName>),
}

impl MutualTls {
    /// Reads the PEM files. This program's certificate may have expired, so that the program can
    /// start and wait for a new file.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn load(files: MutualFiles) -> Result<MutualTls, Error> {
        let tls = Reloadable::new(move || ends(&files))?;
        Ok(MutualTls(Arc::new(MutualState { tls, looks: watch::Sender::default() })))
    }

    /// Reads the PEM files again, for new connections. Returns true if a file has changed.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used, or whose certificate has expired. New
    /// connections then still use the old files.
    pub fn reload(&self) -> Result<bool, Error> {
        let reloaded = self.0.tls.reload();
        self.0.looks.send_replace(());
        reloaded
    }

    /// End of the validity of this program's certificate, in seconds since 1970.
    pub fn not_after_s(&self) -> u64 {
        self.0.tls.current().not_after_s
    }

    /// Performs the handshake of a connection that this end has opened. The caller must limit its
    /// time.
    ///
    /// # Errors
    /// An error when the other end does not speak TLS 1.3, or has no valid certificate.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<Stream> {
        let connector = TlsConnector::from(Arc::clone(&self.0.tls.current().config.client));
        Ok(Stream::connected(connector.connect(any_name(), stream).await?))
    }

    /// Waits until the certificate of the other end of `stream` is not accepted any more, for
    /// example because it was revoked. Checks the certificate each time that the files are read
    /// again, also if they have not changed, because a certificate can expire. Waits for ever
    /// without TLS.
    pub fn end_of_trust(&self, stream: &Stream) -> impl Future<Output = ()> + Send + Sync + 'static {
        let (tls, shown, mut looks) = (self.clone(), stream.shown_certificates(), self.0.looks.subscribe());
        async move {
            let Some((end, chain)) = shown else { return std::future::pending().await };
            // The sender lives as long as `tls`.
            while looks.changed().await.is_ok() {
                if let Err(error) = tls.verify(end, &chain) {
                    tracing::debug!(%error, "the certificate of an open connection is not accepted any more");
                    return;
                }
            }
        }
    }

    fn verify(&self, end: OtherEnd, chain: &[CertificateDer<'_>]) -> Result<(), tokio_rustls::rustls::Error> {
        let Some((own, more)) = chain.split_first() else { return Ok(()) };
        let (now, current) = (UnixTime::now(), self.0.tls.current());
        let (clients, servers) = &current.config.verifiers;
        match end {
            OtherEnd::Client => clients.verify_client_cert(own, more, now).map(drop),
            OtherEnd::Server => servers.verify_server_cert(own, more, &any_name(), &[], now).map(drop),
        }
    }
}

impl MutualAcceptor {
    /// Starts the thread of handshakes.
    ///
    /// # Errors
    /// An error when no thread can be started.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn start(tls: MutualTls) -> io::Result<MutualAcceptor> {
        Ok(MutualAcceptor { tls, thread: HandshakeThread::start()? })
    }

    /// Performs the handshake of a connection that the other end, at the address `addr`, has
    /// opened. The caller must limit its time. The handshake ends if this future is dropped.
    ///
    /// # Errors
    /// An error when the other end does not speak TLS 1.3, or has no valid certificate.
    pub async fn accept(&self, stream: TcpStream, addr: IpAddr) -> io::Result<Stream> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls.0.tls.current().config.server));
        let handshake = async move { Ok(Stream::accepted(acceptor.accept(stream).await?, None)) };
        self.thread.run(Some(source(addr)), handshake).await
    }
}

/// Tells whether an error of a connection is one of TLS, such as a refused certificate. With TLS
/// 1.3, a client gets the error for its own refused certificate only when the client reads.
pub fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>())
}

impl std::fmt::Debug for MutualTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutualTls").finish_non_exhaustive()
    }
}

/// Returns a name for the TLS client, which requires one. The name is not sent, and [`AnyName`]
/// ignores it.
fn any_name() -> ServerName<'static> {
    ServerName::try_from("node").expect("a valid DNS name")
}

/// Makes the TLS configurations of both ends from the PEM files.
fn ends(from: &MutualFiles) -> Result<TlsConfig<Ends>, Error> {
    let own = OwnFiles::read(&from.certificate, &from.key)?;
    let trust = Trust::read(&from.ca, from.crl.as_deref())?;
    let certificates = own.chain()?;
    let not_after_s = reloadable::not_after_s(&certificates[0], &own.certificate)?;
    trust.check_own(&certificates, &own.certificate)?;
    if let Some(uri) = &from.own_uri {
        let uris = stream::uris_of(&certificates[0]);
        if !uris.contains(uri) {
            return Err(own.certificate.unusable(format!("its names need the URI {uri}, and have the URIs {uris:?}")));
        }
    }
    let verifiers = (trust.of_clients(Clients::MustHaveCertificates)?, Arc::new(AnyName(trust.of_servers()?)));
    let builder = ServerConfig::builder_with_provider(files::provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has what this version needs")
        .with_client_cert_verifier(Arc::clone(&verifiers.0));
    let server =
        builder.with_single_cert(certificates.clone(), own.key.key()?).map_err(|error| own.mismatch(&error))?;
    let builder = ClientConfig::builder_with_provider(files::provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring has what this version needs")
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifiers.1) as Arc<dyn ServerCertVerifier>);
    let mut client =
        builder.with_client_auth_cert(certificates, own.key.key()?).map_err(|error| own.mismatch(&error))?;
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    let files = own.files().into_iter().chain(trust.files()).collect();
    let config = Ends { server: Arc::new(without_resumption(server)), client: Arc::new(client), verifiers };
    Ok(TlsConfig { config, files, not_after_s })
}

/// Verifier of a server's certificate that accepts any name in the certificate. The verifier checks
/// the chain to an authority, the times, the purpose, and the revocations.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, tokio_rustls::rustls::Error> {
        use tokio_rustls::rustls::Error::InvalidCertificate;
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The inner verifier checks the name last, so all other checks have passed.
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
