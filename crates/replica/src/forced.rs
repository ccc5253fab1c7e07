//! Locks that are taken from their sessions by others: a lock node that another client deletes, and one that is revoked.
//!
//! Every node finds them as it applies entries, and tells of them when the state behind the entries is published.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use znode::lock::{self, PastTicket};
use znode::{
    Actor, Applied, InTurn, Kind, Op, Proven, ProvenOp, ReapCandidate, Reply, Request, SessionId, State, TurnOp, ZPath,
    ZnodeOp, Zxid,
};

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
    Deletes(Vec<(ZPath, SessionId)>),
    Revokes {
        deadline_ms: Option<u32>,
        own: Option<SessionId>,
    },
    /// Lock nodes whose time to be given back may be over.
    Reaps(Vec<(ReapCandidate, SessionId)>),
}

impl Suspect {
    /// Nothing for nearly all entries.
    pub(crate) fn of(state: &State, request: &Request) -> Option<Suspect> {
        match &request.op {
            Op::Znode(op)
            | Op::Proven(Proven { op: ProvenOp::Znode(op), .. })
            | Op::InTurn(InTurn { op: TurnOp::Znode(op), .. }) => Suspect::deletes(state, request, slice::from_ref(op)),
            Op::Multi(ops)
            | Op::Proven(Proven { op: ProvenOp::Multi(ops), .. })
            | Op::InTurn(InTurn { op: TurnOp::Multi(ops), .. }) => Suspect::deletes(state, request, ops),
            Op::Revoke { deadline_ms, .. } | Op::Proven(Proven { op: ProvenOp::Revoke { deadline_ms, .. }, .. }) => {
                Some(Suspect::Revokes { deadline_ms: *deadline_ms, own: session_of(request) })
            }
            Op::Reap { candidates } => {
                let due = |candidate: &ReapCandidate| {
                    let due = lock::revocation(state, &candidate.path)?.due_ms;
                    let session = due.and_then(|_| owner(state, &candidate.path))?;
                    Some((candidate.clone(), session))
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
            let owner = owner(state, path).filter(|owner| Some(*owner) != own)?;
            Some((path.clone(), owner))
        };
        let taken: Vec<_> = ops.iter().filter_map(taken).collect();
        (!taken.is_empty()).then_some(Suspect::Deletes(taken))
    }

    /// What has come of it in the entry of `zxid`.
    pub(crate) fn came_to_pass(self, state: &State, applied: &Applied, zxid: Zxid) -> Vec<Forced> {
        let Some(reply) = applied.reply.as_ref().ok().filter(|_| applied.zxid == zxid) else { return Vec::new() };
        match self {
            Suspect::Deletes(taken) => {
                let forced = |(ticket, session)| {
                    let by = ended_by(state, &ticket);
                    Forced { ticket, session: Some(session), how: How::Deleted, by, zxid }
                };
                taken.into_iter().map(forced).collect()
            }
            Suspect::Revokes { deadline_ms, own } => {
                let Reply::Revoking { tickets } = reply else { return Vec::new() };
                let how = if deadline_ms == Some(0) { How::Revoked } else { How::Asked { deadline_ms } };
                let forced = |ticket: &ZPath| {
                    let session = owner(state, ticket).or_else(|| past(state, ticket).map(|past| past.session));
                    let asked = lock::revocation(state, ticket).map(|asked| asked.by.clone());
                    let by = asked.unwrap_or_else(|| ended_by(state, ticket));
                    Forced { ticket: ticket.clone(), session, how, by, zxid }
                };
                // A session that gives up a ticket of its own so takes nothing from another.
                let others = |forced: &Forced| forced.session.is_none() || forced.session != own;
                tickets.iter().map(forced).filter(others).collect()
            }
            Suspect::Reaps(due) => {
                let gone = |(candidate, session): (ReapCandidate, SessionId)| {
                    let node = state.node(&candidate.path);
                    let is_gone = node.is_none_or(|node| node.stat().czxid != candidate.czxid);
                    let (ticket, session, how) = (candidate.path, Some(session), How::Revoked);
                    is_gone.then(|| Forced { by: ended_by(state, &ticket), ticket, session, how, zxid })
                };
                due.into_iter().filter_map(gone).collect()
            }
        }
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

/// A ticket that is gone, as far as its lock remembers.
fn past(state: &State, ticket: &ZPath) -> Option<Arc<PastTicket>> {
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
    let Forced { ticket, session, how, by, zxid } = forced;
    let (session, by_session) = (session.map(|session| session.0), by.session.map(|session| session.0));
    let (by_label, by_identity) = (some(&by.label), some(&by.identity));
    let (by_addr, zxid) = (by.client.address.map(|addr| addr.to_string()), zxid.0);
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
            "a session is asked to give a lock up"
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
                "a lock was taken from its session"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use znode::{
        Acquire, Attempt, ClientInfo, Credential, Idempotency, Identity, LockMode, LogPosition, RequestKey, Term, Txn,
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
            let applied = self.state.apply(at, Txn { time_ms: self.time_ms, request });
            let forced = suspect.map(|suspect| suspect.came_to_pass(&self.state, &applied, zxid));
            self.forced.extend(forced.unwrap_or_default());
            applied.reply.expect("it is done")
        }

        fn open(&mut self, label: &str) -> Credential {
            let secret_hash = [7; 32];
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
                attempt: Attempt(1),
                keyless: None,
            };
            let mut key = [0; 16];
            key[..8].copy_from_slice(&self.zxid.to_le_bytes());
            let idempotency = Some(Idempotency { key: RequestKey(key), fingerprint: [0; 16] });
            let op = Op::Acquire(acquire);
            let request = Request { credential: Some(credential), idempotency, ..Request::new(op) };
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
        scene.ask(admin, Op::Multi(vec![delete(&ticket)]).proven_by(identities));
        let client = ClientInfo { address: Some([192, 0, 2, 7].into()), ..ClientInfo::default() };
        let (label, identity) = ("cleaner".to_owned(), "digest:ann".to_owned());
        let by = Actor { session: Some(admin.session), label, identity, client };
        let session = Some(holder.session);
        let deleted = Forced { ticket, session, how: How::Deleted, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [deleted]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ZPath::parse("/l").unwrap(), deadline_ms: Some(0) });
        let by = Actor { identity: String::new(), ..by };
        let revoked = Forced { ticket, session, how: How::Revoked, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ticket.clone(), deadline_ms: Some(500) });
        let how = How::Asked { deadline_ms: Some(500) };
        let asked = Forced { ticket: ticket.clone(), session, how, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [asked]);
        scene.time_ms = 501;
        let candidates = scene.state.reap_candidates(501, 10);
        scene.apply(Request::new(Op::Reap { candidates }));
        let revoked = Forced { ticket, session, how: How::Revoked, by, zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);
    }

    #[test]
    fn many_that_are_taken_at_once_have_few_lines_and_a_count() {
        let mut log = ForcedLog::default();
        let one = Forced {
            ticket: ZPath::parse("/l/lock-0000000001").unwrap(),
            session: None,
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
