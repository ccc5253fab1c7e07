//! Who waits for whom: an acquire that would close a circle is not let in.
//!
//! The ones who wait are owners within sessions; who gives no owner cannot be told apart and waits for nobody in this
//! sense. Queues are strict, so a ticket waits for every contender before it that keeps it out, holder or waiter: each of
//! these edges is definite. New edges come with new tickets only, so a circle is always closed by the last acquire in it,
//! and found there unless there is more to look at than [`crate::lock::LockLimits::deadlock_looks_max`].
//!
//! Where a ledger says who holds, the edges lead to each holder beside whom there is no room, and to each waiter before the
//! ticket that it may not pass: a waiting backfill multi-lock, or anybody in a closed lock, may be passed. Beside a waiter there may
//! be room: then it is waited for only until it is granted, and what its owner does elsewhere does not matter. Ledgers are
//! looked through while a multi-lock with an owner stands in the queue. Before such owners existed none was, and a log that was
//! written then means what it meant. A grant that passes others makes new edges, too; it takes an owner that waits for two
//! things at once to close a circle by it, and that one is not found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bincode::{Decode, Encode};

use crate::client_info::remembered;
use crate::ledger::{Demand, demand_of};
use crate::lock::past::short;
use crate::lock::{LockStatus, PastTicket, TicketEnd, status};
use crate::settle::passable;
use crate::state::{Changes, State};
use crate::znode::Place;
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

/// Somebody who waits, as the search sees it: an owner with all that it waits for; or one ticket of an owner's, where another
/// waits only until that is granted, and not until it has gone.
type Waiter = (Owner, Option<ZPath>);

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
    by: Waiter,
    lock: ZPath,
    demand: Demand,
    place: Option<Place>,
    passes: Option<String>,
}

/// For how long a contender is in the way of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InTheWay {
    No,
    /// A waiter beside whom there is room, but whom nobody passes.
    UntilGranted,
    UntilGone,
}

struct Search<'a> {
    state: &'a State,
    asker: Owner,
    looks: u32,
    waits: VecDeque<Wait>,
    /// How each waiter was reached: the edge that leads to it, and from whom.
    reached: BTreeMap<Waiter, (WaitsFor, Waiter)>,
}

impl State {
    /// The circle that the newcomer would close by waiting.
    pub(crate) fn deadlock(&self, newcomer: &Newcomer<'_>) -> Option<Vec<WaitsFor>> {
        // Nobody waits for one that has no ticket yet. That is what most acquires are.
        if !self.has_ticket(newcomer.session, newcomer.owner) {
            return None;
        }
        let owner: Owner = (newcomer.session, newcomer.owner.into());
        let first = Wait {
            by: (owner.clone(), None),
            lock: newcomer.lock.clone(),
            demand: demand_in(newcomer.mode),
            place: newcomer.place.clone(),
            passes: newcomer.own.map(String::from),
        };
        Search::of(self, owner, vec![first]).run()
    }

    /// The circle that the tickets of a multi-lock close by waiting: they are in their queues already.
    pub(crate) fn deadlock_of_all(&self, id: SessionId, owner: &str, tickets: &[ZPath]) -> Option<Vec<WaitsFor>> {
        let owner: Owner = (id, owner.into());
        let by = (owner.clone(), None);
        let waits = tickets.iter().filter_map(|ticket| self.wait_of(&by, ticket)).collect();
        Search::of(self, owner, waits).run()
    }

    /// Whether an owner has any ticket, of those that may be looked at.
    pub(crate) fn has_ticket(&self, id: SessionId, owner: &str) -> bool {
        let looks = self.lock_limits.deadlock_looks_max();
        let mut tickets = self.sessions[&id].tickets.keys().take(looks as usize);
        !owner.is_empty() && tickets.any(|(_, _, other)| **other == *owner)
    }

    /// What a ticket waits for; `None` when it does not.
    fn wait_of(&self, by: &Waiter, ticket: &ZPath) -> Option<Wait> {
        let LockStatus::Waiting { .. } = status(self, ticket).ok()? else {
            return None;
        };
        let (node, lock) = (self.node(ticket)?, ticket.parent()?);
        let demand = demand_in(node.contender()?.mode);
        let passes = self.passes(&lock, ticket.name()).map(String::from);
        Some(Wait { by: by.clone(), demand, place: Place::of(ticket.name(), node.czxid), passes, lock })
    }

    /// Those who stand before a wait in its queue, and whether they are in its way.
    fn before<'a>(&'a self, wait: &'a Wait) -> Box<dyn Iterator<Item = (&'a Place, InTheWay)> + 'a> {
        let before = |place: &&Place| wait.place.as_ref().is_none_or(|own| *place < own);
        let Some(family) = self.node(&wait.lock).map(|lock| &lock.family) else {
            return Box::new(std::iter::empty());
        };
        let Some(ledger) = family.ledger.as_deref() else {
            let queue = if wait.demand == Demand::Shared { &family.writers } else { &family.contenders };
            return Box::new(queue.iter().take_while(before).map(|place| (place, InTheWay::UntilGone)));
        };
        let together = |other| ledger.fit_together(other, wait.demand);
        let held = ledger.granted().map(move |(place, grant)| {
            (place, if together(grant.demand) { InTheWay::No } else { InTheWay::UntilGone })
        });
        // A closed lock may be handed over to anybody who waits.
        let waiting = ledger.waiting().take_while(before).take_while(|_| !ledger.settings.closed).map(move |place| {
            let (ticket, node) = self.lock_node(&wait.lock, place);
            let passed = self.multi_of(&ticket, node).is_some_and(|multi| passable(multi, ledger));
            let in_the_way = match together(demand_of(&place.name, node, ledger.settings)) {
                _ if passed => InTheWay::No,
                true => InTheWay::UntilGranted,
                false => InTheWay::UntilGone,
            };
            (place, in_the_way)
        });
        Box::new(held.chain(waiting).take_while(|_| ledger.has_owned_parts()))
    }

    /// Answers that waiting would close a circle, as far as the asker may read the locks in it, and remembers it of the lock.
    pub(crate) fn refuse_deadlock(
        &mut self,
        newcomer: &Newcomer<'_>,
        label: &str,
        cycle: Vec<WaitsFor>,
        changes: &Changes,
    ) -> Reply {
        let now = self.moment(changes);
        let (session_label, client) = remembered(self.session_of(newcomer.session, changes));
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
            session_label,
            client,
            by: None,
        };
        self.remember_ticket(newcomer.lock, ticket, self.past_readers(newcomer.lock));
        // Tickets of locks that the asker may not read are nobody's to name.
        let shown = cycle.into_iter().filter(|edge| self.may_read(&edge.lock, &changes.identities));
        Reply::Deadlock { cycle: shown.collect() }
    }
}

impl<'a> Search<'a> {
    fn of(state: &'a State, asker: Owner, waits: Vec<Wait>) -> Search<'a> {
        let looks = state.lock_limits.deadlock_looks_max();
        Search { state, asker, looks, waits: waits.into(), reached: BTreeMap::new() }
    }

    /// The nearest first, so that the circle is a shortest one.
    fn run(mut self) -> Option<Vec<WaitsFor>> {
        let state = self.state;
        while let Some(wait) = self.waits.pop_front() {
            for (place, in_the_way) in state.before(&wait) {
                self.looks = self.looks.checked_sub(1)?;
                if in_the_way != InTheWay::No
                    && let Some(cycle) = self.look(&wait, place, in_the_way)
                {
                    return Some(cycle);
                }
            }
        }
        None
    }

    /// One blocker of a wait.
    fn look(&mut self, wait: &Wait, place: &Place, in_the_way: InTheWay) -> Option<Vec<WaitsFor>> {
        let blocker = wait.lock.child(&place.name).ok()?;
        let node = self.state.node(&blocker)?;
        let session = node.owner()?;
        let contender = node.contender().filter(|contender| !contender.owner.is_empty())?;
        let (waiting, _) = &wait.by;
        // Curator's downgrade, and the reader that its own upgrade passes.
        let downgrade = wait.demand == Demand::Shared
            && session == waiting.0
            && wait.place.as_ref().is_some_and(|own| own.number == place.number);
        // A dead session waits for nothing.
        if downgrade || wait.passes.as_deref() == Some(&*place.name) || node.lingers_until_ms().is_some() {
            return None;
        }
        let owner: Owner = (session, (*contender.owner).into());
        let (lock, by) = (wait.lock.clone(), blocker.clone());
        let edge = WaitsFor { session: waiting.0, owner: (*waiting.1).into(), lock, blocker: by };
        let until_gone = in_the_way == InTheWay::UntilGone;
        if until_gone && owner == self.asker {
            return Some(self.cycle(edge, &wait.by));
        }
        let next: Waiter = (owner, if until_gone { None } else { Some(blocker) });
        if !self.reached.contains_key(&next) {
            self.reached.insert(next.clone(), (edge, wait.by.clone()));
            self.expand(&next);
        }
        None
    }

    /// What somebody waits for, itself.
    fn expand(&mut self, waiter: &Waiter) {
        let state = self.state;
        match waiter {
            ((id, owner), None) => {
                let tickets = state.session(*id).into_iter().flat_map(|session| &session.tickets);
                self.look_at(waiter, tickets.map(|((_, _, other), ticket)| (ticket, *other == *owner)));
            }
            (_, Some(ticket)) => {
                let parts = crate::lock::parts(state, ticket).unwrap_or(std::slice::from_ref(ticket));
                self.look_at(waiter, parts.iter().map(|part| (part, true)));
            }
        }
    }

    /// Adds what those of the tickets that count wait for.
    fn look_at<'b>(&mut self, waiter: &Waiter, tickets: impl Iterator<Item = (&'b ZPath, bool)>) {
        for (ticket, counts) in tickets {
            let Some(looks) = self.looks.checked_sub(1) else {
                return;
            };
            self.looks = looks;
            self.waits.extend(self.state.wait_of(waiter, ticket).filter(|_| counts));
        }
    }

    /// The way back from the last edge to the asker, turned around.
    fn cycle(&self, last: WaitsFor, by: &Waiter) -> Vec<WaitsFor> {
        let mut cycle = vec![last];
        let mut at = by;
        while let Some((edge, by)) = self.reached.get(at) {
            cycle.push(edge.clone());
            at = by;
        }
        cycle.reverse();
        cycle
    }
}

/// What a contender of a mode needs of the lock.
fn demand_in(mode: LockMode) -> Demand {
    match mode {
        LockMode::Read => Demand::Shared,
        LockMode::Lease { permits, .. } => Demand::Permits(permits),
        LockMode::Exclusive | LockMode::Write | LockMode::Latch => Demand::Alone,
    }
}
