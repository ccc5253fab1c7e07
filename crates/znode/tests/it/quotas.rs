//! Quotas in random histories: counts and refusals are compared with a recount of the tree. A
//! replica that was read from a snapshot must give the same results.
//!
//! Every failure names its seed.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use znode::{
    Acquire, Attempt, Create, CreateMode, Credential, Error, LockMode, LogPosition, Op, Request, RequestKey, SessionId,
    State, StateBuilder, Term, Txn, TxnOutcome, ZPath, ZnodeOp, Zxid,
};

const SUBTREES: [&str; 3] = ["/a", "/a/b", "/l"];
const PLACES: [&str; 8] = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/l", "/l/m", "/x"];

struct World {
    rng: Rng,
    state: State,
    zxid: u64,
}

/// Number of znodes of a subtree, and bytes of their data.
type CountAndBytes = (u64, u64);

impl World {
    fn new(seed: u64) -> World {
        let mut world = World { rng: Rng::with_seed(seed), state: State::default(), zxid: 0 };
        world.apply(Request::new(Op::OpenSession {
            client: znode::ClientInfo::default(),
            secret_hash: [1; 16],
            timeout_ms: 10_000,
            label: String::new(),
            address: None,
        }));
        for path in
            ["/zookeeper", "/zookeeper/quota", "/zookeeper/quota/a", "/zookeeper/quota/a/b", "/zookeeper/quota/l"]
        {
            world.apply(Request::new(Op::Znode(create(path, CreateMode::Persistent, ""))));
        }
        world
    }

    fn apply(&mut self, request: Request) -> (Txn, TxnOutcome) {
        self.zxid += 1;
        let txn = Txn { proven: false, time_ms: self.zxid, request };
        (txn.clone(), self.state.apply(self.at(), txn))
    }

    fn at(&self) -> LogPosition {
        LogPosition { term: Term(1), zxid: Zxid(self.zxid) }
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.usize(..from.len())]
    }

    fn data(&mut self) -> String {
        "x".repeat(self.rng.usize(..6))
    }

    fn znode_op(&mut self) -> ZnodeOp {
        let place = self.pick(&PLACES);
        let data = self.data();
        match self.rng.u8(..10) {
            0..5 => {
                let mode = [CreateMode::Persistent, CreateMode::Ephemeral, CreateMode::PersistentSequential];
                let mode = mode[self.rng.usize(..3)];
                let name = self.pick(&["a", "b", "c", "l", "m", "x"]);
                create(&format!("{}/{name}", place.trim_end_matches('/')), mode, &data)
            }
            5..8 => ZnodeOp::SetData { path: path(place), data: data.into_bytes(), version: -1 },
            _ => ZnodeOp::Delete { path: path(place), version: -1 },
        }
    }

    /// An operation that sets, changes or deletes the limits of one subtree.
    fn quota_op(&mut self) -> ZnodeOp {
        let (subtree, name) = (self.pick(&SUBTREES), self.pick(&["zookeeper_limits", "zookeeper_stats"]));
        let at = format!("/zookeeper/quota{subtree}/{name}");
        let number = |rng: &mut Rng, max: i64| rng.i64(-1..max);
        let rng = &mut self.rng;
        let (count, bytes, soft) = (number(rng, 9), number(rng, 20), number(rng, 9));
        let text = format!("count={soft},bytes=-1=;byteHardLimit={bytes};countHardLimit={count}");
        match self.rng.u8(..6) {
            0 => ZnodeOp::Delete { path: path(&at), version: -1 },
            1 => ZnodeOp::SetData { path: path(&at), data: text.into_bytes(), version: -1 },
            _ => create(&at, CreateMode::Persistent, &text),
        }
    }

    fn request(&mut self) -> Request {
        let op = match self.rng.u8(..20) {
            0..3 => Op::Znode(self.quota_op()),
            3..11 => Op::Znode(self.znode_op()),
            11..13 => Op::Multi((0..self.rng.u8(1..4)).map(|_| self.znode_op()).collect()),
            13..18 => {
                let (lock, label) = (path(self.pick(&["/l", "/l/m", "/a/b/k", "/x/y/z"])), self.data());
                Op::Acquire(Acquire { label, ..Acquire::new(lock, LockMode::Read) })
            }
            18 => Op::Reap { candidates: self.state.reap_candidates(u64::MAX, 9) },
            _ => match self.state.session(SessionId(1)).and_then(|session| session.ephemerals().next().cloned()) {
                Some(ticket) => Op::Znode(ZnodeOp::Delete { path: ticket, version: -1 }),
                None => Op::Multi(Vec::new()),
            },
        };
        let key = RequestKey(u128::from(self.zxid).to_be_bytes());
        let credential = Credential { session: SessionId(1), secret_hash: [1; 16] };
        Request { key: Some(key), attempt: Attempt(1), ..Request::of(credential, op) }
    }

    /// The usage of each subtree with limits, found by a walk over the tree; with the hard limits
    /// of znodes and of bytes, -1 for no limit.
    fn recount(&self) -> BTreeMap<&'static str, (CountAndBytes, [i64; 2])> {
        let mut found = BTreeMap::new();
        for subtree in SUBTREES {
            let limits = self.state.node(&path(&format!("/zookeeper/quota{subtree}/zookeeper_limits")));
            let Some(limits) = limits else { continue };
            let text = String::from_utf8(limits.data().to_vec()).unwrap();
            let number = |word: &str| {
                let rest = text.split(&format!(";{word}=")).nth(1)?;
                rest.split(';').next()?.parse::<i64>().ok()
            };
            let hard = ["countHardLimit", "byteHardLimit"].map(|word| number(word).unwrap_or(-1));
            found.insert(subtree, (self.walk(&path(subtree)), hard));
        }
        found
    }

    fn walk(&self, at: &ZPath) -> CountAndBytes {
        let Some(node) = self.state.node(at) else { return (0, 0) };
        let below = self.state.children(at).unwrap().map(|name| self.walk(&at.child(name).unwrap()));
        below.fold((1, node.data().len() as u64), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

fn create(at: &str, mode: CreateMode, data: &str) -> ZnodeOp {
    let at = path(at);
    ZnodeOp::Create(Create { data: data.into(), mode, ..Create::new(at.parent().unwrap(), at.name()) })
}

fn restore(state: &State) -> State {
    let mut builder = StateBuilder::new();
    state.records().for_each(|record| builder.push(&record).unwrap());
    builder.finish().unwrap()
}

/// Tells whether a write should have been refused for a hard limit: it raises the usage from
/// `before` to `now`, above the limit. A negative limit is none.
fn grew_beyond(before: u64, now: u64, limit: i64) -> bool {
    limit >= 0 && now > before && now > limit as u64
}

#[test]
fn quotas_count_what_is_there_and_refuse_what_is_beyond() {
    let mut met = BTreeSet::new();
    for seed in 0..60 {
        let mut world = World::new(seed);
        let mut twin = world.state.clone();
        for step in 0..120 {
            let before = world.recount();
            let request = world.request();
            let (txn, applied) = world.apply(request);
            let what = format!("seed {seed} step {step}: {txn:?}");
            assert_eq!(twin.apply(world.at(), txn), applied, "{what}: a replica from a snapshot answers otherwise");
            let after = world.recount();
            for (subtree, ((count, bytes), hard)) in &after {
                let told = world.state.node(&path(&format!("/zookeeper/quota{subtree}/zookeeper_stats")));
                let told = told.map(|node| String::from_utf8(node.data().to_vec()).unwrap());
                let counted = format!("count={count},bytes={bytes}");
                assert!(told.is_none_or(|told| told == counted), "{what}: {subtree} has {counted}");
                let Some((past, _)) = before.get(subtree).filter(|(_, limits)| limits == hard) else { continue };
                let beyond = grew_beyond(past.0, *count, hard[0]) || grew_beyond(past.1, *bytes, hard[1]);
                assert!(!beyond, "{what}: {subtree} went from {past:?} to {count}, {bytes} of {hard:?}");
                met.insert(if *count > past.0 { "grew" } else { "stayed" });
            }
            if let Err(refusal) = &applied.reply
                && refusal.error == Error::QuotaExceeded
            {
                let subtree = refusal.path.as_ref().unwrap().as_str();
                assert!(before.contains_key(subtree), "{what}: {subtree} has no quota");
                met.insert("refused");
            }
            if step % 10 == 0 {
                world.state.check_invariants().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(twin.records().eq(world.state.records()), "{what}: the records differ");
                twin = restore(&world.state);
            }
        }
    }
    assert_eq!(met, BTreeSet::from(["grew", "refused", "stayed"]));
}
