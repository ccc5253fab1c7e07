//! What all connections share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use replica::Replica;
use tls::Rates;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::WireConfig;
use crate::counts::Counts;
use crate::half_packets::HalfPackets;
use crate::hub::Hub;
use crate::watch_table::WatchLimits;

/// The state behind the listener.
pub(crate) struct Door {
    pub(crate) replica: Replica,
    pub(crate) config: WireConfig,
    pub(crate) hub: Arc<Hub>,
    /// Places for writes that are being proposed. Taken in the order in which they come.
    pub(crate) writes: Semaphore,
    pub(crate) half_packets: HalfPackets,
    pub(crate) session_rates: Rates,
    pub(crate) stopping: CancellationToken,
    pub(crate) counts: Counts,
    pub(crate) since: Instant,
    pub(crate) listens_on: ListensOn,
    numbers: AtomicU64,
}

/// The addresses of the door, without TLS and with it.
pub(crate) struct ListensOn {
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) secure: Option<SocketAddr>,
}

impl Door {
    pub(crate) fn new(
        replica: Replica,
        config: WireConfig,
        listens_on: ListensOn,
        stopping: CancellationToken,
    ) -> Door {
        let limits = WatchLimits { all_max: config.watches_max, connection_max: config.connection_watches_max };
        let hub = Arc::new(Hub::new(limits));
        replica.observe(&hub);
        let writes = Semaphore::new(config.writes_max.min(Semaphore::MAX_PERMITS));
        let half_packets = HalfPackets::new(config.half_packets_bytes_max);
        let session_rates = Rates::new(config.session_rate_max);
        Door {
            replica,
            config,
            hub,
            writes,
            half_packets,
            session_rates,
            stopping,
            counts: Counts::default(),
            since: Instant::now(),
            listens_on,
            numbers: AtomicU64::new(0),
        }
    }

    /// A number for a new connection.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// When a write, or anything else that needs the leader, is given up.
    pub(crate) fn propose_deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.propose_timeout_ms)
    }
}

/// A zxid as ZooKeeper writes it.
pub(crate) fn wire_zxid(zxid: znode::Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
