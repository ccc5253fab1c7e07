//! The addresses of one door.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

use crate::acceptor::Acceptor;
use crate::stream::Stream;

/// What the system may keep of what is written and was not sent yet.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// Where a door listens: without TLS, with it, or both.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Without TLS.
    pub plain: Option<TcpListener>,
    /// With TLS.
    pub secure: Option<(TcpListener, Acceptor)>,
}

/// A connection that has just come. Nothing was read of it.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    acceptor: Option<Acceptor>,
    on_loopback: bool,
}

impl From<TcpListener> for Listeners {
    fn from(listener: TcpListener) -> Listeners {
        Listeners { plain: Some(listener), secure: None }
    }
}

impl Listeners {
    /// The next connection, of either kind. Never, when there is no listener.
    ///
    /// # Errors
    /// When the system has none of something (file descriptors).
    pub async fn accept(&self) -> io::Result<(Incoming, SocketAddr)> {
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
                (Incoming { stream, acceptor: None, on_loopback }, addr)
            }),
            accepted = secure => accepted.map(|((stream, addr), acceptor, on_loopback)| {
                (Incoming { stream, acceptor: Some(acceptor), on_loopback }, addr)
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

impl Incoming {
    /// Whether its listener is for this machine only.
    pub fn is_on_loopback(&self) -> bool {
        self.on_loopback
    }

    /// Whether a handshake comes first.
    pub fn is_secure(&self) -> bool {
        self.acceptor.is_some()
    }

    /// Sets the options of the socket: what is written leaves at once, a dead client is noticed
    /// within half a minute also while nothing is written to it, and what a client does not take
    /// stays where it is counted.
    ///
    /// # Errors
    /// When the system refuses one of them.
    pub fn set_options(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        let socket = SockRef::from(&self.stream);
        // Else it is up to 4 MiB for each connection, in the system's memory.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_tcp_keepalive(&keepalive.with_retries(3))
    }

    /// The socket itself, unless a handshake has to come first.
    pub fn into_plain(self) -> Option<TcpStream> {
        if self.acceptor.is_some() { None } else { Some(self.stream) }
    }

    /// The connection, after its handshake.
    ///
    /// # Errors
    /// When the handshake fails, or takes too long.
    pub async fn open(self) -> io::Result<Stream> {
        match self.acceptor {
            None => Ok(self.stream.into()),
            // In a box: what a handshake needs is large, and not to be kept in the place of a
            // caller that waits for it.
            Some(acceptor) => Box::pin(acceptor.accept(self.stream)).await,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A client that reads nothing has what was sent, and the system a little more: the rest waits
    /// where the program counts it.
    #[tokio::test]
    async fn what_a_client_does_not_take_stays_with_the_program() {
        let listeners = Listeners::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let _silent = TcpStream::connect(listeners.addrs()[0].unwrap()).await.unwrap();
        let (incoming, _) = listeners.accept().await.unwrap();
        incoming.set_options().unwrap();
        let stream = incoming.into_plain().unwrap();
        let (block, mut kept) = (vec![0; 16 << 10], 0);
        stream.writable().await.unwrap();
        while let Ok(bytes) = stream.try_write(&block) {
            kept += bytes;
        }
        assert!(kept < 1 << 20, "{kept} bytes");
    }
}
