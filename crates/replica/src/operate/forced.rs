//! Locks that are taken from their sessions by others, and places in their queues: a lock node that
//! another client deletes, and one that is revoked.
//!
//! Every node finds them as it applies entries, and tells of them when the state behind the entries
//! is published.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use znode::lock::{self, EndedTicket, LockStatus, Naming};
use znode::{Actor, Applied, Kind, Op, ReapCandidate, Reply, Request, SessionId, State, ZPath, ZnodeOp, Zxid};

/// Lines in [`PAUSE`]. More are counted, and the next line says how many there were.
const LINES_MAX: u32 = 20;
/// From the first of them on.
const PAUSE: Duration = Duration::from_secs(10);
/// Past tickets that are looked at to learn whose a ticket was that is gone.
const PAST_MAX: usize = 64;

/// A ticket that is taken from its session, or asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    ticket: ZPath,
    /// Whose it was, as far as that is remembered.
    session: Option<SessionId>,
    /// Whether it waited; else it held its lock.
    waited: bool,
    how: How,
    by: Actor,
    zxid: Zxid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Deleted,
    Revoked,
    /// It stays until the session gives it back, or for so long.
    Asked {
        deadline_ms: Option<u32>,
    },
}

/// What an entry may take from others, as the state was before it.
pub(crate) enum Suspect {
    /// Lock nodes of others that it deletes.
    Deletes(Vec<Ticket>),
    Revokes {
        deadline_ms: Option<u32>,
        own: Option<SessionId>,
        /// A ticket that waits; not the lock, of which those are meant that hold.
        waited: bool,
    },
    /// Lock nodes whose time to be given back may be over.
    Reaps(Vec<(ReapCandidate, Ticket)>),
}

/// A ticket as it was before an entry.
pub(crate) struct Ticket {
    path: ZPath,
    session: SessionId,
    waited: bool,
}

impl Suspect {
    /// Nothing for nearly all entries.
    pub(crate) fn of(state: &State, request: &Request) -> Option<Suspect> {
        match &request.op {
            Op::Znode(op) => Suspect::deletes(state, request, slice::from_ref(op)),
            Op::Multi(ops) => Suspect::deletes(state, request, ops),
            Op::Revoke { path, deadline_ms } => {
                let (own, waited) = (session_of(request), waits(state, path));
                Some(Suspect::Revokes { deadline_ms: *deadline_ms, own, waited })
            }
            Op::Reap { candidates } => {
                let due = |candidate: &ReapCandidate| {
                    let due = lock::revocation(state, &candidate.path)?.due_ms;
                    let session = due.and_then(|_| owner(state, &candidate.path))?;
                    let (path, waited) = (candidate.path.clone(), waits(state, &candidate.path));
                    Some((candidate.clone(), Ticket { path, session, waited }))
                };
                let due: Vec<_> = candidates.iter().filter_map(due).collect();
                (!due.is_empty()).then_some(Suspect::Reaps(due))
            }
            _ => None,
        }
    }

    fn deletes(state: &State, request: &Request, ops: &[ZnodeOp]) -> Option<Suspect> {
        let own = session_of(request);
        let taken = |op: &ZnodeOp| {
            let ZnodeOp::Delete { path, .. } = op else { return None };
            let session = owner(state, path).filter(|owner| Some(*owner) != own && is_lock_node(state, path))?;
            Some(Ticket { path: path.clone(), session, waited: waits(state, path) })
        };
        let taken: Vec<_> = ops.iter().filter_map(taken).collect();
        (!taken.is_empty()).then_some(Suspect::Deletes(taken))
    }

    /// What has come of it in the entry of `zxid`.
    pub(crate) fn came_to_pass(self, state: &State, applied: &Applied, zxid: Zxid) -> Vec<Forced> {
        let Some(reply) = applied.reply.as_ref().ok().filter(|_| applied.zxid == zxid) else { return Vec::new() };
        match self {
            Suspect::Deletes(taken) => {
                taken.into_iter().map(|ticket| ticket.taken(How::Deleted, state, zxid)).collect()
            }
            Suspect::Revokes { deadline_ms, own, waited } => {
                let Reply::Revoking { tickets } = reply else { return Vec::new() };
                let how = if deadline_ms == Some(0) { How::Revoked } else { How::Asked { deadline_ms } };
                let forced = |ticket: &ZPath| {
                    let session = owner(state, ticket).or_else(|| past(state, ticket).map(|past| past.session));
                    let asked = lock::revocation(state, ticket).map(|asked| asked.by.clone());
                    let by = asked.unwrap_or_else(|| ended_by(state, ticket));
                    Forced { ticket: ticket.clone(), session, waited, how, by, zxid }
                };
                // A session that gives up a ticket of its own so takes nothing from another.
                let others = |forced: &Forced| forced.session.is_none() || forced.session != own;
                tickets.iter().map(forced).filter(others).collect()
            }
            Suspect::Reaps(due) => {
                let gone = |(candidate, ticket): (ReapCandidate, Ticket)| {
                    let node = state.node(&candidate.path);
                    let is_gone = node.is_none_or(|node| node.stat().czxid != candidate.czxid);
                    is_gone.then(|| ticket.taken(How::Revoked, state, zxid))
                };
                due.into_iter().filter_map(gone).collect()
            }
        }
    }
}

impl Ticket {
    fn taken(self, how: How, state: &State, zxid: Zxid) -> Forced {
        let Ticket { path, session, waited } = self;
        Forced { by: ended_by(state, &path), ticket: path, session: Some(session), waited, how, zxid }
    }
}

fn session_of(request: &Request) -> Option<SessionId> {
    request.credential.map(|credential| credential.session)
}

/// Whose a lock node is; nothing for any other znode, and for one whose session has ended.
fn owner(state: &State, path: &ZPath) -> Option<SessionId> {
    let digits = path.name().as_bytes().last_chunk::<10>()?;
    let node = state.node(path).filter(|_| digits.iter().all(u8::is_ascii_digit))?;
    let lingers = node.contender().is_some_and(|contender| contender.lingers_until_ms.is_some());
    match node.kind() {
        Kind::Ephemeral { owner } if !lingers => Some(owner),
        _ => None,
    }
}

/// Whether a znode is there to queue for a lock: an acquire made it, or it is named as the
/// libraries of ZooKeeper name theirs. Any other znode of a client may end in ten digits, too, and
/// be the first of its kind.
fn is_lock_node(state: &State, path: &ZPath) -> bool {
    let acquired = state.node(path).is_some_and(|node| node.contender().is_some());
    acquired || !matches!(Naming::of(path.name()), Naming::Dash | Naming::Other)
}

/// Whether a ticket has not come to hold.
fn waits(state: &State, ticket: &ZPath) -> bool {
    matches!(lock::status(state, ticket), Ok(LockStatus::Waiting { .. }))
}

/// A ticket that is gone, as far as its lock remembers.
fn past(state: &State, ticket: &ZPath) -> Option<Arc<EndedTicket>> {
    let past = lock::history(state, &ticket.parent()?, PAST_MAX);
    past.into_iter().find(|past| past.name == ticket.name())
}

/// Who ended it, as far as that is remembered.
fn ended_by(state: &State, ticket: &ZPath) -> Actor {
    past(state, ticket).and_then(|past| past.by.clone()).map_or_else(Actor::default, |by| (*by).clone())
}

/// Tells of them, and bounds how often.
#[derive(Debug, Default)]
pub(crate) struct ForcedLog {
    /// Found and not told yet; never more than may be told at once.
    found: Vec<Forced>,
    began: Option<Instant>,
    lines: u32,
    /// Counted, and not told of.
    untold: u64,
}

impl ForcedLog {
    /// Keeps what was found until [`ForcedLog::tell`].
    pub(crate) fn find(&mut self, forced: Vec<Forced>) {
        let room = (LINES_MAX as usize).saturating_sub(self.found.len());
        self.untold += forced.len().saturating_sub(room) as u64;
        self.found.extend(forced.into_iter().take(room));
    }

    /// Writes the lines that there is room for.
    pub(crate) fn tell(&mut self) {
        if self.found.is_empty() {
            return;
        }
        let now = Instant::now();
        for forced in std::mem::take(&mut self.found) {
            if let Some(untold) = self.admit(now) {
                line(&forced, untold);
            }
        }
    }

    /// Whether there may be one more line, and how many were passed over before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now - began >= PAUSE) {
            (self.began, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES_MAX {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// A text that says something.
fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn line(forced: &Forced, untold: u64) {
    let Forced { ticket, session, waited, how, by, zxid } = forced;
    let (session, by_session) = (session.map(|session| session.0), by.session.map(|session| session.0));
    let (by_label, by_identity) = (some(&by.label), some(&by.identity));
    let (by_addr, zxid) = (by.client.address.map(|addr| addr.to_string()), zxid.0);
    let message = message(*how, *waited);
    match how {
        How::Asked { deadline_ms } => tracing::info!(
            ticket = ticket.as_str(),
            session,
            deadline_ms,
            by_session,
            by_label,
            by_addr,
            by_identity,
            untold,
            zxid,
            "{message}"
        ),
        How::Deleted | How::Revoked => {
            let how = if *how == How::Deleted { "deleted" } else { "revoked" };
            tracing::warn!(
                ticket = ticket.as_str(),
                session,
                how,
                by_session,
                by_label,
                by_addr,
                by_identity,
                untold,
                zxid,
                "{message}"
            );
        }
    }
}

/// A session that waited has lost a place in a queue, and no lock.
fn message(how: How, waited: bool) -> &'static str {
    match (how, waited) {
        (How::Asked { .. }, false) => "a session is asked to give a lock up",
        (How::Asked { .. }, true) => "a session is asked to give a ticket up that waits",
        (How::Deleted | How::Revoked, false) => "a lock was taken from its session",
        (How::Deleted | How::Revoked, true) => "a ticket that waited was taken from its session",
    }
}

#[cfg(test)]
mod tests {
    use znode::{
        Acl, Acquire, Attempt, ClientInfo, Create, CreateMode, Credential, Ensure, Identity, LockMode, LogPosition,
        RequestKey, Term, Txn,
    };

    use super::*;

    /// A state, and what its entries took from others.
    #[derive(Default)]
    struct Scene {
        state: State,
        zxid: u64,
        time_ms: u64,
        forced: Vec<Forced>,
    }

    impl Scene {
        fn apply(&mut self, request: Request) -> Reply {
            self.zxid += 1;
            let zxid = Zxid(self.zxid);
            let suspect = Suspect::of(&self.state, &request);
            let at = LogPosition { term: Term(1), zxid };
            let applied = self.state.apply(at, Txn { proven: false, time_ms: self.time_ms, request });
            let forced = suspect.map(|suspect| suspect.came_to_pass(&self.state, &applied, zxid));
            self.forced.extend(forced.unwrap_or_default());
            applied.reply.expect("it is done")
        }

        fn open(&mut self, label: &str) -> Credential {
            let secret_hash = [7; 16];
            let client = ClientInfo { address: Some([192, 0, 2, 7].into()), ..ClientInfo::default() };
            let op = Op::OpenSession { secret_hash, timeout_ms: 60_000, label: label.into(), address: None, client };
            let Reply::SessionOpened { session, .. } = self.apply(Request::new(op)) else { panic!("not opened") };
            Credential { session, secret_hash }
        }

        fn acquire(&mut self, credential: Credential) -> ZPath {
            let lock = ZPath::parse("/l").unwrap();
            let acquire = Acquire {
                lock,
                mode: LockMode::Exclusive,
                owner: String::new(),
                label: String::new(),
                lock_delay_ms: 0,
                priority: 0,
                keyless: false,
            };
            let mut key = [0; 16];
            key[..8].copy_from_slice(&self.zxid.to_le_bytes());
            let (key, attempt) = (Some(RequestKey(key)), Attempt(1));
            let request = Request { key, attempt, ..Request::of(credential, Op::Acquire(acquire)) };
            let Reply::Acquired { ticket, .. } = self.apply(request) else { panic!("no ticket") };
            ticket
        }

        fn ask(&mut self, credential: Credential, op: Op) {
            self.apply(Request { credential: Some(credential), ..Request::new(op) });
        }
    }

    fn delete(path: &ZPath) -> ZnodeOp {
        ZnodeOp::Delete { path: path.clone(), version: -1 }
    }

    #[test]
    fn a_lock_that_another_takes_is_told_with_who_and_an_own_release_is_not() {
        let mut scene = Scene::default();
        let (holder, admin) = (scene.open("holder"), scene.open("cleaner"));
        let own = scene.acquire(holder);
        scene.ask(holder, Op::Znode(delete(&own)));
        assert_eq!(scene.forced, []);

        let ticket = scene.acquire(holder);
        let identities = vec![Identity { scheme: "digest".into(), id: "ann:c2VjcmV0".into() }];
        scene.apply(Request { identities, ..Request::of(admin, Op::Multi(vec![delete(&ticket)])) });
        let client = ClientInfo { address: Some([192, 0, 2, 7].into()), ..ClientInfo::default() };
        let (label, identity) = ("cleaner".to_owned(), "digest:ann".to_owned());
        let by = Actor { session: Some(admin.session), label, identity, client };
        let session = Some(holder.session);
        let (waited, zxid) = (false, Zxid(scene.zxid));
        let deleted = Forced { ticket, session, waited, how: How::Deleted, by: by.clone(), zxid };
        assert_eq!(std::mem::take(&mut scene.forced), [deleted]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ZPath::parse("/l").unwrap(), deadline_ms: Some(0) });
        let by = Actor { identity: String::new(), ..by };
        let revoked = Forced { ticket, session, waited, how: How::Revoked, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ticket.clone(), deadline_ms: Some(500) });
        let how = How::Asked { deadline_ms: Some(500) };
        let asked = Forced { ticket: ticket.clone(), session, waited, how, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [asked]);
        scene.time_ms = 501;
        let candidates = scene.state.reap_candidates(501, 10);
        scene.apply(Request::new(Op::Reap { candidates }));
        let revoked = Forced { ticket, session, waited, how: How::Revoked, by, zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);
    }

    /// The scene's tickets as they would be told: their messages, and what they are.
    fn told(scene: &mut Scene) -> Vec<(&'static str, String)> {
        let told = |forced: Forced| (message(forced.how, forced.waited), forced.ticket.name().to_owned());
        std::mem::take(&mut scene.forced).into_iter().map(told).collect()
    }

    /// Of its own making, as a client of ZooKeeper.
    fn make(scene: &mut Scene, credential: Credential, parent: &ZPath, name: &str) -> ZPath {
        let (parent, name, mode) = (parent.clone(), name.to_owned(), CreateMode::EphemeralSequential);
        let create = Create { parent, name, data: Vec::new(), mode, acl: Acl::open(), ensure: Ensure::New };
        let request = Request { credential: Some(credential), ..Request::new(Op::Znode(ZnodeOp::Create(create))) };
        let Reply::Created { path, .. } = scene.apply(request) else { panic!("no znode") };
        path
    }

    #[test]
    fn a_znode_that_is_no_lock_node_is_not_told_and_a_ticket_that_waits_is_no_lock() {
        let mut scene = Scene::default();
        let (client, admin) = (scene.open("client"), scene.open("cleaner"));
        let lock = ZPath::parse("/l").unwrap();
        // Any number of things end in ten digits: the first of them would be taken for a holder.
        for name in ["task-", "task", "n"] {
            let task = make(&mut scene, client, &ZPath::root(), name);
            scene.ask(admin, Op::Znode(delete(&task)));
        }
        assert_eq!(scene.forced, []);

        const LOST: &str = "a lock was taken from its session";
        const PLACE_LOST: &str = "a ticket that waited was taken from its session";
        let holds = scene.acquire(client);
        let waits = scene.acquire(client);
        let by_hand = make(&mut scene, client, &lock, "_c_x-lock-");
        for (ticket, message) in [(&waits, PLACE_LOST), (&by_hand, PLACE_LOST), (&holds, LOST)] {
            scene.ask(admin, Op::Znode(delete(ticket)));
            assert_eq!(told(&mut scene), [(message, ticket.name().to_owned())]);
        }
        let by_hand = make(&mut scene, client, &lock, "_c_x-lock-");
        scene.ask(admin, Op::Znode(delete(&by_hand)));
        assert_eq!(told(&mut scene), [(LOST, by_hand.name().to_owned())]);

        // The same where they are asked for, and where they are revoked.
        let (holds, waits) = (scene.acquire(client), scene.acquire(client));
        let revoke = |path: &ZPath, ms| Op::Revoke { path: path.clone(), deadline_ms: Some(ms) };
        scene.ask(admin, revoke(&waits, 500));
        let waiting = waits.name().to_owned();
        assert_eq!(told(&mut scene), [("a session is asked to give a ticket up that waits", waiting.clone())]);
        scene.time_ms += 501;
        let candidates = scene.state.reap_candidates(scene.time_ms, 10);
        scene.apply(Request::new(Op::Reap { candidates }));
        assert_eq!(told(&mut scene), [(PLACE_LOST, waiting)]);
        let waits = scene.acquire(client);
        scene.ask(admin, revoke(&waits, 0));
        assert_eq!(told(&mut scene), [(PLACE_LOST, waits.name().to_owned())]);
        scene.ask(admin, revoke(&lock, 0));
        assert_eq!(told(&mut scene), [(LOST, holds.name().to_owned())]);
    }

    #[test]
    fn many_that_are_taken_at_once_have_few_lines_and_a_count() {
        let mut log = ForcedLog::default();
        let one = Forced {
            ticket: ZPath::parse("/l/lock-0000000001").unwrap(),
            session: None,
            waited: false,
            how: How::Deleted,
            by: Actor::default(),
            zxid: Zxid(1),
        };
        log.find(vec![one; 1_000]);
        assert_eq!((log.found.len(), log.untold), (LINES_MAX as usize, 980));
        let now = Instant::now();
        assert_eq!(log.admit(now), Some(980));
        assert!((1..LINES_MAX).all(|_| log.admit(now) == Some(0)));
        assert_eq!([log.admit(now), log.admit(now + PAUSE / 2)], [None, None]);
        assert_eq!([log.admit(now + PAUSE), log.admit(now + PAUSE)], [Some(2), Some(0)]);
    }
}
