//! PROXY protocol, version 2, with which load balancers report the addresses of their clients.
//!
//! The header precedes all other bytes of a connection, also a TLS handshake. A separate task reads
//! it, so that a slow balancer does not delay other connections.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ppp::v2::{Addresses, Command, Header};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::incoming::Incoming;
use crate::networks::Networks;
use crate::seldom::Seldom;

/// Timeout for reading a PROXY header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest number of PROXY headers that are read at once. For a further one, the connection is
/// closed that has waited longest for its header.
const READING_MAX: usize = 32;
/// Length in bytes of the PROXY header's fixed part, which contains the length of the variable
/// part.
const PREFIX_BYTES: usize = 16;
/// Largest length in bytes of the PROXY header's variable part.
const REST_BYTES_MAX: usize = 2_048;

/// Addresses of load balancers, and the balancers' connections until their headers are read.
#[derive(Debug)]
pub struct Proxies {
    from: Networks,
    reading: Arc<crate::Mutex<Reading>>,
    ready: mpsc::Sender<(Incoming, SocketAddr)>,
    next: Mutex<mpsc::Receiver<(Incoming, SocketAddr)>>,
    refused: Arc<Seldom>,
}

/// Tasks that read PROXY headers, by the order in which they began, each with the balancer's
/// address.
#[derive(Debug, Default)]
struct Reading {
    began: u64,
    tasks: BTreeMap<u64, (AbortHandle, SocketAddr)>,
}

impl Default for Proxies {
    fn default() -> Proxies {
        Proxies::at(Networks::default())
    }
}

impl Proxies {
    /// Treats every connection from the addresses `from` as one of a balancer, which must begin
    /// with a header.
    pub fn at(from: Networks) -> Proxies {
        let (ready, next) = mpsc::channel(READING_MAX);
        Proxies { from, reading: Arc::default(), ready, next: Mutex::new(next), refused: Arc::default() }
    }

    /// Tells whether the address is that of a balancer.
    pub(crate) fn contain(&self, addr: SocketAddr) -> bool {
        self.from.contain(addr.ip())
    }

    /// Waits for the next connection with a complete header. Returns it with the client's address
    /// from the header, or the balancer's own address if the header has none.
    pub(crate) async fn next(&self) -> (Incoming, SocketAddr) {
        match self.next.lock().await.recv().await {
            Some(next) => next,
            // Cannot happen, because `self` owns a sender.
            None => std::future::pending().await,
        }
    }

    /// Starts a task that reads the header of a balancer's connection.
    pub(crate) fn read(&self, mut incoming: Incoming, proxy: SocketAddr) {
        let mut reading = self.reading.lock();
        if reading.tasks.len() >= READING_MAX
            && let Some((_, (oldest, proxy))) = reading.tasks.pop_first()
        {
            oldest.abort();
            tell(&self.refused, proxy, "too many connections wait for their headers");
        }
        reading.began += 1;
        let number = reading.began;
        let (ready, refused, all) = (self.ready.clone(), Arc::clone(&self.refused), Arc::clone(&self.reading));
        let task = tokio::spawn(async move {
            let read = timeout(HEADER_TIMEOUT, read_header(incoming.stream_mut())).await;
            // From here on, the connection is closed for no other one.
            all.lock().tasks.remove(&number);
            match read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(client) => {
                    if let Some(client) = client {
                        incoming.comes_from(client);
                    }
                    if ready.try_send((incoming, client.unwrap_or(proxy))).is_err() {
                        tell(&refused, proxy, "too many connections wait for the server");
                    }
                }
                Err(error) => tell(&refused, proxy, &error.to_string()),
            }
        });
        reading.tasks.insert(number, (task.abort_handle(), proxy));
    }
}

/// Reads exactly one header. Returns the client's address; `None` when the header marks a
/// connection of the balancer itself (`LOCAL`).
async fn read_header(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut header = vec![0; PREFIX_BYTES];
    stream.read_exact(&mut header).await?;
    let rest = usize::from(u16::from_be_bytes([header[14], header[15]]));
    if !header.starts_with(ppp::v2::PROTOCOL_PREFIX) || rest > REST_BYTES_MAX {
        return Err(invalid("no header of the PROXY protocol, version 2"));
    }
    header.resize(PREFIX_BYTES + rest, 0);
    stream.read_exact(&mut header[PREFIX_BYTES..]).await?;
    let header = Header::try_from(&header[..]).map_err(|error| invalid(&error.to_string()))?;
    let client = match (header.command, header.addresses) {
        (Command::Local, _) => return Ok(None),
        (Command::Proxy, Addresses::IPv4(of)) => SocketAddr::from((of.source_address, of.source_port)),
        (Command::Proxy, Addresses::IPv6(of)) => SocketAddr::from((of.source_address, of.source_port)),
        (Command::Proxy, _) => return Err(invalid("a header without an IP address")),
    };
    // Programs on this machine have special rights, which a balancer must not grant to its clients.
    if client.ip().to_canonical().is_loopback() {
        return Err(invalid("a header with a loopback address"));
    }
    Ok(Some(client))
}

/// Counts a closed connection of a balancer, and logs the reason now and then.
fn tell(refused: &Seldom, proxy: SocketAddr, reason: &str) {
    if let Some(times) = refused.note(Instant::now()) {
        warn!(addr = %proxy, reason, times, "a connection of a proxy had no good PROXY header");
    }
}
