//! [`Client`]: the data of one connection that several tasks use, such as its session, identities
//! and outbox (queue of bytes to send).

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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use accept::Mutex;
use jute::{Record, ReplyHeader, framed};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode::{Credential, Identity, SessionId};

use crate::client::counters::Counts;
use crate::client::liveness::Liveness;
use crate::client::outbox::Outbox;
#[cfg(test)]
use crate::client::shared_bytes::SharedBytes;

/// A client with an open session and a connection to this node.
pub(crate) struct Client {
    pub(crate) arrival: Arrival,
    pub(crate) outbox: Outbox,
    pub(crate) liveness: Liveness,
    pub(crate) counts: Counts,
    pub(crate) since: Instant,
    closed: CancellationToken,
    turn: AtomicU64,
    /// True once the client has set a watch.
    watches: AtomicBool,
    identities: Mutex<Arc<Vec<Identity>>>,
}

/// Values that the handshake has found out, from which a [`Client`] is made.
pub(crate) struct Arrival {
    /// Number of the connection, unique on this node since its start.
    pub(crate) number: u64,
    pub(crate) addr: SocketAddr,
    pub(crate) credential: Credential,
    /// Random number of the connection. The replicated session stores the number of its current
    /// connection, and the state machine refuses writes with another number. 0 for the connection
    /// that opened the session.
    pub(crate) connection: u64,
    pub(crate) timeout: Duration,
}

impl Client {
    pub(crate) fn new(arrival: Arrival, outbox: Outbox, closed: CancellationToken) -> Client {
        let identities = Mutex::new(Arc::new(auth::known(arrival.addr.ip(), None)));
        Client {
            arrival,
            outbox,
            liveness: Liveness::new(),
            counts: Counts::default(),
            since: Instant::now(),
            closed,
            turn: AtomicU64::new(0),
            watches: AtomicBool::new(false),
            identities,
        }
    }

    /// Makes a client without a socket, for tests: its answers stay in its outbox.
    #[cfg(test)]
    pub(crate) fn alone(number: u64) -> Arc<Client> {
        let credential = Credential { session: SessionId(number), secret_hash: [0; 16] };
        let (addr, timeout) = (([127, 0, 0, 1], 1).into(), Duration::from_secs(1));
        let arrival = Arrival { number, addr, credential, connection: 0, timeout };
        let (closed, account) = (CancellationToken::new(), Arc::new(SharedBytes::new(1 << 30)).account(None));
        let outbox = Outbox::new(1 << 20, account, closed.clone());
        Arc::new(Client::new(arrival, outbox, closed))
    }

    /// Adds the subject of the client's certificate to its identities.
    pub(crate) fn certified(self, subject: Option<&str>) -> Client {
        let identities = Mutex::new(Arc::new(auth::known(self.arrival.addr.ip(), subject)));
        Client { identities, ..self }
    }

    /// Tells whether the client has shown a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.identities().iter().any(|identity| identity.scheme == "x509")
    }

    pub(crate) fn session(&self) -> SessionId {
        self.arrival.credential.session
    }

    /// Notes that the client has watches. From now on, each answer must show a state at least as
    /// new as the events sent before it.
    pub(crate) fn watches_from_now_on(&self) {
        self.watches.store(true, Ordering::Relaxed);
    }

    /// Tells whether the client has ever set a watch. Only the task that takes the client's
    /// requests in order may call this, because that task also sets the value.
    pub(crate) fn watches(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Returns the identities that the client has proven.
    pub(crate) fn identities(&self) -> Arc<Vec<Identity>> {
        Arc::clone(&self.identities.lock())
    }

    /// Adds the identities that an auth packet proves. False if it proves none.
    pub(crate) fn prove(&self, proof: jute::AuthRequest, super_digest: &str) -> bool {
        let mut identities = self.identities.lock();
        auth::prove(proof, Arc::make_mut(&mut identities), super_digest)
    }

    /// Returns the number of the client's next write. Writes are applied in the order of these
    /// numbers.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of the client's last write.
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

    /// Makes the frame of an answer with a body or an error code.
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
