//! Limit on the large sessions that clients close at the same time. The leader's expiries have a
//! limit of the same kind.
//!
//! A session ends in one entry, however many znodes it owns. The znodes of all sessions that a
//! leader is closing at the same time are at most the part 1 / [`ENDING_PART`] of the znodes that
//! one entry may remove.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use znode::{Credential, Op, Request};

use crate::Error;

/// Divisor of the znodes that one entry may remove: all sessions that are closed at the same time
/// own at most this part. Their entries in a row delay other writes as much as one long entry.
pub(crate) const ENDING_PART: u32 = 4;

/// Divisor of the limit on the sessions that are closed at the same time: a session that costs less
/// than this part is closed without regard to the limit.
const SMALL_PART: u64 = 16;

/// Semaphore for the cost (in znodes to remove) of the sessions that are being closed.
#[derive(Debug)]
pub(crate) struct Closings {
    room: Arc<Semaphore>,
    max: u32,
}

impl Closings {
    pub(crate) fn new(entry_cost_max: u32) -> Closings {
        let max = (entry_cost_max / ENDING_PART).max(1);
        Closings { room: Arc::new(Semaphore::new(max as usize)), max }
    }

    /// Takes the permits to end a session of this cost, and waits for them in the order of the
    /// callers. Returns `None` if the session is so small that it needs no permits. A session that
    /// costs more than the whole limit takes all permits.
    pub(crate) async fn room(&self, cost: u64, deadline: Instant) -> Result<Option<OwnedSemaphorePermit>, Error> {
        if cost.saturating_mul(SMALL_PART) < u64::from(self.max) {
            return Ok(None);
        }
        let share = u32::try_from(cost).unwrap_or(u32::MAX).min(self.max);
        match timeout_at(deadline, Arc::clone(&self.room).acquire_many_owned(share)).await {
            Ok(Ok(room)) => Ok(Some(room)),
            Ok(Err(_)) | Err(_) => Err(Error::unavailable("too many large sessions are being closed")),
        }
    }
}

/// Credential of the session that a request closes; `None` if the request closes no session.
pub(crate) fn closes(request: &Request) -> Option<&Credential> {
    let closes = matches!(request.op, Op::CloseSession { .. });
    // A session can close only itself.
    request.credential.as_ref().filter(|_| closes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use znode::{Create, CreateMode, SessionId, WriteTurn, ZPath, ZnodeOp, encode_request};

    use super::*;
    use crate::node::Node;
    use crate::raft::transport::{Answer, ProposeAnswer};
    use crate::write::propose::tests::{leader, soon};

    const SECRET: znode::SecretHash = [7; 16];

    fn of(session: SessionId, op: Op) -> Request {
        Request { credential: Some(Credential { session, secret_hash: SECRET }), ..Request::new(op) }
    }

    fn close(session: SessionId) -> Request {
        of(session, Op::CloseSession { session })
    }

    /// Opens a session, and creates `multis` times 128 ephemeral znodes in it, with one transaction
    /// (multi) for each 128.
    async fn session(node: &Node, multis: usize) -> SessionId {
        let open = Op::OpenSession {
            secret_hash: SECRET,
            timeout_ms: 60_000,
            label: String::new(),
            address: None,
            client: znode::ClientInfo::default(),
        };
        let session = SessionId(node.proposer.propose(Request::new(open), soon()).await.unwrap().zxid.0);
        for multi in 0..multis {
            let create = |number: usize| {
                let new = Create::new(ZPath::root(), format!("{session}-{multi}-{number}"));
                ZnodeOp::Create(Create { mode: CreateMode::Ephemeral, ..new })
            };
            let made =
                node.proposer.propose(of(session, Op::Multi((0..128).map(create).collect())), soon()).await.unwrap();
            assert!(made.reply.is_ok(), "{made:?}");
        }
        session
    }

    #[test]
    fn a_close_is_known_through_every_door() {
        let session = SessionId(3);
        let turn = Some(WriteTurn { connection: 1, number: 1 });
        for request in [close(session), Request { turn, ..close(session) }] {
            assert_eq!(closes(&request), Some(&Credential { session, secret_hash: SECRET }));
        }
        let delete = ZnodeOp::Delete { path: ZPath::root(), version: -1 };
        assert_eq!(closes(&of(session, Op::Znode(delete))), None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_sessions_that_are_closed_at_a_time_remove_together_no_more_than_a_part_of_what_an_entry_may() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        let (large, small) = (session(&node, 3).await, session(&node, 1).await);
        let is_open = |session| node.view.state().session(session).is_some();
        // Takes most of the permits, as if other sessions were being closed.
        let others = node.proposer.closings.room(u64::from(node.proposer.closings.max) - 300, soon()).await.unwrap();
        let briefly = || Instant::now() + Duration::from_millis(200);
        let overdue = node.proposer.propose(close(large), briefly()).await;
        assert!(matches!(overdue, Err(Error::Unavailable { .. })), "{overdue:?}");
        let of_peer = node.proposer.propose_for_peer(&encode_request(&close(large)), briefly()).await;
        assert!(matches!(of_peer, Answer::Propose(ProposeAnswer::Unavailable { .. })), "{of_peer:?}");
        assert!(is_open(large), "nothing was proposed");
        // A close with a wrong secret takes no permits and waits for none.
        let stranger = Credential { session: large, secret_hash: [8; 16] };
        let stranger = Request { credential: Some(stranger), ..close(large) };
        let refused = node.proposer.propose(stranger, soon()).await.unwrap();
        assert_eq!(refused.reply.unwrap_err().error, znode::Error::AuthFailed);
        node.proposer.propose(close(small), soon()).await.unwrap();
        drop(others);
        node.proposer.propose(close(large), soon()).await.unwrap();
        assert!(!is_open(large) && !is_open(small));
        // The permits that the closings took come back when Raft drops their proposals.
        node.proposer.closings.room(u64::from(node.proposer.closings.max), soon()).await.unwrap();
        node.shutdown().await;
    }
}
