//! Sending of appends: entries for one peer on one connection, with many frames under way and
//! answers in order.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, Stream};
use openraft::entry::RaftEntry;
use openraft::error::RPCError;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, StreamAppendResult};
use storage::codec::{EntryRecord, LogIdRecord};
use storage::{Entry, LogId, TypeConfig};
use tokio::time::{Instant, Sleep, sleep_until};

use super::append_frame::AppendFrame;
use super::frame::{FramedStream, malformed};
use super::messages::{AppendAnswer, AppendResult};
use super::rules::partial_success;
use super::tenure::Tenure;
use crate::raft::network::lost;
use crate::raft::purge_index::PurgeIndex;
use crate::raft::quorum_contact::Following;

/// Largest number of frames without an answer on a connection. A peer reads up to this number of
/// frames before it has answered the first.
const INFLIGHT_MAX: usize = 64;
/// Largest size in bytes of commands in one frame, unless a single entry is longer.
const FRAME_COMMANDS_BYTES: usize = 4 << 20;
/// Bytes that may wait for the socket before no more requests are taken from Raft.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Largest number of frames whose sending times are kept. Requests of older frames have long timed
/// out.
const SENT_MAX: usize = 1_024;

/// Connection for appends to one peer. Several streams use it one after the other. Answers to
/// frames of an earlier stream are ignored.
pub(crate) struct AppendLine {
    framed: FramedStream,
    sequence: u64,
    answered: u64,
    /// Frames without an answer, oldest first: number, term, and time of sending.
    sent: VecDeque<(u64, u64, Instant)>,
    following: Arc<Following>,
    /// Time since which the peer has owed an answer and sent nothing; `None` if it owes none.
    waiting_since: Option<Instant>,
    tenure: Tenure,
}

impl AppendLine {
    /// Makes an append connection from a connection after its handshake. It notes in `following`
    /// each frame that the peer accepts as a follower.
    pub(crate) fn new(framed: FramedStream, following: Arc<Following>, tenure: Tenure) -> AppendLine {
        AppendLine { framed, sequence: 0, answered: 0, sent: VecDeque::new(), following, waiting_since: None, tenure }
    }

    /// Tells whether a new connection must take the place of this one.
    pub(crate) fn is_over(&mut self, peer_timeout: Duration) -> bool {
        self.is_silent(peer_timeout) || self.tenure.is_over()
    }

    /// Tells whether the peer has owed an answer and sent nothing for longer than `peer_timeout`.
    fn is_silent(&self, peer_timeout: Duration) -> bool {
        self.waiting_since.is_some_and(|since| since.elapsed() >= peer_timeout)
    }

    fn queue(&mut self, frame: &AppendFrame) -> io::Result<()> {
        let now = Instant::now();
        self.waiting_since.get_or_insert(now);
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((frame.sequence, frame.vote.term, now));
        self.framed.queue(frame)
    }

    fn heard(&mut self, answer: &AppendAnswer) {
        self.answered = answer.sequence;
        while let Some((sequence, term, sent)) = self.sent.front().copied().filter(|sent| sent.0 <= answer.sequence) {
            self.sent.pop_front();
            if sequence == answer.sequence && answer.result.follows() {
                self.following.note(term, sent);
            }
        }
        self.waiting_since = (self.answered < self.sequence).then(Instant::now);
    }
}

/// A frame without an answer, with the part of the log that it covers.
struct InFlight {
    sequence: u64,
    term: u64,
    prev: Option<LogId>,
    last: Option<LogId>,
}

/// Stream that sends Raft's requests (`input`) to the peer and yields their results. Raft's
/// replication task polls it.
pub(crate) struct AppendStream<'s, S> {
    /// The connection; `None` once it has failed.
    line: &'s mut Option<AppendLine>,
    input: Option<S>,
    inflight: VecDeque<InFlight>,
    peer_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Index of the last purged entry, for replication: the stream fails when the peer needs a
    /// purged entry. `None` for heartbeats, which also go to a peer that gets a snapshot.
    purge_index: Option<PurgeIndex>,
}

type Item = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

impl<'s, S> AppendStream<'s, S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    pub(crate) fn new(
        line: &'s mut Option<AppendLine>,
        input: S,
        peer_timeout: Duration,
        purge_index: Option<PurgeIndex>,
    ) -> AppendStream<'s, S> {
        let timer = Box::pin(sleep_until(Instant::now() + peer_timeout));
        AppendStream { line, input: Some(input), inflight: VecDeque::new(), peer_timeout, timer, purge_index }
    }

    /// Takes requests from Raft until the number of frames without an answer, or of unsent bytes,
    /// reaches its bound.
    fn poll_input(&mut self, line: &mut AppendLine, cx: &mut Context<'_>) -> io::Result<()> {
        while self.inflight.len() < INFLIGHT_MAX && line.framed.queued_bytes() < OUTPUT_BYTES_MAX {
            let Some(input) = &mut self.input else { break };
            match Pin::new(input).poll_next(cx) {
                Poll::Ready(Some(request)) => {
                    self.check(&request)?;
                    self.queue(line, request)?;
                }
                Poll::Ready(None) => self.input = None,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Fails if the next entry for the peer was purged, so that Raft sends a snapshot. Raft does
    /// not purge entries that a running stream is about to send. But after a stream has failed, the
    /// next one may begin with an entry that was purged meanwhile.
    fn check(&self, request: &AppendEntriesRequest<TypeConfig>) -> io::Result<()> {
        let needed = |purged: &PurgeIndex| purged.is_needed_behind(request.prev_log_id);
        if request.entries.is_empty() && self.purge_index.as_ref().is_some_and(needed) {
            return Err(io::Error::other("what comes next for this peer was purged"));
        }
        Ok(())
    }

    /// Queues a request, in several frames if it is long. Each frame gets a separate answer, and
    /// Raft takes each of these answers as the answer to a whole request.
    fn queue(&mut self, line: &mut AppendLine, request: AppendEntriesRequest<TypeConfig>) -> io::Result<()> {
        let term = request.vote.leader_id.term;
        let mut prev = request.prev_log_id;
        let mut rest = request.entries.as_slice();
        loop {
            let (now, later) = rest.split_at(frame_entries(rest));
            let last = now.last().map_or(prev, |entry| Some(entry.log_id()));
            line.sequence += 1;
            line.queue(&AppendFrame {
                sequence: line.sequence,
                vote: (&request.vote).into(),
                prev_log_id: prev.as_ref().map(LogIdRecord::from),
                leader_commit: request.leader_commit.as_ref().map(LogIdRecord::from),
                acknowledged: line.following.acknowledged(term).as_ref().map(LogIdRecord::from),
                entries: now.iter().map(EntryRecord::from).collect(),
            })?;
            self.inflight.push_back(InFlight { sequence: line.sequence, term, prev, last });
            prev = last;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn poll_answer(&mut self, line: &mut AppendLine, cx: &mut Context<'_>) -> Poll<io::Result<Item>> {
        loop {
            let record = match line.framed.poll_record(cx)? {
                Poll::Ready(Some(record)) => record,
                Poll::Ready(None) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Pending => return Poll::Pending,
            };
            let answer: AppendAnswer = line.framed.read(&record)?;
            line.heard(&answer);
            if self.inflight.front().is_none_or(|first| answer.sequence < first.sequence) {
                continue;
            }
            let Some(first) = self.inflight.pop_front().filter(|first| first.sequence == answer.sequence) else {
                return Poll::Ready(Err(io::Error::other("the peer left an answer out")));
            };
            line.following.hear(first.term, first.prev, first.last, &answer.result);
            return Poll::Ready(result(answer.result, &first).map(Ok));
        }
    }

    /// Becomes ready when the peer has owed an answer and sent nothing for longer than
    /// `peer_timeout`.
    fn poll_silence(&mut self, line: &AppendLine, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if line.is_silent(self.peer_timeout) {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(line.waiting_since.unwrap_or_else(Instant::now) + self.peer_timeout);
        }
        Poll::Pending
    }

    fn poll_line(&mut self, line: &mut AppendLine, cx: &mut Context<'_>) -> Poll<io::Result<Option<Item>>> {
        // The stream ends early when the connection's tenure is over: Raft then begins another
        // stream, on a new connection.
        let is_over = line.tenure.poll_unpin(cx).is_ready();
        if !is_over {
            self.poll_input(line, cx)?;
        }
        if (is_over || self.input.is_none()) && self.inflight.is_empty() {
            return Poll::Ready(Ok(None));
        }
        if let Poll::Ready(Err(error)) = line.framed.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(answer) = self.poll_answer(line, cx) {
            return Poll::Ready(answer.map(Some));
        }
        self.poll_silence(line, cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer is silent")))
    }
}

impl<S> Stream for AppendStream<'_, S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = self.get_mut();
        let Some(mut line) = this.line.take() else {
            return Poll::Ready(None);
        };
        let polled = this.poll_line(&mut line, cx);
        match polled {
            // The connection is in an unknown state, so the next stream opens another.
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(lost(&error)))),
            Poll::Ready(Ok(item)) => {
                // The time for which Raft works on the item does not count as the peer's silence.
                line.framed.pause();
                *this.line = Some(line);
                Poll::Ready(item)
            }
            Poll::Pending => {
                *this.line = Some(line);
                Poll::Pending
            }
        }
    }
}

/// Number of entries, from the first on, that go into one frame.
fn frame_entries(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += command_bytes(entry);
        bytes <= FRAME_COMMANDS_BYTES
    };
    entries.iter().take_while(fits).count().max(1).min(entries.len())
}

fn command_bytes(entry: &Entry) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(command) => command.0.len(),
        openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => 0,
    }
}

fn result(result: AppendResult, of: &InFlight) -> io::Result<StreamAppendResult<TypeConfig>> {
    if let AppendResult::PartialSuccess(id) = &result {
        let [prev, last] = [&of.prev, &of.last].map(|id| id.as_ref().map(LogIdRecord::from));
        let kept = partial_success(id.as_ref(), prev.as_ref(), last.as_ref());
        kept.map_err(|broken| malformed(format!("an answer that breaks a rule: {broken}")))?;
    }
    let response: AppendEntriesResponse<TypeConfig> = match result {
        AppendResult::Success => AppendEntriesResponse::Success,
        AppendResult::PartialSuccess(id) => AppendEntriesResponse::PartialSuccess(id.map(LogId::from)),
        AppendResult::Conflict if of.prev.is_none() => {
            return Err(io::Error::other("the peer found a conflict before the first entry"));
        }
        AppendResult::Conflict => AppendEntriesResponse::Conflict,
        AppendResult::HigherVote(vote) => AppendEntriesResponse::HigherVote(vote.into()),
        AppendResult::Refused(why) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
    };
    Ok(response.into_stream_result(of.prev, of.last))
}
