//! Client of a connection: its address, its certificate, and its connection's entry in the count of
//! connections.

use std::net::IpAddr;
use std::sync::Arc;

use accept::{Place, Waiting};
use znode::{Credential, Identity};

/// A connected client. A request that did not come over a connection of this server, as in tests,
/// has no `Peer`.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Known>);

#[derive(Debug)]
pub(crate) struct Known {
    /// The client's address.
    pub(crate) addr: IpAddr,
    /// The connection's entry in the count of connections; `None` in tests.
    pub(crate) place: Option<Arc<Place>>,
    /// True if the address belongs to many clients, such as a proxy's. It is exempt from the bounds
    /// for one address.
    pub(crate) is_exempt: bool,
    /// True if the listener has a loopback address, so that only programs of this machine reach it.
    pub(crate) on_loopback: bool,
    /// True if the connection has TLS.
    pub(crate) is_secure: bool,
    /// Subject of the client's certificate; `None` without a certificate.
    pub(crate) subject: Option<String>,
}

impl Peer {
    pub(crate) fn new(known: Known) -> Peer {
        Peer(Arc::new(known))
    }

    /// Marks the connection as busy after a complete request, so that it is not closed for a new
    /// connection.
    pub(crate) fn heard(&self) {
        if let Some(place) = &self.0.place {
            place.heard();
        }
    }

    /// Notes the session that uses the connection.
    pub(crate) fn asks_for(&self, credential: &Credential) {
        if let Some(place) = &self.0.place {
            let [a, b, c, d, e, f, g, h, ..] = credential.secret_hash;
            place.is_of(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        }
    }

    /// Marks the connection as idle, so that it may be closed for a new connection.
    pub(crate) fn rests(&self) {
        if let Some(place) = &self.0.place {
            place.rest();
        }
    }

    /// Marks the connection as waiting in a long poll, until the result is dropped.
    pub(crate) fn waits(&self) -> Option<Waiting> {
        self.0.place.as_ref().map(Place::wait)
    }

    /// Ends the idle mark at the next request. False when the connection is already being closed
    /// for a new one.
    pub(crate) fn resumes(&self) -> bool {
        self.0.place.as_ref().is_none_or(|place| place.resume())
    }

    /// Returns the identity that the client's certificate proves, if there is one.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let subject = self.0.subject.as_ref()?;
        Some(Identity { scheme: "x509".into(), id: subject.clone() })
    }

    /// Returns the client's address in the form that people read: IPv4 addresses are not mapped to
    /// IPv6.
    pub(crate) fn addr(&self) -> IpAddr {
        self.0.addr.to_canonical()
    }

    /// Returns the key by which the bounds for one address count the client; `None` for an exempt
    /// address.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.counted_addr().map(accept::source)
    }

    /// Returns the client's address; `None` for an exempt address.
    pub(crate) fn counted_addr(&self) -> Option<IpAddr> {
        (!self.0.is_exempt).then_some(self.0.addr)
    }

    /// Tells whether the client's address is a loopback address.
    pub(crate) fn is_local(&self) -> bool {
        self.0.addr.to_canonical().is_loopback()
    }

    /// Tells whether the listener has a loopback address, so that only programs of this machine
    /// reach it.
    pub(crate) fn is_on_loopback(&self) -> bool {
        self.0.on_loopback
    }

    /// Tells whether the connection has TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.is_secure
    }

    /// Returns the scheme of this connection's URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.0.is_secure { "https" } else { "http" }
    }
}
