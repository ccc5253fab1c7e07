//! The answering side: a listener for peers, one task for each connection.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, VoteRequest};
use storage::codec::{EntryRecord, LogIdRecord, PayloadRecord, VoteRecord};
use storage::{LogId, TypeConfig, Vote};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, unconstrained};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::Failure;
use crate::ahead_of_leader::{Verdict, judge_append};
use crate::continuity::{self, Continuity, Look};
use crate::disk_watch::STALLED;
use crate::node::Node;
use crate::state_machine::RaftSnapshot;
use crate::transport::{
    Answer, AppendAnswer, AppendFrame, AppendResult, Ask, Callers, Exchange, FRAME_BYTES_MAX, Framed, Lane, Listener,
    Numbered, Place, SnapshotAnswer, SnapshotFrame, Stream, TransferFrame, TransferRefusal, VoteAnswer, VoteFrame,
    malformed, receive_snapshot, welcome, while_working,
};

/// Appends that wait for the disk, for each connection. Beyond: they wait in the socket.
const APPENDS_MAX: usize = 64;
/// The same in bytes of their frames, but for the last.
const APPEND_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// How long an answer that nobody waits for may wait for another one to go with: far less than a heartbeat's interval.
const IDLE_WAIT: Duration = Duration::from_millis(5);
/// Questions under way, for each connection. Beyond: they wait in the socket.
const ASKS_MAX: usize = 8_192;
/// Bytes of answers that a peer may leave unread before nothing more is read from it.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Held, as a sender of nothing, by every connection that may owe answers to questions.
type Answering = mpsc::Sender<Infallible>;
/// The same before it is known whether the caller may ask any.
type MayAnswer = mpsc::WeakSender<Infallible>;
/// Appends under way on one connection.
type Appends<'a> = FuturesOrdered<BoxFuture<'a, io::Result<Appended>>>;
/// Questions under way on one connection, with the answers that they come to.
type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, Numbered<Answer>>>;

/// Accepts peers until the node stops, and then for as long as it owes answers to questions: the entries that decide them
/// come in on other connections, and those of a new leader may be new.
pub(crate) async fn serve(node: Arc<Node>, mut listener: Listener) {
    let mut connections = JoinSet::new();
    let callers = Arc::<Callers>::default();
    let (answering, mut answered) = mpsc::channel(1);
    let may_answer = answering.downgrade();
    let mut answering: Option<Answering> = Some(answering);
    let stop = node.stopped();
    let mut stopped = pin!(stop.wait());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped, if answering.is_some() => answering = None,
            _ = answered.recv() => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            // Always: `callers` has a bound, and a caller too many costs another one its place.
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let (place, replaced) = callers.enter(stream.addr());
                    let served = connection(Arc::clone(&node), stream, place, may_answer.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            biased;
                            Ok(()) = replaced => tracing::debug!("a peer connection has lost its place"),
                            () = served => {}
                        }
                    });
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

async fn connection(node: Arc<Node>, stream: Stream, place: Place, may_answer: MayAnswer) {
    let addr = stream.addr();
    let served = async {
        let mut framed = Framed::new(stream, node.silence())?;
        let Some(hello) = welcome(&node.identity, &mut framed, place, node.silence()).await? else {
            return Ok(());
        };
        // Who connects can be reached again, most likely.
        let _ = node.raft.trigger().reset_backoff([hello.from]).await;
        match hello.lane {
            Lane::Append => append(&node, framed, hello.from).await,
            Lane::Control | Lane::Forward => {
                let _answering = may_answer.upgrade();
                answer(&node, framed, hello.from).await
            }
            Lane::Snapshot => snapshot(&node, framed).await,
        }
    };
    match served.await {
        Ok(()) => {}
        // A stranger can bring this about as often as it likes.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            if let Some(times) = node.refused.note(Instant::now()) {
                tracing::warn!(?addr, %error, times, "refused at the peer port: no member says this");
            }
        }
        Err(error) => tracing::debug!(%error, "peer connection ended"),
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
    let (mut sequence, mut bytes) = (0, 0);
    let mut continuity = Continuity::default();
    let mut carries_entries = false;
    let mut idle = pin!(sleep(Duration::ZERO));
    loop {
        // At the bound nothing is read, so nothing would flush the answers either.
        let room = under_way.len() < APPENDS_MAX && bytes < APPEND_BYTES_MAX;
        if !room {
            flush(node, &mut framed).await?;
        }
        tokio::select! {
            biased;
            Some(done) = under_way.next(), if !under_way.is_empty() => {
                let Appended { answer, bytes: were, idle: is_idle } = done?;
                bytes -= were;
                if !is_idle {
                    framed.queue(&answer)?;
                } else if framed.queue_idly(&answer)? {
                    idle.as_mut().reset(Instant::now() + IDLE_WAIT);
                }
            }
            () = &mut idle, if framed.is_idle() => framed.hurry(),
            exchange = framed.exchange::<AppendFrame>(), if room => match exchange {
                Ok(Exchange::Message(frame)) if frame.sequence == sequence + 1 => {
                    sequence += 1;
                    carries_entries |= !frame.entries.is_empty();
                    let idle = carries_entries && frame.entries.is_empty();
                    let at = Instant::now();
                    // Here and not beside the others: a frame must not overtake the one before it.
                    // Entries wait for the disk, and heartbeats only for Raft.
                    let first = carries_entries || under_way.is_empty();
                    let asked = look(node, &mut continuity, &frame, at, first).await;
                    let came = Came { at, bytes: framed.record_bytes(), idle, asked };
                    bytes += came.bytes;
                    under_way.push_back(Box::pin(append_one(node, frame, came)));
                }
                Ok(Exchange::Flushed) => {}
                Ok(Exchange::Closed) => return Ok(()),
                Ok(Exchange::Message(_)) => {
                    return refuse_append(node, framed, sequence + 1, malformed("a frame out of turn".into())).await;
                }
                Err(error) => return refuse_append(node, framed, sequence + 1, error).await,
            },
        }
    }
}

async fn flush(node: &Node, framed: &mut Framed) -> io::Result<()> {
    timeout(node.silence(), framed.flush()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Says of a frame that no correct leader sends that it was not taken, and no more. Frames behind it are of no use.
async fn refuse_append(node: &Node, mut framed: Framed, sequence: u64, error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::InvalidData {
        let result =
            AppendResult::Refused("a frame that no leader sends; the log of the node that was called says why".into());
        framed.queue(&AppendAnswer { sequence, result })?;
        flush(node, &mut framed).await?;
    }
    Err(error)
}

/// How a frame came.
struct Came {
    at: Instant,
    bytes: usize,
    /// The leader does not wait to hear that it was taken.
    idle: bool,
    asked: Asked,
}

/// Whether Raft was asked about a frame.
#[derive(Clone, Copy)]
enum Asked {
    /// What it knew; nothing when the frame agrees because the one before it did.
    Yes(Option<Look>),
    /// Raft cannot answer while the disk stalls.
    NotNow,
}

/// Asks Raft about a frame, unless the disk stalls and Raft would have to wait for it.
///
/// A leader that is heard is heard, whatever the disk does: this node does not want another one, and it knows where heartbeats
/// of sessions go. It is no more than that. An answer says what is on this node's disk, so only Raft gives it.
async fn look(node: &Node, continuity: &mut Continuity, frame: &AppendFrame, at: Instant, first: bool) -> Asked {
    if !node.disk_watch.stalls() {
        return Asked::Yes(continuity.look(&node.raft, frame).await);
    }
    let is_current = frame.vote.committed && frame.vote.term >= node.voted_term();
    if is_current && node.gate.admits(frame.vote.term) && node.disk_watch.follow(frame.vote.term, frame.vote.node_id) {
        node.leader_watch.hear(at);
    }
    // Raft has not answered the heartbeat before this one: it waits for the disk itself.
    if !first || needs_the_disk(node, frame) {
        return Asked::NotNow;
    }
    let looked = timeout(node.silence() / 4, continuity.look(&node.raft, frame)).await;
    looked.map_or(Asked::NotNow, Asked::Yes)
}

/// What a frame came to.
struct Appended {
    answer: AppendAnswer,
    /// Of the frame.
    bytes: usize,
    /// Nobody waits for the answer.
    idle: bool,
}

async fn append_one(node: &Node, frame: AppendFrame, came: Came) -> io::Result<Appended> {
    let Came { at, bytes, idle, asked } = came;
    let sequence = frame.sequence;
    let refused = |why: &str| {
        let answer = AppendAnswer { sequence, result: AppendResult::Refused(why.into()) };
        Ok(Appended { answer, bytes, idle: false })
    };
    if !node.gate.admits(frame.vote.term) {
        return refused(
            "this node's data directory is new; it first asks a majority of the other members what it may take",
        );
    }
    let Asked::Yes(looked) = asked else { return refused(STALLED) };
    match judge_append(node, &frame, looked).await {
        Verdict::Sound => {}
        Verdict::Deposed(vote) => {
            let answer = AppendAnswer { sequence, result: AppendResult::HigherVote(vote) };
            return Ok(Appended { answer, bytes, idle: false });
        }
        Verdict::Unsure => return refused("the append may contradict this node's log; its leader is being asked"),
        Verdict::Contradiction(why) => {
            node.fail(Failure::Contradiction(why.clone()));
            return Err(io::Error::other(why));
        }
    }
    if looked.is_some_and(|looked| !looked.agrees) {
        note_refused(node, "an append contradicts what is committed here");
        return refused("the append contradicts what is committed on this node");
    }
    for entry in &frame.entries {
        if let PayloadRecord::Normal(command) = &entry.payload
            && let Err(error) = node.decoded.read(entry.log_id.index, &command.0)
        {
            note_refused(node, &format!("entry {:?} cannot be read: {error}", entry.log_id));
            return refused("an entry cannot be read by this node");
        }
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
        node.leader_watch.hear(at);
    }
    let result = match response {
        Ok(AppendEntriesResponse::Success) => AppendResult::Success,
        Ok(AppendEntriesResponse::PartialSuccess(id)) => AppendResult::PartialSuccess(id.as_ref().map(Into::into)),
        Ok(AppendEntriesResponse::Conflict) => AppendResult::Conflict,
        Ok(AppendEntriesResponse::HigherVote(vote)) => AppendResult::HigherVote((&vote).into()),
        Err(error) => AppendResult::Refused(error.to_string()),
    };
    let idle = idle && matches!(result, AppendResult::Success);
    Ok(Appended { answer: AppendAnswer { sequence, result }, bytes, idle })
}

fn note_refused(node: &Node, error: &str) {
    if let Some(times) = node.refused.note(Instant::now()) {
        tracing::warn!(error, times, "refused at the peer port: no correct leader sends this");
    }
}

/// Whether something is to be written before the frame can be answered. Raft itself waits while it saves a vote, and while there
/// is no room for entries; what peers send meanwhile would pile up in front of it.
fn needs_the_disk(node: &Node, frame: &AppendFrame) -> bool {
    !frame.entries.is_empty() || frame.vote.term > node.voted_term()
}

/// Questions are worked on at once and answered as they are done, until the node stops.
async fn answer(node: &Arc<Node>, mut framed: Framed, from: u64) -> io::Result<()> {
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
                    under_way.push(Box::pin(answer_one(node, ask, from)));
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

async fn answer_one(node: &Arc<Node>, ask: Numbered<Ask>, from: u64) -> Numbered<Answer> {
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
        Ask::Account { index } => {
            node.account(index, from).await.map_or_else(|| Answer::Refused("Raft has ended".into()), Answer::Account)
        }
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
        return Err(malformed("a snapshot did not begin with its manifest".into()));
    };
    let last = manifest.meta.last_log_id;
    let installed = async {
        if let Some(higher) = agree(node, vote, last).await? {
            return Ok(higher);
        }
        if !node.gate.admits(vote.term) {
            return Err(io::Error::other("this node's data directory is new; it is not ready for a snapshot yet"));
        }
        let received = receive_snapshot(&mut framed, node.silence(), &node.snapshots, manifest).await?;
        // Some time has passed.
        if let Some(higher) = agree(node, vote, last).await? {
            return Ok(higher);
        }
        let snapshot = RaftSnapshot { meta: received.meta().clone(), snapshot: received };
        let install = node.raft.install_full_snapshot(Vote::from(vote), snapshot);
        let installed = while_working(&mut framed, node.silence(), install).await?;
        installed.map(|response| (&response.vote).into()).map_err(|error| io::Error::other(error.to_string()))
    };
    let answer = match installed.await {
        Ok(vote) => SnapshotAnswer::Done(vote),
        Err(error) => {
            if let Some(times) = node.refused.note(Instant::now()) {
                tracing::warn!(%error, times, "a snapshot was not installed");
            }
            SnapshotAnswer::Failed(error.to_string())
        }
    };
    timeout(node.silence(), framed.send(&answer)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Refuses a snapshot whose last entry contradicts what is committed here: Raft would end. This node's vote when it knows the
/// sender to be deposed.
async fn agree(node: &Node, vote: VoteRecord, last: Option<LogIdRecord>) -> io::Result<Option<VoteRecord>> {
    match continuity::look(&node.raft, last.into_iter().collect()).await {
        Some(looked) if looked.deposes(vote) => Ok(Some(looked.vote)),
        Some(looked) if !looked.agrees => {
            Err(malformed("the snapshot contradicts what is committed on this node".into()))
        }
        // When Raft has ended, the next call of it says so.
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::propose::tests::leader;

    /// Raft itself waits for the disk while it has no room for entries, say.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_is_heard_while_the_disk_stalls_and_raft_does_not_answer() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        let vote = VoteRecord { term: node.voted_term(), node_id: 1, committed: true };
        let (prev_log_id, leader_commit, acknowledged, entries) = (None, None, None, Vec::new());
        let heartbeat = AppendFrame { sequence: 1, vote, prev_log_id, leader_commit, acknowledged, entries };
        node.disk_watch.hang();
        let (at, mut continuity) = (Instant::now(), Continuity::default());
        assert!(matches!(look(&node, &mut continuity, &heartbeat, at, true).await, Asked::Yes(_)), "Raft answers");
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = tokio::sync::oneshot::channel::<()>();
        let raft = node.raft.clone();
        let block = move || {
            drop(begins);
            told.recv().is_err()
        };
        let blocked = tokio::spawn(async move { raft.with_raft_state(move |_| block()).await });
        assert!(begun.await.is_err());
        for first in [true, false] {
            let (at, mut continuity) = (Instant::now(), Continuity::default());
            let looked = timeout(Duration::from_secs(30), look(&node, &mut continuity, &heartbeat, at, first)).await;
            // Raft gives the answers, and there is none. But the leader was heard.
            assert!(matches!(looked, Ok(Asked::NotNow)));
            assert_eq!(node.leader_watch.seen().heard, Some(at));
        }
        drop(go_on);
        assert!(blocked.await.unwrap().unwrap());
        node.shutdown().await;
    }
}
