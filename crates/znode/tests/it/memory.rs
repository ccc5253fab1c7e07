//! Memory bound of a state: a state filled with items of one kind, until it refuses more, takes at
//! most twice the memory that `state_bytes_max` allows.
//!
//! Each kind fills a separate process, because a process does not return freed memory to the
//! system. So this program starts itself again.

use std::net::Ipv4Addr;
use std::process::Command;

use znode::{
    ALL, Acl, Acquire, Attempt, ClientInfo, Create, CreateMode, Credential, Error, Limits, LockMode, LockSettings,
    LogPosition, Op, Refusal, Reply, Request, RequestKey, SessionId, State, StateBuilder, Term, Txn, TxnOutcome, ZPath,
    ZnodeOp, Zxid,
};

/// The limit `state_bytes_max` in these tests, in bytes.
const BOUND: u64 = 8 << 20;
/// Environment variable for a child process: the kind of item in [`KINDS`] with which it fills a
/// state.
const FILL: &str = "ZLOCK_TEST_FILL";

struct World {
    state: State,
    keys: u128,
}

impl World {
    fn new() -> World {
        let huge = u32::MAX;
        let limits = Limits {
            state_bytes_max: BOUND,
            sessions_max: huge,
            ephemerals_max: huge,
            histories_max: huge,
            ended_sessions_max: huge,
            ..Limits::default()
        };
        World { state: State::new(limits), keys: 0 }
    }

    fn apply(&mut self, request: Request) -> TxnOutcome {
        let at = LogPosition { term: Term(1), zxid: Zxid(self.state.last_zxid().0 + 1) };
        self.state.apply(at, Txn { proven: false, time_ms: 1, request })
    }

    /// Sends an operation, with a new idempotency key if it has a session.
    fn send(&mut self, session: Option<SessionId>, op: Op) -> TxnOutcome {
        self.keys += 1;
        let key = session.map(|_| RequestKey(self.keys.to_be_bytes()));
        let credential = session.map(|session| Credential { session, secret_hash: [0; 16] });
        self.apply(Request { credential, key, attempt: Attempt(1), ..Request::new(op) })
    }

    /// Sends an operation without an idempotency key.
    fn write(&mut self, session: Option<SessionId>, op: Op) -> TxnOutcome {
        let credential = session.map(|session| Credential { session, secret_hash: [0; 16] });
        self.apply(Request { credential, ..Request::new(op) })
    }

    fn try_open(&mut self, label: &str) -> Result<SessionId, Refusal> {
        self.try_open_of(label, ClientInfo::default())
    }

    fn try_open_of(&mut self, label: &str, client: ClientInfo) -> Result<SessionId, Refusal> {
        // Each session has a different address, because the count of sessions of an address is part
        // of a session's weight.
        let address = Some(Ipv4Addr::from_bits(u32::try_from(self.state.last_zxid().0).unwrap()).into());
        let open = Op::OpenSession { secret_hash: [0; 16], timeout_ms: 10_000, label: label.into(), address, client };
        self.write(None, open).reply.map(|reply| match reply {
            Reply::SessionOpened { session, .. } => session,
            other => panic!("{other:?}"),
        })
    }

    fn open(&mut self) -> SessionId {
        self.try_open("").unwrap()
    }

    fn create(&mut self, parent: &str, name: &str, data: usize, acl: Vec<Acl>) -> Result<Reply, Refusal> {
        let op = create(parent, name, data, acl, CreateMode::Persistent);
        self.write(None, Op::Znode(op)).reply
    }
}

fn create(parent: &str, name: &str, data: usize, acl: Vec<Acl>, mode: CreateMode) -> ZnodeOp {
    ZnodeOp::Create(Create { data: vec![b'x'; data], mode, acl, ..Create::new(path(parent), name) })
}

fn path(path: &str) -> ZPath {
    ZPath::parse(path).unwrap()
}

fn acquire(lock: &str, mode: LockMode, owner: String, label: String) -> Op {
    Op::Acquire(Acquire { owner, label, ..Acquire::new(path(lock), mode) })
}

/// A client description with texts as long as allowed.
fn client() -> ClientInfo {
    let (host, program) = ("h".repeat(256), "p".repeat(256));
    ClientInfo { host, pid: Some(71), program, address: Some(Ipv4Addr::LOCALHOST.into()) }
}

/// Function that adds one more item of a kind to the state. `Err` when the state machine refused
/// the item.
type More = fn(&mut World, u64) -> Result<(), Refusal>;

/// A name of 240 bytes with this number.
fn long(number: u64) -> String {
    format!("{number:0>240}x")
}

fn owner_of(world: &mut World) -> SessionId {
    let first = world.state.sessions_from(SessionId(0)).next().map(|session| session.id);
    first.unwrap_or_else(|| world.open())
}

/// Every kind of item that a client can make in large number or size: its name, and the function
/// that adds one.
const KINDS: &[(&str, More)] = &[
    ("small znodes", |world, number| world.create("/", &number.to_string(), 0, Acl::open()).map(drop)),
    ("znodes with long paths", |world, number| world.create("/", &long(number), 0, Acl::open()).map(drop)),
    ("znodes with one child", |world, number| {
        world.create("/", &number.to_string(), 0, Acl::open())?;
        world.create(&format!("/{number}"), "c", 0, Acl::open()).map(drop)
    }),
    ("data", |world, number| world.create("/", &number.to_string(), 20_000, Acl::open()).map(drop)),
    ("ACLs", |world, number| {
        let entry = |index: u64| Acl { perms: ALL, scheme: "digest".into(), id: format!("u{number}-{index}:x") };
        world.create("/", &number.to_string(), 0, (0..64).map(entry).collect()).map(drop)
    }),
    ("one long ACL of many znodes", |world, number| {
        let entry = |index: u64| Acl { perms: ALL, scheme: "digest".into(), id: format!("u{index}:x") };
        world.create("/", &number.to_string(), 0, (0..64).map(entry).collect()).map(drop)
    }),
    ("TTL znodes", |world, number| {
        let mode = CreateMode::PersistentTtl { ttl_ms: 1_000 + number };
        world.write(None, Op::Znode(create("/", &number.to_string(), 0, Acl::open(), mode))).reply.map(drop)
    }),
    ("ephemerals", |world, number| {
        let session = owner_of(world);
        let op = create("/", &number.to_string(), 0, Acl::open(), CreateMode::Ephemeral);
        world.write(Some(session), Op::Znode(op)).reply.map(drop)
    }),
    ("sessions", |world, _| world.try_open("").map(drop)),
    ("sessions with labels", |world, _| world.try_open(&"x".repeat(256)).map(drop)),
    ("sessions of clients with names", |world, _| world.try_open_of("", client()).map(drop)),
    ("tickets that were taken away", |world, number| {
        let session = world.try_open_of("", client())?;
        let lock = format!("/{number}");
        world.send(Some(session), acquire(&lock, LockMode::Exclusive, String::new(), String::new())).reply?;
        world.write(Some(session), Op::Revoke { path: path(&lock), deadline_ms: Some(0) }).reply?;
        world.write(Some(session), Op::CloseSession { session }).reply.map(drop)
    }),
    ("sessions with one ephemeral and one kept answer each", |world, number| {
        let session = world.try_open("")?;
        let op = create("/", &number.to_string(), 0, Acl::open(), CreateMode::Ephemeral);
        world.send(Some(session), Op::Znode(op)).reply.map(drop)
    }),
    ("kept answers", |world, number| {
        // Each transaction deletes the znode that it makes, so that only the answer stays.
        let session = world.try_open("")?;
        for again in 0..64 {
            let name = long(number * 64 + again);
            let both = vec![
                create("/", &name, 0, Acl::open(), CreateMode::Persistent),
                ZnodeOp::Delete { path: path(&format!("/{name}")), version: -1 },
            ];
            world.send(Some(session), Op::Multi(both)).reply?;
        }
        Ok(())
    }),
    ("used keys", |world, _| {
        let session = world.try_open("")?;
        for _ in 0..1_088 {
            let set = ZnodeOp::SetData { path: ZPath::root(), data: Vec::new(), version: -1 };
            world.send(Some(session), Op::Znode(set)).reply?;
        }
        Ok(())
    }),
    ("locks", |world, number| {
        let session = owner_of(world);
        let op = acquire(&format!("/{number}"), LockMode::Exclusive, String::new(), String::new());
        world.send(Some(session), op).reply.map(drop)
    }),
    ("tickets with owners and labels", |world, number| {
        let session = owner_of(world);
        let text = format!("{number:0>256}");
        world.send(Some(session), acquire("/l", LockMode::Exclusive, text.clone(), text)).reply.map(drop)
    }),
    ("readers", |world, _| {
        let session = owner_of(world);
        world.send(Some(session), acquire("/l", LockMode::Read, String::new(), String::new())).reply.map(drop)
    }),
    ("semaphores", |world, number| {
        let session = owner_of(world);
        let mode = LockMode::Lease { permits: 1, limit: 2 };
        let op = acquire(&format!("/{number}"), mode, String::new(), String::new());
        world.send(Some(session), op).reply.map(drop)
    }),
    ("holds", |world, number| {
        let session = owner_of(world);
        let op = acquire(&format!("/{}", number / 500), LockMode::Exclusive, "o".into(), String::new());
        world.send(Some(session), op).reply.map(drop)
    }),
    ("settings", |world, number| {
        let settings = LockSettings { managed: true, ..LockSettings::default() };
        world.write(None, Op::SetLock { lock: path(&format!("/{number}")), settings }).reply.map(drop)
    }),
    ("revocations", |world, number| {
        let session = owner_of(world);
        let op = acquire(&format!("/{number}"), LockMode::Exclusive, String::new(), String::new());
        let Reply::Acquired { ticket, .. } = world.write_as(session, op)? else { panic!("it is free") };
        world.write(None, Op::Revoke { path: ticket, deadline_ms: Some(60_000) }).reply.map(drop)
    }),
    ("quotas", |world, number| {
        for at in ["/zookeeper", "/zookeeper/quota"] {
            if world.state.node(&path(at)).is_none() {
                let (parent, name) = at.rsplit_once('/').unwrap();
                world.create(if parent.is_empty() { "/" } else { parent }, name, 0, Acl::open())?;
            }
        }
        world.create("/zookeeper/quota", &number.to_string(), 0, Acl::open())?;
        world.create(&format!("/zookeeper/quota/{number}"), "zookeeper_limits", 0, Acl::open()).map(drop)
    }),
    ("locks' pasts", |world, number| {
        let session = owner_of(world);
        let text = "x".repeat(256);
        let lock = format!("/{}", number / 32);
        let Reply::Acquired { ticket, .. } =
            world.write_as(session, acquire(&lock, LockMode::Exclusive, text.clone(), text))?
        else {
            panic!("it is free")
        };
        world.write(Some(session), Op::Release { ticket: ticket.into() }).reply.map(drop)?;
        // Histories are never refused: the oldest are forgotten, so this kind has a bound of its
        // own.
        if number > 20_000 { Err(Error::QuotaExceeded.into()) } else { Ok(()) }
    }),
];

impl World {
    /// Sends an acquire with a new idempotency key. The answers of such acquires take little
    /// memory, because each session keeps a bounded number of answers.
    fn write_as(&mut self, session: SessionId, op: Op) -> Result<Reply, Refusal> {
        self.send(Some(session), op).reply
    }
}

/// Resident anonymous memory of this process, in bytes; pages of the program's file are left out.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Fills a state with items of one kind until the next item is refused, and then reads another
/// state from its snapshot. Returns four numbers as text: the number of items, the estimated
/// memory, the memory that the process took for the state, and that for the other state.
fn fill(more: More) -> String {
    let mut world = World::new();
    let before = resident();
    let mut number = 0;
    let refused = loop {
        if let Err(refusal) = more(&mut world, number) {
            break refusal;
        }
        number += 1;
    };
    assert_eq!(refused.error, Error::QuotaExceeded, "{refused:?}");
    let taken = resident() - before;
    let (count, weight) = (number, world.state.state_bytes());
    world.state.check_invariants().unwrap();
    let before = resident();
    let mut builder = StateBuilder::new();
    world.state.records().for_each(|record| builder.push(&record).unwrap());
    let back = builder.finish().unwrap();
    assert_eq!(back.state_bytes(), weight);
    let again = resident() - before;
    drop(back);
    format!("{count} {weight} {taken} {again}")
}

#[test]
fn what_fills_the_state_takes_at_most_twice_its_bound() {
    if let Ok(kind) = std::env::var(FILL) {
        let (_, more) = KINDS.iter().find(|(name, _)| *name == kind).unwrap();
        println!("\nfilled {}", fill(*more));
        return;
    }
    let mut bad = Vec::new();
    for (kind, _) in KINDS {
        let name = "memory::what_fills_the_state_takes_at_most_twice_its_bound";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(FILL, kind).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let line =
            text.lines().find_map(|line| line.strip_prefix("filled ")).unwrap_or_else(|| panic!("{kind}: {text}"));
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [count, weight, taken, again] = numbers[..] else { panic!("{line}") };
        let line = format!("{kind}: {count} weigh {weight}, take {taken}, and {again} from a snapshot");
        println!("{line}");
        if taken > 2 * BOUND || again > 2 * BOUND || weight > BOUND + BOUND / 8 + (1 << 20) {
            bad.push(line);
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
