//! Who is next in the locks that keep a ledger.
//!
//! At the end of a transaction, for the locks whose queues it changed: grant the lock to the one who has waited longest of
//! all who can have it, and again, until nobody can.
//!
//! In one lock it is the turn of the first who waits. Only who cannot be helped is passed over: a part of a multi-lock
//! that asked for it (`Policy::Backfill`) and waits for another lock.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use crate::ledger::{Demand, Ledger, demand_of};
use crate::lock::{Grant, Moment};
use crate::multilock::MultiLock;
use crate::state::{Changes, State};
use crate::znode::{Place, Znode, is_shared};
use crate::{Error, EventKind, FencingToken, LockSettings, Policy, ZPath, Zxid};

/// So many multi-locks may be passed over in one queue; the next one blocks it. Bounds the work of a grant.
const PASSED_OVER_MAX: usize = 16;
/// When so many places were looked at to find out whom to pass over, the next multi-lock that cannot hold blocks the queue.
const LOOKS_MAX: usize = 512;
/// Waiting lock nodes with the holder's own number, and tickets of its session, that are looked at to find its reader. Names
/// with equal numbers are made by hand.
const OWN_LOOKS_MAX: usize = 256;
/// Readers in the queue of a lock that gets a ledger.
const LEDGER_READERS_MAX: usize = 1_000;

/// Somebody who can have the lock now. Ordered by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    czxid: Zxid,
    lock: ZPath,
    place: Place,
}

impl State {
    /// Grants what the transaction made free. O(log n) for each grant and each lock that was touched. What is too much for
    /// one entry is left to the next ones.
    pub(crate) fn settle(&mut self, changes: &mut Changes) {
        let mut turns: BTreeSet<Turn> = BTreeSet::new();
        for lock in changes.take_touched() {
            if self.check_steps(changes).is_err() {
                self.unsettled.insert(lock);
            } else {
                turns.extend(self.next_in(&lock));
            }
        }
        while let Some(turn) = turns.pop_first() {
            if self.check_steps(changes).is_err() {
                // Of a multi-lock, it is the turn in each of its locks. It may have gone since it was its turn.
                let ticket = turn.lock.child(&turn.place.name).expect("a child has a good name");
                let multi = self.node(&ticket).and_then(|node| self.multi_of(&ticket, node));
                let parts = multi.map_or(&[][..], |multi| &multi.tickets);
                let locks: Vec<ZPath> = parts.iter().filter_map(ZPath::parent).collect();
                self.unsettled.extend(locks);
                self.unsettled.insert(turn.lock);
                continue;
            }
            let now = self.next_in(&turn.lock);
            if now.as_ref() != Some(&turn) {
                // Another grant has changed the picture.
                turns.extend(now);
                continue;
            }
            let (ticket, node) = self.lock_node(&turn.lock, &turn.place);
            if self.waits_in_vain(&ticket, node) {
                self.pass_over(&ticket, changes);
                turns.extend(changes.take_touched().iter().filter_map(|lock| self.next_in(lock)));
                continue;
            }
            for lock in self.grant(&turn, changes) {
                turns.extend(self.next_in(&lock));
            }
        }
    }

    /// Who can have this lock now.
    pub(crate) fn next_in(&self, lock: &ZPath) -> Option<Turn> {
        let ledger = self.ledger(lock)?;
        let turn = |place: &Place| Some(Turn { czxid: place.czxid, lock: lock.clone(), place: place.clone() });
        if let Some(place) = self.own_reader(lock, ledger) {
            return turn(&place);
        }
        let (mut passed_over, mut looks) = (0, 0);
        for place in ledger.turns() {
            let (ticket, node) = self.lock_node(lock, place);
            match self.multi_of(&ticket, node) {
                Some(multi) if self.can_hold_all(multi, &mut looks) => return turn(place),
                Some(_) if looks > LOOKS_MAX => return None,
                Some(multi) if passable(multi, ledger) && passed_over < PASSED_OVER_MAX => passed_over += 1,
                Some(_) => return None,
                // A recipe client waits for all before it, whatever we say. Granting it the lock would keep others out
                // for nobody.
                None if passed_over > 0 && node.contender().is_none() => return None,
                None => return ledger.fits(demand_of(&place.name, node, ledger.settings)).then(|| turn(place))?,
            }
        }
        None
    }

    /// Whether every part is next in its lock and has room there. Adds what it looks at to `looks`.
    fn can_hold_all(&self, multi: &MultiLock, looks: &mut usize) -> bool {
        multi.tickets.iter().all(|ticket| {
            let (Some(lock), Some(node)) = (ticket.parent(), self.node(ticket)) else {
                return false;
            };
            let Some(ledger) = self.ledger(&lock) else {
                return false;
            };
            let before = ledger.turns().take_while(|place| *place.name != *ticket.name());
            // One more than may be: then it is blocked.
            let before: Vec<&Place> = before.take(PASSED_OVER_MAX + 1).collect();
            *looks += before.len() + 1;
            let free = before.iter().all(|place| {
                let (other, node) = self.lock_node(&lock, place);
                self.multi_of(&other, node).is_some_and(|other| passable(other, ledger))
            });
            free && before.len() <= PASSED_OVER_MAX && ledger.fits(demand_of(ticket.name(), node, ledger.settings))
        })
    }

    /// Curator's downgrade: the holder of the write lock reads under the same number at once, whoever else waits.
    fn own_reader(&self, lock: &ZPath, ledger: &Ledger) -> Option<Place> {
        let (writer, _) = ledger.granted().next().filter(|(_, grant)| grant.demand == Demand::Alone)?;
        let mut under_it = ledger.waiting_at(writer.number).peekable();
        under_it.peek()?;
        let session = self.lock_node(lock, writer).1.owner().and_then(|id| self.session(id))?;
        let below = format!("{lock}/");
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let mut tickets = session.ephemerals.range::<_, str>(from).take_while(|path| path.as_str().starts_with(&below));
        let mut own = None;
        // Anybody may make znodes with that number by hand, and the session may have many tickets here: this ends with
        // whichever are fewer, or after a number of looks.
        for _ in 0..OWN_LOOKS_MAX {
            let place = under_it.next()?;
            if is_shared(&place.name) && self.lock_node(lock, place).1.owner() == Some(session.id) {
                return Some(place.clone());
            }
            let Some(ticket) = tickets.next() else {
                return own;
            };
            let place = Place::of(ticket.name(), self.nodes[ticket].czxid);
            let waits = |place: &Place| place.number == writer.number && is_shared(&place.name) && ledger.waits(place);
            own = own.into_iter().chain(place.filter(waits)).min();
        }
        own
    }

    /// Grants a lock, or all locks of a multi-lock. Returns those whose queues it changed.
    fn grant(&mut self, turn: &Turn, changes: &mut Changes) -> Vec<ZPath> {
        let (ticket, node) = self.lock_node(&turn.lock, &turn.place);
        let tickets = self.multi_of(&ticket, node).map_or_else(|| vec![ticket.clone()], |multi| multi.tickets.clone());
        let mut locks = Vec::new();
        for ticket in tickets {
            let lock = ticket.parent().expect("a lock node has a parent");
            let node = &self.nodes[&ticket];
            let place = Place::of(ticket.name(), node.czxid).expect("a lock node has a number");
            let ledger = self.ledger(&lock).expect("a turn is in a ledger");
            let demand = demand_of(&place.name, node, ledger.settings);
            let passes = ledger.turns().next() != Some(&place);
            let zxid = changes.zxid;
            self.edit_ledger(&lock, |ledger| {
                ledger.passed |= passes;
                let token = if ledger.passed { zxid } else { place.czxid };
                ledger.grant(&place, demand, FencingToken::from(token));
            });
            changes.steps += 1;
            self.tell(EventKind::Granted, &ticket, changes);
            changes.granted(&ticket);
            locks.push(lock);
        }
        locks
    }

    /// Grants a lock to one who waits, whose turn it is not.
    pub(crate) fn grant_out_of_turn(&mut self, lock: &ZPath, place: &Place, changes: &mut Changes) {
        self.grant(&Turn { czxid: place.czxid, lock: lock.clone(), place: place.clone() }, changes);
    }

    /// Whether a lock has a ledger or can have one. Not after an upgrade: the order of tokens is another one then. Nor with
    /// too many readers: opening it writes all who hold down, also when the request is refused after all.
    pub(crate) fn check_ledger(&self, lock: &ZPath) -> Result<(), Error> {
        let Some(family) = self.node(lock).map(|node| &node.family).filter(|family| family.ledger.is_none()) else {
            return Ok(());
        };
        if self.upgrades.contains_key(lock) {
            return Err(Error::UpgradeConflict);
        }
        let readers = family.contenders.len() - family.writers.len();
        if readers > LEDGER_READERS_MAX { Err(Error::TooManyOps) } else { Ok(()) }
    }

    /// Opens the ledger of a lock that has none, with those who held before `newcomer` came.
    pub(crate) fn open_ledger(&mut self, lock: &ZPath, newcomer: Option<&ZPath>, settings: LockSettings) {
        let parent = &self.nodes[lock];
        if parent.family.ledger.is_some() {
            return;
        }
        let before = |place: &&Place| newcomer.is_none_or(|newcomer| *place.name != *newcomer.name());
        let owner = |place: &Place| self.lock_node(lock, place).1.owner();
        let mut writers = parent.family.writers.iter().filter(before);
        let (writer, next) = (writers.next(), writers.next());
        // The first holds, readers up to the first writer, and that writer's own readers, which share its number, up to the
        // next: what `lock::status` says of a lock without a ledger.
        let near = parent.family.contenders.iter().filter(before).take_while(|place| {
            writer.is_none_or(|writer| place.number <= writer.number) && next.is_none_or(|next| *place < next)
        });
        let holds = |(index, place): &(usize, &Place)| {
            let own = |writer: &Place| {
                place.number == writer.number && owner(place).is_some() && owner(place) == owner(writer)
            };
            *index == 0 || is_shared(&place.name) && writer.is_none_or(|writer| *place < writer || own(writer))
        };
        let alive = |place: &Place| {
            let (ticket, node) = self.lock_node(lock, place);
            !self.waits_in_vain(&ticket, node)
        };
        let holders: Vec<Place> =
            near.enumerate().filter(holds).map(|(_, place)| place.clone()).filter(alive).collect();
        let mut ledger = Ledger::open(settings, parent.family.contenders.clone());
        for place in &holders {
            let demand = demand_of(&place.name, self.lock_node(lock, place).1, settings);
            ledger.grant(place, demand, FencingToken::from(place.czxid));
        }
        // A ledger writes its own grants down. Those of before that no entry has written down yet are written here.
        let pending =
            if self.unsettled.contains(lock) { self.nodes[lock].family.pending.clone() } else { OrdSet::new() };
        for place in holders.iter().filter(|place| pending.contains(*place)) {
            let at = Moment { zxid: self.last_zxid, time_ms: self.time_ms };
            self.put_grant(&self.lock_node(lock, place).0, Grant { at, token: FencingToken::from(place.czxid) });
        }
        self.edit(lock, |node| node.family.ledger = Some(Arc::new(ledger)));
    }

    pub(crate) fn ledger(&self, lock: &ZPath) -> Option<&Ledger> {
        self.node(lock).and_then(|node| node.family.ledger.as_deref())
    }

    pub(crate) fn edit_ledger(&mut self, lock: &ZPath, change: impl FnOnce(&mut Ledger)) {
        self.edit(lock, |node| {
            let ledger = node.family.ledger.as_mut().expect("the caller has seen the ledger");
            change(Arc::make_mut(ledger));
        });
    }

    pub(crate) fn lock_node(&self, lock: &ZPath, place: &Place) -> (ZPath, &Znode) {
        let ticket = lock.child(&place.name).expect("a child has a good name");
        let node = &self.nodes[&ticket];
        (ticket, node)
    }
}

/// Whether others may pass a waiting part of this multi-lock. In a semaphore nobody may: its holders are told apart by
/// their czxids.
pub(crate) fn passable(multi: &MultiLock, ledger: &Ledger) -> bool {
    multi.policy == Policy::Backfill && ledger.settings.limit.is_none()
}
