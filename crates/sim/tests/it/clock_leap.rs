//! Test of a leader whose time of day is changed while a lock-delay and a TTL run.

use znode::lock::{self, LockStatus};
use znode::{
    Acquire, Attempt, Create, CreateMode, Credential, LockMode, Op, Request, RequestKey, SessionId, State, ZPath,
    ZnodeOp,
};

use crate::failover::{Machines, open_session};

const HOUR_MS: i64 = 3_600_000;
const DELAY_MS: u32 = 15_000;
const TTL_MS: u64 = 40_000;
/// Lower bound of a delay's true length, as a fraction of the delay asked for. While the leader's
/// wall clock is ahead, the time in its log entries runs a tenth faster than true time.
const PACE: [u64; 2] = [10, 11];
/// Longest time from the end of a timeout or TTL to the log entry that ends the session or deletes
/// the znode.
const TICKS_MS: u64 = 1_000;

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

impl Machines {
    /// Proposes a write to the leader.
    fn write(&mut self, request: Request) {
        let (_, leader) = self.leader().unwrap();
        self.node(leader).propose(request);
    }

    /// Runs until `wanted` accepts the leader's applied state. Returns the simulated time at that
    /// moment.
    fn run_until(&mut self, what: &str, wanted: impl Fn(&State) -> bool) -> u64 {
        let end = self.hub.now_ms() + 120_000;
        loop {
            let (_, leader) = self.leader().unwrap();
            if wanted(&self.node(leader).replica().unwrap().state()) {
                return self.hub.now_ms();
            }
            assert!(self.hub.now_ms() < end, "in vain: {what}");
            self.step();
        }
    }

    /// Opens a session.
    fn open(&mut self, secret: u8, timeout_ms: u32) -> Credential {
        let secret_hash = [secret; 16];
        self.write(open_session(secret, timeout_ms));
        let opened = |state: &State| {
            let credential = |id| Credential { session: id, secret_hash };
            let mut all = state.sessions_from(SessionId(0)).map(|session| credential(session.id));
            all.find(|credential| state.authenticate(credential).is_ok())
        };
        self.run_until("it is opened", |state| opened(state).is_some());
        let (_, leader) = self.leader().unwrap();
        opened(&self.node(leader).replica().unwrap().state()).unwrap()
    }

    fn acquire(&mut self, session: Credential, lock_delay_ms: u32) {
        let acquire = Acquire { lock_delay_ms, ..Acquire::new(path("/l"), LockMode::Exclusive) };
        let key = Some(RequestKey([session.secret_hash[0]; 16]));
        self.write(Request { key, attempt: Attempt(1), ..Request::of(session, Op::Acquire(acquire)) });
        self.run_until("it has a ticket", |state| ticket(state, session).is_some());
    }
}

fn ticket(state: &State, session: Credential) -> Option<ZPath> {
    state.session(session.session)?.ephemerals().next().cloned()
}

fn holds(state: &State, session: Credential) -> bool {
    let status = ticket(state, session).map(|ticket| lock::status(state, &ticket));
    matches!(status, Some(Ok(LockStatus::Held { .. })))
}

#[test]
fn a_leader_whose_clock_is_set_ahead_by_an_hour_cuts_no_lock_delay_and_no_ttl_short() {
    let mut machines = Machines::start(6);
    let (holder, waiter) = (machines.open(1, 4_000), machines.open(2, 300_000));
    machines.acquire(holder, DELAY_MS);
    machines.acquire(waiter, 0);
    let expired_ms = machines.run_until("the holder expires", |state| state.session(holder.session).is_none());
    let mode = CreateMode::PersistentTtl { ttl_ms: TTL_MS };
    let create = Create { mode, ..Create::new(ZPath::root(), "ttl") };
    machines.write(Request::new(Op::Znode(ZnodeOp::Create(create))));
    let is_there = |state: &State| state.node(&path("/ttl")).is_some();
    let created_ms = machines.run_until("the znode is there", is_there);

    let (_, leader) = machines.leader().unwrap();
    machines.node(leader).clock.ahead_ms += HOUR_MS;
    let granted_ms = machines.run_until("the waiter holds", |state| holds(state, waiter));
    let collected_ms = machines.run_until("the znode is collected", |state| !is_there(state));
    let [slow, fast] = PACE;
    let lasted = |from_ms: u64, to_ms: u64, asked_ms: u64| {
        let (took_ms, least_ms) = (to_ms - from_ms, asked_ms * slow / fast);
        // A moment passes between an entry's time and the step in which the simulation sees it.
        assert!((least_ms - 100..asked_ms + TICKS_MS).contains(&took_ms), "{took_ms} ms of {asked_ms}");
    };
    lasted(expired_ms, granted_ms, DELAY_MS.into());
    lasted(created_ms, collected_ms, TTL_MS);
    machines.end();
}
