//! Opening a connection and the handshake, from both ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::callers::Place;
use super::frame::{Framed, Terms, malformed};
use super::messages::{Hello, Lane, PROTOCOL_VERSION, Welcome};
use super::rules::{Horizon, Rules};
use super::stream::Stream;
use crate::reach::Reach;

/// All that a caller hears who is turned away. Why is in the log of the node that was called: a stranger need not learn the
/// cluster's name or members here.
const TURNED_AWAY: &str = "this is not a hello of a member; the log of the node that was called says why";

/// Who this node is among its peers. The same for all its connections.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The cluster's name.
    pub(crate) cluster_id: Arc<str>,
    /// This node.
    pub(crate) node_id: u64,
    /// The ids of all members.
    pub(crate) members: Arc<[u64]>,
    /// How far this node has come.
    pub(crate) horizon: Arc<Horizon>,
}

impl Identity {
    pub(crate) fn new(cluster_id: &str, node_id: u64, members: &[u64]) -> Identity {
        Identity { cluster_id: cluster_id.into(), node_id, members: members.into(), horizon: Arc::default() }
    }

    /// Why a caller is turned away, for this node's log; `None` when it is welcome.
    pub(crate) fn refusal(&self, hello: &Hello) -> Option<String> {
        if hello.version != PROTOCOL_VERSION {
            return Some(format!(
                "node {} speaks peer protocol {PROTOCOL_VERSION} and the caller, node {}, speaks {}: run the same release on both",
                self.node_id, hello.from, hello.version
            ));
        }
        if hello.cluster_id != *self.cluster_id {
            return Some(format!(
                "this is node {} of cluster `{}`, not of cluster `{}`: check cluster_id and the peer addresses of the caller, \
                 node {}",
                self.node_id, self.cluster_id, hello.cluster_id, hello.from
            ));
        }
        if hello.to != self.node_id {
            return Some(format!(
                "this is node {}, not node {}: check the peer addresses in the configuration of the caller, node {}",
                self.node_id, hello.to, hello.from
            ));
        }
        if hello.from == self.node_id || !self.members.contains(&hello.from) {
            return Some(format!(
                "the caller, node {}, is no peer of node {}: the members that it is configured with are {:?}",
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
    /// How long a peer may be silent.
    pub(crate) silence: Duration,
    /// Learns what each try comes to.
    pub(crate) reach: Arc<Reach>,
}

impl Target {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// The peer's words when it refuses.
    pub(crate) async fn connect(&self) -> io::Result<Framed> {
        let connected = timeout(self.silence, self.shake_hands()).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match &connected {
            Ok(_) => self.reach.reached(),
            Err(error) => self.reach.lost(error),
        }
        connected
    }

    async fn shake_hands(&self) -> io::Result<Framed> {
        let mut framed = Framed::new(Stream::connect(&self.addr).await?, self.silence)?;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            cluster_id: self.identity.cluster_id.to_string(),
            from: self.identity.node_id,
            to: self.to,
            lane: self.lane,
        };
        framed.send(&hello).await?;
        match framed.greeting::<Welcome>().await? {
            Some(Welcome::Accepted) => {
                let (rules, frame_bytes_max) = (Rules::new(&self.identity, self.to), self.lane.answer_bytes_max());
                framed.set_terms(Terms { frame_bytes_max, rules, place: None });
                Ok(framed)
            }
            Some(Welcome::Refused(why)) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Answers a caller's [`Hello`]. `None` when it was turned away. A caller that is welcome has its own place from then on.
pub(crate) async fn welcome(
    identity: &Identity,
    framed: &mut Framed,
    place: Place,
    within: Duration,
) -> io::Result<Option<Hello>> {
    let hello =
        timeout(within, framed.greeting::<Hello>()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let Some(hello) = hello? else {
        return Ok(None);
    };
    let refusal = identity.refusal(&hello);
    let answer = if refusal.is_some() { Welcome::Refused(TURNED_AWAY.into()) } else { Welcome::Accepted };
    if refusal.is_none() {
        place.admit(hello.from, hello.lane);
        let (rules, frame_bytes_max) = (Rules::new(identity, hello.from), hello.lane.question_bytes_max());
        framed.set_terms(Terms { frame_bytes_max, rules, place: Some(place) });
    }
    timeout(within, framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match refusal {
        None => Ok(Some(hello)),
        Some(why) => Err(malformed(why)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::callers::Callers;
    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// What node 1 of cluster `c` with members 1 to 3 answers to a caller: nothing that tells who it is.
    #[track_caller]
    fn check(caller: Identity, to: u64, expected: Result<(), &str>) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let expected = expected.map_err(str::to_string);
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (addr, reach) = (listener.local_addr().unwrap().to_string().as_str().into(), Arc::<Reach>::default());
            let target = Target { identity: caller, to, addr, lane: Lane::Control, silence: WITHIN, reach };
            let answering = async {
                let mut framed = Framed::new(listener.accept().await.unwrap().0, WITHIN).unwrap();
                let (place, _) = Arc::<Callers>::default().enter(None);
                welcome(&Identity::new("c", 1, &[1, 2, 3]), &mut framed, place, WITHIN).await.map(drop)
            };
            let (connected, logged) = tokio::join!(target.connect(), answering);
            match (connected.map(drop), logged, expected) {
                (Ok(()), Ok(()), Ok(())) => {}
                (Err(heard), Err(logged), Err(part)) if logged.to_string().contains(&part) => {
                    assert_eq!(heard.to_string(), TURNED_AWAY, "{at}");
                }
                end => panic!("{at}: {end:?}"),
            }
        }
    }

    #[tokio::test]
    async fn strangers_are_turned_away_and_only_the_log_says_why() {
        check(Identity::new("c", 2, &[1, 2, 3]), 1, Ok(())).await;
        check(Identity::new("other", 2, &[1, 2, 3]), 1, Err("node 1 of cluster `c`, not of cluster `other`")).await;
        check(Identity::new("c", 2, &[1, 2, 3]), 3, Err("this is node 1, not node 3")).await;
        check(Identity::new("c", 4, &[1, 4]), 1, Err("node 4, is no peer of node 1")).await;
        check(Identity::new("c", 1, &[1, 2, 3]), 1, Err("node 1, is no peer of node 1")).await;
    }
}
