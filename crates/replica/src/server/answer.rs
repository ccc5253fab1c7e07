//! Answers to questions of other nodes: questions of their Raft, and requests that they forward for
//! their clients.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use openraft::raft::{TransferLeaderError, VoteRequest};
use storage::{LogId, TypeConfig, Vote};
use tokio::task::unconstrained;
use tokio::time::{Duration, Instant, timeout};

use crate::local::disk_watch::STALLED;
use crate::raft::transport::{
    Answer, Ask, Exchange, FramedStream, NumberedMessage, Tenure, TransferFrame, TransferRefusal, VoteAnswer, VoteFrame,
};

use super::{Server, flush};

/// Largest number of questions under way on one connection. Further questions stay unread in the
/// socket.
const ASKS_MAX: usize = 8_192;
/// Largest size in bytes of answers that a peer may leave unread. Beyond it, no question of the
/// peer is read.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// Questions under way on one connection, as futures that yield the answers.
type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, NumberedMessage<Answer>>>;

/// Answers the questions of peer `from` concurrently, each as soon as it is done, until the node
/// stops or the peer's certificate is not accepted any more.
pub(super) async fn answer(server: &Arc<Server>, mut framed: FramedStream, from: u64) -> io::Result<()> {
    let mut under_way = UnderWay::new();
    let mut taken = 0;
    let stop = server.life.stopped();
    let mut stopped = pin!(stop.wait());
    let mut tenure = Tenure::of_called(&framed, server.identity.tls.as_deref());
    loop {
        let room = under_way.len() < ASKS_MAX && framed.queued_bytes() < UNREAD_BYTES_MAX;
        if !room {
            flush(server, &mut framed).await?;
        }
        tokio::select! {
            biased;
            () = &mut stopped => break,
            () = &mut tenure => break,
            // Unconstrained by tokio's cooperative budget: a proposal that had to yield halfway
            // would be overtaken by later proposals.
            Some(answer) = unconstrained(under_way.next()), if !under_way.is_empty() => framed.queue(&answer)?,
            exchange = framed.exchange::<NumberedMessage<Ask>>(), if room => match exchange? {
                Exchange::Message(ask) => {
                    taken = taken.max(ask.number);
                    under_way.push(Box::pin(answer_one(server, ask, from)));
                }
                Exchange::Flushed => {}
                Exchange::Closed => return Ok(()),
            },
        }
    }
    timeout(server.consensus.peer_timeout, take_leave(framed, under_way, taken)).await?
}

/// Tells the peer that this node takes no more questions on this connection, and which questions it
/// has taken, and answers the taken questions. The peer then closes the connection.
async fn take_leave(mut framed: FramedStream, mut under_way: UnderWay<'_>, taken: u64) -> io::Result<()> {
    framed.queue(&NumberedMessage { number: 0, body: Answer::Leaving { taken } })?;
    loop {
        tokio::select! {
            biased;
            Some(answer) = unconstrained(under_way.next()), if !under_way.is_empty() => framed.queue(&answer)?,
            exchange = framed.exchange::<NumberedMessage<Ask>>() => match exchange? {
                Exchange::Message(_) | Exchange::Flushed => {}
                Exchange::Closed => return Ok(()),
            },
        }
    }
}

async fn answer_one(server: &Arc<Server>, ask: NumberedMessage<Ask>, from: u64) -> NumberedMessage<Answer> {
    let body = match ask.body {
        Ask::Ping => Answer::Pong,
        Ask::Standing => Answer::Standing(server.bootstrap.standing()),
        Ask::Members => Answer::Members(server.bootstrap.known_members(from)),
        Ask::Order(order) => server.operators.order_for_peer(&order).await,
        Ask::Vote(frame) => vote(server, frame, false).await,
        Ask::PreVote(frame) => vote(server, frame, true).await,
        Ask::TransferLeader(frame) => transfer_leader(server, frame).await,
        Ask::Propose { request, within_ms } => {
            let deadline = Instant::now() + Duration::from_millis(within_ms);
            server.proposer.propose_for_peer(&request, deadline).await
        }
        Ask::Touch(credentials) => server.heartbeats.touch_for_peer(&credentials),
        Ask::Ages { term, ages } => {
            server.consensus.sessions.lock().take_over(term, ages);
            Answer::Pong
        }
        Ask::ReadIndex => server.reads.read_index_for_peer().await,
        Ask::History { index } => history(server, index).await,
        Ask::Upgrade(ask) => server.upgrade.answer_peer(ask).await,
        Ask::Account { index } => server
            .accounts
            .account(index, from)
            .await
            .map_or_else(|| Answer::Refused("Raft has ended".into()), Answer::Account),
    };
    NumberedMessage { number: ask.number, body }
}

/// Waits until the entry at `index` is applied here, for less time than the peer waits, and answers
/// with the hash of the history after this entry.
async fn history(server: &Server, index: u64) -> Answer {
    let (view, consensus) = (&server.reads.view, &server.consensus);
    view.applied_at_least(consensus.zxid(index), Instant::now() + consensus.peer_timeout / 2).await;
    Answer::History(view.histories.lock().at(index).map(|hash| hash.0))
}

async fn vote(server: &Server, frame: VoteFrame, pre_vote: bool) -> Answer {
    if server.consensus.disk_watch.stalls() {
        // Raft would wait for the disk with it, and do nothing else meanwhile.
        return Answer::Refused(STALLED.into());
    }
    // A leader that hands over relies on no follower's lease any more.
    let bound = !server.bootstrap.gate.is_unbound() && !frame.leadership_transfer;
    if !server.bootstrap.gate.joined() || bound {
        // No vote is granted: before a node has joined, its last vote and the entries that it
        // acknowledged may have been on a disk that is gone.
        let (vote, last_log_id) = server.consensus.own_vote();
        return Answer::Vote(VoteAnswer { vote, granted: false, last_log_id });
    }
    let request = VoteRequest::<TypeConfig> {
        vote: Vote::from(frame.vote),
        last_log_id: frame.last_log_id.map(LogId::from),
        leadership_transfer: frame.leadership_transfer,
    };
    let response = if pre_vote {
        server.consensus.raft.pre_vote(request).await
    } else {
        server.consensus.raft.vote(request).await
    };
    if response.as_ref().is_ok_and(|response| response.vote_granted) {
        server.consensus.leader_watch.grant_vote(Instant::now());
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

async fn transfer_leader(server: &Server, frame: TransferFrame) -> Answer {
    if server.consensus.disk_watch.stalls() {
        return Answer::Refused(STALLED.into());
    }
    if !server.bootstrap.gate.joined() {
        return Answer::Refused("this node has not caught up since its data directory was new".into());
    }
    let last_log_id = frame.last_log_id.map(LogId::from);
    let request = openraft::raft::TransferLeaderRequest::new(Vote::from(frame.from_leader), frame.to, last_log_id);
    match server.consensus.raft.handle_transfer_leader(request).await {
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
