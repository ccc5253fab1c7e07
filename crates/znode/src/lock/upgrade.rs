//! From reading to writing without letting go in between.
//!
//! The upgraded writer queues in front of all writers that wait, right behind the readers that hold, and passes its own
//! reader: it holds when the other readers have gone. A writer that it went in front of was made before it and would show a
//! smaller token after it, so such a one gets a token from its grant (see [`crate::lock::grant`]). The same holds for those
//! made before that grant, and for those that a writer's own reader went in front of.

use std::sync::Arc;

use bincode::{Decode, Encode};

use crate::lock::deadlock::Newcomer;
use crate::lock::{LockStatus, status};
use crate::quota::Growth;
use crate::state::{Changes, State};
use crate::tree::{NewNode, SEQUENCE_MAX, permit, sequential};
use crate::znode::{Contender, Hold, Kind, Place, Znode};
use crate::{
    CREATE, Error, FencingToken, Idempotency, LockMode, Refusal, Reply, RequestKey, SessionId, Upgrade, ZPath, Zxid,
};

/// What upgrades, and downgrades that go in front of others, mean for one lock's queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Upgraded {
    /// The lock nodes of the writer and of the reader that it passes, while both stand.
    pub(crate) pair: Option<Pair>,
    /// Contenders made before this one, and granted after it, get their token from their grant.
    pub(crate) passed: Zxid,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Pair {
    pub(crate) writer: String,
    pub(crate) reader: String,
}

impl State {
    pub(crate) fn upgrade(
        &mut self,
        upgrade: &Upgrade,
        session: Option<SessionId>,
        idempotency: Option<&Idempotency>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let reader = &upgrade.ticket;
        let refuse = |error| Refusal::at(error, reader);
        let id = self.check_ticket(reader, session).map_err(refuse)?;
        let key = idempotency.map(|idempotency| idempotency.key).ok_or_else(|| refuse(Error::BadArguments))?;
        if upgrade.label.len() > self.limits.label_bytes_max as usize {
            return Err(refuse(Error::DataTooLarge));
        }
        // A retry whose answer and key are forgotten.
        if let Some(writer) = self.upgraded_with(id, upgrade, key) {
            return self.acquire_again(&writer, id, key, upgrade.attempt);
        }
        let contender = self.nodes[reader].contender().filter(|contender| contender.mode == LockMode::Read).cloned();
        let contender = contender.ok_or_else(|| refuse(Error::BadArguments))?;
        if !matches!(status(self, reader), Ok(LockStatus::Held { .. })) {
            return Err(refuse(Error::LockNotHeld));
        }
        let lock = reader.parent().expect("a lock node has a parent");
        let hold = Hold { key, attempts: vec![upgrade.attempt] };
        if let Some(writer) = self.ticket_of(id, &lock, LockMode::Write, &contender.owner) {
            return self.hold_once_more(&writer, hold);
        }
        permit(&self.nodes[&lock].acl, CREATE, changes).map_err(|error| Refusal::at(error, &lock))?;
        let (writer, passed) = self.writer_for(reader, &lock, key).map_err(refuse)?;
        let place = Place::of(writer.name(), changes.zxid);
        let (owner, own) = (&*contender.owner, Some(reader.name()));
        let newcomer = Newcomer { lock: &lock, session: id, owner, mode: LockMode::Write, place, own };
        if let Some(cycle) = self.deadlock(&newcomer) {
            return Ok(self.refuse_deadlock(&newcomer, &upgrade.label, cycle, changes));
        }
        self.check_upgrade(&lock, &writer, id, upgrade)?;
        let upgraded = self.upgrades.get(&lock).cloned().unwrap_or_default();
        let passed = if passed { changes.zxid } else { upgraded.passed };
        let pair = Pair { writer: writer.name().into(), reader: reader.name().into() };
        let acl = Arc::clone(&self.nodes[&lock].acl);
        self.upgrades.insert(lock, Upgraded { pair: Some(pair), passed });
        let contender = Contender { mode: LockMode::Write, holds: vec![hold], released: 0, ..contender };
        let data = upgrade.label.as_bytes().into();
        let kind = Kind::Ephemeral { owner: id };
        self.insert(&writer, NewNode { kind, data, acl, contender: Some(contender) }, changes);
        self.acquired(&writer)
    }

    /// The path of the upgraded writer, and whether it goes in front of others.
    fn writer_for(&self, reader: &ZPath, lock: &ZPath, key: RequestKey) -> Result<(ZPath, bool), Error> {
        let parent = &self.nodes[lock];
        // Nobody goes in front of those who wait where a ledger says who is next.
        if parent.family.ledger.is_some() {
            return Err(Error::UpgradeConflict);
        }
        // Who holds by now has the token that it was told of, and that must be written down first. The next entries do it.
        if self.unsettled.contains(lock) {
            return Err(Error::LockUnsettled);
        }
        // Two that upgrade would wait for each other.
        if self.upgrades.get(lock).is_some_and(|upgraded| upgraded.pair.is_some()) {
            return Err(Error::UpgradeConflict);
        }
        let name = format!("_c_{key}-__WRIT__");
        let Some(first_writer) = parent.family.writers.get_min() else {
            return Ok((sequential(parent, lock, &name)?, false));
        };
        // The last that holds. Its number is the first writer's only if somebody made it so by hand.
        let number = parent.family.contenders.range::<_, Place>(..first_writer).next_back().map(|place| place.number);
        let before = Place::of(reader.name(), self.nodes[reader].czxid).is_some_and(|place| place < *first_writer);
        let number = number.filter(|number| before && *number < first_writer.number).ok_or(Error::UpgradeConflict)?;
        if parent.creates >= SEQUENCE_MAX {
            return Err(Error::SequenceExhausted);
        }
        Ok((lock.child(&format!("{name}{number:010}"))?, true))
    }

    /// The bounds, as for any acquire.
    fn check_upgrade(&self, lock: &ZPath, writer: &ZPath, id: SessionId, upgrade: &Upgrade) -> Result<(), Refusal> {
        let refuse = |error| Refusal::at(error, lock);
        let parent = &self.nodes[lock];
        if self.nodes.contains_key(writer) {
            return Err(Refusal::at(Error::NodeExists, writer));
        }
        self.check_room(parent, writer, upgrade.label.len(), 1).map_err(refuse)?;
        self.check_quota(writer, Growth { count: 1, bytes: upgrade.label.len() as u64 })?;
        self.check_ephemerals(Kind::Ephemeral { owner: id }).map_err(refuse)?;
        let full = parent.family.contenders.len() >= self.limits.waiters_max as usize;
        if full { Err(refuse(Error::TooManyWaiters)) } else { Ok(()) }
    }

    /// The writer on which an upgrade was counted already under this key: the one of the reader's owner, or, when the reader
    /// has gone or is nobody's, the one that bears the key in its name.
    pub(crate) fn upgraded_with(&self, id: SessionId, upgrade: &Upgrade, key: RequestKey) -> Option<ZPath> {
        let lock = upgrade.ticket.parent()?;
        let reader = self.node(&upgrade.ticket).and_then(Znode::contender);
        let writer = match reader.filter(|reader| !reader.owner.is_empty()) {
            Some(reader) => self.ticket_of(id, &lock, LockMode::Write, &reader.owner),
            None => self.ticket_named(id, &lock, LockMode::Write, key),
        }?;
        let counted = |contender: &Contender| contender.holds.iter().any(|hold| hold.key == key);
        self.node(&writer).and_then(Znode::contender).is_some_and(counted).then_some(writer)
    }

    /// The reader that this writer passes.
    pub(crate) fn passes(&self, lock: &ZPath, writer: &str) -> Option<&str> {
        let pair = self.upgrades.get(lock)?.pair.as_ref()?;
        (pair.writer == writer).then_some(&*pair.reader)
    }

    /// A child has gone; `contenders` are left.
    pub(crate) fn upgrade_ended(&mut self, lock: &ZPath, name: &str, contenders: usize) {
        let Some(upgraded) = self.upgrades.get_mut(lock) else {
            return;
        };
        if upgraded.pair.as_ref().is_some_and(|pair| pair.writer == name || pair.reader == name) {
            upgraded.pair = None;
        }
        if contenders == 0 || *upgraded == Upgraded::default() {
            self.upgrades.remove(lock);
        }
    }

    /// Contenders that were made before `zxid` are passed by one that holds now.
    pub(crate) fn pass(&mut self, lock: &ZPath, zxid: Zxid) {
        self.upgrades.entry(lock.clone()).or_default().passed = zxid;
    }

    /// The token of one that comes to hold at `zxid`.
    pub(crate) fn token_at(&self, lock: &ZPath, node: &Znode, zxid: Zxid) -> FencingToken {
        let passed = self.upgrades.get(lock).is_some_and(|upgraded| node.czxid < upgraded.passed);
        FencingToken(if passed { zxid.0 } else { node.czxid.0 })
    }

    /// Whether a ticket may get its token from its grant, which earlier entries had no room to write down. No client may be told
    /// of a token before that: it would be another one later.
    pub(crate) fn awaits_token(&self, ticket: &ZPath, node: &Znode) -> bool {
        if self.unsettled.is_empty() || self.upgrades.is_empty() || node.owner().is_none() {
            return false;
        }
        let late =
            ticket.parent().is_some_and(|lock| self.unsettled.contains(&lock) && self.upgrades.contains_key(&lock));
        late && !self.grants.contains_key(ticket)
    }

    /// The token of a contender: that of its grant, or its czxid.
    pub(crate) fn token_of(&self, ticket: &ZPath, node: &Znode) -> FencingToken {
        self.grants.get(ticket).map_or(FencingToken::from(node.czxid), |grant| grant.token)
    }
}
