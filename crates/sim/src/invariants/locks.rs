//! Invariants of locks: holders, fencing tokens, lock-delays and grants.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::lock::{self, LockStatus};
use znode::{FencingToken, Op, SessionId, State, ZPath};

use super::{Calm, Invariant, World};
use crate::client::PATIENCE;
use crate::history::{Commit, History};
use crate::observation::{Lease, Observation};

fn holds(state: &State, ticket: &ZPath) -> bool {
    matches!(lock::status(state, ticket), Ok(LockStatus::Held { .. }))
}

/// A client's belief that it holds a lock.
struct Belief {
    lock: ZPath,
    client: u64,
    shared: bool,
    lease: Rc<RefCell<Lease>>,
}

/// A lock has one holder, or only readers as holders. This is true in every state. It is also true
/// for the clients' own beliefs: a client believes that it holds a lock until its session's lease
/// ends by the client's clock.
///
/// Source: mutual exclusion, the promise of ZooKeeper's lock recipe (zookeeperRecipes, "Locks"). A
/// client may count on its lease until the timeout has passed since it sent the last acknowledged
/// heartbeat (Gray and Cheriton, "Leases", 1989), less the drift between clocks.
pub(super) struct OneHolder {
    world: World,
    beliefs: BTreeMap<ZPath, Belief>,
}

impl OneHolder {
    pub(super) fn new(world: World) -> OneHolder {
        OneHolder { world, beliefs: BTreeMap::new() }
    }

    fn lasts(&self, lease: &Lease, now_ms: u64) -> bool {
        !lease.over && now_ms < lease.sent_ms + self.world.at_least_ms(lease.timeout_ms.into())
    }
}

impl Invariant for OneHolder {
    // Each state by itself is checked by `State::check_invariants`; see `ParentsExist`.

    fn client(&mut self, seen: &Observation, _: &History, now_ms: u64) -> Result<(), String> {
        match seen {
            Observation::LetGo { ticket, .. } => drop(self.beliefs.remove(ticket)),
            Observation::Granted { client, lock, ticket, lease, shared, .. } => {
                if !self.lasts(&lease.borrow(), now_ms) {
                    return Ok(());
                }
                for (other, belief) in &self.beliefs {
                    let apart = belief.lock != *lock || (belief.shared && *shared) || other == ticket;
                    // One session may read a lock that it writes (Curator's downgrade), or hold it
                    // twice.
                    let same = belief.lease.borrow().session == lease.borrow().session;
                    if !apart && !same && self.lasts(&belief.lease.borrow(), now_ms) {
                        return Err(format!(
                            "client {client} was granted {ticket} while client {} counts on {other}",
                            belief.client
                        ));
                    }
                }
                let belief = Belief { lock: lock.clone(), client: *client, shared: *shared, lease: Rc::clone(lease) };
                self.beliefs.insert(ticket.clone(), belief);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The fencing tokens of one lock's grants rise.
///
/// Source: Kleppmann, "How to do distributed locking" (2016): a resource that refuses smaller
/// tokens than it has seen is safe only if the tokens never fall. The token is the czxid of the
/// holder's lock node. Tokens must also rise when sequence numbers are used up, and when the lock's
/// directory is created again.
#[derive(Default)]
pub(super) struct TokensRise {
    /// The newest exclusive grant of each lock: its fencing token and its ticket.
    newest: BTreeMap<ZPath, (FencingToken, ZPath)>,
}

/// Locks of the workload.
const LOCKS: [&str; 3] = ["/locks/l0", "/locks/l1", "/locks/l2"];

impl Invariant for TokensRise {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        for name in LOCKS {
            let Ok(lock) = ZPath::parse(name) else { continue };
            for (ticket, token) in writers(&commit.entry.state, &lock) {
                let newest = self.newest.entry(lock.clone()).or_insert((token, ticket.clone()));
                if newest.1 == ticket {
                    continue;
                }
                if newest.0 >= token {
                    return Err(format!("at {}: {ticket} got {token} after {}", commit.entry.zxid, newest.0));
                }
                *newest = (token, ticket);
            }
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        let Observation::Granted { ticket, token, .. } = seen else { return Ok(()) };
        let granted = history.entry(znode::Zxid(token.0)).and_then(|entry| entry.state.node(ticket));
        match granted {
            Some(node) if node.stat().czxid.0 == token.0 => Ok(()),
            _ => Err(format!("a client has token {token} for {ticket}, which was not created there")),
        }
    }
}

/// Returns the tickets that hold the lock at `path` other than for reading, with their fencing
/// tokens.
fn writers(state: &State, path: &ZPath) -> Vec<(ZPath, FencingToken)> {
    let Ok(queue) = lock::queue(state, path, 0, 4) else { return Vec::new() };
    let alone = queue.entries.into_iter().filter(|entry| entry.mode != znode::LockMode::Read);
    let held = alone.filter_map(|entry| match lock::status(state, &entry.ticket) {
        Ok(LockStatus::Held { token, .. }) => Some((entry.ticket, token)),
        _ => None,
    });
    held.collect()
}

/// After the expiry of a holder with a lock-delay, no other contender gets the lock before the
/// delay is over. The delay is measured by the replicated time, which log entries carry.
///
/// Source: Consul's lock-delay (sessions, "lock-delay"), and docs/recipes.md.
#[derive(Default)]
pub(super) struct DelaysLast {
    asked: BTreeMap<ZPath, u32>,
    /// Locks whose holder's session has expired, each with that holder's ticket and the replicated
    /// time in milliseconds until which no other ticket may get the lock.
    closed: BTreeMap<ZPath, (ZPath, u64)>,
}

impl DelaysLast {
    fn close(&mut self, commit: &Commit<'_>, sessions: &[SessionId]) {
        for session in sessions {
            let Some(session) = commit.before.session(*session) else { continue };
            for ticket in session.ephemerals() {
                let (Some(delay_ms), Some(lock)) = (self.asked.get(ticket), ticket.parent()) else { continue };
                if holds(commit.before, ticket) && commit.entry.state.session(session.id).is_none() {
                    let until_ms = commit.entry.state.time_ms() + u64::from(*delay_ms);
                    self.closed.insert(lock, (ticket.clone(), until_ms));
                }
            }
        }
    }
}

impl Invariant for DelaysLast {
    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        if let Observation::AskedForDelay { ticket, delay_ms } = seen {
            self.asked.insert(ticket.clone(), *delay_ms);
        }
        Ok(())
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let time_ms = commit.entry.state.time_ms();
        self.closed.retain(|_, (_, until_ms)| time_ms < *until_ms);
        if let Some(Op::ExpireSessions { sessions, .. }) = commit.entry.txn.as_ref().map(|txn| &txn.request.op) {
            self.close(commit, sessions);
        }
        for (lock, (dead, until_ms)) in &self.closed {
            for name in commit.entry.state.children(lock).into_iter().flatten() {
                let Ok(ticket) = lock.child(name) else { continue };
                let newly = holds(&commit.entry.state, &ticket) && !holds(commit.before, &ticket);
                if ticket != *dead && newly {
                    return Err(format!("{ticket} holds {} ms before the delay of {dead} is over", until_ms - time_ms));
                }
            }
        }
        Ok(())
    }
}

/// Time within which a client is told after the commit of the entry that made it the holder. It is
/// shorter than one wait at a node (700 ms), so that a wait that sleeps through the grant is found.
/// It is longer than the possible delays: a heartbeat tells the client's node of the commit (at
/// most 75 ms), two packets may be late by 100 ms each, and a client may do a read before its next
/// wait.
const TOLD_MS: u64 = 600;

struct Waiter {
    client: u64,
    since_ms: u64,
    /// The commit time of the entry that made the client the holder.
    held_ms: Option<u64>,
}

/// After all faults are repaired, a client that waits for a lock is soon told that it holds the
/// lock.
///
/// Source: a waiter whose turn has come is woken, the promise of ZooKeeper's lock recipe
/// (zookeeperRecipes, "Locks"). It does not matter how the client is woken: the committed log has
/// the time of the grant, and the client has the time at which it was told.
pub(super) struct GrantsAreTold {
    calm: Rc<RefCell<Calm>>,
    waiters: BTreeMap<ZPath, Waiter>,
}

impl GrantsAreTold {
    pub(super) fn new(calm: Rc<RefCell<Calm>>) -> GrantsAreTold {
        GrantsAreTold { calm, waiters: BTreeMap::new() }
    }

    /// Checks that the client of a wait was told in time. Returns whether the wait lay wholly in
    /// the calm, the time after all faults are repaired.
    fn judge(&self, ticket: &ZPath, waiter: &Waiter, now_ms: u64) -> Result<bool, String> {
        let calm = self.calm.borrow();
        let (Some(held_ms), Some(calm_ms)) = (waiter.held_ms, calm.from_ms) else { return Ok(false) };
        // The client may wait for the answer of a node that was removed and does not run any more.
        let answered_ms = calm.removed_ms + PATIENCE.as_millis() as u64;
        if now_ms > held_ms.max(waiter.since_ms).max(calm_ms).max(answered_ms) + TOLD_MS {
            return Err(format!(
                "client {} waits for {ticket} since {} ms, which holds since {held_ms} ms, and was not told by {now_ms} ms",
                waiter.client, waiter.since_ms
            ));
        }
        Ok(calm_ms <= waiter.since_ms)
    }
}

impl Invariant for GrantsAreTold {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        for (ticket, waiter) in &mut self.waiters {
            // A ticket that ended with its session holds nothing, so its client need not be told.
            let held_ms = waiter.held_ms.unwrap_or(commit.now_ms);
            waiter.held_ms = holds(&commit.entry.state, ticket).then_some(held_ms);
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, history: &History, now_ms: u64) -> Result<(), String> {
        match seen {
            Observation::Waits { client, ticket } => {
                let held = history.state(history.last()).is_some_and(|state| holds(state, ticket));
                let waiter = Waiter { client: *client, since_ms: now_ms, held_ms: held.then_some(now_ms) };
                self.waiters.insert(ticket.clone(), waiter);
            }
            Observation::Granted { ticket, .. } => {
                if let Some(waiter) = self.waiters.remove(ticket) {
                    let in_calm = self.judge(ticket, &waiter, now_ms)?;
                    self.calm.borrow_mut().grants += u64::from(in_calm);
                }
            }
            Observation::GaveUp { ticket } => {
                if let Some(waiter) = self.waiters.remove(ticket) {
                    self.judge(ticket, &waiter, now_ms)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut History) -> Result<(), String> {
        match self.waiters.first_key_value() {
            Some((ticket, waiter)) => Err(format!("client {} never came to an end with {ticket}", waiter.client)),
            None => Ok(()),
        }
    }
}
