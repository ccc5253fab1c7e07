//! Opening a connection and the handshake, from both ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use storage::NodeMeta;
use tokio::time::timeout;

use super::callers::Place;
use super::frame::{Framed, Terms, malformed};
use super::messages::{Accepted, Hello, Lane, Refusal, VERSIONS, Welcome};
use super::rules::{Horizon, Rules};
use super::stream::Stream;
use crate::Config;
use crate::host::Host;
use crate::raft::known_cluster::KnownCluster;
use crate::raft::reach::Reach;

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
    /// What it knows of its cluster.
    pub(crate) cluster: Arc<KnownCluster>,
    /// Of its data directory.
    incarnation: u64,
    /// What it runs on.
    pub(crate) host: Host,
}

impl Identity {
    pub(crate) fn new(cluster_id: &str, node_id: u64, members: &[u64]) -> Identity {
        let (cluster_id, members) = (cluster_id.into(), members.into());
        let (horizon, cluster, host) = (Arc::default(), Arc::default(), Host::Machine);
        Identity { cluster_id, node_id, members, horizon, cluster, incarnation: 0, host }
    }

    /// The node that is configured like this and has this data.
    pub(crate) fn of(host: Host, config: &Config, meta: &NodeMeta) -> Identity {
        let members: Vec<u64> = config.members.iter().map(|member| member.id).collect();
        let (cluster, incarnation) = (Arc::new(KnownCluster::of(meta)), meta.incarnation());
        Identity { host, cluster, incarnation, ..Identity::new(&config.cluster_id, config.node_id, &members) }
    }

    /// What a peer may say to this node.
    pub(crate) fn rules(&self, peer: u64) -> Rules {
        Rules::new(&self.members, &self.horizon, peer)
    }

    fn hello(&self, to: u64, lane: Lane) -> Hello {
        Hello {
            versions: VERSIONS,
            levels: self.cluster.levels(),
            cluster_id: self.cluster_id.to_string(),
            from: self.node_id,
            to,
            lane,
            group: self.cluster.group(),
            uuid: self.cluster.uuid(),
            incarnation: self.incarnation,
            more: Vec::new(),
        }
    }

    fn accepted(&self, hello: &Hello) -> Accepted {
        Accepted {
            version: hello.versions.1.min(VERSIONS.1),
            levels: self.cluster.levels(),
            uuid: self.cluster.uuid(),
            incarnation: self.incarnation,
            more: Vec::new(),
        }
    }

    /// Why a caller is turned away, for the caller and for this node's log; `None` when it is
    /// welcome.
    pub(crate) fn refusal(&self, hello: &Hello) -> Option<(Refusal, String)> {
        let (own, from) = (self.node_id, hello.from);
        let no_member = if hello.cluster_id != *self.cluster_id {
            Some(format!(
                "this is node {own} of cluster `{}`, not of cluster `{}`: check cluster_id and the peer addresses of the caller, \
                 node {from}",
                self.cluster_id, hello.cluster_id
            ))
        } else if hello.to != own {
            Some(format!(
                "this is node {own}, not node {}: check the peer addresses in the configuration of the caller, node {from}",
                hello.to
            ))
        } else if from == own || !self.members.contains(&from) {
            Some(format!(
                "the caller, node {from}, is no peer of node {own}: the members that it is configured with are {:?}",
                self.members
            ))
        } else {
            None
        };
        if let Some(why) = no_member {
            return Some((Refusal::NoMember, why));
        }
        self.disagreement(hello).map(|refusal| {
            let Hello { versions, levels, .. } = hello;
            let why = match refusal {
                Refusal::NoCommonVersion { versions } => format!("this node speaks only versions {versions:?}"),
                Refusal::NoCommonLevel { levels } => format!("this node takes only levels {levels:?}"),
                Refusal::Removed { zxid } => format!("it was removed from the cluster at zxid {zxid}"),
                Refusal::OtherCluster | Refusal::NoMember => "it belongs to another cluster of the same name".into(),
            };
            let asked = format!("versions {versions:?} and levels {levels:?}");
            (refusal, format!("node {from} was turned away, with {asked}: {why}"))
        })
    }

    /// Where a member and this node cannot go on together.
    fn disagreement(&self, hello: &Hello) -> Option<Refusal> {
        if let Some(zxid) = self.cluster.removed_at(hello.from) {
            return Some(Refusal::Removed { zxid: zxid.0 });
        }
        if !overlap(hello.versions, VERSIONS) {
            return Some(Refusal::NoCommonVersion { versions: VERSIONS });
        }
        let levels = self.cluster.levels();
        if !overlap(hello.levels, levels) {
            return Some(Refusal::NoCommonLevel { levels });
        }
        let other = !self.cluster.may_be(hello.uuid) || hello.group != self.cluster.group();
        other.then_some(Refusal::OtherCluster)
    }

    /// Whether this node goes on with a peer that let it in.
    fn agrees(&self, accepted: &Accepted) -> Result<(), Refusal> {
        let Accepted { version, levels, uuid, .. } = accepted;
        if !overlap((*version, *version), VERSIONS) {
            return Err(Refusal::NoCommonVersion { versions: (*version, *version) });
        }
        if !overlap(*levels, self.cluster.levels()) {
            return Err(Refusal::NoCommonLevel { levels: *levels });
        }
        if self.cluster.may_be(*uuid) { Ok(()) } else { Err(Refusal::OtherCluster) }
    }
}

/// Whether two ranges have a number in common.
fn overlap((low, high): (u16, u16), (own_low, own_high): (u16, u16)) -> bool {
    low.max(own_low) <= high.min(own_high)
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
    pub(crate) peer_timeout: Duration,
    /// Learns what each try comes to.
    pub(crate) reach: Arc<Reach>,
}

impl Target {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// The peer's words when it refuses.
    pub(crate) async fn connect(&self) -> io::Result<Framed> {
        let connected = timeout(self.peer_timeout, self.shake_hands()).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match &connected {
            Ok(_) => self.reach.reached(),
            Err(error) => self.reach.lost(error),
        }
        connected
    }

    async fn shake_hands(&self) -> io::Result<Framed> {
        let mut framed = Framed::new(Stream::connect(&self.identity.host, &self.addr).await?, self.peer_timeout)?;
        framed.send(&self.identity.hello(self.to, self.lane)).await?;
        let turned_away = |why: Refusal| io::Error::new(io::ErrorKind::PermissionDenied, why.to_string());
        match framed.greeting::<Welcome>().await? {
            Some(Welcome::Accepted(accepted)) => {
                self.identity.agrees(&accepted).map_err(turned_away)?;
                self.identity.cluster.met(self.to, accepted.incarnation);
                let (rules, frame_bytes_max) = (self.identity.rules(self.to), self.lane.answer_bytes_max());
                framed.set_terms(Terms { frame_bytes_max, rules, place: None });
                Ok(framed)
            }
            Some(Welcome::Refused(why)) => Err(turned_away(why)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Answers a caller's [`Hello`]. `None` when it was turned away. A caller that is welcome has its
/// own place from then on.
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
    let answer = match &refusal {
        Some((refusal, _)) => Welcome::Refused(*refusal),
        None => Welcome::Accepted(identity.accepted(&hello)),
    };
    if refusal.is_none() {
        identity.cluster.met(hello.from, hello.incarnation);
        place.admit(hello.from, hello.lane);
        let (rules, frame_bytes_max) = (identity.rules(hello.from), hello.lane.question_bytes_max());
        framed.set_terms(Terms { frame_bytes_max, rules, place: Some(place) });
    }
    timeout(within, framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match refusal {
        None => Ok(Some(hello)),
        Some((_, why)) => Err(malformed(why)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::callers::Callers;
    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// What node 1 of cluster `c` with members 1 to 3 answers to a caller: nothing that tells who
    /// it is.
    #[track_caller]
    fn check(caller: Identity, to: u64, expected: Result<(), &str>) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let expected = expected.map_err(str::to_string);
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (addr, reach) = (listener.local_addr().unwrap().to_string().as_str().into(), Arc::<Reach>::default());
            let target = Target { identity: caller, to, addr, lane: Lane::Control, peer_timeout: WITHIN, reach };
            let answering = async {
                let mut framed = Framed::new(listener.accept().await.unwrap().0, WITHIN).unwrap();
                let (place, _) = Arc::<Callers>::default().enter(None);
                welcome(&Identity::new("c", 1, &[1, 2, 3]), &mut framed, place, WITHIN).await.map(drop)
            };
            let (connected, logged) = tokio::join!(target.connect(), answering);
            match (connected.map(drop), logged, expected) {
                (Ok(()), Ok(()), Ok(())) => {}
                (Err(heard), Err(logged), Err(part)) if logged.to_string().contains(&part) => {
                    assert_eq!(heard.to_string(), Refusal::NoMember.to_string(), "{at}");
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

    #[test]
    fn a_member_hears_why_it_cannot_go_on() {
        let own = Identity::new("c", 1, &[1, 2]);
        let hello = Identity::new("c", 2, &[1, 2]).hello(1, Lane::Append);
        let refusal = |hello: Hello| own.refusal(&hello).map(|(refusal, _)| refusal);
        // This node's log says it from the other side.
        let (_, logged) = own.refusal(&Hello { versions: (2, 3), ..hello.clone() }).unwrap();
        let other_side = "with versions (2, 3) and levels (1, 1): this node speaks only versions (1, 1)";
        assert!(logged.ends_with(other_side), "{logged}");
        assert_eq!(refusal(hello.clone()), None);
        let later = Hello { versions: (2, 3), ..hello.clone() };
        assert_eq!(refusal(later), Some(Refusal::NoCommonVersion { versions: VERSIONS }));
        let raised = Hello { levels: (2, 2), ..hello.clone() };
        assert_eq!(refusal(raised), Some(Refusal::NoCommonLevel { levels: (1, 1) }));
        // A range that overlaps is enough, and fields that are not known are passed over.
        let wide = Hello { versions: (1, 9), levels: (1, 9), more: vec![(7, vec![1])], ..hello.clone() };
        assert_eq!(refusal(wide), None);
        assert_eq!(refusal(Hello { group: 1, ..hello }), Some(Refusal::OtherCluster));
    }
}
