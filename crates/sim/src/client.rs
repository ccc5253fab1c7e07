//! Clients: they open sessions, keep them alive, and make calls in them. A retry has the same
//! idempotency key.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use replica::{Consistency, Error};
use tokio::time::{sleep, timeout};
use znode::{Attempt, Credential, Op, Request, RequestKey, SessionId, TxnOutcome, Zxid};

use crate::call::{Call, Reply, Waited};
use crate::hub::Hub;
use crate::network::MachineId;
use crate::observation::{Lease, Observation};
use crate::switchboard::Switchboard;

/// Time for which a client waits for an answer. Longer than a node works on a call.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2_500);
/// Number of tries of one write after which the client counts the outcome as unknown.
const TRIES: usize = 12;

/// Data that the clients of one run share. All clients run on one thread.
#[derive(Clone)]
pub struct Shared {
    /// Hub with the simulated time and the trace of events.
    pub hub: Hub,
    /// Calls under way.
    pub switchboard: Switchboard,
    /// The nodes that clients know of.
    pub nodes: Rc<RefCell<Vec<MachineId>>>,
    /// Observations of clients for the invariants.
    pub seen: Rc<RefCell<Vec<Observation>>>,
    /// Leases of all sessions that clients have opened: each lease tells how long the session lasts
    /// by its client's clock.
    pub leases: Rc<RefCell<BTreeMap<SessionId, Rc<RefCell<Lease>>>>>,
    /// The newest zxid that any client has seen.
    pub newest: Rc<RefCell<Zxid>>,
    /// The longest pause between two actions of a client.
    pub pace_ms: u64,
    /// Set when all faults are repaired: clients do nothing but wait in the queue of one lock.
    pub queueing: Rc<RefCell<bool>>,
    /// Set when clients should end.
    pub closing: Rc<RefCell<bool>>,
}

/// A simulated client.
pub struct Client {
    /// The client's machine.
    pub id: MachineId,
    /// Data shared by all clients.
    pub shared: Shared,
    /// Random numbers of the client.
    pub random: fastrand::Rng,
    /// The newest zxid that the client has seen.
    pub seen_zxid: Zxid,
    /// The node that the client calls.
    node: MachineId,
}

/// A session as its client knows it.
#[derive(Clone)]
pub struct Session {
    /// The session's id and the hash of its secret.
    pub credential: Credential,
    /// The session's lease by the client's own clock.
    pub lease: Rc<RefCell<Lease>>,
}

impl Client {
    /// Returns a client that has seen nothing yet.
    pub fn new(id: MachineId, shared: Shared, mut random: fastrand::Rng) -> Client {
        let node = any(&shared, &mut random);
        Client { id, shared, random, seen_zxid: Zxid(0), node }
    }

    /// Tells whether the run asks its clients to end.
    pub fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// Waits for a random time up to `max_ms`.
    pub async fn pause(&mut self, max_ms: u64) {
        let ms = 1 + self.random.u64(..=max_ms);
        sleep(Duration::from_millis(ms)).await;
    }

    /// Waits for a random time of at most `pace_ms`, the run's pause between two actions.
    pub async fn breathe(&mut self) {
        self.pause(self.shared.pace_ms).await;
    }

    /// Chooses a node at random for the next calls, for example after an error.
    pub fn move_on(&mut self) {
        self.node = any(&self.shared, &mut self.random);
    }

    /// Sends a call to the client's node. Returns `None` if no answer comes in time.
    pub async fn call(&mut self, call: Call) -> Option<Reply> {
        let session = call.session();
        self.is_heard(session);
        let answer = self.shared.switchboard.call(&self.shared.hub, self.id, self.node, call);
        let reply = timeout(PATIENCE, answer).await.ok().and_then(Result::ok);
        self.is_heard(session);
        if reply.is_none() {
            self.move_on();
        }
        reply
    }

    /// Notes in the session's lease that a request or an answer of the session is under way now.
    fn is_heard(&self, session: Option<SessionId>) {
        let leases = self.shared.leases.borrow();
        if let Some(lease) = session.and_then(|session| leases.get(&session)) {
            lease.borrow_mut().heard_ms = self.now_ms();
        }
    }

    /// Adds an observation for the invariants.
    pub fn observe(&self, observation: Observation) {
        self.shared.seen.borrow_mut().push(observation);
    }

    /// The time of the simulation, which is also the client's clock.
    pub fn now_ms(&self) -> u64 {
        self.shared.hub.now_ms()
    }

    /// Returns a random idempotency key, which no other client has.
    pub fn key(&mut self) -> RequestKey {
        let mut key = [0; 16];
        self.random.fill(&mut key);
        RequestKey(key)
    }

    /// Returns a request in a session, with a new idempotency key.
    pub fn request(&mut self, session: &Session, op: Op) -> Request {
        Request { key: Some(self.key()), ..Request::of(session.credential, op) }
    }

    /// Sends an acquire like [`Client::write`], with a new attempt number in each try. Returns the
    /// outcome, and the attempt number of the last try.
    pub async fn acquire(&mut self, request: Request) -> (Option<TxnOutcome>, Attempt) {
        let first = self.random.u64(1..u64::MAX / 2);
        let mut tries = 0;
        let written = self.write_with(request, |request| {
            tries += 1;
            request.attempt = Attempt(first + tries);
        });
        let written = written.await;
        (written, Attempt(first + tries))
    }

    /// Sends a write, and retries it with the same idempotency key until a node answers that the
    /// write was applied, at most `TRIES` times. Returns `None` if no try got a clear answer: the
    /// write may or may not have been applied.
    pub async fn write(&mut self, request: Request) -> Option<TxnOutcome> {
        self.write_with(request, |_| ()).await
    }

    /// Sends a write in a session, as [`Client::write`] does.
    pub async fn write_in(&mut self, session: &Session, op: Op) -> Option<TxnOutcome> {
        let request = self.request(session, op);
        self.write(request).await
    }

    async fn write_with(&mut self, mut request: Request, mut prepare: impl FnMut(&mut Request)) -> Option<TxnOutcome> {
        let began_ms = self.now_ms();
        for attempt in 0..TRIES {
            prepare(&mut request);
            match self.call(Call::Propose(request.clone())).await {
                Some(Reply::Applied(Ok(applied))) => {
                    self.saw(applied.zxid);
                    let (client, key, applied_clone) = (self.id, request.key, applied.clone());
                    self.observe(Observation::Acknowledged { client, key, applied: applied_clone, began_ms });
                    return Some(applied);
                }
                // Without a key, a second try could apply the write twice.
                Some(Reply::Applied(Err(Error::Unknown { .. }))) | None if request.key.is_none() => break,
                _ => self.move_on(),
            }
            self.pause(50 << attempt.min(5)).await;
        }
        None
    }

    /// Records that the client has seen this zxid, in a state or in an answer to a call.
    pub fn saw(&mut self, zxid: Zxid) {
        self.seen_zxid = self.seen_zxid.max(zxid);
        let mut newest = self.shared.newest.borrow_mut();
        *newest = newest.max(zxid);
    }

    /// Opens a session. Returns `None` if the cluster refuses or the outcome is unknown.
    pub async fn open_session(&mut self, timeout_ms: u32) -> Option<Session> {
        let mut secret_hash = [0; 16];
        self.random.fill(&mut secret_hash);
        let sent_ms = self.now_ms();
        let op = Op::OpenSession {
            secret_hash,
            timeout_ms,
            label: format!("client {}", self.id),
            address: None,
            client: znode::ClientInfo::default(),
        };
        let applied = self.write(Request::new(op)).await?;
        let Ok(znode::Reply::SessionOpened { session, timeout_ms }) = applied.reply else { return None };
        let (timeout_max_ms, heard_ms) = (timeout_ms, self.now_ms());
        let lease = Lease { session, timeout_ms, timeout_max_ms, sent_ms, heard_ms, over: false };
        let lease = Rc::new(RefCell::new(lease));
        self.shared.leases.borrow_mut().insert(session, Rc::clone(&lease));
        self.observe(Observation::Opened { lease: Rc::clone(&lease) });
        Some(Session { credential: Credential { session, secret_hash }, lease })
    }

    /// Moves the session to another connection, and asks for another timeout.
    pub async fn attach(&mut self, session: &Session, timeout_ms: u32) {
        let connection = self.random.u64(1..);
        {
            let mut lease = session.lease.borrow_mut();
            lease.timeout_ms = lease.timeout_ms.min(timeout_ms);
        }
        let attached = self.write_in(session, Op::AttachSession { connection, timeout_ms }).await;
        if let Some(TxnOutcome { reply: Ok(znode::Reply::SessionOpened { timeout_ms, .. }), .. }) = attached {
            let mut lease = session.lease.borrow_mut();
            (lease.timeout_ms, lease.timeout_max_ms) = (timeout_ms, timeout_ms);
        }
    }

    /// Sends a heartbeat for another client's session, with a wrong secret.
    pub async fn touch_as_a_stranger(&mut self) {
        let sessions: Vec<SessionId> = self.shared.leases.borrow().keys().copied().collect();
        let Some(session) = self.random.choice(sessions) else { return };
        let mut secret_hash = [0; 16];
        self.random.fill(&mut secret_hash);
        let answer = self.shared.switchboard.call(
            &self.shared.hub,
            self.id,
            self.node,
            Call::Touch(Credential { session, secret_hash }),
        );
        if let Ok(Ok(Reply::Touched(Ok(_)))) = timeout(PATIENCE, answer).await {
            self.observe(Observation::StrangerTouched { session });
        }
    }

    /// Reads the state of the client's node, however old, and records its zxid for the invariants.
    pub async fn glimpse(&mut self) {
        let (node, asked_ms) = (self.node, self.now_ms());
        let consistency = Consistency::Local { min_zxid: Zxid(0) };
        if let Some(Reply::State(Ok(state))) = self.call(Call::Read(consistency)).await {
            self.observe(Observation::Glimpsed { node, asked_ms, zxid: state.last_zxid() });
        }
    }

    /// Sends heartbeats until the session or the run is over.
    pub async fn keep_alive(mut self, session: Session) {
        let third_ms = u64::from(session.lease.borrow().timeout_ms) / 3;
        while !session.lease.borrow().over && !self.is_closing() {
            let sent_ms = self.now_ms();
            match self.call(Call::Touch(session.credential)).await {
                Some(Reply::Touched(Ok(_))) => {
                    let mut lease = session.lease.borrow_mut();
                    lease.sent_ms = lease.sent_ms.max(sent_ms);
                }
                Some(Reply::Touched(Err(Error::Refused(_)))) => {
                    session.lease.borrow_mut().over = true;
                    return;
                }
                _ => {
                    self.move_on();
                    self.pause(100).await;
                    continue;
                }
            }
            // In 6 of 256 cases a client sends no heartbeat for longer than its timeout.
            let lazy = if self.random.u8(..) < 6 { 5 } else { 1 };
            self.pause(third_ms * lazy).await;
        }
    }

    /// Reads the state. Records two zxids for the invariants: that of the state, and the lowest one
    /// that the state may have.
    pub async fn read(&mut self, linearizable: bool) -> Option<std::sync::Arc<znode::State>> {
        let (floor, consistency) = match linearizable {
            true => (*self.shared.newest.borrow(), Consistency::Linearizable),
            false => (self.seen_zxid, Consistency::Local { min_zxid: self.seen_zxid }),
        };
        match self.call(Call::Read(consistency)).await {
            Some(Reply::State(Ok(state))) => {
                let zxid = state.last_zxid();
                self.observe(Observation::Read { client: self.id, linearizable, floor, zxid });
                self.saw(zxid);
                Some(state)
            }
            _ => {
                self.move_on();
                None
            }
        }
    }

    /// Sends a wait to the client's node. Returns `None` if no answer comes.
    pub async fn wait(&mut self, call: Call) -> Option<Waited> {
        let what = format!("{call:?}");
        match self.call(call).await {
            Some(Reply::Waited { waited, missed }) => {
                if let Some(zxid) = missed {
                    self.observe(Observation::Missed { client: self.id, what, zxid });
                }
                Some(waited)
            }
            _ => None,
        }
    }
}

/// Returns a random node of those that clients know of.
fn any(shared: &Shared, random: &mut fastrand::Rng) -> MachineId {
    let nodes = shared.nodes.borrow();
    let at = random.u64(1..=nodes.len().max(1) as u64) - 1;
    nodes.get(at as usize).copied().unwrap_or(1)
}
