//! The other end of a connection, as far as the connection tells.

use std::net::IpAddr;
use std::sync::Arc;

use accept::{Place, Waiting};
use znode::{Credential, Identity};

/// Who is at the other end. A request that came over no connection of this door has none.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Known>);

#[derive(Debug)]
pub(crate) struct Known {
    /// Where from.
    pub(crate) addr: IpAddr,
    /// The place of its connection at the door.
    pub(crate) place: Option<Arc<Place>>,
    /// It is one of the addresses that stand for many clients.
    pub(crate) is_exempt: bool,
    /// The listener is for this machine only.
    pub(crate) on_loopback: bool,
    /// The connection has TLS.
    pub(crate) is_secure: bool,
    /// The subject of the certificate that it has shown.
    pub(crate) subject: Option<String>,
}

impl Peer {
    pub(crate) fn new(known: Known) -> Peer {
        Peer(Arc::new(known))
    }

    /// A whole request has come: the connection gives way to no other while it is at work.
    pub(crate) fn heard(&self) {
        if let Some(place) = &self.0.place {
            place.heard();
        }
    }

    /// A request of this session has come.
    pub(crate) fn asks_for(&self, credential: &Credential) {
        if let Some(place) = &self.0.place {
            let [a, b, c, d, e, f, g, h, ..] = credential.secret_hash;
            place.is_of(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        }
    }

    /// The connection waits for a request, and may give way to others that want its place.
    pub(crate) fn rests(&self) {
        if let Some(place) = &self.0.place {
            place.rest();
        }
    }

    /// The client waits in a long poll, until the answer is dropped.
    pub(crate) fn waits(&self) -> Option<Waiting> {
        self.0.place.as_ref().map(Place::wait)
    }

    /// It has one. False when it has just given way.
    pub(crate) fn resumes(&self) -> bool {
        self.0.place.as_ref().is_none_or(|place| place.resume())
    }

    /// Whom the connection proves it to be.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let subject = self.0.subject.as_ref()?;
        Some(Identity { scheme: "x509".into(), id: subject.clone() })
    }

    /// Where from, for people.
    pub(crate) fn addr(&self) -> IpAddr {
        self.0.addr.to_canonical()
    }

    /// What bounds of one address count it for; nothing for one that stands for many clients.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.counted_addr().map(accept::source)
    }

    /// Where from, when its address is that of one client and not of many.
    pub(crate) fn counted_addr(&self) -> Option<IpAddr> {
        (!self.0.is_exempt).then_some(self.0.addr)
    }

    /// Whether it is a program on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.0.addr.to_canonical().is_loopback()
    }

    /// Whether only programs on this machine reach the listener.
    pub(crate) fn is_on_loopback(&self) -> bool {
        self.0.on_loopback
    }

    /// Whether its connection has TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.0.is_secure
    }

    /// How URLs of this connection begin.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.0.is_secure { "https" } else { "http" }
    }
}
