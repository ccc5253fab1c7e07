//! Log lines about tickets that were forcibly taken from their sessions. A ticket is a lock znode,
//! which holds its lock or waits for it. It is taken from its session when another client deletes
//! it or revokes it.
//!
//! Every node finds these tickets in the histories of locks as it applies entries, and logs them
//! when the state after the entries is published. Without histories (`histories_max` 0) it logs
//! none.

use std::time::Duration;

use tokio::time::Instant;
use znode::lock::{self, LockStatus, Naming, TicketEnd};
use znode::{Actor, Op, Reply, SessionId, State, TxnOutcome, ZPath, ZnodeOp, Zxid};

/// Largest number of log lines about tickets (lock znodes) in [`PAUSE`]. Further tickets are only
/// counted, and the next line has their number.
const LINES_MAX: u32 = 20;
/// Period to which the limit on log lines applies. It begins with its first line.
const PAUSE: Duration = Duration::from_secs(10);

/// A ticket (lock znode) that was taken from its session, or that its session was asked to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForcedRelease {
    ticket: ZPath,
    /// Session that had the ticket.
    session: SessionId,
    /// True if the ticket waited for its lock; false if it held the lock.
    waited: bool,
    how: How,
    by: Actor,
    zxid: Zxid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Deleted,
    Revoked,
    /// The session is asked to release the ticket, within `deadline_ms` milliseconds if there is a
    /// deadline.
    Asked {
        deadline_ms: Option<u64>,
    },
}

impl ForcedRelease {
    /// Tells whether an operation can take tickets from other sessions, or ask other sessions to
    /// release them.
    pub(crate) fn may_come_of(op: &Op) -> bool {
        matches!(op, Op::Znode(ZnodeOp::Delete { .. }) | Op::Multi(_) | Op::Revoke { .. } | Op::Reap { .. })
    }

    /// Tickets that the entry just applied took from other sessions, or that it asked other
    /// sessions to release. `own` is the session that wrote the entry.
    pub(crate) fn by(state: &State, own: Option<SessionId>, applied: &TxnOutcome) -> Vec<ForcedRelease> {
        match &applied.reply {
            // The reply to a retry tells what an earlier entry did.
            _ if applied.zxid != state.last_zxid() => Vec::new(),
            Err(_) => Vec::new(),
            // A ticket whose release is asked for stays in its queue.
            Ok(Reply::Revoking { tickets }) => {
                let asked = tickets.iter().filter_map(|ticket| ForcedRelease::asked(state, ticket, applied.zxid));
                let others = asked.filter(|forced| Some(forced.session) != own);
                others.chain(ForcedRelease::ended(state, applied.zxid)).collect()
            }
            Ok(_) => ForcedRelease::ended(state, applied.zxid).collect(),
        }
    }

    /// Tickets that the entry with this zxid took from their sessions, by the histories of their
    /// locks.
    fn ended(state: &State, zxid: Zxid) -> impl Iterator<Item = ForcedRelease> {
        lock::ended_in(state, zxid).filter_map(move |(lock, ended)| {
            let how = match ended.end {
                TicketEnd::Admin if is_ticket(&ended.name) => How::Deleted,
                TicketEnd::Revoked if ended.by.as_ref().is_none_or(|by| by.session != Some(ended.session)) => {
                    How::Revoked
                }
                _ => return None,
            };
            let by = ended.by.as_deref().cloned().unwrap_or_default();
            let ticket = lock.child(&ended.name).ok()?;
            Some(ForcedRelease { ticket, session: ended.session, waited: ended.grant.is_none(), how, by, zxid })
        })
    }

    fn asked(state: &State, ticket: &ZPath, zxid: Zxid) -> Option<ForcedRelease> {
        let session = state.owner_of(ticket)?;
        let revocation = lock::revocation(state, ticket)?;
        let how = How::Asked { deadline_ms: revocation.due_ms.map(|due| due.saturating_sub(state.time_ms())) };
        let waited = matches!(lock::status(state, ticket), Ok(LockStatus::Waiting { .. }));
        Some(ForcedRelease { ticket: ticket.clone(), session, waited, how, by: revocation.by.clone(), zxid })
    }
}

/// Tells whether a znode's name is that of a lock znode, as this server and the libraries of
/// ZooKeeper make them. Returns false for another sequential znode, whose name also ends in ten
/// digits.
fn is_ticket(name: &str) -> bool {
    !matches!(Naming::of(name), Naming::Dash | Naming::Other)
}

/// Tickets (lock znodes) taken from their sessions, to be logged with a limit on the number of
/// lines.
#[derive(Debug, Default)]
pub(crate) struct ForcedLog {
    /// Tickets that were taken from their sessions and are not logged yet, at most [`LINES_MAX`].
    found: Vec<ForcedRelease>,
    began: Option<Instant>,
    lines: u32,
    /// Number of tickets that were not logged, because of the limit, since the last line.
    untold: u64,
}

impl ForcedLog {
    /// Keeps these tickets until [`ForcedLog::tell`] logs them.
    pub(crate) fn find(&mut self, forced: Vec<ForcedRelease>) {
        let room = (LINES_MAX as usize).saturating_sub(self.found.len());
        self.untold += forced.len().saturating_sub(room) as u64;
        self.found.extend(forced.into_iter().take(room));
    }

    /// Logs the kept tickets, as far as the limit allows.
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

    /// Returns the number of tickets that were not logged since the last line; `None` if no line
    /// may be written now.
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

/// Returns the text, or `None` if it is empty.
fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn line(forced: &ForcedRelease, untold: u64) {
    let ForcedRelease { ticket, session, waited, how, by, zxid } = forced;
    let (session, by_session) = (session.0, by.session.map(|session| session.0));
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

/// Returns the log message. A session whose ticket waited has lost a place in a queue, not a lock.
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
        Acquire, Attempt, ClientInfo, Create, CreateMode, Credential, Identity, LockMode, LogPosition, Request,
        RequestKey, Term, Txn,
    };

    use super::*;

    /// A state, and the tickets that its entries took from other sessions.
    #[derive(Default)]
    struct Scene {
        state: State,
        zxid: u64,
        time_ms: u64,
        forced: Vec<ForcedRelease>,
    }

    impl Scene {
        fn apply(&mut self, request: Request) -> Reply {
            self.zxid += 1;
            let zxid = Zxid(self.zxid);
            let at = LogPosition { term: Term(1), zxid };
            let own = request.credential.map(|credential| credential.session);
            let looks = ForcedRelease::may_come_of(&request.op);
            let applied = self.state.apply(at, Txn { proven: false, time_ms: self.time_ms, request });
            self.forced.extend(looks.then(|| ForcedRelease::by(&self.state, own, &applied)).into_iter().flatten());
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
            let acquire = Acquire::new(lock, LockMode::Exclusive);
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
        let session = holder.session;
        let (waited, zxid) = (false, Zxid(scene.zxid));
        let deleted = ForcedRelease { ticket, session, waited, how: How::Deleted, by: by.clone(), zxid };
        assert_eq!(std::mem::take(&mut scene.forced), [deleted]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ZPath::parse("/l").unwrap(), deadline_ms: Some(0) });
        let by = Actor { identity: String::new(), ..by };
        let revoked =
            ForcedRelease { ticket, session, waited, how: How::Revoked, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);

        let ticket = scene.acquire(holder);
        scene.ask(admin, Op::Revoke { path: ticket.clone(), deadline_ms: Some(500) });
        let how = How::Asked { deadline_ms: Some(500) };
        let asked =
            ForcedRelease { ticket: ticket.clone(), session, waited, how, by: by.clone(), zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [asked]);
        scene.time_ms = 501;
        let candidates = scene.state.reap_candidates(501, 10);
        scene.apply(Request::new(Op::Reap { candidates }));
        let revoked = ForcedRelease { ticket, session, waited, how: How::Revoked, by, zxid: Zxid(scene.zxid) };
        assert_eq!(std::mem::take(&mut scene.forced), [revoked]);
    }

    /// Takes the scene's forced releases. Returns the log message and the ticket's name for each.
    fn told(scene: &mut Scene) -> Vec<(&'static str, String)> {
        let told = |forced: ForcedRelease| (message(forced.how, forced.waited), forced.ticket.name().to_owned());
        std::mem::take(&mut scene.forced).into_iter().map(told).collect()
    }

    /// Makes a lock znode by a plain create, as a client of ZooKeeper does.
    fn make(scene: &mut Scene, credential: Credential, parent: &ZPath, name: &str) -> ZPath {
        let create = Create { mode: CreateMode::EphemeralSequential, ..Create::new(parent.clone(), name) };
        let request = Request { credential: Some(credential), ..Request::new(Op::Znode(ZnodeOp::Create(create))) };
        let Reply::Created { path, .. } = scene.apply(request) else { panic!("no znode") };
        path
    }

    #[test]
    fn a_znode_that_is_no_lock_node_is_not_told_and_a_ticket_that_waits_is_no_lock() {
        let mut scene = Scene::default();
        let (client, admin) = (scene.open("client"), scene.open("cleaner"));
        let lock = ZPath::parse("/l").unwrap();
        // Names of many znodes end in ten digits. They are no lock nodes, so none of them counts as
        // a holder.
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

        // A waiting ticket whose release was asked for is taken at the deadline. That is logged,
        // too, as is a revocation without a deadline.
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
        let one = ForcedRelease {
            ticket: ZPath::parse("/l/lock-0000000001").unwrap(),
            session: SessionId(1),
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
