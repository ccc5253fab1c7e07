//! The calling side of Raft's messages to the peers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use storage::{LogId, Member, Snapshot, TypeConfig, Vote};
use tokio::time::Instant;

use crate::raft::peers::{Peer, Peers};
use crate::raft::purge_index::PurgeIndex;
use crate::raft::state_machine::RaftSnapshot;
use crate::raft::transport::{
    Answer, AppendLine, AppendStream, Ask, ChannelError, Lane, Tenure, TransferFrame, TransferRefusal, VoteFrame,
    send_snapshot,
};

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Network;

    async fn new_client(&mut self, target: u64, node: &Member) -> Network {
        self.reach(target, &node.peer_addr);
        Network { to: target, peers: self.clone(), line: None }
    }
}

/// Client with which one of Raft's tasks (replication, heartbeats, a vote or a snapshot) calls one
/// peer. Each client opens an append connection of its own, so that heartbeats never wait behind
/// entries.
pub(crate) struct Network {
    to: u64,
    peers: Peers,
    line: Option<AppendLine>,
}

type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

impl Network {
    /// Returns the peer with its address in the present membership; an error if it is no member any
    /// more.
    fn peer(&self) -> Result<Arc<Peer>, RPCError<TypeConfig>> {
        self.peers.get(self.to).ok_or_else(|| unreachable(format!("node {} is no member any more", self.to)))
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

    fn has_line(&mut self) -> bool {
        self.line.as_mut().is_some_and(|line| !line.is_over(self.peers.peer_timeout))
    }

    /// Sends the appends of a replication stream (`purge_index` is `Some`), or one heartbeat
    /// (`None`).
    async fn append<'s, S>(
        &'s mut self,
        input: S,
        purge_index: Option<PurgeIndex>,
    ) -> Result<AppendResults<'s>, RPCError<TypeConfig>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        // Raft's task bounds a heartbeat by the heartbeat interval. Entries may wait for a slow
        // disk, so a connection counts as lost only when the peer says nothing at all for
        // `peer_timeout`.
        let peer_timeout = self.peers.peer_timeout;
        let mut input = input.peekable();
        // Raft pauses after an error before it yields the next request. A connection that is opened
        // before there is a request would be tried again without that pause.
        if !self.has_line() && Pin::new(&mut input).peek().await.is_none() {
            return Ok(Box::pin(futures_util::stream::empty()) as AppendResults<'s>);
        }
        let line = self.line().await?;
        Ok(Box::pin(AppendStream::new(line, input, peer_timeout, purge_index)) as AppendResults<'s>)
    }

    /// Returns the append connection. Opens a new one if there is none, if the peer has owed an
    /// answer for longer than `peer_timeout`, or if the connection's tenure is over.
    async fn line(&mut self) -> Result<&mut Option<AppendLine>, RPCError<TypeConfig>> {
        if !self.has_line() {
            self.line = None;
            let peer = self.peer()?;
            let target = peer.target(Lane::Append);
            let framed = target.connect().await;
            let framed = framed.map_err(|error| unreachable(format!("cannot reach node {}: {error}", self.to)))?;
            let following = Arc::clone(&peer.following);
            let tenure = Tenure::of_caller(&framed, target.identity.tls.as_deref());
            self.line = Some(AppendLine::new(framed, following, tenure));
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
        let purge_index = self.peers.purge_index.clone();
        Box::pin(self.append(input, Some(purge_index)))
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
        let peer = self.peer().map_err(|error| streaming(&error))?;
        let target = peer.target(Lane::Snapshot);
        let (id, bytes) = (snapshot.snapshot.id(), snapshot.snapshot.bytes());
        tokio::select! {
            biased;
            sent = send_snapshot(&target, self.peers.peer_timeout, (&vote).into(), snapshot.snapshot) => {
                peer.note_snapshot(sent.as_ref().err());
                // A vote above that of the request is a refusal.
                if sent.as_ref().is_ok_and(|answered| *answered == storage::codec::VoteRecord::from(&vote)) {
                    tracing::info!(to = self.to, id, bytes, "snapshot sent");
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

/// Converts an IO error of a connection to an error for Raft.
pub(crate) fn lost(error: &io::Error) -> RPCError<TypeConfig> {
    unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::raft::transport::Identity;
    use crate::stop::Stop;

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
        // Raft sends nothing more over this client, because its term as leader has ended.
        let results = network.stream_append(futures_util::stream::empty(), option).await;
        assert_eq!(results.expect("nothing was tried").count().await, 0);
    }
}
