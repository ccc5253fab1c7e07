//! Opening a connection and the handshake, from both ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::frame::Framed;
use super::messages::{Hello, Lane, PROTOCOL_VERSION, Welcome};
use super::stream::Stream;

/// Who this node is among its peers. The same for all its connections.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The cluster's name.
    pub(crate) cluster_id: Arc<str>,
    /// This node.
    pub(crate) node_id: u64,
    /// The ids of all members.
    pub(crate) members: Arc<[u64]>,
}

impl Identity {
    /// Why a caller is turned away; `None` when it is welcome.
    pub(crate) fn refusal(&self, hello: &Hello) -> Option<String> {
        if hello.version != PROTOCOL_VERSION {
            return Some(format!(
                "node {} speaks peer protocol {PROTOCOL_VERSION} and node {} speaks {}: run the same release on both",
                self.node_id, hello.from, hello.version
            ));
        }
        if hello.cluster_id != *self.cluster_id {
            return Some(format!(
                "this is node {} of cluster `{}`, not of cluster `{}`: check cluster_id and the peer addresses of node {}",
                self.node_id, self.cluster_id, hello.cluster_id, hello.from
            ));
        }
        if hello.to != self.node_id {
            return Some(format!(
                "this is node {}, not node {}: check the peer addresses in the configuration of node {}",
                self.node_id, hello.to, hello.from
            ));
        }
        if hello.from == self.node_id || !self.members.contains(&hello.from) {
            return Some(format!(
                "node {} is no peer of node {}: the members that it is configured with are {:?}",
                hello.from, self.node_id, self.members
            ));
        }
        None
    }
}

/// Where and how a peer is reached.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Who this node is.
    pub(crate) identity: Identity,
    /// The peer.
    pub(crate) to: u64,
    /// `host:port` of the peer's listener.
    pub(crate) addr: Arc<str>,
    /// What for.
    pub(crate) lane: Lane,
}

impl Target {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// The peer's words when it refuses.
    pub(crate) async fn connect(&self, within: Duration) -> io::Result<Framed> {
        timeout(within, self.shake_hands()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn shake_hands(&self) -> io::Result<Framed> {
        let mut framed = Framed::new(Stream::connect(&self.addr).await?)?;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            cluster_id: self.identity.cluster_id.to_string(),
            from: self.identity.node_id,
            to: self.to,
            lane: self.lane,
        };
        framed.send(&hello).await?;
        match framed.next::<Welcome>().await? {
            Some(Welcome::Accepted) => Ok(framed),
            Some(Welcome::Refused(why)) => {
                tracing::warn!(peer = self.to, addr = %self.addr, %why, "a peer refuses this node");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Answers a caller's [`Hello`]. `None` when it was turned away.
pub(crate) async fn welcome(identity: &Identity, framed: &mut Framed, within: Duration) -> io::Result<Option<Hello>> {
    let Ok(hello) = timeout(within, framed.next::<Hello>()).await else {
        return Err(io::ErrorKind::TimedOut.into());
    };
    let Some(hello) = hello? else {
        return Ok(None);
    };
    let refusal = identity.refusal(&hello);
    let answer = refusal.clone().map_or(Welcome::Accepted, Welcome::Refused);
    timeout(within, framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match refusal {
        None => Ok(Some(hello)),
        Some(why) => {
            tracing::warn!(from = hello.from, %why, "a caller was turned away");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    fn identity(cluster_id: &str, node_id: u64, members: &[u64]) -> Identity {
        Identity { cluster_id: cluster_id.into(), node_id, members: members.into() }
    }

    /// What node 1 of cluster `c` with members 1 to 3 answers to a caller.
    #[track_caller]
    fn check(caller: Identity, to: u64, expected: Result<(), &str>) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let expected = expected.map_err(str::to_string);
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap().to_string().as_str().into();
            let target = Target { identity: caller, to, addr, lane: Lane::Control };
            let answering = async {
                let mut framed = Framed::new(listener.accept().await.unwrap().0).unwrap();
                welcome(&identity("c", 1, &[1, 2, 3]), &mut framed, WITHIN).await.unwrap();
            };
            let (connected, ()) = tokio::join!(target.connect(WITHIN), answering);
            match (connected.map(drop), expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) if error.to_string().contains(&part) => {}
                (connected, expected) => panic!("{at}: {connected:?}, not {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn strangers_are_turned_away_and_told_why() {
        check(identity("c", 2, &[1, 2, 3]), 1, Ok(())).await;
        check(identity("other", 2, &[1, 2, 3]), 1, Err("node 1 of cluster `c`, not of cluster `other`")).await;
        check(identity("c", 2, &[1, 2, 3]), 3, Err("this is node 1, not node 3")).await;
        check(identity("c", 4, &[1, 4]), 1, Err("node 4 is no peer of node 1")).await;
        check(identity("c", 1, &[1, 2, 3]), 1, Err("node 1 is no peer of node 1")).await;
    }
}
