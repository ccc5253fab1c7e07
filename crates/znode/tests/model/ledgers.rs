//! The model's ledgers.

use std::collections::BTreeMap;

use znode::lock::WaitsFor;
use znode::{
    ADMIN, Acquire, CREATE, DELETE, Error, EventKind, LockMode, LockSettings, Policy, Refusal, Reply, RequestKey,
    SessionId, Zxid,
};

use super::locks::{number, reads};
use super::{Answer, Ledger, Model, Stay, name_of, parent_of, refused};

const PASSED_OVER_MAX: usize = 16;

/// What a contender needs: permits, or the lock with others or alone.
#[derive(PartialEq)]
enum Need {
    Permits(u32),
    Share,
    All,
}

impl Model {
    /// Who of a ledger's queue is in the way of one who needs so much and stands so far; and whether only until it holds.
    pub(super) fn in_the_way_in_ledger(&self, lock: &str, mode: LockMode, own: Option<&str>) -> Vec<(String, bool)> {
        let all = self.contenders(lock);
        if !all.iter().any(|path| self.parts(path).is_some() && !self.owner_on(path).is_empty()) {
            return Vec::new();
        }
        let need = need_in(mode);
        let ledger = self.nodes[lock].ledger.as_ref().unwrap();
        let room = |other: &String| match (&need, self.need(other)) {
            (Need::Share, Need::Share) => true,
            (Need::Permits(one), Need::Permits(two)) => one + two <= ledger.settings.limit.unwrap_or(0),
            _ => false,
        };
        let held = self.holders(lock).into_iter().filter(|path| !room(path)).map(|path| (path, false));
        let before = all.iter().take_while(|path| own != Some(path.as_str()));
        let waits =
            |path: &&String| self.nodes[*path].granted.is_none() && !ledger.settings.closed && !self.passable(path);
        let waiting = before.filter(waits).map(|path| (path.clone(), room(path)));
        held.chain(waiting).collect()
    }

    /// Enqueues, and opens a ledger if there must be one.
    pub(super) fn enqueue_in_mode(
        &mut self,
        acquire: &Acquire,
        id: SessionId,
        key: RequestKey,
        multi: bool,
    ) -> Result<Result<String, Reply>, Refusal> {
        let lock = acquire.lock.as_str();
        let known = self.nodes.get(lock).and_then(|directory| directory.ledger.clone());
        let limit = match acquire.mode {
            LockMode::Lease { permits, limit } => {
                if permits == 0 || permits > limit {
                    return Err(Refusal::at(Error::BadArguments, &acquire.lock));
                }
                if known.as_ref().is_some_and(|ledger| ledger.settings.limit != Some(limit)) {
                    return Err(Refusal::at(Error::LimitDiffers, &acquire.lock));
                }
                Some(limit)
            }
            _ => None,
        };
        let holders = self.contenders(lock).into_iter().filter(|path| self.in_the_way(path).is_empty());
        let holders: Vec<String> = holders.collect();
        if limit.is_some() {
            self.may_have_ledger(lock).map_err(|error| Refusal::at(error, &acquire.lock))?;
        }
        let ticket = match self.enqueue(acquire, multi, id, key)? {
            Ok(ticket) => ticket,
            answer => return Ok(answer),
        };
        if known.is_none() && (multi || limit.is_some()) {
            self.nodes.get_mut(lock).unwrap().ledger =
                Some(Ledger { settings: LockSettings { limit, ..LockSettings::default() }, passed: false });
            for path in holders {
                let node = self.nodes.get_mut(&path).unwrap();
                node.granted = Some(node.created.0.0);
            }
        }
        Ok(Ok(ticket))
    }

    /// Whether somebody waits where fewer may.
    pub(super) fn is_one_too_many(&self, ticket: &str) -> bool {
        let waiters = self.waiters(parent_of(ticket).unwrap());
        let max = self.ledger_over(ticket).and_then(|ledger| ledger.settings.waiters_max);
        max.is_some_and(|max| waiters.len() > max as usize && waiters.iter().any(|waiter| waiter == ticket))
    }

    /// Not after an upgrade.
    pub(super) fn may_have_ledger(&self, lock: &str) -> Result<(), Error> {
        let known = self.nodes.get(lock).is_some_and(|directory| directory.ledger.is_some());
        let upgraded = self.upgrades.iter().any(|(writer, _)| parent_of(writer) == Some(lock));
        if !known && (upgraded || self.passed.contains_key(lock)) { Err(Error::UpgradeConflict) } else { Ok(()) }
    }

    /// What is rare and should be met.
    pub(crate) fn sights(&self) -> impl Iterator<Item = &'static str> {
        let granted = |tickets: &Vec<String>| tickets.len() > 1 && self.nodes[&tickets[0]].granted.is_some();
        let passed =
            |tickets: &Vec<String>| self.nodes[&tickets[0]].granted != Some(self.nodes[&tickets[0]].created.0.0);
        let together = self.multis.iter().any(|(_, tickets)| granted(tickets));
        let after = self.multis.iter().any(|(_, tickets)| granted(tickets) && passed(tickets));
        let several = self.nodes.keys().any(|lock| self.permits_held(lock) > 1 && self.holders(lock).len() > 1);
        let by = self.nodes.values().any(|node| node.ledger.as_ref().is_some_and(|ledger| ledger.passed));
        let sights = [(together, "held-together"), (several, "several-permits"), (by, "passed")];
        let once_more = self.multis.iter().any(|(_, tickets)| self.holds(&tickets[0]) > 1);
        let sights = sights.into_iter().chain([(after, "passed-and-held-together"), (once_more, "held-once-more")]);
        sights.filter(|(met, _)| *met).map(|(_, word)| word)
    }

    /// What is rare in a circle: a part of a multi-lock in the way; a semaphore.
    pub(crate) fn kinds_of_circle(&self, cycle: &[WaitsFor]) -> impl Iterator<Item = &'static str> {
        // A circle may be told again when its tickets have gone.
        let blockers = || cycle.iter().map(|edge| edge.blocker.as_str()).filter(|path| self.nodes.contains_key(*path));
        let part = blockers().any(|path| self.parts(path).is_some());
        let permits = blockers().any(|path| self.limit_over(path).is_some());
        let kinds = [(part, "circle-of-parts"), (permits, "circle-of-permits")];
        kinds.into_iter().filter(|(met, _)| *met).map(|(_, word)| word)
    }

    fn need(&self, path: &str) -> Need {
        let semaphore = self.ledger_over(path).is_some_and(|ledger| ledger.settings.limit.is_some());
        match self.nodes[path].lock.as_ref().map(|lock| lock.mode) {
            Some(LockMode::Lease { permits, .. }) => Need::Permits(permits),
            None if semaphore && name_of(path).contains("-lease-") => Need::Permits(1),
            _ if reads(path) => Need::Share,
            _ => Need::All,
        }
    }

    /// The ledger of the lock that a lock node queues for.
    pub(super) fn ledger_over(&self, path: &str) -> Option<&Ledger> {
        self.nodes[parent_of(path)?].ledger.as_ref()
    }

    /// The permits of the semaphore that a lock node queues for.
    pub(crate) fn limit_over(&self, path: &str) -> Option<u32> {
        self.ledger_over(path)?.settings.limit
    }

    pub(crate) fn holders(&self, lock: &str) -> Vec<String> {
        self.contenders(lock).into_iter().filter(|path| self.nodes[path].granted.is_some()).collect()
    }

    fn waiters(&self, lock: &str) -> Vec<String> {
        let mut waiters = self.contenders(lock);
        waiters.retain(|path| self.nodes[path].granted.is_none());
        waiters.sort_by_key(|path| u32::MAX - self.nodes[path].priority);
        waiters
    }

    pub(crate) fn permits_held(&self, lock: &str) -> u32 {
        let permits = |path: &String| match self.need(path) {
            Need::Permits(permits) => permits,
            _ => 0,
        };
        self.holders(lock).iter().map(permits).sum()
    }

    fn fits(&self, path: &str) -> bool {
        let lock = parent_of(path).unwrap();
        self.fits_beside(lock, &self.need(path), &self.holders(lock))
    }

    fn fits_beside(&self, lock: &str, need: &Need, holders: &[String]) -> bool {
        match need {
            Need::All => holders.is_empty(),
            Need::Share => holders.iter().all(|holder| self.need(holder) == Need::Share),
            Need::Permits(more) => {
                let limit = self.nodes[lock].ledger.as_ref().unwrap().settings.limit.unwrap();
                let all = holders.iter().all(|holder| matches!(self.need(holder), Need::Permits(_)));
                all && self.permits_held(lock) + *more <= limit
            }
        }
    }

    pub(super) fn parts(&self, path: &str) -> Option<&(Policy, Vec<String>)> {
        self.multis.iter().find(|(_, tickets)| tickets.iter().any(|ticket| ticket == path))
    }

    fn passable(&self, path: &str) -> bool {
        let semaphore = self.ledger_over(path).unwrap().settings.limit.is_some();
        self.parts(path).is_some_and(|(policy, _)| *policy == Policy::Backfill) && !semaphore
    }

    fn all_can_hold(&self, tickets: &[String]) -> bool {
        tickets.iter().all(|ticket| {
            let waiters = self.waiters(parent_of(ticket).unwrap());
            let before: Vec<&String> = waiters.iter().take_while(|path| *path != ticket).collect();
            before.len() <= PASSED_OVER_MAX && before.iter().all(|path| self.passable(path)) && self.fits(ticket)
        })
    }

    /// Curator's downgrade.
    fn beside_its_writer(&self, path: &str) -> bool {
        let holders = self.holders(parent_of(path).unwrap());
        let waits = self.nodes[path].granted.is_none();
        let own = |writer: &String| number(writer) == number(path) && self.nodes[writer].stay == self.nodes[path].stay;
        let session = matches!(self.nodes[path].stay, Stay::Session(_));
        let writer = holders.first().is_some_and(|writer| self.need(writer) == Need::All && own(writer));
        waits && reads(path) && session && writer
    }

    /// Whose turn it is in one lock.
    fn next_in(&self, lock: &str) -> Option<String> {
        if let Some(path) = self.contenders(lock).into_iter().find(|path| self.beside_its_writer(path)) {
            return Some(path);
        }
        let mut passed_over = 0;
        for path in self.waiters(lock) {
            if let Some((_, tickets)) = self.parts(&path) {
                if self.all_can_hold(tickets) {
                    return Some(path);
                }
                if !self.passable(&path) || passed_over == PASSED_OVER_MAX {
                    return None;
                }
                passed_over += 1;
                continue;
            }
            let foreign = self.nodes[&path].lock.is_none() && passed_over > 0;
            return if self.fits(&path) && !foreign { Some(path) } else { None };
        }
        None
    }

    /// What can be seen of each ledger: who is there and who holds.
    fn ledgers(&self) -> BTreeMap<String, Vec<(String, Zxid, Option<u64>)>> {
        let ledgers = self.nodes.iter().filter(|(_, node)| node.ledger.is_some());
        let seen = |path: String| {
            let node = &self.nodes[&path];
            (path, node.created.0, node.granted)
        };
        ledgers.map(|(lock, _)| (lock.clone(), self.contenders(lock).into_iter().map(seen).collect())).collect()
    }

    /// The one who has waited longest of all who can have their turn in a lock that has changed, and again.
    pub(super) fn settle(&mut self) {
        loop {
            let ledgers = self.ledgers();
            let changed = ledgers.iter().filter(|(lock, seen)| self.settled.get(*lock) != Some(seen));
            let turns = changed.filter_map(|(lock, _)| self.next_in(lock));
            let age = |path: &String| {
                let lock = parent_of(path).unwrap().to_string();
                (self.nodes[path].created.0, lock, number(path), name_of(path).to_string())
            };
            let Some(next) = turns.min_by_key(age) else {
                self.settled = ledgers;
                return;
            };
            let tickets = self.parts(&next).map_or_else(|| vec![next.clone()], |(_, tickets)| tickets.clone());
            tickets.iter().for_each(|ticket| self.grant(ticket));
        }
    }

    fn grant(&mut self, ticket: &str) {
        let lock = parent_of(ticket).unwrap();
        let first = self.waiters(lock)[0] == ticket;
        let ledger = self.nodes.get_mut(lock).unwrap().ledger.as_mut().unwrap();
        ledger.passed |= !first;
        let passed = ledger.passed;
        let zxid = self.last_zxid;
        let node = self.nodes.get_mut(ticket).unwrap();
        node.granted = Some(if passed { zxid.0 } else { node.created.0.0 });
        self.tell(EventKind::Granted, ticket);
    }

    pub(super) fn set_lock(&mut self, lock: &str, settings: LockSettings) -> Answer {
        if lock == "/" || settings.limit == Some(0) || (settings.closed && settings.limit.is_some()) {
            return refused(Error::BadArguments, lock);
        }
        let (base, to_make) = match self.way_to(lock) {
            Ok(way) => way,
            Err(error) => return refused(error, lock),
        };
        if !self.may(&base, DELETE | ADMIN) || !to_make.is_empty() && !self.may(&base, CREATE) {
            return refused(Error::NoAuth, lock);
        }
        if to_make.iter().any(|directory| self.is_kept_out(directory)) {
            return refused(Error::LockClosed, &base);
        }
        let none = LockSettings::default();
        if to_make.is_empty() {
            let directory = &self.nodes[lock];
            if matches!(directory.stay, Stay::Session(_)) {
                return refused(Error::NoChildrenForEphemerals, lock);
            }
            let known = directory.ledger.as_ref().map_or(none, |ledger| ledger.settings);
            let as_before = (known.limit, known.closed) == (settings.limit, settings.closed);
            if !as_before && !self.contenders(lock).is_empty() {
                return refused(Error::NotEmpty, lock);
            }
        } else if let Err(error) = self.room(&base, lock, 0, to_make.len() as u64, Stay::Container) {
            return refused(error, lock);
        }
        for directory in to_make {
            let acl = self.nodes[&base].acl.clone();
            self.put(&directory, Stay::Container, Vec::new(), acl, None);
        }
        if settings != none
            && let Err(error) = self.may_have_ledger(lock)
        {
            return refused(error, lock);
        }
        let deserted = self.contenders(lock).is_empty();
        let holders = self.contenders(lock).into_iter().filter(|path| self.in_the_way(path).is_empty());
        let holders: Vec<String> = holders.collect();
        let directory = self.nodes.get_mut(lock).unwrap();
        if matches!(directory.stay, Stay::Container | Stay::Ttl(_)) && settings != none {
            directory.stay = Stay::Persistent;
        }
        match &mut directory.ledger {
            Some(ledger) => {
                ledger.settings = settings;
                ledger.passed |= settings.closed;
            }
            None if settings != none => {
                directory.ledger = Some(Ledger { settings, passed: settings.closed });
                for path in holders {
                    let node = self.nodes.get_mut(&path).unwrap();
                    node.granted = Some(node.created.0.0);
                }
            }
            None => {}
        }
        let directory = self.nodes.get_mut(lock).unwrap();
        directory.ledger.take_if(|ledger| deserted && ledger.settings == none);
        Ok(Reply::Done)
    }

    pub(super) fn hand_over(&mut self, ticket: &str, to: &str, session: Option<SessionId>) -> Answer {
        if let Err(error) = self.may_give_back(ticket, session) {
            return refused(error, ticket);
        }
        let lock = parent_of(ticket).unwrap().to_string();
        if !self.nodes[&lock].ledger.as_ref().is_some_and(|ledger| ledger.settings.closed) {
            return refused(Error::LockNotClosed, &lock);
        }
        if self.nodes[ticket].granted.is_none() || self.parts(ticket).is_some() {
            return refused(Error::LockNotHeld, ticket);
        }
        let mut others = self.holders(&lock);
        others.retain(|other| other != ticket);
        let waits = self.waiters(&lock).iter().any(|waiter| waiter == to) && self.parts(to).is_none();
        if !waits || !self.fits_beside(&lock, &self.need(to), &others) {
            return refused(Error::HandOverRefused, to);
        }
        self.take_out(ticket);
        self.grant(to);
        Ok(Reply::Released { holds: 0 })
    }

    /// Who is shown as the one before a waiter in a ledger.
    pub(super) fn before_in_ledger(&self, path: &str) -> String {
        let before = |path: &str| {
            let lock = parent_of(path).unwrap();
            let waiters = self.waiters(lock);
            let waits = waiters.iter().take_while(|other| *other != path).last().cloned();
            waits.or_else(|| self.holders(lock).last().cloned())
        };
        let all = self.parts(path).map(|(_, tickets)| tickets.clone()).unwrap_or_default();
        let elsewhere = || all.iter().find_map(|ticket| before(ticket));
        before(path).or_else(elsewhere).unwrap_or_else(|| path.to_string())
    }
}

fn need_in(mode: LockMode) -> Need {
    match mode {
        LockMode::Read => Need::Share,
        LockMode::Lease { permits, .. } => Need::Permits(permits),
        _ => Need::All,
    }
}
