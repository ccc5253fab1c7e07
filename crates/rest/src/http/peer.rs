//! Client of a connection, as far as the connection shows it.

use std::net::IpAddr;
use std::sync::Arc;

use accept::{Place, Waiting};
use znode::{Credential, Identity};

/// A connected client. A request that did not come over a connection of this door has no `Peer`.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Known>);

#[derive(Debug)]
pub(crate) struct Known {
    /// The client's address.
    pub(crate) addr: IpAddr,
    /// The connection's place at the door.
    pub(crate) place: Option<Arc<Place>>,
    /// Whether the address stands for many clients.
    pub(crate) is_exempt: bool,
    /// True if the listener is for this machine only.
    pub(crate) on_loopback: bool,
    /// True if the connection has TLS.
    pub(crate) is_secure: bool,
    /// Subject of the client's certificate.
    pub(crate) subject: Option<String>,
}

impl Peer {
    pub(crate) fn new(known: Known) -> Peer {
        Peer(Arc::new(known))
    }

    /// Notes a complete request: the connection keeps its place while the request is at work.
    pub(crate) fn heard(&self) {
        if let Some(place) = &self.0.place {
            place.heard();
        }
    }

    /// Notes a request of this session.
    pub(crate) fn asks_for(&self, credential: &Credential) {
        if let Some(place) = &self.0.place {
            let [a, b, c, d, e, f, g, h, ..] = credential.secret_hash;
            place.is_of(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        }
    }

    /// Notes that the connection waits for a request, and may be closed for others.
    pub(crate) fn rests(&self) {
        if let Some(place) = &self.0.place {
            place.rest();
        }
    }

    /// Notes a long poll of the client, until the result is dropped.
    pub(crate) fn waits(&self) -> Option<Waiting> {
        self.0.place.as_ref().map(Place::wait)
    }

    /// Notes the next request. False when the connection has just given way.
    pub(crate) fn resumes(&self) -> bool {
        self.0.place.as_ref().is_none_or(|place| place.resume())
    }

    /// Returns the identity that the client's certificate proves, if there is one.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let subject = self.0.subject.as_ref()?;
        Some(Identity { scheme: "x509".into(), id: subject.clone() })
    }

    /// The client's address, for people to read.
    pub(crate) fn addr(&self) -> IpAddr {
        self.0.addr.to_canonical()
    }

    /// The key by which bounds of one address count the client; `None` for an exempt address.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.counted_addr().map(accept::source)
    }

    /// The client's address; `None` for an exempt address.
    pub(crate) fn counted_addr(&self) -> Option<IpAddr> {
        (!self.0.is_exempt).then_some(self.0.addr)
    }

    /// Tells whether the client is a program on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.0.addr.to_canonical().is_loopback()
    }

    /// Tells whether only programs on this machine reach the listener.
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
