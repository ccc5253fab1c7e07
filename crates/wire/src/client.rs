//! The part of a connection that other tasks share: its session, identities and outbox.

pub(crate) mod auth;
pub(crate) mod codes;
pub(crate) mod counters;
pub(crate) mod end;
pub(crate) mod inbox;
pub(crate) mod incomplete_packets;
pub(crate) mod liveness;
pub(crate) mod outbox;
pub(crate) mod read_into;
pub(crate) mod select_lazy;
pub(crate) mod shared_bytes;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jute::{Record, ReplyHeader, framed};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode::{Credential, Identity, SessionId};

use crate::client::counters::Counts;
use crate::client::liveness::Liveness;
use crate::client::outbox::Outbox;
#[cfg(test)]
use crate::client::shared_bytes::SharedBytes;

/// A client whose session is open here.
pub(crate) struct Client {
    /// The connection's number on this node.
    pub(crate) number: u64,
    pub(crate) addr: SocketAddr,
    pub(crate) credential: Credential,
    /// The connection's name in the state: 0 for the one that opened the session.
    pub(crate) connection: u64,
    pub(crate) timeout: Duration,
    pub(crate) outbox: Outbox,
    pub(crate) liveness: Liveness,
    pub(crate) counts: Counts,
    pub(crate) since: Instant,
    closed: CancellationToken,
    turn: AtomicU64,
    /// True once the client has asked for events.
    watches: AtomicBool,
    identities: Mutex<Arc<Vec<Identity>>>,
}

/// The origin of a client, and its session.
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) addr: SocketAddr,
    pub(crate) credential: Credential,
    pub(crate) connection: u64,
    pub(crate) timeout: Duration,
}

impl Client {
    pub(crate) fn new(arrival: Arrival, outbox: Outbox, closed: CancellationToken) -> Client {
        let Arrival { number, addr, credential, connection, timeout } = arrival;
        Client {
            number,
            addr,
            credential,
            connection,
            timeout,
            outbox,
            liveness: Liveness::new(),
            counts: Counts::default(),
            since: Instant::now(),
            closed,
            turn: AtomicU64::new(0),
            watches: AtomicBool::new(false),
            identities: Mutex::new(Arc::new(auth::known(addr.ip(), None))),
        }
    }

    /// Makes a client without a connection, for tests: its answers stay in its outbox.
    #[cfg(test)]
    pub(crate) fn alone(number: u64) -> Arc<Client> {
        let credential = Credential { session: SessionId(number), secret_hash: [0; 16] };
        let (addr, timeout) = (([127, 0, 0, 1], 1).into(), Duration::from_secs(1));
        let arrival = Arrival { number, addr, credential, connection: 0, timeout };
        let (closed, account) = (CancellationToken::new(), Arc::new(SharedBytes::new(1 << 30)).account(None));
        let outbox = Outbox::new(1 << 20, account, closed.clone());
        Arc::new(Client::new(arrival, outbox, closed))
    }

    /// Makes the same client known by the subject of the certificate that it has shown, too.
    pub(crate) fn certified(self, subject: Option<&str>) -> Client {
        let identities = Mutex::new(Arc::new(auth::known(self.addr.ip(), subject)));
        Client { identities, ..self }
    }

    /// Tells whether the client has shown a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.identities().iter().any(|identity| identity.scheme == "x509")
    }

    pub(crate) fn session(&self) -> SessionId {
        self.credential.session
    }

    /// Demands that from now on no answer shows a state before an event that the client has been
    /// sent.
    pub(crate) fn watches_from_now_on(&self) {
        self.watches.store(true, Ordering::Relaxed);
    }

    /// Tells whether the client has ever asked for events. The connection that takes its requests
    /// knows, in their order.
    pub(crate) fn watches(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Identities that the client has proven.
    pub(crate) fn identities(&self) -> Arc<Vec<Identity>> {
        Arc::clone(&self.identities.lock().expect("nothing panics under this guard"))
    }

    /// Adds what an auth packet proves; false when it proves nothing.
    pub(crate) fn prove(&self, proof: jute::AuthRequest, super_digest: &str) -> bool {
        let mut identities = self.identities.lock().expect("nothing panics under this guard");
        auth::prove(proof, Arc::make_mut(&mut identities), super_digest)
    }

    /// The next write's turn.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The turn of the last write so far.
    pub(crate) fn last_turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Tells whether the connection has been ended.
    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Resolves when the connection has been ended.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Frames an answer.
    pub(crate) fn answer(&self, xid: i32, zxid: i64, body: Result<impl FnOnce(&mut Vec<u8>), i32>) -> Vec<u8> {
        framed(|out| {
            let error = body.as_ref().err().copied().unwrap_or(0);
            ReplyHeader { xid, zxid, error }.write(out);
            if let Ok(body) = body {
                body(out);
            }
        })
    }
}
