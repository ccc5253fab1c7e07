//! Receiving appends from a leader: entries on one connection, heartbeats on another.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use storage::codec::{EntryRecord, PayloadRecord};
use storage::{LogId, TypeConfig, Vote};
use tokio::time::{Duration, Instant, sleep, timeout};
use znode::DecodeError;

use crate::Failure;
use crate::local::disk_watch::STALLED;
use crate::local::vote_gate::VoteGate;
use crate::raft::ahead_of_leader::AppendVerdict;
use crate::raft::consensus::Consensus;
use crate::raft::continuity::{self, Continuity, Look};
use crate::raft::transitions::Transitions;
use crate::raft::transport::{
    AppendAnswer, AppendFrame, AppendResult, Exchange, FRAME_BYTES_MAX, FramedStream, Tenure, malformed,
};

use super::{Server, flush};

/// Largest number of appends of one connection that wait for the disk. Further appends stay unread
/// in the socket.
const APPENDS_MAX: usize = 64;
/// Largest size in bytes of the waiting appends of one connection, not counting the last one.
const APPEND_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// Longest delay of an answer for which the leader does not wait, so that it can be sent together
/// with the next answer. Far less than a heartbeat's interval.
const IDLE_WAIT: Duration = Duration::from_millis(5);

/// Appends under way on one connection.
type Appends<'a> = FuturesOrdered<BoxFuture<'a, io::Result<FrameOutcome>>>;

/// Receives appends from node `from`, which leads or believes that it leads. Notes the end of the
/// connection if `from` leads as far as this node knows.
pub(super) async fn take(server: &Arc<Server>, framed: FramedStream, from: u64) -> io::Result<()> {
    let mut under_way = Appends::new();
    let ended = take_appends(server, framed, &mut under_way).await;
    if server.consensus.leader() == Some(from) {
        server.consensus.leader_watch.note_end(from, Instant::now());
    }
    // Entries that have come in are still appended, although their answers do not reach the leader.
    let _ = timeout(server.consensus.peer_timeout, under_way.for_each(async |_| ())).await;
    ended
}

/// Passes appends to Raft as they come, and answers them in their order.
///
/// A leader does not wait for the answer to a frame without entries, which only tells what is
/// committed. So once the connection has carried entries, such answers go with the next answer to
/// entries, which spares both ends a packet and a wake-up for each write. Heartbeats, for which the
/// leader waits, have a separate connection that never carries entries.
async fn take_appends<'a>(server: &'a Server, mut framed: FramedStream, under_way: &mut Appends<'a>) -> io::Result<()> {
    let (mut sequence, mut bytes) = (0, 0);
    let (mut continuity, mut transitions) = (Continuity::default(), Transitions::default());
    let mut carries_entries = false;
    let mut idle = pin!(sleep(Duration::ZERO));
    let mut tenure = Tenure::of_called(&framed, server.identity.tls.as_deref());
    loop {
        // `exchange` also sends answers, but it is not called at the bound.
        let room = under_way.len() < APPENDS_MAX && bytes < APPEND_BYTES_MAX;
        let is_over = tenure.is_over();
        if !room || is_over {
            flush(server, &mut framed).await?;
        }
        if is_over && under_way.is_empty() {
            return Ok(());
        }
        tokio::select! {
            biased;
            Some(done) = under_way.next(), if !under_way.is_empty() => {
                let FrameOutcome { answer, bytes: were, idle: is_idle } = done?;
                bytes -= were;
                if !is_idle {
                    framed.queue(&answer)?;
                } else if framed.queue_idly(&answer)? {
                    idle.as_mut().reset(Instant::now() + IDLE_WAIT);
                }
            }
            () = &mut tenure, if !is_over => {}
            () = &mut idle, if framed.is_idle() => framed.hurry(),
            exchange = framed.exchange::<AppendFrame>(), if room && !is_over => match exchange {
                Ok(Exchange::Message(mut frame)) if frame.sequence == sequence + 1 => {
                    let (ruling, committed) = (server.consensus.membership(), server.consensus.committed_membership());
                    let is_ahead = !transitions.are_possible(&frame, &ruling, &committed);
                    if is_ahead {
                        let ruling = ruling.log_id().as_ref().map(|id| id.index);
                        if !may_be_ahead(server, &frame, ruling).await {
                            let error = malformed("a membership that cannot follow the one before it".into());
                            return refuse_append(server, framed, sequence + 1, error).await;
                        }
                        continuity = Continuity::default();
                        (frame.leader_commit, frame.entries) = (None, Vec::new());
                    }
                    sequence += 1;
                    carries_entries |= !frame.entries.is_empty();
                    let idle = carries_entries && frame.entries.is_empty();
                    let at = Instant::now();
                    // Asked here, in the order of the frames, because `append_one` runs
                    // concurrently. On a connection for heartbeats, a frame without an answer shows
                    // that Raft does not answer; on one for entries, it may only be waiting for the
                    // disk.
                    let first = carries_entries || under_way.is_empty();
                    let asked = look(&server.consensus, &server.bootstrap.gate, &mut continuity, &frame, at, first).await;
                    let came = Arrival { at, bytes: framed.record_bytes(), idle, asked };
                    bytes += came.bytes;
                    let appended = append_one(server, frame, came);
                    under_way.push_back(if is_ahead { Box::pin(conflict(appended)) } else { Box::pin(appended) });
                }
                Ok(Exchange::Flushed) => {}
                Ok(Exchange::Closed) => return Ok(()),
                Ok(Exchange::Message(_)) => {
                    return refuse_append(server, framed, sequence + 1, malformed("a frame out of turn".into())).await;
                }
                Err(error) => return refuse_append(server, framed, sequence + 1, error).await,
            },
        }
    }
}

/// Tells whether a leader may have sent the frame although its membership cannot follow the
/// memberships here: the entry before the frame is not in this log, or comes before the membership
/// in force, whose index is `ruling` and which may be of an earlier leader. The leader must send
/// earlier entries first, so Raft gets the frame without its entries: it compares the votes.
async fn may_be_ahead(server: &Server, frame: &AppendFrame, ruling: Option<u64>) -> bool {
    let consensus = &server.consensus;
    if consensus.disk_watch.stalls() || !server.bootstrap.gate.admits(frame.vote.term) {
        return false;
    }
    let Some(before) = frame.prev_log_id else { return false };
    ruling.is_some_and(|ruling| ruling > before.index) || !continuity::may_have(&consensus.raft, before).await
}

/// Answers a frame whose entries were left out: a leader that this node follows must begin with
/// earlier entries.
async fn conflict(appended: impl Future<Output = io::Result<FrameOutcome>>) -> io::Result<FrameOutcome> {
    let mut outcome = appended.await?;
    if outcome.answer.result.follows() {
        outcome.answer.result = AppendResult::Conflict;
    }
    Ok(FrameOutcome { idle: false, ..outcome })
}

/// Ends a connection with `error`. If the reason is a frame that no correct leader sends, first
/// answers it with a refusal that gives no details.
async fn refuse_append(server: &Server, mut framed: FramedStream, sequence: u64, error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::InvalidData {
        let result =
            AppendResult::Refused("a frame that no leader sends; the log of the node that was called says why".into());
        framed.queue(&AppendAnswer { sequence, result })?;
        flush(server, &mut framed).await?;
    }
    Err(error)
}

/// Time at which a frame came, its size, and whether Raft finds that it agrees with the committed
/// entries.
struct Arrival {
    at: Instant,
    bytes: usize,
    /// True if the leader does not wait for the answer.
    idle: bool,
    asked: FrameLook,
}

/// Raft's answer to the question whether a frame agrees with the committed entries of this node.
#[derive(Clone, Copy)]
enum FrameLook {
    /// Raft's state, and whether the frame agrees. `None` if Raft need not be asked, because the
    /// frame continues one that agreed, or if Raft has ended.
    Yes(Option<Look>),
    /// Raft could not answer, because the disk stalls.
    NotNow,
}

/// Asks Raft whether a frame agrees with the committed entries, unless the disk stalls and Raft
/// would have to wait for it.
///
/// During a stall, a leader that sends frames still counts as heard. So this node looks for no
/// other leader, and knows where to send heartbeats of sessions. Only Raft answers frames, because
/// an answer tells what is on this node's disk.
async fn look(
    consensus: &Consensus,
    gate: &VoteGate,
    continuity: &mut Continuity,
    frame: &AppendFrame,
    at: Instant,
    first: bool,
) -> FrameLook {
    if !consensus.disk_watch.stalls() {
        return FrameLook::Yes(continuity.look(&consensus.raft, frame).await);
    }
    let is_current = frame.vote.committed && frame.vote.term >= consensus.voted_term();
    if is_current && gate.admits(frame.vote.term) && consensus.disk_watch.follow(frame.vote.term, frame.vote.node_id) {
        consensus.leader_watch.hear(at);
    }
    // Raft has not answered the heartbeat before this one: it waits for the disk itself.
    if !first || needs_the_disk(consensus, frame) {
        return FrameLook::NotNow;
    }
    let looked = timeout(consensus.peer_timeout / 4, continuity.look(&consensus.raft, frame)).await;
    looked.map_or(FrameLook::NotNow, FrameLook::Yes)
}

/// Answer to a frame, with the frame's size.
struct FrameOutcome {
    answer: AppendAnswer,
    /// Bytes of the frame.
    bytes: usize,
    /// True if the leader does not wait for the answer.
    idle: bool,
}

async fn append_one(server: &Server, frame: AppendFrame, came: Arrival) -> io::Result<FrameOutcome> {
    let Arrival { at, bytes, idle, asked } = came;
    let sequence = frame.sequence;
    let refused = |why: &str| {
        let answer = AppendAnswer { sequence, result: AppendResult::Refused(why.into()) };
        Ok(FrameOutcome { answer, bytes, idle: false })
    };
    if !server.bootstrap.gate.admits(frame.vote.term) {
        return refused(
            "this node's data directory is new; it first asks a majority of the other members what it may take",
        );
    }
    if frame.entries.is_empty() && is_outgrown(server, &frame, at) {
        return refused("this node's program does not know the format level of the leader's entries");
    }
    let FrameLook::Yes(looked) = asked else { return refused(STALLED) };
    match server.accounts.judge(&frame, looked).await {
        AppendVerdict::Sound => {}
        AppendVerdict::Deposed(vote) => {
            let answer = AppendAnswer { sequence, result: AppendResult::HigherVote(vote) };
            return Ok(FrameOutcome { answer, bytes, idle: false });
        }
        AppendVerdict::Unsure => {
            return refused("the append may contradict this node's log; its leader is being asked");
        }
        AppendVerdict::Contradiction(why) => {
            server.life.fail(Failure::Contradiction(why.clone()));
            return Err(io::Error::other(why));
        }
    }
    if looked.is_some_and(|looked| !looked.agrees) {
        note_refused(server, "an append contradicts what is committed here");
        return refused("the append contradicts what is committed on this node");
    }
    for entry in &frame.entries {
        if let PayloadRecord::Normal(command) = &entry.payload
            && let Err(error) = server.decoded.read(entry.log_id.index, &command.0)
        {
            if let DecodeError::Level(other) = error {
                server.consensus.leader_watch.note_outgrown(frame.vote.term, at);
                server.consensus.cluster.doubt_level(frame.vote.node_id);
                return refused(&other.to_string());
            }
            note_refused(server, &format!("entry {:?} cannot be read: {error}", entry.log_id));
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
    let response = server.consensus.raft.append_entries(request).await;
    if !matches!(response, Ok(AppendEntriesResponse::HigherVote(_)) | Err(_)) {
        server.consensus.leader_watch.hear(at);
    }
    let result = match response {
        Ok(AppendEntriesResponse::Success) => AppendResult::Success,
        Ok(AppendEntriesResponse::PartialSuccess(id)) => AppendResult::PartialSuccess(id.as_ref().map(Into::into)),
        Ok(AppendEntriesResponse::Conflict) => AppendResult::Conflict,
        Ok(AppendEntriesResponse::HigherVote(vote)) => AppendResult::HigherVote((&vote).into()),
        Err(error) => AppendResult::Refused(error.to_string()),
    };
    let idle = idle && matches!(result, AppendResult::Success);
    Ok(FrameOutcome { answer: AppendAnswer { sequence, result }, bytes, idle })
}

/// Tells whether this node refuses entries of the frame's leader, because its program does not know
/// their format level. Such a leader must not count as heard. If other voters cannot follow it
/// either, they elect a leader whose log ends before the entry, which was never committed.
fn is_outgrown(server: &Server, frame: &AppendFrame, at: Instant) -> bool {
    let recent = 2 * server.consensus.election_timeout_max;
    server.consensus.leader_watch.is_outgrown(frame.vote.term, at, recent)
}

fn note_refused(server: &Server, error: &str) {
    if let Some(times) = server.refused.note(Instant::now()) {
        tracing::warn!(error, times, "refused at the peer port: no correct leader sends this");
    }
}

/// Tells whether Raft must write to the disk before it can answer the frame. While Raft saves a
/// vote, or its log takes no more entries, Raft does nothing else, and later messages of peers
/// would pile up.
fn needs_the_disk(consensus: &Consensus, frame: &AppendFrame) -> bool {
    !frame.entries.is_empty() || frame.vote.term > consensus.voted_term()
}

#[cfg(test)]
mod tests {
    use storage::codec::VoteRecord;

    use super::*;
    use crate::write::propose::tests::leader;

    /// While the disk stalls, Raft may not answer at all, for example because its log takes no more
    /// entries. A leader that sends frames must count as heard all the same.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_is_heard_while_the_disk_stalls_and_raft_does_not_answer() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        let (consensus, gate) = (&node.consensus, &node.reads.gate);
        let vote = VoteRecord { term: node.consensus.voted_term(), node_id: 1, committed: true };
        let (prev_log_id, leader_commit, acknowledged, entries) = (None, None, None, Vec::new());
        let heartbeat = AppendFrame { sequence: 1, vote, prev_log_id, leader_commit, acknowledged, entries };
        node.consensus.disk_watch.hang();
        let (at, mut continuity) = (Instant::now(), Continuity::default());
        assert!(
            matches!(look(consensus, gate, &mut continuity, &heartbeat, at, true).await, FrameLook::Yes(_)),
            "Raft answers"
        );
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = tokio::sync::oneshot::channel::<()>();
        let raft = node.consensus.raft.clone();
        let block = move || {
            drop(begins);
            told.recv().is_err()
        };
        let blocked = tokio::spawn(async move { raft.with_raft_state(move |_| block()).await });
        assert!(begun.await.is_err());
        for first in [true, false] {
            let (at, mut continuity) = (Instant::now(), Continuity::default());
            let looked =
                timeout(Duration::from_secs(30), look(consensus, gate, &mut continuity, &heartbeat, at, first)).await;
            // Raft is blocked, so there is no answer. But the leader counts as heard.
            assert!(matches!(looked, Ok(FrameLook::NotNow)));
            assert_eq!(node.consensus.leader_watch.signs().heard, Some(at));
        }
        drop(go_on);
        assert!(blocked.await.unwrap().unwrap());
        node.shutdown().await;
    }
}
