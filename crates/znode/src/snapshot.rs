//! Conversion of the state into a sequence of records, and back. Equal states give equal bytes on
//! every replica.

pub(crate) mod page;
pub(crate) mod record;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::edits::edit::shared_acl;
use crate::edits::positions::holds_lock;
use crate::entry::codec::{decode, encode};
use crate::queue::{Position, Queue, UpgradePair};
use crate::snapshot::record::{QueueRecord, Record, Standing, TicketId, ZnodeRecord};
use crate::state::locks::MultiLock;
use crate::tree::znode::Family;
use crate::words::ticket_name::sequence_of;
use crate::{
    Cluster, DecodeError, Levels, LogPosition, Policy, Session, State, Usage, ZPath, ZXID_BASE_MAX, Znode, Zxid,
};

impl State {
    /// Calls `update` with the bytes of which a digest of the state is computed. The digest is
    /// equal on all nodes at equal zxid.
    pub fn digest_with(&self, mut update: impl FnMut(&[u8])) {
        for record in self.records() {
            // The length before each record keeps different splits of equal bytes apart.
            update(&(record.len() as u64).to_le_bytes());
            update(&record);
        }
    }

    /// The state as records, each below 2 MiB with the default limits. The iterator has its own
    /// clone, so the state may change meanwhile.
    pub fn records(&self) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        let (state, mut after, mut records, mut ended) = (self.clone(), None, 0, false);
        let pages = std::iter::from_fn(move || {
            let mut page = Vec::new();
            (!ended).then(|| {
                after = state.page(after.as_ref(), |record| page.push(record.to_vec()));
                records += page.len() as u64;
                ended = after.is_none();
                if ended {
                    page.push(encode(&Record::Tail { records }));
                }
                page
            })
        });
        pages.flatten()
    }
}

/// Reads a state back from its records, which are pushed in order.
#[derive(Debug, Default)]
pub struct StateBuilder {
    /// Format levels that the builder accepts in the snapshot's cluster record.
    known: Levels,
    state: Option<State>,
    records: u64,
    /// Locks with an upgrade, which are checked after the last record, when all tickets are there.
    upgraded: BTreeSet<ZPath>,
    finished: bool,
}

impl StateBuilder {
    /// A builder without records, which accepts all format levels that this program knows.
    pub fn new() -> StateBuilder {
        StateBuilder::default()
    }

    /// A builder that accepts only snapshots of clusters at these format levels, which this program
    /// must know.
    pub fn knowing(known: Levels) -> StateBuilder {
        StateBuilder { known, ..StateBuilder::default() }
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// [`DecodeError`] if the record cannot be read, or does not fit the records before it.
    pub fn push(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        let record = decode(record)?;
        if self.finished {
            return Err(damaged("a record after the last one"));
        }
        if let Record::Head { last_zxid, last_term, history_hash, time_ms, limits } = record {
            let last = LogPosition { term: last_term, zxid: last_zxid };
            let state = State::empty(last, history_hash, time_ms, limits);
            self.records = 1;
            return match self.state.replace(state) {
                None => Ok(()),
                Some(_) => Err(damaged("two heads")),
            };
        }
        let state = self.state.as_mut().ok_or_else(|| damaged("no head"))?;
        match record {
            Record::Head { .. } => unreachable!("the head was handled above"),
            Record::Cluster { founding, level, removed, more } => {
                self.known.check(level)?;
                let removed = removed.into_iter().collect();
                let kept = |(number, field): (u16, Vec<u8>)| (number, Arc::<[u8]>::from(field));
                let more = more.into_iter().map(kept).collect();
                push_cluster(state, Cluster { removed, more, ..Cluster::new(founding, level) })?;
            }
            Record::Session { .. } => push_session(state, record)?,
            Record::Request { session, key, answered } => {
                let restored = state.edit_session(session, |session| session.requests.restore(key, answered));
                if !restored.ok_or_else(|| damaged("a request of no session"))? {
                    return Err(damaged("a request twice"));
                }
            }
            Record::Znode(record) => {
                if record.queue.as_ref().is_some_and(|queue| queue.upgrade.is_some()) {
                    self.upgraded.insert(record.path.clone());
                }
                push_znode(state, *record)?;
            }
            Record::Tail { records } if records == self.records => self.finished = true,
            Record::Tail { .. } => return Err(damaged("records are missing")),
            beside => push_beside(state, beside)?,
        }
        self.records += 1;
        Ok(())
    }

    /// Returns the state after the last record.
    ///
    /// # Errors
    /// [`DecodeError`] if the last record was not pushed, or the records do not fit together.
    pub fn finish(self) -> Result<State, DecodeError> {
        let Some(mut state) = self.state.filter(|state| self.finished && state.tree().contains(&ZPath::root())) else {
            return Err(damaged("the last record is missing"));
        };
        let whole = |lock: &ZPath| state.queue(lock).is_some_and(Queue::has_all_of_upgrade);
        if !self.upgraded.iter().all(whole) {
            return Err(damaged("an upgrade without its tickets"));
        }
        state.find_quotas();
        Ok(state)
    }
}

fn push_cluster(state: &mut State, cluster: Cluster) -> Result<(), DecodeError> {
    let Cluster { founding, level, .. } = &cluster;
    let good = founding.zxid_base <= ZXID_BASE_MAX && state.last_zxid().0 > founding.zxid_base && *level > 0;
    if good && state.set_cluster(cluster) { Ok(()) } else { Err(damaged("a cluster that cannot be")) }
}

/// Adds a record that comes after the znodes to the state: a multi-lock, a lock with grants left to
/// later entries, a revocation, a history, or an ended session.
fn push_beside(state: &mut State, record: Record) -> Result<(), DecodeError> {
    let good = match record {
        Record::MultiLock { czxid, policy, tickets } => return push_multi(state, czxid, policy, tickets),
        Record::Unsettled { lock } => state.leave_unsettled(lock),
        Record::Revocation { ticket, revocation } => {
            let owned = |node: &Znode| node.owner().is_some() && node.lingers_until_ms().is_none();
            let open = sequence_of(ticket.name()).is_some() && state.node(&ticket).is_some_and(owned);
            let good = open && state.locks().revocations.get(&ticket).is_none();
            if good {
                state.put_revocation(&ticket, revocation);
            }
            good
        }
        Record::History { lock, history } => state.restore_history(lock, history),
        Record::EndedSession(session) => state.restore_ended(session),
        #[cfg(feature = "next-level")]
        Record::Note { text } => state.restore_note(&text),
        _ => false,
    };
    if good { Ok(()) } else { Err(damaged("what is kept beside the znodes does not fit")) }
}

fn push_session(state: &mut State, record: Record) -> Result<(), DecodeError> {
    let Record::Session { id, secret_hash, timeout_ms, label, opened_ms, address, client, connection, turn, ending } =
        record
    else {
        return Err(damaged("no session"));
    };
    let session = Session {
        id,
        secret_hash,
        timeout_ms,
        label: label.into(),
        opened_ms,
        address,
        client,
        connection,
        turn,
        ..Session::default()
    };
    let new = state.add_session(session);
    state.will_end(ending.then_some(id));
    if new { Ok(()) } else { Err(damaged("a session twice")) }
}

fn push_multi(state: &mut State, czxid: Zxid, policy: Policy, tickets: Vec<ZPath>) -> Result<(), DecodeError> {
    let part = |ticket: &ZPath| {
        let node = state.node(ticket).filter(|node| node.czxid == czxid)?;
        node.contender().filter(|contender| contender.in_multi_lock)?;
        Some(holds_lock(state, ticket))
    };
    let once: BTreeSet<_> = tickets.iter().map(ZPath::parent).collect();
    let held: Option<BTreeSet<bool>> = tickets.iter().map(part).collect();
    if once.len() != tickets.len() || held.is_none_or(|held| held.len() != 1) {
        return Err(damaged("a multi-lock without its parts"));
    }
    let new = state.add_multi(czxid, MultiLock { policy, tickets });
    if new { Ok(()) } else { Err(damaged("a multi-lock twice")) }
}

fn push_znode(state: &mut State, record: ZnodeRecord) -> Result<(), DecodeError> {
    let path = record.path;
    let (queue, standing) = (record.queue.map(restored), record.standing);
    let family = Family { queue, ..Family::default() };
    let parent = path.parent();
    let above = parent.as_ref().and_then(|parent| state.node(parent));
    let acl = match above {
        Some(above) => shared_acl(record.acl, above),
        None => record.acl.into(),
    };
    let may_have_children = above.is_some_and(|above| above.owner().is_none());
    let node = Znode {
        kind: record.kind,
        data: record.data.into(),
        acl,
        czxid: record.czxid,
        changes: record.changes,
        below: Usage::default(),
        family,
        contender: record.contender.map(Arc::new),
    };
    if state.tree().contains(&path) {
        return Err(damaged("a znode twice"));
    }
    if node.contender().is_some_and(|contender| contender.count() == 0) {
        return Err(damaged("a ticket without a holder or waiter"));
    }
    // Only a lock node kept for a lock-delay may have an ended session.
    let owned = node.owner().is_none_or(|owner| state.sessions().contains(owner));
    if !owned && node.lingers_until_ms().is_none() {
        return Err(damaged("an ephemeral znode of no session"));
    }
    match parent {
        None => {
            state.plant(node);
        }
        Some(parent) if may_have_children => {
            state.link(&path, &parent, node, |_| ());
            stand(state, &path, standing)?;
        }
        Some(_) => return Err(damaged("a znode without a parent that can have it")),
    }
    Ok(())
}

fn restored(record: QueueRecord) -> Arc<Queue> {
    let position = |(name, czxid): TicketId| Position::of(&name, czxid);
    let upgrade = record.upgrade.and_then(|(writer, reader)| {
        let (writer, reader) = (position(writer)?, reader.and_then(position));
        Some(UpgradePair { writer, reader })
    });
    Arc::new(Queue::restored(record.settings, record.top_token, upgrade))
}

/// Gives a restored ticket its place in the queue: makes it a holder with its grant, or a waiter
/// with its priority. The caller has added the ticket as a waiter without priority.
fn stand(state: &mut State, ticket: &ZPath, standing: Option<Standing>) -> Result<(), DecodeError> {
    if state.tree()[ticket].number(ticket.name()).is_none() {
        return if standing.is_none() { Ok(()) } else { Err(damaged("no ticket holds a lock")) };
    }
    let (lock, position) = state.position_of(ticket);
    let node = &state.tree()[ticket];
    let owned = node.owner().is_some() && node.lingers_until_ms().is_none();
    match standing {
        None => return Err(damaged("a ticket neither holds nor waits")),
        Some(Standing::Waits { priority: 0 }) => {}
        Some(Standing::Waits { priority }) => state.edit_queue(&lock, |queue| queue.prioritize(&position, priority)),
        Some(Standing::Holds(grant)) => {
            state.edit_queue(&lock, |queue| queue.grant(&position, grant));
            if owned {
                state.count_holder();
            }
        }
    }
    Ok(())
}

pub(crate) fn damaged(what: &str) -> DecodeError {
    DecodeError::Damaged(what.into())
}
