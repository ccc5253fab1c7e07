//! The answering side: a listener for peers, one task for each connection.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, VoteRequest};
use storage::codec::EntryRecord;
use storage::{LogId, TypeConfig, Vote};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::disk_watch::STALLED;
use crate::node::Node;
use crate::state_machine::RaftSnapshot;
use crate::transport::{
    Answer, AppendAnswer, AppendFrame, AppendResult, Ask, Exchange, Framed, Lane, Listener, Numbered, SnapshotAnswer,
    SnapshotFrame, Stream, TransferFrame, TransferRefusal, VoteAnswer, VoteFrame, receive_snapshot, welcome,
    while_working,
};

/// Connections at once. Members need a handful each; the rest is room for reconnects.
const CONNECTIONS_MAX: usize = 256;
/// Appends that wait for the disk, for each connection. Beyond: they wait in the socket.
const APPENDS_MAX: usize = 64;
/// How long an answer that nobody waits for may wait for another one to go with: far less than a heartbeat's interval.
const IDLE_WAIT: Duration = Duration::from_millis(5);
/// Questions under way, for each connection. Beyond: they wait in the socket.
const ASKS_MAX: usize = 8_192;
/// Bytes of answers that a peer may leave unread before nothing more is read from it.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Held, as a sender of nothing, by every connection that may owe answers to questions.
type Answering = mpsc::Sender<Infallible>;
/// Appends under way on one connection.
type Appends<'a> = FuturesOrdered<BoxFuture<'a, io::Result<Appended>>>;
/// Questions under way on one connection, with the answers that they come to.
type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, Numbered<Answer>>>;

/// Accepts peers until the node stops, and then for as long as it owes answers to questions: the entries that decide them
/// come in on other connections, and those of a new leader may be new.
pub(crate) async fn serve(node: Arc<Node>, mut listener: Listener) {
    let mut connections = JoinSet::new();
    let (answering, mut answered) = mpsc::channel(1);
    let mut answering: Option<Answering> = Some(answering);
    let stop = node.stopped();
    let mut stopped = pin!(stop.wait());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped, if answering.is_some() => answering = None,
            _ = answered.recv() => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(Arc::clone(&node), stream, answering.clone()));
                }
                // Out of file descriptors, most likely: give the others time to end.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a peer");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(node: Arc<Node>, stream: Stream, answering: Option<Answering>) {
    let served = async {
        let mut framed = Framed::new(stream)?;
        let Some(hello) = welcome(&node.identity, &mut framed, node.silence()).await? else {
            return Ok(());
        };
        // Who connects can be reached again, most likely.
        let _ = node.raft.trigger().reset_backoff([hello.from]).await;
        match hello.lane {
            Lane::Append => {
                drop(answering);
                append(&node, framed, hello.from).await
            }
            Lane::Control | Lane::Forward => answer(&node, framed).await,
            Lane::Snapshot => {
                drop(answering);
                snapshot(&node, framed).await
            }
        }
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "peer connection ended");
    }
}

/// Takes what a leader, or one who believes to be it, has to say, and notes the end of it.
async fn append(node: &Arc<Node>, framed: Framed, from: u64) -> io::Result<()> {
    let mut under_way = Appends::new();
    let ended = take_appends(node, framed, &mut under_way).await;
    if node.leader() == Some(from) {
        node.leader_watch.note_end(from, Instant::now());
    }
    // What has come in counts, though nobody hears the answers.
    let _ = timeout(node.silence(), under_way.for_each(|_| ready(()))).await;
    ended
}

/// Appends are handed to Raft as they come and answered in their order.
///
/// A leader that tells what is committed waits for no answer to that. So behind entries, the answers to frames without
/// any go with the next answer to some, which spares both ends a packet and a wake-up for each write. Heartbeats, which
/// somebody waits for, have a connection of their own that never carries entries.
async fn take_appends<'a>(node: &'a Node, mut framed: Framed, under_way: &mut Appends<'a>) -> io::Result<()> {
    let mut carries_entries = false;
    let mut idle = pin!(sleep(Duration::ZERO));
    loop {
        // At the bound nothing is read, so nothing would flush the answers either.
        let room = under_way.len() < APPENDS_MAX;
        if !room {
            flush(node, &mut framed).await?;
        }
        tokio::select! {
            biased;
            Some(done) = under_way.next(), if !under_way.is_empty() => {
                let Appended { answer, idle: is_idle } = done?;
                if !is_idle {
                    framed.queue(&answer)?;
                } else if framed.queue_idly(&answer)? {
                    idle.as_mut().reset(Instant::now() + IDLE_WAIT);
                }
            }
            () = &mut idle, if framed.is_idle() => framed.hurry(),
            exchange = framed.exchange::<AppendFrame>(), if room => match exchange? {
                Exchange::Message(frame) => {
                    carries_entries |= !frame.entries.is_empty();
                    let idle = carries_entries && frame.entries.is_empty();
                    under_way.push_back(Box::pin(append_one(node, frame, idle, Instant::now())));
                }
                Exchange::Flushed => {}
                Exchange::Closed => return Ok(()),
            },
        }
    }
}

async fn flush(node: &Node, framed: &mut Framed) -> io::Result<()> {
    timeout(node.silence(), framed.flush()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// What a frame came to.
struct Appended {
    answer: AppendAnswer,
    /// Nobody waits for the answer.
    idle: bool,
}

/// `idle` says that nobody waits to hear that it was taken; it came in at `came`.
async fn append_one(node: &Node, frame: AppendFrame, idle: bool, came: Instant) -> io::Result<Appended> {
    let sequence = frame.sequence;
    if !node.gate.admits(frame.vote.term) {
        let why = "this node's data directory is new; it first asks a majority of the other members what it may take";
        let answer = AppendAnswer { sequence, result: AppendResult::Refused(why.into()) };
        return Ok(Appended { answer, idle: false });
    }
    if node.disk_watch.stalls() && needs_the_disk(node, &frame) {
        if frame.vote.committed && node.disk_watch.follow(frame.vote.term, frame.vote.node_id) {
            node.leader_watch.hear(came);
        }
        return Ok(Appended {
            answer: AppendAnswer { sequence, result: AppendResult::Refused(STALLED.into()) },
            idle: false,
        });
    }
    let entries = frame.entries.into_iter().map(EntryRecord::into_entry).collect::<Result<Vec<_>, _>>()?;
    let request = AppendEntriesRequest::<TypeConfig> {
        vote: Vote::from(frame.vote),
        prev_log_id: frame.prev_log_id.map(LogId::from),
        entries,
        leader_commit: frame.leader_commit.map(LogId::from),
    };
    let response = node.raft.append_entries(request).await;
    if !matches!(response, Ok(AppendEntriesResponse::HigherVote(_)) | Err(_)) {
        node.leader_watch.hear(came);
    }
    let result = match response {
        Ok(AppendEntriesResponse::Success) => AppendResult::Success,
        Ok(AppendEntriesResponse::PartialSuccess(id)) => AppendResult::PartialSuccess(id.as_ref().map(Into::into)),
        Ok(AppendEntriesResponse::Conflict) => AppendResult::Conflict,
        Ok(AppendEntriesResponse::HigherVote(vote)) => AppendResult::HigherVote((&vote).into()),
        Err(error) => AppendResult::Refused(error.to_string()),
    };
    let idle = idle && matches!(result, AppendResult::Success);
    Ok(Appended { answer: AppendAnswer { sequence, result }, idle })
}

/// Whether something is to be written before the frame can be answered. Raft itself waits while it saves a vote, and while there
/// is no room for entries; what peers send meanwhile would pile up in front of it.
fn needs_the_disk(node: &Node, frame: &AppendFrame) -> bool {
    !frame.entries.is_empty() || frame.vote.term > node.voted_term()
}

/// Questions are worked on at once and answered as they are done, until the node stops.
async fn answer(node: &Arc<Node>, mut framed: Framed) -> io::Result<()> {
    let mut under_way = UnderWay::new();
    let mut taken = 0;
    let stop = node.stopped();
    let mut stopped = pin!(stop.wait());
    loop {
        let room = under_way.len() < ASKS_MAX && framed.queued_bytes() < UNREAD_BYTES_MAX;
        if !room {
            flush(node, &mut framed).await?;
        }
        tokio::select! {
            biased;
            () = &mut stopped => break,
            // Unconstrained: a proposal that is made to yield halfway would be overtaken by those that came after it.
            Some(answer) = unconstrained(under_way.next()), if !under_way.is_empty() => framed.queue(&answer)?,
            exchange = framed.exchange::<Numbered<Ask>>(), if room => match exchange? {
                Exchange::Message(ask) => {
                    taken = taken.max(ask.number);
                    under_way.push(Box::pin(answer_one(node, ask)));
                }
                Exchange::Flushed => {}
                Exchange::Closed => return Ok(()),
            },
        }
    }
    let left = timeout(node.silence(), take_leave(framed, under_way, taken));
    left.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Tells the asker which questions were taken, and answers those; the asker then closes the connection.
async fn take_leave(mut framed: Framed, mut under_way: UnderWay<'_>, taken: u64) -> io::Result<()> {
    framed.queue(&Numbered { number: 0, body: Answer::Leaving { taken } })?;
    loop {
        tokio::select! {
            biased;
            Some(answer) = unconstrained(under_way.next()), if !under_way.is_empty() => framed.queue(&answer)?,
            exchange = framed.exchange::<Numbered<Ask>>() => match exchange? {
                Exchange::Message(_) | Exchange::Flushed => {}
                Exchange::Closed => return Ok(()),
            },
        }
    }
}

async fn answer_one(node: &Arc<Node>, ask: Numbered<Ask>) -> Numbered<Answer> {
    let body = match ask.body {
        Ask::Ping => Answer::Pong,
        Ask::Standing => Answer::Standing(node.standing()),
        Ask::Vote(frame) => vote(node, frame, false).await,
        Ask::PreVote(frame) => vote(node, frame, true).await,
        Ask::TransferLeader(frame) => transfer_leader(node, frame).await,
        Ask::Propose { request, within_ms } => {
            let deadline = Instant::now() + Duration::from_millis(within_ms);
            node.propose_for_peer(&request, deadline).await
        }
        Ask::Touch(credentials) => node.touch_for_peer(&credentials),
        Ask::ReadIndex => node.read_index_for_peer().await,
    };
    Numbered { number: ask.number, body }
}

async fn vote(node: &Node, frame: VoteFrame, pre_vote: bool) -> Answer {
    if node.disk_watch.stalls() {
        // Raft would wait for the disk with it, and do nothing else meanwhile.
        return Answer::Refused(STALLED.into());
    }
    // A leader that hands over counts on nobody any more.
    let bound = !node.gate.is_unbound() && !frame.leadership_transfer;
    if !node.gate.joined() || bound {
        // Whom it voted for, and what it had acknowledged, may have been on a disk that is gone.
        let (vote, last_log_id) = node.own_vote();
        return Answer::Vote(VoteAnswer { vote, granted: false, last_log_id });
    }
    let request = VoteRequest::<TypeConfig> {
        vote: Vote::from(frame.vote),
        last_log_id: frame.last_log_id.map(LogId::from),
        leadership_transfer: frame.leadership_transfer,
    };
    let response = if pre_vote { node.raft.pre_vote(request).await } else { node.raft.vote(request).await };
    if response.as_ref().is_ok_and(|response| response.vote_granted) {
        node.leader_watch.favour(Instant::now());
    }
    match response {
        Ok(response) => Answer::Vote(VoteAnswer {
            vote: (&response.vote).into(),
            granted: response.vote_granted,
            last_log_id: response.last_log_id.as_ref().map(Into::into),
        }),
        Err(error) => Answer::Refused(error.to_string()),
    }
}

async fn transfer_leader(node: &Node, frame: TransferFrame) -> Answer {
    if node.disk_watch.stalls() {
        return Answer::Refused(STALLED.into());
    }
    if !node.gate.joined() {
        return Answer::Refused("this node has not caught up since its data directory was new".into());
    }
    let last_log_id = frame.last_log_id.map(LogId::from);
    let request = openraft::raft::TransferLeaderRequest::new(Vote::from(frame.from_leader), frame.to, last_log_id);
    match node.raft.handle_transfer_leader(request).await {
        Ok(result) => Answer::TransferLeader(result.map_err(transfer_refusal)),
        Err(error) => Answer::Refused(error.to_string()),
    }
}

fn transfer_refusal(error: TransferLeaderError<TypeConfig>) -> TransferRefusal {
    match error {
        TransferLeaderError::VoteChanged { expected, actual } => {
            TransferRefusal::VoteChanged { expected: (&expected).into(), actual: (&actual).into() }
        }
        TransferLeaderError::LogNotFlushed { expected, actual } => TransferRefusal::LogNotFlushed {
            expected: expected.as_ref().map(Into::into),
            actual: actual.as_ref().map(Into::into),
        },
    }
}

/// Takes one snapshot.
async fn snapshot(node: &Arc<Node>, mut framed: Framed) -> io::Result<()> {
    let begin = timeout(node.silence(), framed.next::<SnapshotFrame>()).await;
    let begin = begin.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let Some(SnapshotFrame::Begin { vote, manifest }) = begin else {
        return Err(io::Error::other("a snapshot did not begin with its manifest"));
    };
    let installed = async {
        if !node.gate.admits(vote.term) {
            return Err(io::Error::other("this node's data directory is new; it is not ready for a snapshot yet"));
        }
        let received = receive_snapshot(&mut framed, node.silence(), &node.snapshots, manifest).await?;
        let snapshot = RaftSnapshot { meta: received.meta().clone(), snapshot: received };
        let install = node.raft.install_full_snapshot(Vote::from(vote), snapshot);
        while_working(&mut framed, node.silence(), install).await?.map_err(|error| io::Error::other(error.to_string()))
    };
    let answer = match installed.await {
        Ok(response) => SnapshotAnswer::Done((&response.vote).into()),
        Err(error) => {
            tracing::warn!(%error, "a snapshot was not installed");
            SnapshotAnswer::Failed(error.to_string())
        }
    };
    timeout(node.silence(), framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
