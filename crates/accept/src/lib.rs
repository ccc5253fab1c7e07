//! Where both doors listen: TLS, for the Rust client too, with rustls and ring, and who is let in.
//!
//! A door listens on a plain address, on one with TLS, or on both ([`Listeners`]). A client that
//! comes over TLS is taken through the handshake within a time and among few others at once
//! ([`Acceptor`]), and is a [`Stream`] like any other from then on. When a certificate authority
//! for clients is configured, a client's certificate is checked against it, and its subject is who
//! the client is ([`Stream::subject`]), in the words in which ZooKeeper's `x509` scheme writes it.
//!
//! How many connections a door has, and how many of them one address, is [`Admission`]'s; how often
//! an address may ask for a session, [`Rates`]'. Addresses that stand for many clients (proxies,
//! NAT) are exempt ([`Networks`]).
//!
//! Nothing is resumed: a certificate that has expired is refused by the next connection. Files are
//! read at start.
//!
//! ```text
//! acceptor.rs   the server's side     connector.rs  the client's side     files.rs   PEM files and what is wrong with them
//! listeners.rs  addresses of a door   stream.rs     plain or not          subject.rs a subject as text (RFC 2253)
//! admission.rs  connections, and those of one address      handshakes.rs   the same of handshakes
//! networks.rs   which addresses count as one               rates.rs        how often, for one address
//! proxies.rs    balancers that say where clients are        incoming.rs    a connection before it is read
//! turns.rs      whose connection runs next                  windows.rs     what one address has under way
//! failures.rs   handshakes that failed, in the log          step_times.rs  steps that took long
//! error.rs      files that cannot be used
//! ```

mod acceptor;
mod admission;
mod connector;
mod error;
mod failures;
mod files;
mod handshakes;
mod incoming;
mod listeners;
mod networks;
mod proxies;
mod rates;
mod step_times;
mod stream;
mod subject;
mod turns;
mod windows;

pub use acceptor::{Acceptor, AcceptorConfig, Clients};
pub use admission::{Admission, AdmissionConfig, Full, Place, Waiting};
pub use connector::{Connector, ConnectorConfig};
pub use error::Error;
pub use incoming::Incoming;
pub use listeners::Listeners;
pub use networks::{Networks, source};
pub use proxies::Proxies;
pub use rates::Rates;
pub use step_times::{LONG_STEPS, StepTimes};
pub use stream::{Direct, ReadHalf, Stream, WriteHalf};
pub use windows::{Pass, Windows, WritePass, WriteWindows};
