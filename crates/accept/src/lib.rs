//! Listeners of a node's two servers for clients, HTTP and ZooKeeper, which the project calls
//! doors: TLS with rustls and ring, bounds on connections, and clients' identities.
//!
//! A door listens on an address without TLS, on one with TLS, or on both ([`Listeners`]).
//! [`Acceptor`] performs TLS handshakes, with a timeout and a bound on their number. It returns a
//! [`Stream`], the type that also stands for a connection without TLS. When a certificate authority
//! for clients is configured, a client's certificate is checked against it. The certificate's
//! subject is the client's identity ([`Stream::subject`]), in the form of ZooKeeper's `x509`
//! scheme.
//!
//! [`Admission`] bounds the connections of a door and those of one address; [`Rates`] bounds how
//! often an address may open a session. Addresses that stand for many clients (proxies, NAT) are
//! exempt from the bounds for one address ([`Networks`]).
//!
//! TLS sessions are not resumed, so that each new connection checks the certificate again. PEM
//! files can be read again while connections are open ([`Certificates::reload`]).
//!
//! [`MutualTls`] is the TLS between nodes, in which both ends show a certificate. A server performs
//! its handshakes on a thread, on which addresses take turns ([`Acceptor`], [`MutualAcceptor`]).
//!
//! ```text
//! acceptor.rs   the server's handshakes          files.rs       PEM files and their faults
//! error.rs      files that cannot be used
//! listeners.rs  addresses of a door              incoming.rs    a connection before its handshake
//! stream.rs     a connection, with TLS or not    subject.rs     a subject as text (RFC 2253)
//! admission.rs  bounds on connections            handshakes.rs  bounds on handshakes
//! windows.rs    bounds on concurrent requests    rates.rs       rates of one address
//! networks.rs   networks that count as one       proxies.rs     PROXY headers of balancers
//! turns.rs      scheduler of connections' tasks  step_times.rs  counts of long polls of tasks
//! failures.rs   log lines of failed handshakes   mutual.rs      TLS between nodes
//! trust.rs      authorities and revocations      reloadable.rs  files that are read again
//! der.rs        bytes of a certificate           certificates.rs  certificates of all ports
//! handshake_thread.rs  thread for handshakes    seldom.rs  limit on log lines
//! defer.rs      guard that runs a function    mutex.rs       a lock without poisoning
//! backlog.rs    connections' tasks that wait for their turn
//! ```

mod acceptor;
mod admission;
mod backlog;
mod certificates;
mod defer;
mod der;
mod error;
mod failures;
mod files;
mod handshake_thread;
mod handshakes;
mod incoming;
mod listeners;
mod mutex;
mod mutual;
mod networks;
mod proxies;
mod rates;
mod reloadable;
mod seldom;
mod step_times;
mod stream;
mod subject;
mod trust;
mod turns;
mod windows;

pub use acceptor::{Acceptor, AcceptorConfig};
pub use admission::{Admission, AdmissionConfig, Full, Place, Waiting};
pub use backlog::caught_up;
pub use certificates::{Certificate, CertificateFiles, Certificates};
pub use defer::Defer;
pub use error::Error;
pub use incoming::Incoming;
pub use listeners::Listeners;
pub use mutex::Mutex;
pub use mutual::{MutualAcceptor, MutualFiles, MutualTls, is_tls_error};
pub use networks::{Networks, source};
pub use proxies::Proxies;
pub use rates::Rates;
pub use seldom::Seldom;
pub use step_times::{LONG_STEPS, StepTimes};
pub use stream::{Direct, ReadHalf, Stream, WriteHalf};
pub use subject::subject_in;
pub use trust::Clients;
pub use windows::{Pass, Windows, WritePass, WriteWindows};
