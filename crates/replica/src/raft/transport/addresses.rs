//! Addresses of a peer, and lookups of their host names.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout, timeout_at};

/// Wait for the answer to a lookup before the next step: a connection to the address that the host
/// had before, or another lookup. The system repeats a lost query only after five seconds.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(250);
/// Largest number of lookups of one name at the same time. Each lookup occupies a thread.
const LOOKUPS_MAX: usize = 3;

/// Addresses of a peer: that in the membership, and that in this node's configuration, which is
/// tried when the first fails. The handshake shows which node answers there.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Vec<PeerAddress>,
    at: AtomicUsize,
}

impl Addresses {
    /// Takes the `host:port` of the peer's listener in the membership, and that in this node's
    /// configuration.
    pub(crate) fn new(addr: &str, other: Option<&str>) -> Addresses {
        let other = other.filter(|other| *other != addr);
        Addresses {
            all: [Some(addr), other].into_iter().flatten().map(PeerAddress::new).collect(),
            at: AtomicUsize::new(0),
        }
    }

    /// The address in the membership.
    pub(crate) fn first(&self) -> &str {
        &self.all[0].text
    }

    /// The address to which the next try connects.
    pub(crate) fn current(&self) -> Arc<str> {
        Arc::clone(&self.address().text)
    }

    /// Goes on to the next address, after a failed try.
    pub(super) fn next(&self) {
        self.at.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens a TCP connection to the current address.
    pub(super) async fn connect(&self, until: Instant) -> io::Result<TcpStream> {
        let address = self.address();
        let lookup = || {
            let text = Arc::clone(&address.text);
            async move { Ok(lookup_host(&*text).await?.collect()) }
        };
        address.connect(lookup, until).await
    }

    fn address(&self) -> &PeerAddress {
        &self.all[self.at.load(Ordering::Relaxed) % self.all.len()]
    }
}

/// `host:port` of a peer's listener, and the outcome of the lookups of the host.
#[derive(Debug)]
struct PeerAddress {
    text: Arc<str>,
    outcome: watch::Sender<Outcome>,
    /// Permits for lookups.
    lookups: Arc<Semaphore>,
}

/// Outcome of the lookups of a host.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Addresses that the last successful lookup found.
    found: Vec<SocketAddr>,
    /// Error of the last lookup; `None` after a success.
    error: Option<String>,
}

impl PeerAddress {
    fn new(addr: &str) -> PeerAddress {
        let (text, outcome) = (addr.into(), watch::Sender::default());
        PeerAddress { text, outcome, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }

    /// Opens a TCP connection. The address that the host had before serves while name servers fail
    /// or are slow.
    async fn connect<L>(&self, lookup: impl Fn() -> L, until: Instant) -> io::Result<TcpStream>
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        if let Ok(addr) = self.text.parse() {
            return connect_any(&[addr], until).await;
        }
        let Ok(outcome) = timeout_at(until, self.look_up(lookup)).await else {
            let why = format!("no name server tells the address of {} in time", self.text);
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        };
        match (connect_any(&outcome.found, until).await, outcome.error) {
            (Err(_), Some(why)) => {
                let why = format!("{} cannot be resolved: {why}", self.text);
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            (connected, _) => connected,
        }
    }

    /// Looks up the host. Returns the addresses from before if the answer takes longer than
    /// [`LOOKUP_PATIENCE`]; a later try gets the answer. Without an address from before, waits, and
    /// begins other lookups meanwhile, because the query may be lost.
    async fn look_up<L>(&self, lookup: impl Fn() -> L) -> Outcome
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let mut answers = self.outcome.subscribe();
        loop {
            self.begin(&lookup);
            let answered = timeout(LOOKUP_PATIENCE, answers.changed()).await.is_ok();
            let outcome = answers.borrow_and_update().clone();
            if answered || !outcome.found.is_empty() {
                return outcome;
            }
        }
    }

    /// Begins a lookup, unless [`LOOKUPS_MAX`] are under way.
    fn begin<L>(&self, lookup: impl Fn() -> L)
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let Ok(permit) = Arc::clone(&self.lookups).try_acquire_owned() else { return };
        let (lookup, outcome) = (lookup(), self.outcome.clone());
        tokio::spawn(async move {
            let answer = lookup.await;
            drop(permit);
            outcome.send_modify(|outcome| match answer {
                Ok(found) if found.is_empty() => outcome.error = Some("the name has no address".into()),
                Ok(found) => *outcome = Outcome { found, error: None },
                Err(error) => outcome.error = Some(error.to_string()),
            });
        });
    }
}

/// Connects to the first address that answers. Each address gets an equal share of the time, so
/// that an address that drops packets leaves time for the others.
async fn connect_any(addrs: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let share = until.saturating_duration_since(Instant::now()) / u32::try_from(addrs.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        failed = match timeout(share, TcpStream::connect(addr)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection to {addr} within {share:?}")),
        };
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::sleep_until;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Answer of the name servers to a lookup: the host's address, if it has one, and the time
    /// until it is known; `None` for a query that is lost.
    type Answer = Option<(Option<SocketAddr>, Duration)>;

    /// Connects to a host name, again after a failure. `answers` has one for each lookup; further
    /// queries are lost. Returns the errors of failed tries and the number of lookups.
    async fn connect(address: &PeerAddress, answers: &[Answer], tries: usize) -> (Vec<String>, usize) {
        let asked = AtomicUsize::new(0);
        let lookup = || {
            let answer = answers.get(asked.fetch_add(1, Ordering::Relaxed)).copied().flatten();
            async move {
                let Some((found, after)) = answer else { return pending().await };
                sleep_until(Instant::now() + after).await;
                Ok(found.into_iter().collect())
            }
        };
        let mut failures = Vec::new();
        while failures.len() < tries {
            match address.connect(lookup, Instant::now() + SECOND).await {
                Ok(_) => break,
                Err(error) => failures.push(error.to_string()),
            }
        }
        (failures, asked.into_inner())
    }

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_query_is_repeated() {
        let (_listener, addr) = listen().await;
        let answers = [None, Some((Some(addr), Duration::ZERO))];
        assert_eq!(connect(&PeerAddress::new("db:1"), &answers, 1).await, (vec![], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_of_a_slow_name_server_reaches_a_later_try() {
        let (_listener, addr) = listen().await;
        let (failures, lookups) = connect(&PeerAddress::new("db:1"), &[Some((Some(addr), SECOND * 5 / 2)); 9], 9).await;
        assert_eq!(failures, vec!["no name server tells the address of db:1 in time"; 2]);
        assert_eq!(lookups, LOOKUPS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_from_before_serves_while_name_servers_fail() {
        let (listener, addr) = listen().await;
        let (moved, new) = listen().await;
        let address = PeerAddress::new("db:1");
        assert_eq!(connect(&address, &[Some((Some(addr), Duration::ZERO))], 1).await, (vec![], 1));
        assert_eq!(connect(&address, &[None], 1).await, (vec![], 1));
        let unknown = Some((None, Duration::ZERO));
        assert_eq!(connect(&address, &[unknown], 1).await, (vec![], 1));
        drop(listener);
        let no_address = "db:1 cannot be resolved: the name has no address".to_string();
        assert_eq!(connect(&address, &[unknown], 1).await, (vec![no_address], 1));
        // The host has moved, and the answer of a slow name server comes after a failed try.
        let (failures, lookups) = connect(&address, &[Some((Some(new), SECOND * 2 / 5)); 9], 9).await;
        assert_eq!((failures.len(), lookups), (1, 2), "{failures:?}");
        drop(moved);
    }

    #[tokio::test]
    async fn an_address_that_drops_packets_leaves_time_for_the_next() {
        // The queue of this listener is full: further connections are dropped.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let silent = full.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) = timeout(Duration::from_millis(200), TcpStream::connect(silent)).await {
            queued.push(stream);
        }
        let (_live, addr) = listen().await;
        let addrs = [silent, addr];
        let stream = connect_any(&addrs, Instant::now() + SECOND / 2).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addr);
        let error = connect_any(&addrs[..1], Instant::now() + SECOND / 10).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("no connection to {silent} within ")), "{error}");
    }
}
