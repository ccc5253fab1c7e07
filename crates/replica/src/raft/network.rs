//! The calling side of Raft's conversation with the peers.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::base::{BoxFuture, BoxStream};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{OptionalSend, RaftMetrics, RaftNetworkFactory, RaftNetworkV2};
use storage::{LogId, Member, Snapshot, TypeConfig, Vote};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::leader::quorum_contact::{self, Following};
use crate::raft::reach::Reach;
use crate::raft::state_machine::RaftSnapshot;
use crate::raft::transport::{
    Answer, AppendLine, AppendStream, Ask, Channel, ChannelError, Identity, Lane, Standing, Target, TransferFrame,
    TransferRefusal, VoteFrame, send_snapshot,
};
use crate::stop::Stop;

/// One peer and the connections that are shared by all tasks that talk to it.
pub(crate) struct Peer {
    identity: Identity,
    id: u64,
    addr: Arc<str>,
    peer_timeout: Duration,
    /// When it last showed that it follows this node.
    pub(crate) following: Arc<Following>,
    /// Whether it can be reached.
    pub(crate) reach: Arc<Reach>,
    /// Snapshots that got to it.
    sent: AtomicU64,
    /// Snapshots that did not get to it.
    unsent: Unsent,
    /// Votes and questions about the ensemble.
    pub(crate) control: Channel,
    /// Proposals, heartbeats and read indexes.
    pub(crate) forward: Channel,
}

impl Peer {
    fn target(&self, lane: Lane) -> Target {
        let (identity, addr, reach) = (self.identity.clone(), Arc::clone(&self.addr), Arc::clone(&self.reach));
        Target { identity, to: self.id, addr, lane, peer_timeout: self.peer_timeout, reach }
    }

    /// `host:port` of its listener.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// Notes what came of sending it a snapshot. Raft tries again after a pause; a line is for each
    /// change.
    fn note_snapshot(&self, failed: Option<&io::Error>) {
        self.sent.fetch_add(u64::from(failed.is_none()), Ordering::Relaxed);
        if self.unsent.note(failed.map(io::Error::kind)) {
            match failed {
                Some(error) => tracing::warn!(to = self.id, %error, "a snapshot was not sent"),
                None => tracing::info!(to = self.id, "a snapshot was sent at last"),
            }
        }
    }
}

/// Snapshots that did not get to a peer.
#[derive(Debug, Default)]
struct Unsent {
    count: AtomicU64,
    /// How the last try failed; nothing after one that got there.
    last: Mutex<Option<io::ErrorKind>>,
}

impl Unsent {
    /// Counts a failed try. Whether it ended otherwise than the one before.
    fn note(&self, failed: Option<io::ErrorKind>) -> bool {
        self.count.fetch_add(u64::from(failed.is_some()), Ordering::Relaxed);
        std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), failed) != failed
    }
}

/// Up to where this node's log is purged, as Raft tells. Nothing before Raft runs.
#[derive(Clone, Default)]
pub(crate) struct Purged(Arc<OnceLock<WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>>>);

impl Purged {
    /// Raft runs.
    pub(crate) fn told_by(&self, metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>) {
        let _ = self.0.set(metrics);
    }

    /// Whether a follower that has no more than this needs an entry that is gone.
    pub(crate) fn is_needed_behind(&self, prev: Option<LogId>) -> bool {
        self.up_to().is_some_and(|purged| prev.is_none_or(|prev| prev.index < purged))
    }

    /// The index of the last entry that is gone.
    pub(crate) fn up_to(&self) -> Option<u64> {
        self.0.get()?.borrow_watched().purged.map(|purged| purged.index)
    }
}

/// All peers of this node. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Peers {
    by_id: Arc<BTreeMap<u64, Arc<Peer>>>,
    pub(crate) purged: Purged,
    peer_timeout: Duration,
    /// Told each time a peer has taken a frame as a follower.
    noted: Arc<Notify>,
}

impl Peers {
    /// Makes the channels to all members but this node. `silence` is one round trip at most,
    /// connecting included.
    pub(crate) fn new(identity: &Identity, members: &[crate::Member], peer_timeout: Duration, stop: &Stop) -> Peers {
        let others = members.iter().filter(|member| member.id != identity.node_id);
        let noted = Arc::default();
        let peer = |member| Arc::new(Peer::new(identity, member, peer_timeout, stop, &noted));
        let by_id = Arc::new(others.map(|member| (member.id, peer(member))).collect());
        Peers { by_id, purged: Purged::default(), peer_timeout, noted }
    }

    /// How far the other members are, as far as they answer before the deadline.
    pub(crate) async fn standings(&self, deadline: Instant) -> Vec<(u64, Standing)> {
        let ask = |(id, peer): (u64, &Arc<Peer>)| {
            let peer = Arc::clone(peer);
            async move { (id, peer.control.ask(Ask::Standing, deadline).await) }
        };
        let answers = join_all(self.all().map(ask)).await.into_iter();
        let standing = |(id, answer)| match answer {
            Ok(Answer::Standing(standing)) => Some((id, standing)),
            _ => None,
        };
        answers.filter_map(standing).collect()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Arc<Peer>> {
        self.by_id.get(&id)
    }

    /// When the frame of `term` was sent that a quorum has taken, this node included.
    pub(crate) fn followed_since(&self, term: u64) -> Option<Instant> {
        let peers = self.by_id.values().map(|peer| peer.following.since(term));
        quorum_contact::quorum(self.by_id.len() + 1, peers)
    }

    /// Waits until a quorum, this node included, has taken a frame of `term` that was sent at
    /// `since` or later. A leader alone has one.
    pub(crate) async fn followed_again(&self, term: u64, since: Instant) {
        while !self.by_id.is_empty() {
            let noted = self.noted.notified();
            if self.followed_since(term).is_some_and(|followed| followed >= since) {
                return;
            }
            noted.await;
        }
    }

    /// How often a snapshot got to a peer.
    pub(crate) fn snapshots_sent(&self) -> u64 {
        self.by_id.values().map(|peer| peer.sent.load(Ordering::Relaxed)).sum()
    }

    /// How often a snapshot did not get to a peer.
    pub(crate) fn snapshots_unsent(&self) -> u64 {
        self.by_id.values().map(|peer| peer.unsent.count.load(Ordering::Relaxed)).sum()
    }

    /// How often a peer turned out to have lost entries that it had on its disk.
    pub(crate) fn entries_lost(&self) -> u64 {
        self.by_id.values().map(|peer| peer.following.losses()).sum()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Arc<Peer>)> {
        self.by_id.iter().map(|(id, peer)| (*id, peer))
    }
}

impl Peer {
    fn new(
        identity: &Identity,
        member: &crate::Member,
        peer_timeout: Duration,
        stop: &Stop,
        noted: &Arc<Notify>,
    ) -> Peer {
        let addr: Arc<str> = member.peer_addr.as_str().into();
        let reach = Arc::<Reach>::default();
        let open = |lane| {
            let (identity, addr, reach) = (identity.clone(), Arc::clone(&addr), Arc::clone(&reach));
            Channel::open(Target { identity, to: member.id, addr, lane, peer_timeout, reach }, stop.clone())
        };
        let (control, forward) = (open(Lane::Control), open(Lane::Forward));
        let following = Arc::new(Following::new(Arc::clone(noted)));
        let (identity, sent, unsent) = (identity.clone(), AtomicU64::default(), Unsent::default());
        Peer { identity, id: member.id, addr, peer_timeout, following, reach, sent, unsent, control, forward }
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Network;

    async fn new_client(&mut self, target: u64, _node: &Member) -> Network {
        let peer = self.get(target).cloned();
        Network { to: target, peer, purged: self.purged.clone(), peer_timeout: self.peer_timeout, line: None }
    }
}

/// A client of one peer for one of Raft's tasks: replication, heartbeats, a vote or a snapshot. Its
/// append connection is its own, so that heartbeats never wait behind entries.
pub(crate) struct Network {
    to: u64,
    /// `None` for a node that the configuration does not name.
    peer: Option<Arc<Peer>>,
    purged: Purged,
    peer_timeout: Duration,
    line: Option<AppendLine>,
}

type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

impl Network {
    fn peer(&self) -> Result<&Arc<Peer>, RPCError<TypeConfig>> {
        let missing = || unreachable(format!("node {} is not in the configuration of this node", self.to));
        self.peer.as_ref().ok_or_else(missing)
    }

    async fn ask(&self, ask: Ask, option: &RPCOption) -> Result<Answer, RPCError<TypeConfig>> {
        let answer = self.peer()?.control.ask(ask, Instant::now() + option.soft_ttl()).await;
        match answer.map_err(|(ChannelError::NotSent(why) | ChannelError::Lost(why))| unreachable(why))? {
            Answer::Refused(why) => Err(unreachable(why)),
            answer => Ok(answer),
        }
    }

    async fn ask_vote(&self, ask: Ask, option: &RPCOption) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.ask(ask, option).await? {
            Answer::Vote(answer) => {
                let vote = Vote::from(answer.vote);
                Ok(VoteResponse::new(vote, answer.last_log_id.map(LogId::from), answer.granted))
            }
            other => Err(unexpected(&other)),
        }
    }

    fn has_line(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.is_silent(self.peer_timeout))
    }

    /// Replication, with `purged`, or one heartbeat.
    async fn append<'s, S>(
        &'s mut self,
        input: S,
        purged: Option<Purged>,
    ) -> Result<AppendResults<'s>, RPCError<TypeConfig>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        // Raft bounds a heartbeat by its interval, and its task sees to it; entries may wait for a
        // slow disk, so a connection counts as lost when the peer says nothing at all for
        // `silence`.
        let peer_timeout = self.peer_timeout;
        let mut input = input.peekable();
        // Raft's pauses after errors are in its requests: who connects before it has one tries
        // without a pause.
        if !self.has_line() && Pin::new(&mut input).peek().await.is_none() {
            return Ok(Box::pin(futures_util::stream::empty()) as AppendResults<'s>);
        }
        let line = self.line().await?;
        Ok(Box::pin(AppendStream::new(line, input, peer_timeout, purged)) as AppendResults<'s>)
    }

    /// The append connection, opened anew when there is none or when it has been silent too long.
    async fn line(&mut self) -> Result<&mut Option<AppendLine>, RPCError<TypeConfig>> {
        if !self.has_line() {
            self.line = None;
            let framed = self.peer()?.target(Lane::Append).connect().await;
            let framed = framed.map_err(|error| unreachable(format!("cannot reach node {}: {error}", self.to)))?;
            let following = Arc::clone(&self.peer()?.following);
            self.line = Some(AppendLine::new(framed, following));
        }
        Ok(&mut self.line)
    }
}

impl RaftNetworkV2<TypeConfig> for Network {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let input = Box::pin(futures_util::stream::once(async { request }));
        let mut results = self.append(input, None).await?;
        match results.next().await {
            Some(result) => Ok(result?.into()),
            None => Err(unreachable("the connection was closed".into())),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendResults<'s>, RPCError<TypeConfig>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let purged = self.purged.clone();
        Box::pin(self.append(input, Some(purged)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(Ask::Vote(vote_frame(&request)), &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(Ask::PreVote(vote_frame(&request)), &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let peer = Arc::clone(self.peer().map_err(|error| streaming(&error))?);
        let target = peer.target(Lane::Snapshot);
        let (id, bytes) = (snapshot.snapshot.id(), snapshot.snapshot.bytes());
        tokio::select! {
            biased;
            sent = send_snapshot(&target, self.peer_timeout, (&vote).into(), snapshot.snapshot) => {
                peer.note_snapshot(sent.as_ref().err());
                // A vote above ours is a refusal.
                if sent.as_ref().is_ok_and(|answered| *answered == storage::codec::VoteRecord::from(&vote)) {
                    tracing::info!(to = peer.id, id, bytes, "snapshot sent");
                }
                sent.map(|vote| SnapshotResponse::new(vote.into())).map_err(|error| streaming(&error))
            }
            closed = cancel => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let frame = TransferFrame {
            from_leader: request.from_leader().into(),
            to: *request.to_node_id(),
            last_log_id: request.last_log_id().map(Into::into),
        };
        match self.ask(Ask::TransferLeader(frame), &option).await? {
            Answer::TransferLeader(result) => Ok(result.map_err(transfer_error)),
            other => Err(unexpected(&other)),
        }
    }
}

fn vote_frame(request: &VoteRequest<TypeConfig>) -> VoteFrame {
    VoteFrame {
        vote: (&request.vote).into(),
        last_log_id: request.last_log_id.as_ref().map(Into::into),
        leadership_transfer: request.leadership_transfer,
    }
}

fn transfer_error(refusal: TransferRefusal) -> TransferLeaderError<TypeConfig> {
    match refusal {
        TransferRefusal::VoteChanged { expected, actual } => {
            TransferLeaderError::VoteChanged { expected: expected.into(), actual: actual.into() }
        }
        TransferRefusal::LogNotFlushed { expected, actual } => {
            TransferLeaderError::LogNotFlushed { expected: expected.map(LogId::from), actual: actual.map(LogId::from) }
        }
    }
}

fn unreachable(why: String) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(why))
}

fn unexpected(answer: &Answer) -> RPCError<TypeConfig> {
    unreachable(format!("the peer answered something else: {answer:?}"))
}

fn streaming(error: &dyn std::fmt::Display) -> StreamingError<TypeConfig> {
    StreamingError::Unreachable(Unreachable::from_string(error.to_string()))
}

/// An IO error of a connection, as Raft wants to hear it.
pub(crate) fn lost(error: &io::Error) -> RPCError<TypeConfig> {
    unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_snapshot_that_is_tried_again_and_again_is_told_once_for_each_change() {
        let (unsent, full, refused) =
            (Unsent::default(), Some(io::ErrorKind::StorageFull), Some(io::ErrorKind::ConnectionRefused));
        let told = [None, full, full, full, refused, refused, None, None, full].map(|end| unsent.note(end));
        assert_eq!(told, [false, true, false, false, true, false, true, false, true]);
        assert_eq!(unsent.count.load(Ordering::Relaxed), 6);
    }

    #[tokio::test]
    async fn a_peer_that_is_away_is_not_tried_before_raft_has_something_for_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let peer_addr = listener.local_addr().unwrap().to_string();
        // No task listens any more.
        drop(listener);
        let identity = Identity::new("c", 1, &[1, 2]);
        let members = [crate::Member { id: 2, peer_addr, http_addr: String::new() }];
        let mut peers = Peers::new(&identity, &members, Duration::from_secs(10), &Stop::default());
        let mut network = peers.new_client(2, &Member::default()).await;
        let option = RPCOption::new(Duration::from_secs(10));
        let asked = Arc::new(AtomicBool::new(false));
        let input = Box::pin(futures_util::stream::once({
            let asked = Arc::clone(&asked);
            async move {
                asked.store(true, Ordering::Relaxed);
                AppendEntriesRequest { vote: Vote::new(1, 1), prev_log_id: None, entries: vec![], leader_commit: None }
            }
        }));
        assert!(network.stream_append(input, option.clone()).await.is_err());
        assert!(asked.load(Ordering::Relaxed), "Raft pauses where it is asked");
        // Raft has nothing more to say: the end of a term as leader.
        let results = network.stream_append(futures_util::stream::empty(), option).await;
        assert_eq!(results.expect("nothing was tried").count().await, 0);
    }
}
