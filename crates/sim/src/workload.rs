//! Workload of the clients.

use std::rc::Rc;

use replica::WatchKey;
use tokio::task::JoinSet;
use znode::lock::TicketHolds;
use znode::{
    Acquire, Attempt, Create, CreateMode, FencingToken, LockGuard, LockMode, Op, Reply, Request, TxnOutcome, ZPath,
    ZnodeOp, Zxid,
};

use crate::call::{Call, Reply as Answer, Waited};
use crate::client::{Client, Session, Shared};
use crate::network::FIRST_CLIENT;
use crate::observation::Observation;

/// Paths of the persistent znodes below which clients create all other znodes.
const DIRECTORIES: [&str; 4] = ["/queue", "/registers", "/present", "/locks"];
/// Number of registers, and of locks, that clients share.
const SHARED_NAMES: u64 = 3;
/// Number of waits for one grant after which a client gives up.
const WAITS: u32 = 4;

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap_or_else(|_| ZPath::root())
}

fn create(parent: &str, name: &str, mode: CreateMode, data: Vec<u8>) -> ZnodeOp {
    ZnodeOp::Create(Create { data, mode, ..Create::new(path(parent), name) })
}

/// Creates the directories. Other clients may have created them already.
pub async fn prepare(client: &mut Client) {
    for directory in DIRECTORIES {
        let op = create("/", directory.trim_start_matches('/'), CreateMode::Persistent, Vec::new());
        let request = Request::new(Op::Znode(op));
        while !client.is_closing() {
            if client.write(request.clone()).await.is_some() {
                break;
            }
            client.move_on();
            client.pause(100).await;
        }
    }
}

/// Opens one session after the other, until the run ends.
pub async fn live(mut client: Client) {
    prepare(&mut client).await;
    while !client.is_closing() {
        let timeout_ms = client.random.u32(500..3_000);
        // Some sessions agree on this timeout only over a second connection, as a ZooKeeper client
        // may do.
        let first_ms = if client.random.u8(..5) == 0 { 20_000 } else { timeout_ms };
        let Some(session) = client.open_session(first_ms).await else {
            client.move_on();
            client.pause(200).await;
            continue;
        };
        if first_ms != timeout_ms {
            client.attach(&session, timeout_ms).await;
        }
        let keeper = Client::new(client.id, client.shared.clone(), client.random.fork());
        tokio::task::spawn_local(keeper.keep_alive(session.clone()));
        for _ in 0..client.random.u32(5..60) {
            if session.lease.borrow().over || client.is_closing() {
                break;
            }
            act(&mut client, &session).await;
            client.breathe().await;
        }
        // Some clients leave without closing: their sessions expire.
        if client.random.bool() {
            session.lease.borrow_mut().over = true;
            client.write_in(&session, Op::CloseSession { session: session.credential.session }).await;
        }
        session.lease.borrow_mut().over = true;
    }
}

async fn act(client: &mut Client, session: &Session) {
    if *client.shared.queueing.borrow() {
        return lock_cycle(client, session, 0).await;
    }
    match client.random.u32(..100) {
        0..15 => {
            let data = client.id.to_le_bytes().to_vec();
            let op = create("/queue", "q-", CreateMode::PersistentSequential, data);
            client.write_in(session, Op::Znode(op)).await;
        }
        15..22 => trim(client, session).await,
        22..37 => register(client, session).await,
        37..50 => presence(client, session).await,
        50..58 => transfer(client, session).await,
        58..66 => drop(client.read(true).await),
        66..74 => drop(client.read(false).await),
        74..80 => {
            let name = format!("/present/p{}", client.random.u64(..SHARED_NAMES * 2));
            client.wait(Call::WaitExists(path(&name))).await;
        }
        _ => {
            let number = client.random.u64(..SHARED_NAMES);
            lock_cycle(client, session, number).await;
        }
    }
}

/// Deletes the oldest znode of the queue, if more than ten others are in it.
async fn trim(client: &mut Client, session: &Session) {
    let Some(state) = client.read(false).await else { return };
    let queue = path("/queue");
    let Ok(mut names) = state.children(&queue) else { return };
    let Some(first) = names.next().map(str::to_string).filter(|_| names.count() > 10) else { return };
    let op = Op::Znode(ZnodeOp::Delete { path: path(&format!("/queue/{first}")), version: -1 });
    client.write_in(session, op).await;
}

/// Reads a register, and sets it if its version is still that of the read.
async fn register(client: &mut Client, session: &Session) {
    let name = format!("r{}", client.random.u64(..SHARED_NAMES));
    let register = path(&format!("/registers/{name}"));
    let linearizable = client.random.bool();
    let Some(state) = client.read(linearizable).await else { return };
    let data = client.random.u64(..).to_le_bytes().to_vec();
    let op = match state.node(&register) {
        None => create("/registers", &name, CreateMode::Persistent, data),
        Some(node) => ZnodeOp::SetData { path: register, data, version: node.stat().version },
    };
    client.write_in(session, Op::Znode(op)).await;
}

/// Creates or deletes an ephemeral znode.
async fn presence(client: &mut Client, session: &Session) {
    let name = format!("p{}", client.random.u64(..SHARED_NAMES * 2));
    let op = match client.random.u8(..3) {
        0 => ZnodeOp::Delete { path: path(&format!("/present/{name}")), version: -1 },
        _ => create("/present", &name, CreateMode::Ephemeral, Vec::new()),
    };
    client.write_in(session, Op::Znode(op)).await;
}

/// Changes two registers in one transaction.
async fn transfer(client: &mut Client, session: &Session) {
    let Some(state) = client.read(false).await else { return };
    let mut ops = Vec::new();
    for index in 0..2 {
        let register = path(&format!("/registers/r{index}"));
        let Some(node) = state.node(&register) else { return };
        let data = client.random.u64(..).to_le_bytes().to_vec();
        ops.push(ZnodeOp::SetData { path: register, data, version: node.stat().version });
    }
    client.write_in(session, Op::Multi(ops)).await;
}

/// Takes a lock, makes a write that is guarded by the grant's fencing token, and releases the lock.
async fn lock_cycle(client: &mut Client, session: &Session, number: u64) {
    let lock = path(&format!("/locks/l{number}"));
    let mode = match (number, client.random.bool()) {
        (0 | 1, _) => LockMode::Exclusive,
        (_, true) => LockMode::Read,
        (_, false) => LockMode::Write,
    };
    let lock_delay_ms = if client.random.u8(..4) == 0 { 500 } else { 0 };
    let owned = client.random.u8(..4) == 0;
    let owner = if owned { "me".into() } else { String::new() };
    let acquire = Acquire { owner, lock_delay_ms, ..Acquire::new(lock.clone(), mode) };
    let request = client.request(session, Op::Acquire(acquire));
    let (written, attempt) = client.acquire(request).await;
    let Some(applied) = written else {
        // The acquire may or may not be in the queue. Only the end of the session settles that.
        session.lease.borrow_mut().over = true;
        return;
    };
    let Ok(Reply::Acquired { ticket, held }) = applied.reply else { return };
    // With an owner name, the ticket may be of an earlier acquire, whose lock-delay it keeps.
    if mode == LockMode::Exclusive && !owned && lock_delay_ms > 0 {
        client.observe(Observation::AskedForDelay { ticket: ticket.clone(), delay_ms: lock_delay_ms });
    }
    let token = match held {
        Some(held) => Some(held.token),
        None => wait_for_grant(client, session, &ticket).await,
    };
    let token = match token {
        None if client.random.bool() => match withdraw(client, session, &ticket, attempt).await {
            Some(held) => Some(held.token),
            None => return,
        },
        token => token,
    };
    if let Some(token) = token {
        hold(client, session, &lock, &ticket, token, mode == LockMode::Read).await;
    }
    client.write_in(session, Op::Release { ticket: ticket.into() }).await;
}

async fn wait_for_grant(client: &mut Client, session: &Session, ticket: &ZPath) -> Option<FencingToken> {
    client.observe(Observation::Waits { client: client.id, ticket: ticket.clone() });
    let token = look_for_grant(client, session, ticket).await;
    if token.is_none() {
        client.observe(Observation::GaveUp { ticket: ticket.clone() });
    }
    token
}

async fn look_for_grant(client: &mut Client, session: &Session, ticket: &ZPath) -> Option<FencingToken> {
    for _ in 0..WAITS {
        if session.lease.borrow().over || client.is_closing() {
            return None;
        }
        // The state of the node may not have the ticket yet.
        let Some(state) = client.read(false).await else { continue };
        state.node(ticket)?;
        match client.wait(Call::WaitGrant(ticket.clone())).await {
            Some(Waited::Granted(token)) => return Some(token),
            // Another node may not have the ticket yet; the next read shows it.
            Some(Waited::Gone) | None => {}
            Some(_) => {}
        }
    }
    None
}

/// Withdraws the ticket from the queue. Returns the grant if the ticket has become a holder
/// meanwhile.
async fn withdraw(client: &mut Client, session: &Session, ticket: &ZPath, attempt: Attempt) -> Option<TicketHolds> {
    let op = Op::Withdraw { ticket: ticket.clone(), attempt, if_waiting: true };
    match client.write_in(session, op).await {
        Some(TxnOutcome { reply: Ok(Reply::StillHeld(held)), .. }) => Some(held),
        _ => None,
    }
}

async fn hold(client: &mut Client, session: &Session, lock: &ZPath, ticket: &ZPath, token: FencingToken, shared: bool) {
    let (id, lease) = (client.id, Rc::clone(&session.lease));
    let (lock_of, ticket_of) = (lock.clone(), ticket.clone());
    client.observe(Observation::Granted { client: id, lock: lock_of, ticket: ticket_of, token, lease, shared });
    client.pause(200).await;
    let name = format!("/registers/r{}", client.random.u64(..SHARED_NAMES));
    let op = ZnodeOp::SetData { path: path(&name), data: token.0.to_le_bytes().to_vec(), version: -1 };
    let mut request = client.request(session, Op::Znode(op));
    request.guard = Some(LockGuard { lock: lock.clone(), token });
    client.write(request).await;
    client.observe(Observation::LetGo { client: id, ticket: ticket.clone() });
}

/// Reads at random nodes. The invariants would find a node that answers a linearizable read from
/// its own state without asking a quorum.
pub async fn look(mut client: Client) {
    while !client.is_closing() {
        client.move_on();
        client.read(true).await;
        client.glimpse().await;
        client.touch_as_a_stranger().await;
        client.pause(100).await;
    }
}

/// Follows all events at and below a path, and asks another random node now and then.
pub async fn watch(mut client: Client, root: &'static str) {
    let key = WatchKey::Subtree(path(root));
    let mut since: Option<Zxid> = None;
    while !client.is_closing() {
        let Some(from) = since else {
            since = client.read(true).await.map(|state| state.last_zxid());
            client.pause(50).await;
            continue;
        };
        match client.call(Call::Events { key: key.clone(), since: from }).await {
            Some(Answer::Events(Ok(batch))) => {
                since = Some(batch.upto);
                client.observe(Observation::Batch { client: client.id, key: key.clone(), since: from, batch });
            }
            // The client is too far behind, and begins again with a read.
            Some(Answer::Events(Err(replica::EventsError::Gone { .. }))) => since = None,
            _ => client.move_on(),
        }
        if client.random.u8(..) < 40 {
            client.move_on();
        }
        client.pause(30).await;
    }
}

/// Starts all clients.
pub(crate) fn begin(shared: &Shared, random: &mut fastrand::Rng) -> JoinSet<()> {
    let mut lives = JoinSet::new();
    for index in 0..random.u64(3..7) {
        lives.spawn_local(live(Client::new(FIRST_CLIENT + index, shared.clone(), random.fork())));
    }
    for (index, root) in [(6, "/"), (7, "/locks")] {
        lives.spawn_local(watch(Client::new(FIRST_CLIENT + index, shared.clone(), random.fork()), root));
    }
    lives.spawn_local(look(Client::new(FIRST_CLIENT + 8, shared.clone(), random.fork())));
    if cfg!(feature = "next-level") {
        let client = Client::new(FIRST_CLIENT + 9, shared.clone(), random.fork());
        lives.spawn_local(crate::operator::upgrade(client));
    }
    lives
}
