//! Noise at the peer ports of an ensemble under load: random bytes, random frames, and members'
//! frames with some bytes changed. It comes on connections of strangers and on those of the
//! members. No node ends, and all states are equal.
//!
//! ```text
//! cargo test -p replica --test alone noise                                          # 3 seconds
//! ZLOCK_NOISE_S=600 ZLOCK_NOISE_SEED=7 cargo test -p replica --test alone noise     # 10 minutes
//! ```
//!
//! Lies are left out: frames in correct form that claim in the leader's name what the leader never
//! said. A stranger that knows the cluster's name and its ids can send them, and no checksum shows
//! that they are false (docs/operating.md).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::ensemble::{Ensemble, create, set, write};
use crate::stranger::tap::{MemberRecords, tap};
use crate::stranger::{APPEND, Append, CONTROL, FORWARD, Hello, SNAPSHOT, ask_vote, blank, frame, id};
use replica::{Config, Replica};
use storage::codec::{self, EntryRecord, LogIdRecord, VoteRecord};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Number of connections of strangers at the same time. A stranger is a caller that is no member.
const STRANGERS: u64 = 6;
/// Largest number of frames that a stranger sends on one connection. A node stops reading at the
/// first frame that it refuses.
const FRAMES_MAX: usize = 4;
/// Divisor for frames that raise a term: one in this number of them is sent, and the others are
/// dropped. Each one that is sent causes an election, and the ensemble must also have time for its
/// work.
const RAISE_ONE_IN: u32 = 400;

/// Addresses of the taps: proxies through which the members reach each other.
static TAPS: OnceLock<Vec<SocketAddr>> = OnceLock::new();
static PANICS: AtomicU64 = AtomicU64::new(0);

fn tapped(config: &mut Config) {
    config.snapshot_log_entries = 300;
    config.log_entries_kept = 50;
    let taps = TAPS.get().expect("set before the first node starts");
    for (member, tap) in config.members.iter_mut().zip(taps).filter(|(member, _)| member.id != config.node_id) {
        member.peer_addr = tap.to_string();
    }
}

/// Counts of frames and of ends of connections, by a description.
#[derive(Default)]
struct Figures(Mutex<BTreeMap<&'static str, u64>>);

impl Figures {
    fn count(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

struct Scene {
    addrs: Vec<SocketAddr>,
    /// Incarnations (random numbers) of the nodes' data directories, which strangers copy.
    incarnations: [u64; 3],
    heard: Arc<MemberRecords>,
    figures: Figures,
    /// Newest term that any node knows.
    term: AtomicU64,
    index: AtomicU64,
    over: AtomicBool,
}

#[test]
fn noise_at_the_peer_ports_ends_no_node_and_changes_no_state() {
    let _turn = fail::FailScenario::setup();
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} takes a number")))
    };
    let time = Duration::from_secs(number("ZLOCK_NOISE_S").unwrap_or(3));
    let seed = number("ZLOCK_NOISE_SEED").unwrap_or(1);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report(panic);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(time, seed));
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "something panicked");
}

async fn run(time: Duration, seed: u64) {
    let mut ensemble = Ensemble::new(3, tapped);
    let addrs: Vec<SocketAddr> = (0..3).map(|at| ensemble.addr(at)).collect();
    let heard = Arc::<MemberRecords>::default();
    let mut taps = Vec::new();
    for addr in &addrs {
        taps.push(tap(*addr, Arc::clone(&heard)).await);
    }
    TAPS.set(taps).unwrap();
    for at in 0..3 {
        ensemble.start(at).await;
    }
    ensemble.leader().await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    let numbers = || (AtomicU64::new(0), AtomicU64::new(0));
    let ((term, index), figures, over) = (numbers(), Figures::default(), AtomicBool::new(false));
    let incarnations = [0, 1, 2].map(|at| ensemble.incarnation(at));
    let scene = Arc::new(Scene { addrs, incarnations, heard, figures, term, index, over });
    let nodes: Vec<Replica> = ensemble.running().cloned().collect();
    let mut tasks = tokio::task::JoinSet::new();
    (0..4).for_each(|number| drop(tasks.spawn(load(Arc::clone(&scene), nodes.clone(), number))));
    (0..STRANGERS).for_each(|number| drop(tasks.spawn(strangers(Arc::clone(&scene), seed * 1_000 + number))));
    let _ = timeout(time, std::future::pending::<()>()).await;
    scene.over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    drop(nodes);
    println!(
        "noise for {time:?}, seed {seed}: term {}, zxid {}",
        scene.term.load(Ordering::Relaxed),
        scene.index.load(Ordering::Relaxed)
    );
    println!(
        "{:>10}  reads on members' own connections with a damaged byte",
        scene.heard.damaged.load(Ordering::Relaxed)
    );
    for (what, count) in &*scene.figures.0.lock().unwrap() {
        println!("{count:>10}  {what}");
    }
    // Every node serves, all have the same state, and all start again.
    for round in 0..2u8 {
        for at in 0..3 {
            write(ensemble.node(at), set("/a", &[round])).await;
        }
        ensemble.assert_equal_states().await;
        for at in 0..3 {
            ensemble.stop(at).await;
            ensemble.start(at).await;
        }
    }
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// Writes as a client, one write at a time, through all nodes in turn, until `scene.over` is set.
async fn load(scene: Arc<Scene>, nodes: Vec<Replica>, number: u64) {
    let mut at = number as usize;
    while !scene.over.load(Ordering::Relaxed) {
        at += 1;
        let node = &nodes[at % nodes.len()];
        let request = if at.is_multiple_of(4) {
            create("/", &format!("{number}-{at}"), b"x")
        } else {
            set("/a", &at.to_le_bytes())
        };
        let end = match node.propose(request, Instant::now() + Duration::from_secs(2)).await {
            Ok(applied) if applied.reply.is_ok() => "writes: done",
            Ok(_) => "writes: refused by the state",
            Err(replica::Error::Unknown { .. }) => "writes: unknown",
            Err(_) => "writes: unavailable",
        };
        scene.figures.count(end);
        scene.term.fetch_max(node.status().term.0, Ordering::Relaxed);
        scene.index.fetch_max(node.state().last_zxid().0, Ordering::Relaxed);
    }
}

async fn strangers(scene: Arc<Scene>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !scene.over.load(Ordering::Relaxed) {
        one_stranger(&scene, &mut random).await;
        tokio::task::yield_now().await;
    }
}

/// Runs one connection of a stranger, from its hello to its end.
async fn one_stranger(scene: &Scene, random: &mut fastrand::Rng) {
    let to = random.u64(1..=3);
    let from = 1 + (to + random.u64(..2)) % 3;
    let lane = [APPEND, APPEND, CONTROL, SNAPSHOT, FORWARD][random.usize(..5)];
    let Ok(mut stream) = TcpStream::connect(scene.addrs[to as usize - 1]).await else { return };
    let incarnation = scene.incarnations[from as usize - 1];
    let hello = Hello { incarnation, ..Hello::of(from, to, lane) };
    let greeting = match random.u32(..10) {
        0 => bytes(random, 200),
        1 => frame(&mutated(random, hello.frame()[8..].to_vec())),
        _ => hello.frame(),
    };
    let greeted = greeting == hello.frame();
    let mut frames = greeting;
    let mut count = 0;
    if greeted {
        let frames_max = random.usize(1..=FRAMES_MAX);
        while count < frames_max {
            let Some(next) = noise(scene, random, from, lane) else {
                scene.figures.count("frames left out: whole, and a lie");
                continue;
            };
            frames.extend_from_slice(&next);
            count += 1;
        }
    }
    (0..count.max(1))
        .for_each(|_| scene.figures.count(if greeted { LANES[lane as usize] } else { "hellos that are none" }));
    let sent = stream.write_all(&frames).await;
    // Ends the stream, so that the node does not wait for the rest of a frame.
    let _ = stream.shutdown().await;
    let mut answers = Vec::new();
    let read = timeout(Duration::from_secs(5), (&mut stream).take(1 << 20).read_to_end(&mut answers)).await;
    scene.figures.count(match (sent, read) {
        (_, Err(_)) => "connections: still open",
        (Err(_), _) | (_, Ok(Err(_))) => "connections: reset by the node",
        _ => ending(&answers, lane),
    });
}

const LANES: [&str; 4] =
    ["frames: appends", "frames: votes and transfers", "frames: snapshots", "frames: proposals and heartbeats"];

/// Describes how a node ended a connection, by the last of its answers.
fn ending(answers: &[u8], lane: u32) -> &'static str {
    let mut rest = answers;
    let mut last: Option<&[u8]> = None;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(record) = behind.get(4..4 + length) else { break };
        (last, rest) = (Some(record), &behind[4 + length..]);
    }
    let refused = |record: &[u8]| codec::decode::<(u64, u32, String)>(record).is_ok_and(|answer| answer.1 == 4);
    let turned_away = |record: &[u8]| codec::decode::<(u32, String)>(record).is_ok_and(|answer| answer.0 == 1);
    match last {
        None => "connections: closed without a word",
        Some([1, 0]) => "connections: closed after the welcome",
        Some(record) if lane == APPEND && refused(record) => "connections: an append was refused in words",
        Some(record) if turned_away(record) => "connections: turned away",
        Some(_) => "connections: answered, then closed",
    }
}

/// Makes a frame that no correct member sends now, or changes a frame that a member sent. `None` if
/// the result would be a lie: a frame in correct form that claims what the leader never said.
fn noise(scene: &Scene, random: &mut fastrand::Rng, from: u64, lane: u32) -> Option<Vec<u8>> {
    let heard = scene.heard.any(random, lane);
    match (random.u32(..10), heard) {
        (0, _) => Some(bytes(random, 300)),
        (1, _) => Some(frame(&bytes(random, 300))),
        (2..=3, _) => Some(nonsense(scene, random, from, lane)),
        // The checksum belongs to the original bytes, not to the changed ones.
        (4..=6, Some(record)) => {
            let mut said = frame(&record);
            let at = random.usize(..said.len());
            said[at] ^= random.u8(1..);
            Some(said)
        }
        (_, Some(record)) => {
            let sent = mutated(random, record.clone());
            is_harmless(random, lane, &record, &sent).then(|| frame(&sent))
        }
        (_, None) => Some(nonsense(scene, random, from, lane)),
    }
}

fn bytes(random: &mut fastrand::Rng, length_max: usize) -> Vec<u8> {
    let length = random.usize(..length_max);
    // Half of the bytes are small, because small numbers are meaningful more often.
    (0..length).map(|_| if random.bool() { random.u8(..5) } else { random.u8(..) }).collect()
}

fn mutated(random: &mut fastrand::Rng, mut record: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..record.len().max(1));
        match random.u32(..5) {
            0 => record.truncate(at),
            1 => record.insert(at.min(record.len()), random.u8(..)),
            // The longest encoding of a number, and the largest number.
            2 => drop(record.splice(
                at.min(record.len())..(at + 1).min(record.len()),
                [253, 255, 255, 255, 255, 255, 255, 255, 255],
            )),
            _ if at < record.len() => record[at] = random.u8(..),
            _ => {}
        }
    }
    record
}

type AppendTuple = (u64, VoteRecord, Option<LogIdRecord>, Option<LogIdRecord>, Vec<EntryRecord>);
type VoteTuple = (u64, u32, VoteRecord, Option<LogIdRecord>, bool);

/// Tells whether a changed frame (`sent`) may be sent. It may not claim other entries or commits in
/// the leader's name than the member's frame (`said`). A frame that raises a term may be sent only
/// now and then.
fn is_harmless(random: &mut fastrand::Rng, lane: u32, said: &[u8], sent: &[u8]) -> bool {
    let mut raises = |said: u64, sent: u64| sent > said && random.u32(..RAISE_ONE_IN) > 0;
    match lane {
        APPEND => match (codec::decode::<AppendTuple>(said), codec::decode::<AppendTuple>(sent)) {
            (Ok(said), Ok(sent)) => said.3 == sent.3 && said.4 == sent.4 && !raises(said.1.term, sent.1.term),
            _ => true,
        },
        CONTROL => match (codec::decode::<VoteTuple>(said), codec::decode::<VoteTuple>(sent)) {
            (said, Ok(sent)) if sent.1 == 2 => !raises(said.map_or(0, |said| said.2.term), sent.2.term),
            _ => true,
        },
        _ => true,
    }
}

fn pick(random: &mut fastrand::Rng, of: &[u64]) -> u64 {
    of[random.usize(..of.len())]
}

/// Makes a frame from special numbers: present and impossible terms, indexes and ids.
fn nonsense(scene: &Scene, random: &mut fastrand::Rng, from: u64, lane: u32) -> Vec<u8> {
    let (term, index) = (scene.term.load(Ordering::Relaxed), scene.index.load(Ordering::Relaxed));
    let far = [term + (1 << 33), 1 << 62, 1 << 63, u64::MAX];
    let terms = [&[0, 1, term, term][..], &far].concat();
    // The index of the next entry is left out: an entry there could be taken for one of the
    // leader's.
    let indexes = [0, 1, index / 2, 1 << 50, 1 << 62, u64::MAX - 1, u64::MAX];
    let node_id = pick(random, &[from, from, 0, 9, u64::MAX]);
    let vote = VoteRecord { term: pick(random, &terms), node_id, committed: random.bool() };
    let first = id(pick(random, &terms), pick(random, &indexes));
    let prev = random.bool().then(|| id(pick(random, &terms), pick(random, &indexes)));
    match lane {
        APPEND => {
            let count = pick(random, &[0, 1, 3]);
            let entries = (0..count).map(|at| blank(id(first.term, first.index.wrapping_add(at)))).collect();
            let sequence = pick(random, &[1, 1, 1, 2, u64::MAX]);
            let acknowledged = random.bool().then_some(first);
            Append { sequence, vote, prev, commit: None, acknowledged, entries }.frame()
        }
        CONTROL => {
            let vote = VoteRecord { term: pick(random, &far), ..vote };
            ask_vote(pick(random, &[2, 3, 4]) as u32, vote, prev, random.bool())
        }
        SNAPSHOT => {
            let meta = (prev, first, pick(random, &terms));
            frame(&codec::encode(&(0u32, vote, meta, pick(random, &indexes), [7u8; 32])))
        }
        _ => {
            let (kind, bytes) = (pick(random, &[5, 6, 7, 8]) as u32, vec![7u8; random.usize(..200)]);
            frame(&codec::encode(&(pick(random, &terms), kind, bytes, pick(random, &indexes))))
        }
    }
}
