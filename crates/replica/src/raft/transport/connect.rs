//! Opening of a connection between two nodes, and the handshake at both ends.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use storage::{NodeMeta, codec};
use tokio::time::{Instant, timeout, timeout_at};
use znode::{Levels, OtherLevel, Zxid};

use super::addresses::Addresses;
use super::callers::{CallerPlace, IdInUse, Member};
use super::frame::{FramedStream, Terms, malformed};
use super::messages::{
    Acceptance, Answer, Ask, FOUNDERS, Hello, LEADER_PRIORITY, Lane, NumberedMessage, PEER_ADDR, PROGRAM, Standing,
    Welcome,
};
use super::refusal::{Refusal, VERSIONS};
use super::rules::{ADDR_BYTES_MAX, Horizon, Rules};
use super::stream::Stream;
use crate::local::host::Host;
use crate::raft::known_cluster::{KnownCluster, PeerFacts};
use crate::raft::reach::Reach;
use crate::{Config, PeerTls, Program, node_uri};

/// Facts that this node tells its peers in a handshake, and by which it accepts or refuses a peer.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The cluster's name.
    pub(crate) cluster_id: Arc<str>,
    /// The id of this node.
    pub(crate) node_id: u64,
    /// Ids of the configured members, which may found the cluster.
    founders: Arc<BTreeSet<u64>>,
    /// Term and last index of this node. The rules for peers' messages refuse terms and indexes
    /// that are far beyond them.
    pub(crate) horizon: Arc<Horizon>,
    /// Facts that this node knows of the cluster.
    pub(crate) cluster: Arc<KnownCluster>,
    /// Incarnation of this node's data directory: a random number that a new directory draws.
    incarnation: u64,
    /// True if this node is configured to join an existing cluster.
    joins: bool,
    /// Preference for this node as leader, 0 to 100.
    leader_priority: u8,
    /// TLS with peers; `None` for connections without TLS.
    pub(crate) tls: Option<Arc<PeerTls>>,
    /// Machine on which this node runs.
    pub(crate) host: Host,
}

impl Identity {
    pub(crate) fn new(cluster_id: &str, node_id: u64, members: &[u64]) -> Identity {
        let (cluster_id, founders) = (cluster_id.into(), Arc::new(members.iter().copied().collect()));
        let (horizon, cluster, host) = (Arc::default(), Arc::default(), Host::Machine);
        Identity {
            cluster_id,
            node_id,
            founders,
            horizon,
            cluster,
            incarnation: 0,
            joins: false,
            leader_priority: 50,
            tls: None,
            host,
        }
    }

    /// Makes the identity of a node with this configuration and this data.
    pub(crate) fn of(host: Host, config: &Config, meta: &NodeMeta) -> Identity {
        let members: Vec<u64> = config.members.iter().map(|member| member.id).collect();
        let (cluster, incarnation) = (Arc::new(KnownCluster::of(meta, config.program.clone())), meta.incarnation());
        let (joins, leader_priority) = (config.join, config.leader_priority);
        let named = Identity::new(&config.cluster_id, config.node_id, &members);
        let tls = config.peer_tls.clone().map(Arc::new);
        Identity { host, cluster, incarnation, joins, leader_priority, tls, ..named }
    }

    /// Makes the rules for messages of a peer to this node.
    pub(crate) fn rules(&self, peer: u64) -> Rules {
        Rules::new(&self.horizon, peer)
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
            more: self.more(),
        }
    }

    /// This node's program, preference as leader, founders and address, as numbered fields of a
    /// hello or a welcome.
    fn more(&self) -> Vec<(u16, Vec<u8>)> {
        let program = Some((PROGRAM, codec::encode(self.cluster.program())));
        let leader_priority = Some((LEADER_PRIORITY, vec![self.leader_priority]));
        let founders = (!self.joins).then(|| (FOUNDERS, codec::encode(&*self.founders)));
        let peer_addr = self.cluster.own_addr().map(|addr| (PEER_ADDR, addr.into_bytes()));
        [program, leader_priority, founders, peer_addr].into_iter().flatten().collect()
    }

    fn accepted(&self, hello: &Hello) -> Acceptance {
        Acceptance {
            version: hello.versions.1.min(VERSIONS.1),
            levels: self.cluster.levels(),
            uuid: self.cluster.uuid(),
            incarnation: self.incarnation,
            more: self.more(),
        }
    }

    /// Checks a caller's hello. Returns the refusal for the caller, with the reason for this node's
    /// log; `None` for a caller that is accepted.
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
        } else if from == own || from == 0 || !self.may_call(hello) {
            Some(format!(
                "the caller, node {from}, is no peer of node {own}: the members that it knows are {:?}, and a node that \
                 is new must be added first",
                self.known_ids()
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
                Refusal::NoCommonLevel { .. } => self.members_levels_in_words(*levels),
                Refusal::Removed { zxid } => format!("it was removed from the cluster at zxid {zxid}"),
                Refusal::OtherCluster | Refusal::NoMember | Refusal::NeedsTls | Refusal::IdInUse => {
                    "it belongs to another cluster of the same name".into()
                }
            };
            let asked = format!("versions {versions:?} and levels {levels:?}");
            (refusal, format!("node {from} was turned away, with {asked}: {why}"))
        })
    }

    /// Checks a caller's connection. With TLS, the certificate must be that of the node that the
    /// hello names as its sender. Without TLS, this node must accept such connections. `uris` are
    /// the URIs in the certificate; `None` without TLS. Returns a refusal as [`Identity::refusal`].
    fn distrusts(&self, hello: &Hello, uris: Option<Vec<String>>) -> Option<(Refusal, String)> {
        let (tls, from) = (self.tls.as_deref()?, hello.from);
        match uris {
            None if tls.is_required => {
                let why = format!("the caller, node {from}, has connected without TLS, which peers.tls requires here");
                Some((Refusal::NeedsTls, why))
            }
            None => None,
            Some(uris) => Some((Refusal::NoMember, self.other_name(from, &uris)?)),
        }
    }

    /// Describes why a certificate with these URIs is not that of node `id`; `None` if it is node
    /// `id`'s, or if names are not checked.
    fn other_name(&self, id: u64, uris: &[String]) -> Option<String> {
        let uri = node_uri(&self.cluster_id, id);
        let is_wrong = self.tls.as_ref().is_some_and(|tls| tls.checks_names) && !uris.contains(&uri);
        is_wrong.then(|| format!("the certificate of node {id} must have the URI {uri}, and has the URIs {uris:?}"))
    }

    /// Tells whether a caller may be a member. A caller that knows the cluster's uuid is accepted
    /// even if this node does not know it as a member: it may have been added, and as the leader it
    /// may be the only node from which this node can hear of that.
    fn may_call(&self, hello: &Hello) -> bool {
        // This check accepts a node of another cluster of this name, and a removed member:
        // `disagreement` refuses them. A node that is to join may not know the members before one
        // of them calls.
        let knows = hello.uuid.is_some() && (self.cluster.uuid().is_some() || self.joins);
        knows || self.known_ids().contains(&hello.from) || self.cluster.removed_at(hello.from).is_some()
    }

    /// Ids of the members, as far as this node knows them; of the configured members before it
    /// knows any.
    fn known_ids(&self) -> BTreeSet<u64> {
        let known = self.cluster.member_ids();
        if known.is_empty() { (*self.founders).clone() } else { known }
    }

    /// Refusal of a member with which this node cannot work, for example because of its version;
    /// `None` if the two can work together.
    fn disagreement(&self, hello: &Hello) -> Option<Refusal> {
        // Checked first: this cluster may have removed its own node of this id, which does not
        // concern a caller from another cluster.
        if !self.cluster.may_be(hello.uuid) || hello.group != self.cluster.group() {
            return Some(Refusal::OtherCluster);
        }
        if let Some(zxid) = self.cluster.removed_at(hello.from) {
            return Some(Refusal::Removed { zxid: zxid.0 });
        }
        if !overlap(hello.versions, VERSIONS) {
            return Some(Refusal::NoCommonVersion { versions: VERSIONS });
        }
        // A caller's levels do not end this node, because the caller may be a stranger.
        let levels = self.cluster.levels();
        if hello.levels.0 > levels.1 {
            self.cluster.doubt_level(hello.from);
        }
        (!overlap(hello.levels, levels)).then_some(Refusal::NoCommonLevel { levels })
    }

    /// Checks the acceptance that a called peer has sent. The error is the reason why this node
    /// does not use the connection.
    fn agrees(&self, accepted: &Acceptance) -> Result<(), Refusal> {
        let Acceptance { version, levels, uuid, .. } = accepted;
        if !overlap((*version, *version), VERSIONS) {
            return Err(Refusal::NoCommonVersion { versions: (*version, *version) });
        }
        if !self.cluster.may_be(*uuid) {
            return Err(Refusal::OtherCluster);
        }
        let common = overlap(*levels, self.cluster.levels());
        if common { Ok(()) } else { Err(Refusal::NoCommonLevel { levels: *levels }) }
    }

    /// Makes the error of a call to a peer that refuses this node, or that this node refuses. This
    /// node fails if the cluster is at a format level that its program does not know, or has
    /// removed this node.
    fn turned_away(&self, refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::NoCommonLevel { levels } => {
                self.cluster.note_levels(levels);
                rejection(refusal, self.members_levels_in_words(levels))
            }
            Refusal::Removed { zxid } => {
                self.cluster.learn_own_removal(Zxid(zxid));
                rejection(refusal, refusal.to_string())
            }
            refusal => rejection(refusal, refusal.to_string()),
        }
    }

    /// Describes the format levels of a member that has no level in common with this node. If the
    /// cluster has outgrown this node's program, this node needs another program.
    fn members_levels_in_words(&self, levels: (u16, u16)) -> String {
        let known = self.cluster.program().levels;
        let outgrown = (levels.0 > known.max).then(|| OtherLevel { level: levels.0, known }.to_string());
        outgrown.unwrap_or_else(|| self.levels_in_words(levels))
    }

    /// Describes the format levels of a node that has no level in common with this node.
    fn levels_in_words(&self, (min, max): (u16, u16)) -> String {
        let (low, high) = self.cluster.levels();
        let (theirs, own) = (Levels { min, max }, Levels { min: low, max: high });
        let other = if min > high { "an older" } else { "a newer" };
        format!("the peer knows levels of the format {theirs}, and this node needs {own}: start {other} zlock there")
    }
}

fn rejection(refusal: Refusal, words: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, PeerRejection { refusal, words })
}

/// A refusal, with a description for this node's log.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct PeerRejection {
    pub(crate) refusal: Refusal,
    words: String,
}

/// Reads the facts that a peer told of itself: its program, its preference as leader, its
/// configured members and its address are in the numbered fields `more`.
fn said(incarnation: u64, more: &[(u16, Vec<u8>)]) -> PeerFacts {
    let field = |number| more.iter().find(|(other, _)| *other == number).map(|(_, value)| value.as_slice());
    let leader_priority = field(LEADER_PRIORITY).and_then(|value| value.first().copied());
    let founders = field(FOUNDERS).and_then(|value| codec::decode_short(value).ok());
    let peer_addr = field(PEER_ADDR).filter(|addr| addr.len() <= ADDR_BYTES_MAX);
    let peer_addr = peer_addr.and_then(|addr| String::from_utf8(addr.to_vec()).ok());
    PeerFacts { incarnation, program: field(PROGRAM).and_then(program), leader_priority, founders, peer_addr }
}

/// Largest accepted size in bytes of the version of a peer's program.
const VERSION_BYTES_MAX: usize = 64;

/// Reads the record of the program that a peer runs; `None` if it is malformed.
fn program(record: &[u8]) -> Option<Program> {
    let program: Program = codec::decode_short(record).ok()?;
    let Program { version, levels } = &program;
    let printable = version.len() <= VERSION_BYTES_MAX && version.bytes().all(|byte| byte.is_ascii_graphic());
    (printable && levels.min <= levels.max).then_some(program)
}

/// Tells whether two ranges have a number in common.
fn overlap((low, high): (u16, u16), (own_low, own_high): (u16, u16)) -> bool {
    low.max(own_low) <= high.min(own_high)
}

/// Peer to connect to, with all that a connection to it needs.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The identity of this node.
    pub(crate) identity: Identity,
    /// Id of the peer.
    pub(crate) to: u64,
    /// Addresses on which the peer listens.
    pub(crate) addrs: Arc<Addresses>,
    /// Purpose of the connection.
    pub(crate) lane: Lane,
    /// Timeout of connecting and the handshake, and longest time in which a peer that owes an
    /// answer may send nothing.
    pub(crate) peer_timeout: Duration,
    /// Record of the outcome of the last try to connect.
    pub(crate) reach: Arc<Reach>,
    /// True if the peer is a member; false if it is only asked whether it may become one.
    pub(crate) is_peer: bool,
}

/// Answers of a node that was asked whether it may become a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction {
    pub(crate) standing: Standing,
    /// Incarnation of the node's data directory: a random number that a new directory draws.
    pub(crate) incarnation: u64,
}

impl Target {
    /// Connects to the peer and does the handshake.
    ///
    /// # Errors
    /// An error with the peer's reason when the peer refuses; otherwise an error of the connection.
    pub(crate) async fn connect(&self) -> io::Result<FramedStream> {
        let until = Instant::now() + self.peer_timeout;
        let connected = match Stream::connect(&self.identity.host, &self.addrs, until).await {
            Ok(stream) => timeout_at(until, self.shake_hands(stream)).await.unwrap_or_else(|late| Err(late.into())),
            Err(error) => Err(error),
        };
        match &connected {
            Ok(_) => self.reach.reached(),
            Err(error) => {
                self.reach.lost(error);
                self.addrs.next();
            }
        }
        connected
    }

    /// Connects, and asks the node for its progress. The node does not become a peer.
    pub(crate) async fn introduce(&self) -> io::Result<Introduction> {
        let mut framed = self.connect().await?;
        framed.send(&NumberedMessage { number: 1, body: Ask::Standing }).await?;
        match framed.next::<NumberedMessage<Answer>>().await? {
            Some(NumberedMessage { body: Answer::Standing(standing), .. }) => {
                Ok(Introduction { standing, incarnation: framed.incarnation() })
            }
            Some(_) => Err(malformed("the node answered something else".into())),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Does the TLS handshake of a connection to the peer, and checks the name in the peer's
    /// certificate. Does nothing if this node opens connections without TLS.
    async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        let Some(tls) = self.identity.tls.as_deref().filter(|tls| tls.dials) else { return Ok(stream) };
        let stream = stream.dial_tls(&tls.tls).await.map_err(|error| tls_failure(&error))?;
        let uris = stream.certificate_uris();
        match uris.and_then(|uris| self.identity.other_name(self.to, &uris)) {
            Some(why) => Err(tls_failure(&why)),
            None => Ok(stream),
        }
    }

    async fn shake_hands(&self, stream: Stream) -> io::Result<FramedStream> {
        let mut framed = FramedStream::new(self.secure(stream).await?, self.peer_timeout)?;
        framed.send(&self.identity.hello(self.to, self.lane)).await?;
        let welcome = framed.greeting::<Welcome>().await;
        match welcome.map_err(|error| if accept::is_tls_error(&error) { tls_failure(&error) } else { error })? {
            Some(Welcome::Accepted(accepted)) => {
                self.identity.agrees(&accepted).map_err(|why| self.turned_away(why))?;
                if self.is_peer {
                    self.identity.cluster.met(self.to, said(accepted.incarnation, &accepted.more));
                }
                framed.meet(accepted.incarnation);
                let (rules, frame_bytes_max) = (self.identity.rules(self.to), self.lane.answer_bytes_max());
                framed.set_terms(Terms { version: accepted.version, frame_bytes_max, rules, place: None });
                Ok(framed)
            }
            Some(Welcome::Refused(why)) => Err(self.turned_away(why)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn turned_away(&self, refusal: Refusal) -> io::Error {
        match refusal {
            refusal if self.is_peer => self.identity.turned_away(refusal),
            // A node that is no peer does not know what the cluster has decided.
            Refusal::NoCommonLevel { levels } => rejection(refusal, self.identity.levels_in_words(levels)),
            refusal => rejection(refusal, refusal.to_string()),
        }
    }
}

/// Failure of TLS with a peer, with a description for this node's log.
#[derive(Debug, thiserror::Error)]
#[error("TLS with the peer failed: {0}")]
pub(crate) struct TlsFailure(String);

fn tls_failure(why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, TlsFailure(why.to_string()))
}

/// Refusal of a second process with the id of member `id`, with the reason for this node's log.
fn id_in_use(id: u64) -> (Refusal, String) {
    let why = format!(
        "two nodes say that they are node {id}: a process with another data directory is connected under this id, so \
         the second one was turned away"
    );
    (Refusal::IdInUse, why)
}

/// Answers a caller's [`Hello`], and turns the connection of an accepted caller into that of a
/// member. Returns `None` when the caller closed the connection, and an error when it was refused.
pub(crate) async fn welcome(
    identity: &Identity,
    framed: &mut FramedStream,
    place: CallerPlace,
    within: Duration,
) -> io::Result<Option<Hello>> {
    let hello =
        timeout(within, framed.greeting::<Hello>()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
    let Some(hello) = hello? else {
        return Ok(None);
    };
    let caller = Member { id: hello.from, incarnation: hello.incarnation, lane: hello.lane };
    let refusal = identity
        .distrusts(&hello, framed.certificate_uris())
        .or_else(|| identity.refusal(&hello))
        .or_else(|| place.admit(caller).err().map(|IdInUse| id_in_use(hello.from)));
    let answer = match &refusal {
        Some((refusal, _)) => Welcome::Refused(*refusal),
        None => Welcome::Accepted(identity.accepted(&hello)),
    };
    if refusal.is_none() {
        identity.cluster.met(hello.from, said(hello.incarnation, &hello.more));
        let (rules, frame_bytes_max) = (identity.rules(hello.from), hello.lane.question_bytes_max());
        let version = hello.versions.1.min(VERSIONS.1);
        framed.set_terms(Terms { version, frame_bytes_max, rules, place: Some(place) });
    }
    timeout(within, framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match refusal {
        None => Ok(Some(hello)),
        Some((_, why)) => Err(malformed(why)),
    }
}

#[cfg(test)]
mod tests {
    use accept::{MutualAcceptor, MutualFiles, MutualTls};
    use testkit::{Authority, Files};
    use tokio::net::TcpListener;
    use znode::LEVEL_MAX;

    use super::super::callers::Callers;
    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// Checks what node 1 of cluster `c` with members 1 to 3 answers to a caller, and that a
    /// refusal does not tell the caller this node's id or cluster.
    #[track_caller]
    fn check(caller: Identity, to: u64, expected: Result<(), &str>) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let expected = expected.map_err(str::to_string);
        async move {
            match (meet(caller, to, Identity::new("c", 1, &[1, 2, 3])).await, expected) {
                ((Ok(()), Ok(())), Ok(())) => {}
                ((Err(heard), Err(logged)), Err(part)) if logged.to_string().contains(&part) => {
                    assert_eq!(heard.to_string(), Refusal::NoMember.to_string(), "{at}");
                }
                end => panic!("{at}: {end:?}"),
            }
        }
    }

    /// Connects a node to another one. Returns the outcomes at the two ends.
    async fn meet(caller: Identity, to: u64, called: Identity) -> (io::Result<()>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, reach) = (listener.local_addr().unwrap().to_string(), Arc::<Reach>::default());
        let addrs = Arc::new(Addresses::new(&addr, None));
        let target =
            Target { identity: caller, to, addrs, lane: Lane::Control, peer_timeout: WITHIN, reach, is_peer: true };
        let answering = async {
            let (stream, from) = listener.accept().await.unwrap();
            let tls = called.tls.as_ref().map(|tls| MutualAcceptor::start(tls.tls.clone()).unwrap());
            let stream = Stream::from(stream).accept_tls(tls.as_ref(), Some(from.ip())).await?;
            let mut framed = FramedStream::new(stream, WITHIN).unwrap();
            let (place, _) = Arc::<Callers>::default().enter(None);
            welcome(&called, &mut framed, place, WITHIN).await.map(drop)
        };
        let (connected, logged) = tokio::join!(target.connect(), answering);
        (connected.map(drop), logged)
    }

    /// Connects a node of cluster `c` to node `called`, and checks the error at the caller and the
    /// error that the called node logs. `expected` has a part of each error; `None` if the nodes
    /// accept each other.
    #[track_caller]
    fn check_tls(caller: &Identity, called: &Identity, expected: Option<(&str, &str)>) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let ends = meet(caller.clone(), called.node_id, called.clone());
        let expected = expected.map(|(heard, logged)| (heard.to_owned(), logged.to_owned()));
        async move {
            match (ends.await, expected) {
                ((Ok(()), Ok(())), None) => {}
                ((Err(heard), Err(logged)), Some((part, logged_part))) => {
                    let (heard, logged) = (heard.to_string(), logged.to_string());
                    assert!(heard.contains(&part) && logged.contains(&logged_part), "{at}: {heard} / {logged}");
                }
                end => panic!("{at}: {end:?}"),
            }
        }
    }

    /// Returns the PEM files of a node of cluster `c`, whose certificate `own` is of `authority`.
    fn mutual_files(files: &Files, name: &str, authority: &Authority, own: &(String, String)) -> MutualFiles {
        let (certificate, key) = files.put(name, own);
        let ca = files.put_certificate(&format!("{name}-ca"), &authority.pem());
        MutualFiles { certificate, key, ca, crl: None, own_uri: None }
    }

    fn required(files: MutualFiles) -> PeerTls {
        let tls = MutualTls::load(files).unwrap();
        PeerTls { tls, dials: true, is_required: true, checks_names: true }
    }

    fn node(id: u64, tls: PeerTls) -> Identity {
        Identity { tls: Some(Arc::new(tls)), ..Identity::new("c", id, &[1, 2]) }
    }

    #[tokio::test]
    async fn one_name_of_a_certificate_is_enough() {
        let (files, own) = (Files::create(), Authority::new("own"));
        let tls = |name: &str, uris: &[&str]| required(mutual_files(&files, name, &own, &own.node(uris, 30)));
        let first = node(1, tls("1", &["spiffe://c/zlock", "zlock://d/1", "zlock://c/1"]));
        let second = tls("2", &["zlock://c/3", "zlock://c/2", "spiffe://c/zlock"]);
        check_tls(&node(2, second.clone()), &first, None).await;
        check_tls(&node(2, second.clone()), &node(1, second), Some(("must have the URI zlock://c/1", ""))).await;
        let none = node(2, tls("4", &["spiffe://c/2", "zlock://c/2/", "ZLOCK://c/2", "zlock://c/20"]));
        check_tls(&none, &first, Some(("is not a hello of a member", "must have the URI zlock://c/2,"))).await;
    }

    #[tokio::test]
    async fn both_ends_say_that_a_certificate_is_revoked() {
        let (files, own) = (Files::create(), Authority::new("own"));
        let load = |name: &str, uri: &str, crl: Option<&str>| {
            let crl = crl.map(|crl| files.put_certificate(&format!("{name}-crl"), crl));
            required(MutualFiles { crl, ..mutual_files(&files, name, &own, &own.node(&[uri], 30)) })
        };
        let second = load("2", "zlock://c/2", None);
        let first = load("1", "zlock://c/1", Some(&own.crl(&[1])));
        check_tls(&node(2, second.clone()), &node(1, first.clone()), Some(("CertificateRevoked", "Revoked"))).await;
        // The revoked certificate is refused at the end that calls, too.
        check_tls(&node(1, first), &node(2, second), Some(("Revoked", "CertificateRevoked"))).await;
        let third = load("3", "zlock://c/2", Some(&own.crl(&[9])));
        check_tls(&node(2, third), &node(1, load("4", "zlock://c/1", Some(&own.crl(&[9])))), None).await;
    }

    #[tokio::test]
    async fn a_certificate_tells_which_node_it_is_for() {
        let (files, own, other) = (Files::create(), Authority::new("own"), Authority::new("other"));
        let tls = |name: &str, authority: &Authority, uri: String, days| {
            required(mutual_files(&files, name, authority, &authority.node(&[&uri], days)))
        };
        let first = node(1, tls("1", &own, node_uri("c", 1), 30));
        let second = tls("2", &own, node_uri("c", 2), 30);
        check_tls(&node(2, second.clone()), &first, None).await;
        // Connections between nodes that have no TLS, permit TLS, or require it.
        let plain = Identity::new("c", 2, &[1, 2]);
        check_tls(&plain, &first, Some(("with TLS only", "has connected without TLS"))).await;
        let permits = PeerTls { dials: false, is_required: false, ..tls("p", &own, node_uri("c", 1), 30) };
        check_tls(&plain, &node(1, permits.clone()), None).await;
        check_tls(&node(2, second.clone()), &node(1, permits), None).await;
        let off = Identity::new("c", 1, &[1, 2]);
        check_tls(&node(2, second.clone()), &off, Some(("TLS with the peer failed", "peers.tls is off"))).await;
        // A certificate of another node, first at the caller, then at the called node.
        let third = tls("3", &own, node_uri("c", 3), 30);
        let needs = "must have the URI zlock://c/2, and has the URIs [\"zlock://c/3\"]";
        check_tls(&node(2, third.clone()), &first, Some(("is not a hello of a member", needs))).await;
        check_tls(&node(2, second.clone()), &node(1, third), Some(("must have the URI zlock://c/1", ""))).await;
        let elsewhere = tls("4", &own, node_uri("d", 2), 30);
        check_tls(&node(2, elsewhere), &first, Some(("is not a hello of a member", "zlock://d/2"))).await;
        // Certificates that TLS itself refuses.
        let late = tls("5", &own, node_uri("c", 2), -1);
        check_tls(&node(2, late), &first, Some(("CertificateExpired", "certificate expired"))).await;
        let foreign = tls("6", &other, node_uri("c", 2), 30);
        check_tls(&node(2, foreign), &first, Some(("UnknownIssuer", "UnknownCA"))).await;
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
        // This node's log describes the same disagreement from this node's side.
        let (_, logged) = own.refusal(&Hello { versions: (9, 9), levels: (1, 1), ..hello.clone() }).unwrap();
        let other_side = format!("with versions (9, 9) and levels (1, 1): this node speaks only versions {VERSIONS:?}");
        assert!(logged.ends_with(&other_side), "{logged}");
        assert_eq!(refusal(hello.clone()), None);
        let later = Hello { versions: (9, 9), ..hello.clone() };
        assert_eq!(refusal(later), Some(Refusal::NoCommonVersion { versions: VERSIONS }));
        let raised = Hello { levels: (8, 9), ..hello.clone() };
        assert_eq!(refusal(raised), Some(Refusal::NoCommonLevel { levels: (1, LEVEL_MAX) }));
        assert_eq!(*own.cluster.outgrown().borrow(), None, "a stranger ends no node");
        // A range that overlaps is enough, and fields that are not known are passed over.
        let wide = Hello { versions: (1, 9), levels: (1, 9), more: vec![(7, vec![1])], ..hello.clone() };
        assert_eq!(refusal(wide), None);
        assert_eq!(refusal(Hello { group: 1, ..hello }), Some(Refusal::OtherCluster));
    }

    /// Node 1 was stopped while the cluster went on and raised its format level. If its program
    /// knows the new level, the nodes connect; an older program is refused, and its node fails.
    #[test]
    fn a_member_that_is_behind_meets_one_that_has_applied_a_higher_level() {
        let meta = |id| {
            let identity = storage::Identity { cluster_id: "c".into(), node_id: id };
            sim::memory_disk::MemoryDisk::default().open(identity).unwrap().meta
        };
        let node = |id: u64, level: u16, max: u16| {
            let member = |id| crate::Member { id, peer_addr: String::new(), http_addr: String::new() };
            let program = Program { version: format!("0.{max}.0"), levels: Levels { min: 1, max } };
            let (members, cluster_id) = (vec![member(1), member(2)], "c".into());
            let config = Config { node_id: id, cluster_id, members, program, ..Config::default() };
            let identity = Identity::of(Host::Machine, &config, &meta(id));
            let mut state = znode::State::default();
            let founding = znode::Founding { uuid: znode::ClusterUuid([7; 16]), zxid_base: 0, group: 0 };
            for (op, index) in [znode::Op::Found(founding), znode::Op::SetLevel { level }].into_iter().zip(1..) {
                let at = znode::LogPosition { term: znode::Term(1), zxid: znode::Zxid(index) };
                state.apply(at, znode::Txn { proven: false, time_ms: 1, request: znode::Request::new(op) });
            }
            identity.cluster.learn(state.cluster().unwrap());
            identity
        };
        let (behind, ahead, old) = (node(1, 1, 2), node(2, 2, 2), node(1, 1, 1));
        let hello = behind.hello(2, Lane::Append);
        assert_eq!(ahead.refusal(&hello), None);
        assert_eq!(behind.agrees(&ahead.accepted(&hello)), Ok(()));
        assert_eq!(said(0, &hello.more).program, Some(behind.cluster.program().clone()));
        // A program that does not know the level hears which one to start, and its node ends.
        let (refusal, logged) = ahead.refusal(&old.hello(2, Lane::Append)).unwrap();
        assert!(
            logged
                .ends_with("knows levels of the format only 1, and this node needs only 2: start a newer zlock there")
        );
        let outgrown = "this cluster is at level 2; this zlock knows only 1: start a newer zlock";
        assert_eq!(old.turned_away(refusal).to_string(), outgrown);
        let (_, logged) = old.refusal(&ahead.hello(1, Lane::Append)).unwrap();
        assert!(logged.ends_with(outgrown), "{logged}");
        assert!(old.cluster.outgrown().borrow().is_some() && ahead.cluster.outgrown().borrow().is_none());
    }
}
