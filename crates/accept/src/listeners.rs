//! The addresses of one door.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::acceptor::Acceptor;
use crate::incoming::Incoming;
use crate::proxies::Proxies;

/// Addresses where a door listens: without TLS, with it, or both.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The listener without TLS.
    pub plain: Option<TcpListener>,
    /// The listener with TLS, and what takes its connections through the handshake.
    pub secure: Option<(TcpListener, Acceptor)>,
    /// Balancers that say where their connections come from.
    pub proxies: Proxies,
}

impl From<TcpListener> for Listeners {
    fn from(listener: TcpListener) -> Listeners {
        Listeners { plain: Some(listener), ..Listeners::default() }
    }
}

impl Listeners {
    /// The next connection, of either kind, and where its client is. Never, when there is no
    /// listener.
    ///
    /// # Errors
    /// When the system has none of something (file descriptors).
    pub async fn accept(&self) -> io::Result<(Incoming, SocketAddr)> {
        loop {
            let (incoming, addr) = tokio::select! {
                accepted = self.accept_any() => accepted?,
                told = self.proxies.next() => return Ok(told),
            };
            if !self.proxies.contain(addr) {
                return Ok((incoming, addr));
            }
            self.proxies.read(incoming, addr);
        }
    }

    async fn accept_any(&self) -> io::Result<(Incoming, SocketAddr)> {
        let plain = async {
            match &self.plain {
                Some(listener) => listener.accept().await.map(|accepted| (accepted, is_on_loopback(listener))),
                None => std::future::pending().await,
            }
        };
        let secure = async {
            match &self.secure {
                Some((listener, acceptor)) => {
                    let accepted = listener.accept().await?;
                    Ok((accepted, acceptor.clone(), is_on_loopback(listener)))
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = plain => accepted.map(|((stream, addr), on_loopback)| {
                (Incoming::new(stream, None, on_loopback), addr)
            }),
            accepted = secure => accepted.map(|((stream, addr), acceptor, on_loopback)| {
                (Incoming::new(stream, Some(acceptor), on_loopback), addr)
            }),
        }
    }

    /// The addresses that it listens on: without TLS, and with it.
    pub fn addrs(&self) -> [Option<SocketAddr>; 2] {
        let plain = self.plain.as_ref().and_then(|listener| listener.local_addr().ok());
        [plain, self.secure.as_ref().and_then(|(listener, _)| listener.local_addr().ok())]
    }
}

fn is_on_loopback(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|addr| addr.ip().to_canonical().is_loopback())
}
