//! Errors of a TLS configuration. Operators see their messages.

use std::path::PathBuf;

/// Error of a PEM file that cannot be used, or of a thread that cannot be started. Each message
/// begins with a stable code.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist, or reading it failed.
    #[error("tls-file-unreadable: cannot read {}: {source}", file.display())]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file without a certificate, or with a damaged one.
    #[error("tls-bad-certificate: {}: {reason}", file.display())]
    Certificate {
        /// Path of the file.
        file: PathBuf,
        /// Description of the fault in the file.
        reason: String,
    },
    /// A file without a private key, or with a damaged one.
    #[error("tls-bad-key: {}: {reason}", file.display())]
    Key {
        /// Path of the file.
        file: PathBuf,
        /// Description of the fault in the file.
        reason: String,
    },
    /// The private key does not belong to the certificate.
    #[error("tls-key-mismatch: {} is not the key of the certificate in {}: {reason}", key.display(), certificate.display())]
    Mismatch {
        /// Path of the key's file.
        key: PathBuf,
        /// Path of the certificate's file.
        certificate: PathBuf,
        /// Description of the mismatch by rustls.
        reason: String,
    },
    /// The operating system starts no thread for handshakes.
    #[error("tls-no-thread: cannot start the thread of TLS handshakes: {0}")]
    Thread(std::io::Error),
}
