//! States for pipelined reads: each read sees the writes that its client sent before it, and none
//! that the client sent later.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;
use znode::{SessionId, State};

/// Waiting reads, each of which needs the state right after a write of its connection. The bound on
/// unanswered requests bounds their number, too.
///
/// Later writes of the client need not wait for such a read. The task that applies entries asks
/// whether a read needs the state right after a write, and then publishes that state separately.
#[derive(Default)]
pub(crate) struct ReadPoints {
    sessions: HashMap<SessionId, SessionReads>,
}

struct SessionReads {
    connection: u64,
    turns: BTreeMap<u64, Vec<oneshot::Sender<Arc<State>>>>,
}

/// Receiver of the state for a read. The state comes at once, or when the client's last write
/// before the read has been applied. Receiving fails if the state will never come.
pub(crate) type ReadPoint = oneshot::Receiver<Arc<State>>;

impl ReadPoints {
    /// Asks for the state right after the connection's write with the number `turn`. The
    /// connection's next write must not have been proposed yet.
    pub(crate) fn ask(&mut self, session: SessionId, connection: u64, turn: u64, state: &Arc<State>) -> ReadPoint {
        let (tell, moment) = oneshot::channel();
        let there = state.session(session).map(|one| (one.connection, one.turn));
        if there == Some((connection, turn)) {
            let _ = tell.send(Arc::clone(state));
            return moment;
        }
        // A request of a former connection must not replace those of the session's present
        // connection.
        if there.is_some_and(|(now, _)| now != connection) {
            return moment;
        }
        let waiting = self.sessions.entry(session).or_insert_with(|| SessionReads::new(connection));
        if waiting.connection != connection {
            *waiting = SessionReads::new(connection);
        }
        waiting.turns.entry(turn).or_default().push(tell);
        moment
    }

    /// Tells whether a read waits for the state right after the connection's write with the number
    /// `turn`.
    pub(crate) fn wants(&self, session: SessionId, connection: u64, turn: u64) -> bool {
        let waiting = self.sessions.get(&session).filter(|waiting| waiting.connection == connection);
        waiting.is_some_and(|waiting| waiting.turns.contains_key(&turn))
    }

    /// Sends a published state to the reads that wait for it. Drops the reads whose state will
    /// never come, which makes their receivers fail.
    pub(crate) fn tell(&mut self, state: &Arc<State>) {
        self.sessions.retain(|session, waiting| {
            let Some(session) = state.session(*session) else { return false };
            // The session has moved to another connection, so no more writes of the former one will
            // be applied.
            if session.connection != waiting.connection {
                return false;
            }
            while let Some(first) = waiting.turns.first_entry().filter(|first| *first.key() <= session.turn) {
                let (turn, all) = first.remove_entry();
                // A snapshot may have skipped the state right after this write.
                if turn == session.turn {
                    all.into_iter().for_each(|tell| _ = tell.send(Arc::clone(state)));
                }
            }
            !waiting.turns.is_empty()
        });
    }

    /// Drops the waiting reads of a connection that has ended.
    pub(crate) fn leave(&mut self, session: SessionId, connection: u64) {
        if self.sessions.get(&session).is_some_and(|waiting| waiting.connection == connection) {
            self.sessions.remove(&session);
        }
    }
}

impl SessionReads {
    fn new(connection: u64) -> SessionReads {
        SessionReads { connection, turns: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;
    use znode::{Credential, LogPosition, Op, Request, Term, Txn, Zxid};

    use super::*;

    #[test]
    fn what_is_left_of_a_former_connection_takes_nothing_from_the_one_that_has_the_session() {
        let mut state = State::default();
        let mut apply = |zxid, request| {
            state.apply(LogPosition { term: Term(1), zxid: Zxid(zxid) }, Txn { proven: false, time_ms: zxid, request });
        };
        let secret_hash = [0; 16];
        apply(
            1,
            Request::new(Op::OpenSession {
                secret_hash,
                timeout_ms: 5_000,
                label: String::new(),
                address: None,
                client: znode::ClientInfo::default(),
            }),
        );
        let (session, connection) = (SessionId(1), 7);
        let credential = Some(Credential { session, secret_hash });
        apply(2, Request { credential, ..Request::new(Op::AttachSession { connection, timeout_ms: 5_000 }) });
        let (state, mut read_points) = (Arc::new(state), ReadPoints::default());
        let mut waits = read_points.ask(session, connection, 1, &state);
        let mut former = read_points.ask(session, 0, 1, &state);
        assert_eq!(former.try_recv().unwrap_err(), TryRecvError::Closed);
        assert_eq!(waits.try_recv().unwrap_err(), TryRecvError::Empty);
        assert!(read_points.wants(session, connection, 1));
    }
}
