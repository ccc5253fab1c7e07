//! State that all connections of ZooKeeper clients share.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use accept::{Mutex, Rates, Seldom, Windows, WriteWindows};
use replica::{Readiness, Replica};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode::Zxid;

use crate::WireConfig;
use crate::client::counters::Counts;
use crate::client::incomplete_packets::IncompletePackets;
use crate::client::shared_bytes::SharedBytes;
use crate::request::operation_times::OperationTimes;
use crate::request::reading_thread::LongReads;
use crate::watch::hub::Hub;
use crate::watch::watch_table::WatchLimits;

/// Largest number of sessions that clients of one address open or resume at the same time.
const HANDSHAKES_OF_ADDRESS_MAX: u32 = 512;

/// State of the server for ZooKeeper clients, which all its connections share.
pub(crate) struct Door {
    pub(crate) replica: Replica,
    pub(crate) config: WireConfig,
    pub(crate) hub: Arc<Hub>,
    /// Permits for the writes in progress of all connections, `writes_max` in total. Waiting writes
    /// get them in the order in which they came.
    pub(crate) writes: Semaphore,
    /// Bounds on the concurrent writes of one address, and on the concurrent long writes of all
    /// addresses. Waiting writes pass in the order in which they came.
    pub(crate) windows: WriteWindows,
    /// Bounds on the sessions that clients of one address open or resume at the same time.
    pub(crate) handshakes: Arc<Windows>,
    pub(crate) incomplete_packets: IncompletePackets,
    pub(crate) session_rates: Rates,
    /// Count and bound of the bytes of answers and events that clients have not read.
    pub(crate) unread: Arc<SharedBytes>,
    /// Count and bound of the bytes of unanswered requests.
    pub(crate) requests: Arc<SharedBytes>,
    pub(crate) long_reads: LongReads,
    /// Number of unanswered sync requests.
    pub(crate) syncs: AtomicUsize,
    /// Number of auth packets that proved no identity.
    pub(crate) auth_failed: AtomicU64,
    /// Semaphore with one permit, for four-letter words that take long (all except ruok, isro and
    /// srvr), so that they are answered one at a time.
    pub(crate) words: Arc<Semaphore>,
    /// Last answer to the four-letter word `hash`: a zxid, and the digest of the state at that
    /// zxid.
    pub(crate) digest: Mutex<Option<(Zxid, [u8; 32])>>,
    /// Rate limit of log messages about connections that were closed because of a bound.
    pub(crate) cut: Seldom,
    /// Rate limit of log messages about clients that have seen a later zxid than this node.
    pub(crate) ahead: Seldom,
    /// Rate limit of log messages about multis with more operations than `ops_max`.
    pub(crate) long_multis: Seldom,
    /// Rate limit of log messages about watches that were refused because of a bound.
    pub(crate) refused_watches: Seldom,
    pub(crate) stopping: CancellationToken,
    pub(crate) counts: Counts,
    pub(crate) times: OperationTimes,
    pub(crate) since: Instant,
    /// Addresses on which the server listens for ZooKeeper clients, without TLS and with TLS.
    pub(crate) listens_on: [Option<SocketAddr>; 2],
    numbers: AtomicU64,
}

impl Door {
    pub(crate) fn new(
        replica: Replica,
        config: WireConfig,
        listens_on: [Option<SocketAddr>; 2],
        stopping: CancellationToken,
    ) -> io::Result<Door> {
        let limits = WatchLimits {
            all_max: config.watches_max,
            connection_max: config.connection_watches_max,
            bytes_max: config.watch_bytes_max,
        };
        let hub = Arc::new(Hub::new(limits));
        replica.observe(&hub);
        let times = OperationTimes::new(&replica);
        let writes = Semaphore::new(config.writes_max.min(Semaphore::MAX_PERMITS));
        let incomplete_packets = IncompletePackets::new(config.incomplete_packets_bytes_max);
        let session_rates = Rates::new(config.session_rate_max);
        let unread = Arc::new(SharedBytes::new(config.answers_bytes_max));
        let requests = Arc::new(SharedBytes::new(config.requests_bytes_max));
        Ok(Door {
            replica,
            config,
            hub,
            writes,
            windows: WriteWindows::default(),
            handshakes: Windows::new(HANDSHAKES_OF_ADDRESS_MAX),
            incomplete_packets,
            session_rates,
            unread,
            requests,
            long_reads: LongReads::start()?,
            syncs: AtomicUsize::new(0),
            auth_failed: AtomicU64::new(0),
            words: Arc::new(Semaphore::new(1)),
            digest: Mutex::default(),
            cut: Seldom::default(),
            ahead: Seldom::default(),
            long_multis: Seldom::default(),
            refused_watches: Seldom::default(),
            stopping,
            counts: Counts::default(),
            times,
            since: Instant::now(),
            listens_on,
            numbers: AtomicU64::new(0),
        })
    }

    /// Tells whether clients get sessions: this node knows a leader with a quorum, and has applied
    /// at least the entries that it had applied before it was started.
    pub(crate) fn is_serving(&self) -> bool {
        match self.replica.status().ready {
            Readiness::Ready | Readiness::Lagging | Readiness::DiskLow => true,
            // A leader whose own disk stalls may still commit with the other members.
            Readiness::DiskStalled => self.replica.serves(),
            Readiness::Recovering | Readiness::NoQuorum | Readiness::Divided | Readiness::Stopped => false,
        }
    }

    /// Returns the number for a new connection. Numbers rise from 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the deadline for a write, or another request to the leader, that begins now.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.propose_timeout_ms)
    }
}
