//! Who waits for whom: an acquire that would close a circle is not let in.
//!
//! The ones who wait are owners within sessions; who gives no owner cannot be told apart and waits for nobody in this
//! sense. Queues are strict, so a ticket waits for every contender before it that keeps it out, holder or waiter: each of
//! these edges is definite. New edges come with new tickets only, so a circle is always closed by the last acquire in it,
//! and found there unless there is more to look at than [`crate::lock::LockLimits::deadlock_looks_max`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bincode::{Decode, Encode};

use crate::lock::past::short;
use crate::lock::{LockStatus, PastTicket, TicketEnd, status};
use crate::state::{Changes, State};
use crate::znode::{Place, is_shared};
use crate::{LockMode, Reply, SessionId, ZPath};

/// One edge of a circle: an owner that waits, and the ticket in its way, which is the next one's in the circle.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct WaitsFor {
    /// The session of the one that waits.
    pub session: SessionId,
    /// Its owner within the session.
    pub owner: String,
    /// What it waits for.
    pub lock: ZPath,
    /// The ticket in its way.
    pub blocker: ZPath,
}

type Owner = (SessionId, Arc<str>);

/// Somebody who wants to come into a queue.
pub(crate) struct Newcomer<'a> {
    pub(crate) lock: &'a ZPath,
    pub(crate) session: SessionId,
    pub(crate) owner: &'a str,
    pub(crate) mode: LockMode,
    /// Where it would stand; `None` at the end.
    pub(crate) place: Option<Place>,
    /// A ticket of its own that is not in its way.
    pub(crate) own: Option<&'a str>,
}

/// A ticket whose blockers are to be looked at.
struct Wait {
    owner: Owner,
    lock: ZPath,
    shared: bool,
    place: Option<Place>,
    passes: Option<String>,
}

struct Search<'a> {
    state: &'a State,
    asker: Owner,
    looks: u32,
    waits: VecDeque<Wait>,
    /// How each owner was reached: the edge that leads to it.
    reached: BTreeMap<Owner, WaitsFor>,
}

impl State {
    /// The circle that the newcomer would close by waiting.
    pub(crate) fn deadlock(&self, newcomer: &Newcomer<'_>) -> Option<Vec<WaitsFor>> {
        let owner: Owner = (newcomer.session, newcomer.owner.into());
        let looks = self.lock_limits.deadlock_looks_max();
        // Nobody waits for one that has no ticket yet. That is what most acquires are.
        let tickets = self.sessions[&owner.0].tickets.keys().take(looks as usize);
        if newcomer.owner.is_empty() || !tickets.into_iter().any(|(_, _, other)| *other == owner.1) {
            return None;
        }
        let first = Wait {
            owner: owner.clone(),
            lock: newcomer.lock.clone(),
            shared: newcomer.mode == LockMode::Read,
            place: newcomer.place.clone(),
            passes: newcomer.own.map(String::from),
        };
        let waits = VecDeque::from([first]);
        Search { state: self, asker: owner, looks, waits, reached: BTreeMap::new() }.run()
    }

    /// Answers that waiting would close a circle, and remembers it of the lock.
    pub(crate) fn refuse_deadlock(
        &mut self,
        newcomer: &Newcomer<'_>,
        label: &str,
        cycle: Vec<WaitsFor>,
        changes: &Changes,
    ) -> Reply {
        let now = self.moment(changes);
        let ticket = PastTicket {
            name: String::new(),
            mode: newcomer.mode,
            session: newcomer.session,
            owner: short(newcomer.owner),
            label: short(label),
            enqueued: now,
            grant: None,
            ended: now,
            end: TicketEnd::Deadlock,
        };
        self.past.add_ticket(newcomer.lock, ticket, &self.lock_limits);
        Reply::Deadlock { cycle }
    }
}

impl Search<'_> {
    /// The nearest first, so that the circle is a shortest one.
    fn run(mut self) -> Option<Vec<WaitsFor>> {
        while let Some(wait) = self.waits.pop_front() {
            // Where a ledger says who is next, who is before a ticket need not be in its way.
            let family = self.state.node(&wait.lock).map(|lock| &lock.family).filter(|family| family.ledger.is_none());
            let Some(family) = family else {
                continue;
            };
            let queue = if wait.shared { &family.writers } else { &family.contenders };
            for place in queue.iter().take_while(|place| wait.place.as_ref().is_none_or(|own| *place < own)) {
                self.looks = self.looks.checked_sub(1)?;
                if let Some(cycle) = self.look(&wait, place) {
                    return Some(cycle);
                }
            }
        }
        None
    }

    /// One blocker of a wait.
    fn look(&mut self, wait: &Wait, place: &Place) -> Option<Vec<WaitsFor>> {
        let blocker = wait.lock.child(&place.name).ok()?;
        let node = self.state.node(&blocker)?;
        let session = node.owner()?;
        let contender = node.contender().filter(|contender| !contender.owner.is_empty())?;
        // Curator's downgrade, and the reader that its own upgrade passes.
        let downgrade =
            wait.shared && session == wait.owner.0 && wait.place.as_ref().is_some_and(|own| own.number == place.number);
        // A dead session waits for nothing.
        if downgrade || wait.passes.as_deref() == Some(&*place.name) || node.lingers_until_ms().is_some() {
            return None;
        }
        let owner: Owner = (session, (*contender.owner).into());
        let (waiting, by) = (&wait.owner, blocker);
        let edge = WaitsFor { session: waiting.0, owner: (*waiting.1).into(), lock: wait.lock.clone(), blocker: by };
        if owner == self.asker {
            return Some(self.cycle(edge));
        }
        if !self.reached.contains_key(&owner) {
            self.reached.insert(owner.clone(), edge);
            self.expand(owner);
        }
        None
    }

    /// What an owner waits for, itself.
    fn expand(&mut self, owner: Owner) {
        let Some(session) = self.state.session(owner.0) else {
            return;
        };
        for ((lock, mode, other), ticket) in &session.tickets {
            let Some(looks) = self.looks.checked_sub(1) else {
                return;
            };
            self.looks = looks;
            if *other == owner.1 && matches!(status(self.state, ticket), Ok(LockStatus::Waiting { .. })) {
                let place = self.state.node(ticket).and_then(|node| Place::of(ticket.name(), node.czxid));
                let shared = *mode == LockMode::Read && is_shared(ticket.name());
                let passes = self.state.passes(lock, ticket.name()).map(String::from);
                self.waits.push_back(Wait { owner: owner.clone(), lock: lock.clone(), shared, place, passes });
            }
        }
    }

    /// The way back from the last edge to the asker, turned around.
    fn cycle(&self, last: WaitsFor) -> Vec<WaitsFor> {
        let mut cycle = vec![last];
        while let Some(edge) = cycle.last().and_then(|edge| self.reached.get(&(edge.session, (*edge.owner).into()))) {
            cycle.push(edge.clone());
        }
        cycle.reverse();
        cycle
    }
}
