//! Listeners of one server for clients (HTTP or ZooKeeper).

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::yield_now;

use crate::acceptor::Acceptor;
use crate::incoming::Incoming;
use crate::proxies::Proxies;

/// Listeners of one server: one without TLS, one with TLS, or both.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The listener without TLS.
    pub plain: Option<TcpListener>,
    /// The listener with TLS, and the acceptor for its handshakes.
    pub secure: Option<(TcpListener, Acceptor)>,
    /// Load balancers that report the addresses of their clients in PROXY headers.
    pub proxies: Proxies,
}

impl From<TcpListener> for Listeners {
    fn from(listener: TcpListener) -> Listeners {
        Listeners { plain: Some(listener), ..Listeners::default() }
    }
}

impl Listeners {
    /// Waits for the next connection of either listener. Returns it with the client's address,
    /// which a PROXY header may have reported. Waits for ever when there is no listener.
    ///
    /// # Errors
    /// An error when the kernel lacks a resource, such as a file descriptor.
    pub async fn accept(&self) -> io::Result<(Incoming, SocketAddr)> {
        loop {
            let (incoming, addr) = tokio::select! {
                biased;
                told = self.proxies.next() => return Ok(told),
                accepted = self.accept_any() => accepted?,
            };
            if !self.proxies.contain(addr) {
                return Ok((incoming, addr));
            }
            self.proxies.read(incoming, addr);
            // Headers that have come are read before the next connection is accepted.
            yield_now().await;
        }
    }

    async fn accept_any(&self) -> io::Result<(Incoming, SocketAddr)> {
        let (secure, acceptor) = self.secure.as_ref().map(|(listener, acceptor)| (listener, acceptor)).unzip();
        tokio::select! {
            accepted = accept(self.plain.as_ref(), None) => accepted,
            accepted = accept(secure, acceptor) => accepted,
        }
    }

    /// Returns the addresses of the listeners: without TLS, and with TLS.
    pub fn addrs(&self) -> [Option<SocketAddr>; 2] {
        let plain = self.plain.as_ref().and_then(|listener| listener.local_addr().ok());
        [plain, self.secure.as_ref().and_then(|(listener, _)| listener.local_addr().ok())]
    }
}

/// Waits for the next connection of `listener`; for ever when it is `None`.
async fn accept(listener: Option<&TcpListener>, acceptor: Option<&Acceptor>) -> io::Result<(Incoming, SocketAddr)> {
    let Some(listener) = listener else { return std::future::pending().await };
    let (stream, addr) = listener.accept().await?;
    let on_loopback = listener.local_addr().is_ok_and(|addr| addr.ip().to_canonical().is_loopback());
    Ok((Incoming::new((stream, addr), acceptor.cloned(), on_loopback), addr))
}
