//! TLS of the client: trusted authorities, the client's own certificate, and the errors of refused
//! handshakes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, InvalidMessage, RootCertStore,
};

/// PEM text, or the path of a file with it.
#[derive(Clone)]
pub(crate) enum Pem {
    /// A file that is read when the client is built.
    File(PathBuf),
    /// The text itself, which may be a private key.
    Text(Vec<u8>),
}

/// TLS settings of a client, as its builder collects them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// The authorities that may have signed the nodes' certificates; those of the system when
    /// absent.
    pub(crate) ca: Option<Pem>,
    /// Whether the authorities of the system are trusted in addition.
    pub(crate) native_roots: bool,
    /// The client's certificate and its private key, for nodes that ask for a client certificate.
    pub(crate) own: Option<(Pem, Pem)>,
}

/// TLS configuration that carries out handshakes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connector(TlsConnector);

/// Byte stream of a connection: TCP with or without TLS, or a Unix socket.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Byte stream of any kind of connection to a node.
pub(crate) type Stream = Box<dyn Socket>;

impl Trust {
    /// Tells whether any TLS setting is made. The builder refuses such settings for a client
    /// without `https://` endpoints, as they would have no effect.
    pub(crate) fn is_set(&self) -> bool {
        self.ca.is_some() || self.own.is_some() || self.native_roots
    }
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Pem::Text(text) => Ok(text.clone()),
            Pem::File(file) => std::fs::read(file)
                .map_err(|error| format!("tls-file-unreadable: cannot read {}: {error}", file.display())),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&self.read()?).collect();
        let found = found.map_err(|error| format!("tls-bad-certificate: {self}: {error}"))?;
        if found.is_empty() {
            return Err(format!("tls-bad-certificate: {self}: there is no certificate in it (BEGIN CERTIFICATE)"));
        }
        Ok(found)
    }

    /// Reads a private key in PKCS#8, PKCS#1 or SEC1.
    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.read()?).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                format!("tls-bad-key: {self}: there is no private key in it (BEGIN PRIVATE KEY, without a password)")
            }
            other => format!("tls-bad-key: {self}: {other}"),
        })
    }
}

/// Writes the file's name, or `the PEM text`, and never the content.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::File(file) => write!(f, "{}", file.display()),
            Pem::Text(_) => f.write_str("the PEM text"),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Connector {
    /// Reads the trusted authorities and the client's own certificate.
    ///
    /// # Errors
    /// A description of the invalid setting. It begins with an error code such as
    /// `tls-key-mismatch`.
    pub(crate) fn load(trust: &Trust) -> Result<Connector, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has what these versions need")
            .with_root_certificates(roots(trust)?);
        let mut config = match &trust.own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let own = builder.with_client_auth_cert(certificate.certificates()?, key.key()?);
                own.map_err(|error| {
                    format!("tls-key-mismatch: {key} is not the key of the certificate in {certificate}: {error}")
                })?
            }
        };
        // Without resumption, every connection checks the certificates again, so an expired one is
        // refused.
        config.resumption = Resumption::disabled();
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }

    /// Carries out the handshake with the node `host`: a name, or an IP address with or without
    /// brackets.
    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> Result<Stream, String> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        match self.0.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(refusal(&error).unwrap_or_else(|| unfinished(&error))),
        }
    }
}

fn roots(trust: &Trust) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &trust.ca {
        for certificate in ca.certificates()? {
            roots.add(certificate).map_err(|error| format!("tls-bad-certificate: {ca}: {error}"))?;
        }
    }
    if trust.native_roots || trust.ca.is_none() {
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        if roots.is_empty() {
            let why = native.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(format!(
                "tls-no-authorities: this system has no certificate authorities of its own{why}: name those that the \
                 nodes' certificates are signed by (ca)"
            ));
        }
    }
    Ok(Arc::new(roots))
}

/// Returns the message of an error, followed by the messages of its causes.
pub(crate) fn words(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Returns the message for a handshake that failed on this client's side, with advice for common
/// errors.
fn unfinished(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inside| inside.downcast_ref::<TlsError>());
    let advice = match tls {
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            ": name the authority that has signed the node's certificate (ca)"
        }
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            ": the node speaks no TLS there: leave https:// out, or name its address with TLS"
        }
        _ => "",
    };
    format!("TLS: {}{advice}", words(error))
}

/// Returns the message if the node refused this client's certificate by a TLS alert. In TLS 1.3 the
/// alert arrives after the client has finished its part of the handshake, in place of the first
/// answer. A node that refused the certificate has not read the request.
pub(crate) fn refusal(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(TlsError::AlertReceived(alert)) = error.downcast_ref::<TlsError>() {
            return about_certificate(*alert);
        }
        // The source of an `io::Error` is the source of the error inside it, so the inner error is
        // visited first.
        cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

fn about_certificate(alert: AlertDescription) -> Option<String> {
    match alert {
        AlertDescription::CertificateRequired => Some(
            "TLS: the node asks for a client's certificate, and none was given (alert CertificateRequired)".to_owned(),
        ),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => {
            Some(format!("TLS: the node does not take this client's certificate (alert {alert:?})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_says_of_a_clients_certificate_is_found_behind_other_errors() {
        let alert = |alert| io::Error::new(io::ErrorKind::InvalidData, TlsError::AlertReceived(alert));
        let wanted = refusal(&alert(AlertDescription::CertificateRequired)).unwrap();
        assert!(wanted.contains("asks for a client's certificate"), "{wanted}");
        // An alert inside another error, as hyper returns it.
        let behind = io::Error::other(alert(AlertDescription::UnknownCA));
        let unknown = refusal(&behind).unwrap();
        assert!(unknown.contains("does not take this client's certificate (alert UnknownCA)"), "{unknown}");
        assert_eq!(refusal(&alert(AlertDescription::InternalError)), None);
        assert_eq!(refusal(&io::Error::other("no alert")), None);
    }

    #[test]
    fn a_handshake_that_this_client_gives_up_says_what_to_do() {
        let said = |error| unfinished(&io::Error::new(io::ErrorKind::InvalidData, error));
        let unknown = said(TlsError::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(unknown.contains("UnknownIssuer: name the authority"), "{unknown}");
        let plain = said(TlsError::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(plain.contains("leave https:// out"), "{plain}");
        assert_eq!(unfinished(&io::Error::other("cut off")), "TLS: cut off");
    }

    #[test]
    fn a_key_is_never_shown() {
        let trust = Trust { own: Some((Pem::Text(b"C".to_vec()), Pem::Text(b"hidden".to_vec()))), ..Trust::default() };
        assert!(!format!("{trust:?}").contains("hidden"));
        assert!(!format!("{trust:?}").contains("104"), "nor as bytes");
    }
}
