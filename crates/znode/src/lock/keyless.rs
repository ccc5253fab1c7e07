//! Acquires without key and owner. Nothing tells a retry of such a one from another wish of its
//! session: when the node dies at which the first one waits, that one's ticket stays in the queue,
//! and the requests of the client keep it alive.

use crate::entry::changes::Changes;
use crate::entry::cost::steps_at;
use crate::lock::demand::Demand;
use crate::lock::queue::Turn;
use crate::{Acquire, Error, Refusal, SessionId, State, ZPath};

impl State {
    /// Makes room for a new ticket, whatever each of these is held for. The new one comes with a
    /// new token, so a forgotten holder can be told from the one that takes its place.
    pub(crate) fn give_back(&mut self, lock: &ZPath, tickets: &[ZPath], changes: &mut Changes) -> Result<(), Refusal> {
        if tickets.is_empty() {
            return Ok(());
        }
        // Before it is done: undoing costs as much again, and a refusal can be asked for again and
        // again.
        let removed: u64 = tickets.iter().map(|ticket| self.cost_of_removing(ticket)).sum();
        if removed + steps_at(lock.depth() + 1) > self.steps_left(changes) {
            return Err(Error::TooManyOps.into());
        }
        for ticket in tickets {
            self.remove(ticket, changes);
        }
        Ok(())
    }

    /// The first of the session's earlier tickets that a new one would wait for, be it by way of
    /// others: as long as the session is alive, that wait may have no end. They are looked up for a
    /// ticket that waits, and for no other.
    pub(crate) fn own_in_the_way(&self, ticket: &ZPath, session: SessionId) -> Option<ZPath> {
        let (lock, own) = self.position_of(ticket);
        let queue = self.queue(&lock)?;
        let waiter = queue.waiter(&own)?;
        let mut earlier = self.sessions[&session].keyless_of(&lock);
        earlier.retain(|other| other != ticket);
        if let Some(limit) = queue.settings().limit {
            let units = |path: &ZPath| {
                let demand = Demand::of(path.name(), self.tree[path].contender());
                queue.units_of(demand).map_or(u64::from(limit), u64::from)
            };
            // With enough permits for all of them, they can be held together when others give
            // theirs back.
            let wanted: u64 = earlier.iter().map(units).sum::<u64>() + units(ticket);
            let (_, first) = earlier.iter().map(|path| self.position_of(path)).min_by(|a, b| a.1.cmp(&b.1))?;
            return lock.child(&first.name).ok().filter(|_| wanted > u64::from(limit));
        }
        let turn = queue.turn(&own);
        // A reader waits for the last writer before it, and with that for all before that.
        let last_writer = queue.writer_before(&turn);
        let blocks = |path: &&ZPath| {
            let (_, position) = self.position_of(path);
            let demand = Demand::of(path.name(), self.tree[*path].contender());
            let (held, at) = (queue.holder(&position).is_some(), queue.turn(&position));
            let before = held || at < turn;
            let behind_it = |writer: &Turn| held || at < *writer;
            before && (!queue.fit_together(demand, waiter.demand) || last_writer.is_some_and(behind_it))
        };
        // Holders first, by position; then in the order of turns.
        let order = |path: &&ZPath| {
            let (_, position) = self.position_of(path);
            (queue.waits(&position).then(|| queue.turn(&position)), position)
        };
        earlier.iter().filter(blocks).min_by_key(order).cloned()
    }
}

/// What an acquire leaves in its lock node.
pub(crate) fn is_keyless(acquire: &Acquire) -> bool {
    acquire.keyless.is_some() && acquire.owner.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Applied, Attempt, ClientInfo, Credential, Keyless, Limits, LockMode, LogPosition, Op, Reply, Request,
        RequestKey, Term, Txn, Zxid,
    };

    const COST_MAX: u32 = 20;

    fn apply(state: &mut State, op: Op) -> Applied {
        let zxid = Zxid(state.last_zxid().0 + 1);
        let key = RequestKey(u128::from(zxid.0).to_be_bytes());
        let mut request = Request::new(op);
        if !matches!(request.op, Op::OpenSession { .. }) {
            request.credential = Some(Credential { session: SessionId(1), secret_hash: [0; 16] });
            (request.key, request.attempt) = (Some(key), Attempt(1));
        }
        state.apply(LogPosition { term: Term(1), zxid }, Txn { proven: false, time_ms: 1, request })
    }

    fn acquire(state: &mut State, keyless: Keyless) -> Applied {
        let (lock, mode) = (ZPath::parse("/a/b/c/d/e/f/g").unwrap(), LockMode::Read);
        let (owner, label, keyless) = (String::new(), String::new(), Some(keyless));
        apply(state, Op::Acquire(Acquire { lock, mode, owner, label, lock_delay_ms: 0, priority: 0, keyless }))
    }

    /// A state with so many tickets of one session, which share a lock so far down that each costs
    /// two.
    fn with_tickets(count: usize) -> State {
        let mut state = State::new(Limits { entry_cost_max: COST_MAX, ..Limits::default() });
        let (secret_hash, timeout_ms, label, address) = ([0; 16], 10_000, String::new(), None);
        let client = ClientInfo::default();
        let opened = apply(&mut state, Op::OpenSession { secret_hash, timeout_ms, label, address, client });
        assert!(opened.reply.is_ok());
        for _ in 0..count {
            assert!(acquire(&mut state, Keyless::Refuse).reply.is_ok());
        }
        state
    }

    /// What is refused can be asked for again and again, so it must not be done first and then
    /// undone.
    #[test]
    fn what_a_replace_gives_back_and_makes_is_within_the_budget_of_an_entry() {
        for (tickets, fits) in [(1, true), (9, true), (10, false), (11, false), (40, false)] {
            let mut state = with_tickets(tickets);
            let (znodes, before) = (state.znode_count(), state.clone());
            let replaced = acquire(&mut state, Keyless::Replace);
            state.check_invariants().unwrap();
            if fits {
                assert!(matches!(replaced.reply, Ok(Reply::Acquired { .. })), "{tickets}: {replaced:?}");
                assert_eq!(state.znode_count(), znodes - tickets + 1);
            } else {
                assert_eq!(replaced.reply.unwrap_err().error, Error::TooManyOps, "{tickets}");
                assert!(replaced.events.is_empty() && state.znode_count() == znodes, "{tickets}");
                assert_eq!(state.sessions[&SessionId(1)].ephemerals, before.sessions[&SessionId(1)].ephemerals);
            }
        }
    }
}
