//! Whether a peer can be reached, as the tries to connect to it show.

use std::io;

use accept::Mutex;

use super::transport::TlsFailure;

znode::named! {
    /// Reason why a peer is not reached.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Obstacle {
        /// No program listens at the peer's address.
        Refused = "refused",
        /// The host name has no address.
        Unresolvable = "unresolvable",
        /// The peer refuses this node as no member: the two differ in `cluster_id`, members or
        /// release.
        TurnedAway = "turned-away",
        /// The program that listens at the peer's address does not speak the peer protocol.
        NotAPeer = "not-a-peer",
        /// The TLS handshake failed, or the peer's certificate is for another node.
        Tls = "tls",
        /// The peer closed the connection before it sent anything.
        Closed = "closed",
        /// There was no answer in time.
        TimedOut = "timed-out",
        /// The network has no route.
        NoRoute = "no-route",
        /// Any other error of the operating system.
        Other = "other",
    }
}

/// Outcome of the last try to connect to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Contact {
    /// No try was made.
    #[default]
    Untried,
    /// The peer answered.
    Reached,
    /// The peer did not answer.
    Lost(Obstacle),
}

/// Outcome of the last try to connect to one peer, noted by all its connections.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    last: Mutex<(Contact, String)>,
}

impl Obstacle {
    fn of(error: &io::Error) -> Obstacle {
        use io::ErrorKind as Kind;
        if error.get_ref().is_some_and(|inner| inner.is::<TlsFailure>()) {
            return Obstacle::Tls;
        }
        match error.kind() {
            Kind::ConnectionRefused => Obstacle::Refused,
            // Errors without a number were made here: by `Stream` for a name without an address, by
            // `Target` for a refusal.
            Kind::NotFound if error.raw_os_error().is_none() => Obstacle::Unresolvable,
            Kind::PermissionDenied if error.raw_os_error().is_none() => Obstacle::TurnedAway,
            Kind::InvalidData => Obstacle::NotAPeer,
            Kind::UnexpectedEof | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
                Obstacle::Closed
            }
            Kind::TimedOut => Obstacle::TimedOut,
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => Obstacle::NoRoute,
            _ => Obstacle::Other,
        }
    }
}

impl Reach {
    /// Notes that the peer answered.
    pub(crate) fn reached(&self) {
        *self.last.lock() = (Contact::Reached, String::new());
    }

    /// Notes that the peer could not be reached.
    pub(crate) fn lost(&self, error: &io::Error) {
        *self.last.lock() = (Contact::Lost(Obstacle::of(error)), error.to_string());
    }

    /// The outcome of the last try.
    pub(crate) fn contact(&self) -> Contact {
        self.last.lock().0
    }

    /// Error of the last try; empty if the peer was reached or not tried.
    pub(crate) fn error(&self) -> String {
        self.last.lock().1.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::raft::transport::{Addresses, Identity, Lane, Target};

    /// Checks the obstacle that a try to reach a peer at `addr` finds. `timeout_ms` bounds the try.
    async fn check(addr: &str, timeout_ms: u64, expected: Obstacle) {
        let reach = Arc::<Reach>::default();
        let identity = Identity::new("c", 1, &[1, 2]);
        let peer_timeout = Duration::from_millis(timeout_ms);
        let (addrs, lane) = (Arc::new(Addresses::new(addr, None)), Lane::Control);
        let target = Target { identity, to: 2, addrs, lane, peer_timeout, reach: Arc::clone(&reach), is_peer: true };
        assert_eq!(reach.contact(), Contact::Untried);
        let error = target.connect().await.map(drop).expect_err("there is no peer");
        assert_eq!(reach.contact(), Contact::Lost(expected), "{addr}: {error}");
        assert_eq!(reach.error(), error.to_string());
    }

    #[tokio::test]
    async fn the_reason_why_a_peer_is_not_reached_has_a_word() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        // The system takes the connection, and no program answers.
        check(&addr, 200, Obstacle::TimedOut).await;
        let web = tokio::spawn(async move {
            // The first connection has timed out by now.
            for answer in [&b""[..], b"", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _hello = stream.read(&mut [0; 256]).await.unwrap();
                let _ = stream.write_all(answer).await;
            }
            listener
        });
        check(&addr, 5_000, Obstacle::Closed).await;
        check(&addr, 5_000, Obstacle::NotAPeer).await;
        drop(web.await.unwrap());
        check(&addr, 5_000, Obstacle::Refused).await;
        check("no-such-host.invalid:7101", 5_000, Obstacle::Unresolvable).await;
    }
}
