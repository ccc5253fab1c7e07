//! Strangers (callers that are no members) at the peer port: their frames end no node and change no
//! state, and they keep no member out.
//!
//! These strangers know the cluster's name and the members' ids, so that they get further than the
//! handshake. Each test sends frames that could end a node or the cluster if they were not refused.

use std::time::Duration;

use crate::ensemble::{Ensemble, LONG, create, open_session, read_data, set, write};
use crate::stranger::{
    APPEND, Append, CONTROL, FORWARD, Hello, SNAPSHOT, Stranger, ask_vote, blank, entry, frame, id, leader_vote,
};
use futures_util::future::join_all;
use replica::Config;
use storage::codec::{self, LogIdRecord, MembershipRecord, PayloadRecord, VoteRecord};
use tokio::time::timeout;
use znode::{LEVEL_MAX, Limits, Op, Request, Term, encode_request};

fn patient(config: &mut Config) {
    config.election_timeout_min_ms = 1_000;
    config.election_timeout_max_ms = 2_000;
}

/// Settings with which a busy machine causes no election, for tests that wait for none.
fn very_patient(config: &mut Config) {
    config.election_timeout_min_ms = 4_000;
    config.election_timeout_max_ms = 5_000;
}

/// Makes the hello that member `from` sends.
fn hello(ensemble: &Ensemble, from: u64, to: u64, lane: u32) -> Hello {
    Hello { incarnation: ensemble.incarnation(from as usize - 1), ..Hello::of(from, to, lane) }
}

/// An ensemble without writes under way: its leader, the follower that is attacked, and the
/// follower's last entry.
struct Scene {
    ensemble: Ensemble,
    leader: usize,
    follower: usize,
    term: u64,
    last: LogIdRecord,
}

impl Scene {
    async fn new() -> Scene {
        let ensemble = Ensemble::started(3, very_patient).await;
        write(ensemble.node(0), create("/", "a", b"1")).await;
        ensemble.assert_equal_states().await;
        let (leader, follower) = (ensemble.leader().await, ensemble.follower().await);
        let term = ensemble.node(leader).status().term.0;
        let index = ensemble.node(follower).state().last_zxid().0;
        Scene { ensemble, leader, follower, term, last: id(term, index) }
    }

    /// Connects to the follower as if it were the leader.
    async fn pose(&self, lane: u32) -> Stranger {
        let (from, to) = (self.leader as u64 + 1, self.follower as u64 + 1);
        Stranger::posing(self.ensemble.addr(self.follower), &hello(&self.ensemble, from, to, lane)).await
    }

    /// Makes an append that the leader could send next: it has these entries and says that all of
    /// them are committed.
    fn append(&self, entries: Vec<codec::EntryRecord>) -> Append {
        let commit = entries.last().map(|entry| entry.log_id).or(Some(self.last));
        let vote = leader_vote(self.term, self.leader as u64 + 1);
        Append { sequence: 1, vote, prev: Some(self.last), commit, acknowledged: None, entries }
    }

    fn next(&self, after: u64) -> LogIdRecord {
        id(self.term, self.last.index + after)
    }

    /// Checks that the ensemble still serves, also after a restart of the attacked node, and that
    /// all states are equal.
    async fn goes_on(mut self) {
        write(self.ensemble.node(self.follower), set("/a", b"2")).await;
        self.ensemble.assert_equal_states().await;
        self.ensemble.stop(self.follower).await;
        self.ensemble.start(self.follower).await;
        write(self.ensemble.node(self.follower), set("/a", b"3")).await;
        assert_eq!(read_data(self.ensemble.node(self.follower), "/a").await, Some(b"3".to_vec()));
        self.ensemble.assert_equal_states().await;
        for node in self.ensemble.running() {
            let term = node.status().term.0;
            assert!(term < self.term + 1_000, "a term that no election made: {term}");
        }
        self.ensemble.stop_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_in_the_last_of_all_terms_is_neither_granted_nor_kept_nor_fatal() {
    let scene = Scene::new().await;
    for term in [u64::MAX, u64::MAX - 1, 1 << 63, scene.term + (1 << 40)] {
        for kind in [2, 3] {
            let mut stranger = scene.pose(CONTROL).await;
            let vote = VoteRecord { term, node_id: scene.leader as u64 + 1, committed: false };
            // The vote claims to be for a transfer of leadership, which leases do not delay.
            stranger.send(&ask_vote(kind, vote, Some(scene.last), true)).await;
            assert!(stranger.records().await.is_empty(), "term {term}: a frame against the rules was answered");
        }
    }
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_with_an_unreadable_entry_is_refused_and_never_reaches_a_log() {
    let scene = Scene::new().await;
    let mut stranger = scene.pose(APPEND).await;
    let append = scene.append(vec![entry(scene.next(1), &[0xff; 9])]);
    stranger.send(&append.frame()).await;
    let answer = stranger.record().await.expect("an answer");
    let (sequence, kind, why): (u64, u32, String) = codec::decode(&answer).expect("a refusal");
    assert_eq!((sequence, kind), (1, 4), "{why}");
    assert!(why.contains("cannot be read"), "{why}");
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_with_a_gap_between_entries_is_refused_and_not_fatal() {
    let scene = Scene::new().await;
    let gaps = [
        Append { prev: None, ..scene.append(vec![blank(scene.next(900))]) },
        scene.append(vec![blank(scene.next(2))]),
        scene.append(vec![blank(scene.next(1)), blank(scene.next(3))]),
        scene.append(vec![blank(scene.next(1)), blank(scene.next(1))]),
        scene.append(vec![blank(scene.next(2)), blank(scene.next(1))]),
    ];
    for gap in gaps {
        let mut stranger = scene.pose(APPEND).await;
        stranger.send(&gap.frame()).await;
        let refused = stranger.records().await;
        assert!(refused.iter().all(|answer| answer[2] == 4), "{gap:?}: {refused:?}");
    }
    scene.goes_on().await;
}

/// Appends of which one field has a value that no leader sends, each with a description.
fn nonsense(scene: &Scene) -> Vec<(&'static str, Append)> {
    let good = || scene.append(vec![blank(scene.next(1))]);
    let leader = scene.leader as u64 + 1;
    let member = |ids: &[u64]| {
        let node = storage::Member { peer_addr: "127.0.0.1:1".into(), ..storage::Member::default() };
        let nodes = ids.iter().map(|id| (*id, node.clone())).collect();
        PayloadRecord::Membership(MembershipRecord { configs: vec![ids.iter().copied().collect()], nodes })
    };
    let membership = |ids: &[u64]| {
        let entry = codec::EntryRecord { log_id: scene.next(1), payload: member(ids) };
        Append { entries: vec![entry], ..good() }
    };
    let empty = MembershipRecord { configs: Vec::new(), nodes: Default::default() };
    let empty = codec::EntryRecord { log_id: scene.next(1), payload: PayloadRecord::Membership(empty) };
    let below = id(scene.term - 1, scene.last.index + 1);
    let beyond = id(scene.term + 1, scene.last.index + 1);
    vec![
        ("the last term", Append { vote: leader_vote(u64::MAX, leader), ..good() }),
        ("a vote that is not committed", Append { vote: VoteRecord { committed: false, ..good().vote }, ..good() }),
        ("another's vote", Append { vote: leader_vote(scene.term + 1, scene.follower as u64 + 1), ..good() }),
        ("a stranger's vote", Append { vote: leader_vote(scene.term + 1, 77), ..good() }),
        ("an entry of a later term than the leader's", Append { entries: vec![blank(beyond)], ..good() }),
        ("an entry of an earlier term than the one before", Append { entries: vec![blank(below)], ..good() }),
        ("the last index", Append { commit: Some(id(scene.term, u64::MAX)), ..good() }),
        ("an index far off", Append { prev: Some(id(scene.term, 1 << 60)), entries: Vec::new(), ..good() }),
        ("a commit of a later term", Append { commit: Some(beyond), ..good() }),
        ("a commit behind, of a later term than the entry", {
            Append { vote: leader_vote(scene.term + 1, leader), commit: Some(id(scene.term + 1, 1)), ..good() }
        }),
        ("a frame out of turn", Append { sequence: 7, ..good() }),
        ("a membership of a stranger", membership(&[77])),
        ("a membership of the attacked alone", membership(&[scene.follower as u64 + 1])),
        ("a membership of none", Append { entries: vec![empty], ..good() }),
        ("an entry without a term", Append { entries: vec![blank(id(0, scene.last.index + 1))], ..good() }),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_with_a_field_that_cannot_be_are_refused_and_never_fatal() {
    let scene = Scene::new().await;
    for (what, append) in nonsense(&scene) {
        let mut stranger = scene.pose(APPEND).await;
        stranger.send(&append.frame()).await;
        let refused = stranger.records().await;
        assert!(!refused.is_empty() && refused.iter().all(|answer| answer[2] == 4), "{what}: {refused:?}");
    }
    scene.goes_on().await;
}

/// Raft does not compare committed entries with what a leader sends, so the node itself compares
/// the leader's frames with its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_contradicts_what_is_committed_is_refused_and_not_fatal() {
    let scene = Scene::new().await;
    let other = id(scene.term + 1, scene.last.index);
    let good = scene.append(Vec::new());
    let vote = leader_vote(scene.term + 1, good.vote.node_id);
    let lies = [
        Append { vote, prev: Some(other), commit: None, ..good.clone() },
        Append { vote, prev: Some(other), entries: vec![blank(id(scene.term + 1, other.index + 1))], ..good.clone() },
        Append { vote, prev: Some(id(scene.term, other.index - 1)), entries: vec![blank(other)], ..good.clone() },
        Append { vote, prev: None, commit: Some(other), ..good.clone() },
        // This frame claims that the node acknowledged an entry that it never had.
        Append { vote, prev: Some(other), acknowledged: Some(id(scene.term, scene.last.index + 9)), ..good },
    ];
    for lie in lies {
        let mut stranger = scene.pose(APPEND).await;
        stranger.send(&lie.frame()).await;
        let answer = stranger.record().await.expect("an answer");
        assert_eq!(answer[2], 4, "{lie:?}: {answer:?}");
    }
    scene.goes_on().await;
}

/// Entries that only the deposed leader has were never committed. It must step down and follow the
/// new leader. Its appends are no contradiction that ends a node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_whose_entries_contradict_what_is_committed_hears_of_the_higher_vote() {
    let mut ensemble = Ensemble::started(3, patient).await;
    write(ensemble.node(0), create("/", "a", b"1")).await;
    let deposed = ensemble.leader().await;
    let term = ensemble.node(deposed).status().term.0;
    ensemble.stop(deposed).await;
    let (leader, follower) = (ensemble.leader().await, ensemble.follower().await);
    write(ensemble.node(follower), set("/a", b"2")).await;
    ensemble.assert_equal_states().await;
    let higher = ensemble.node(leader).status().term.0;
    assert!(higher > term);
    let index = ensemble.node(follower).state().last_zxid().0;
    let (from, to) = (deposed as u64 + 1, follower as u64 + 1);
    let uncommitted = Append {
        sequence: 1,
        vote: leader_vote(term, from),
        prev: Some(id(term, index - 1)),
        commit: None,
        acknowledged: None,
        entries: vec![blank(id(term, index))],
    };
    let mut stranger = Stranger::posing(ensemble.addr(follower), &Hello::of(from, to, APPEND)).await;
    stranger.send(&uncommitted.frame()).await;
    let answer = stranger.record().await.expect("an answer");
    let answer: (u64, u32, VoteRecord) = codec::decode(&answer).expect("a higher vote");
    assert_eq!(answer, (1, 3, leader_vote(higher, leader as u64 + 1)));
    ensemble.start(deposed).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_leader_itself_proposes_is_refused_when_a_peer_passes_it_on() {
    let scene = Scene::new().await;
    let session = open_session(scene.ensemble.node(scene.follower), 60_000).await.session;
    let limits = scene.ensemble.node(scene.leader).state().limits().clone();
    let own = [
        Op::ExpireSessions { sessions: vec![session], term: Term(scene.term) },
        Op::Reap { candidates: Vec::new() },
        Op::SetLimits(Limits { znodes_max: 1, ..limits.clone() }),
    ];
    let (from, to) = (scene.follower as u64 + 1, scene.leader as u64 + 1);
    let hello = hello(&scene.ensemble, from, to, FORWARD);
    let mut stranger = Stranger::posing(scene.ensemble.addr(scene.leader), &hello).await;
    let mut pass_on = async |request: Request| {
        let ask = (1u64, 5u32, encode_request(&request), 10_000u64);
        stranger.send(&frame(&codec::encode(&ask))).await;
        stranger.record().await.expect("an answer")
    };
    for op in own {
        let what = format!("{op:?}");
        let answer = pass_on(Request::new(op)).await;
        let answer: (u64, u32, u32, znode::Error) =
            codec::decode(&answer).unwrap_or_else(|_| panic!("{what}: {answer:?}"));
        assert_eq!(answer, (1, 4, 3, znode::Error::BadArguments), "{what}");
    }
    // Frames of this kind forward clients' requests.
    let applied = pass_on(create("/", "b", b"")).await;
    assert_eq!(applied[..4], [1, 1, 4, 0]);
    let state = scene.ensemble.node(scene.leader).state();
    assert!(state.session(session).is_some() && *state.limits() == limits);
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_idle_connections_keep_no_member_out() {
    let mut ensemble = Ensemble::to_be_linked(3, patient).await;
    for at in 0..3 {
        ensemble.isolate(at, true);
        ensemble.start(at).await;
    }
    let mut strangers = Vec::new();
    for at in 0..3 {
        let to = at as u64 + 1;
        for number in 0..360u64 {
            // Most strangers claim to be members and then send nothing. Those without a hello come
            // last. They are soon replaced, so that at the end no stranger's connection is left.
            let from = 1 + (to + number % 2) % 3;
            let hello = Hello::of(from, to, [APPEND, CONTROL, FORWARD][number as usize % 3]);
            let addr = ensemble.addr(at);
            strangers.push(match number {
                ..300 => Stranger::hasty(addr, &hello).await,
                _ => Stranger::silent(addr).await,
            });
        }
    }
    (0..3).for_each(|at| ensemble.isolate(at, false));
    let elected = timeout(LONG, ensemble.leader()).await;
    assert!(elected.is_ok(), "strangers keep the members apart");
    write(ensemble.node(0), create("/", "a", b"1")).await;
    drop(strangers);
    ensemble.stop_all().await;
}

/// Bytes of this process in physical memory.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second number is what is resident") * 4_096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_frames_take_up_no_more_than_a_bound_over_all_connections() {
    let scene = Scene::new().await;
    let (addr, to) = (scene.ensemble.addr(scene.follower), scene.follower as u64 + 1);
    let before = resident_bytes();
    let block = vec![7u8; 1 << 20];
    let mut halves = Vec::new();
    for number in 0..48u64 {
        let from = 1 + (to + number % 2) % 3;
        let lane = if number % 2 == 0 { APPEND } else { FORWARD };
        let mut stranger = Stranger::posing(addr, &hello(&scene.ensemble, from, to, lane)).await;
        let mut announced = (16u32 << 20).to_le_bytes().to_vec();
        announced.extend_from_slice(&[0; 4]);
        stranger.send(&announced).await;
        for _ in 0..15 {
            if !stranger.send(&block).await {
                break;
            }
        }
        halves.push(stranger);
        let grown = resident_bytes().saturating_sub(before) >> 20;
        assert!(grown < 256, "{grown} MiB for {} half frames", number + 1);
    }
    drop(halves);
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_begun_and_not_completed_ends_its_connection() {
    // The strangers must send their hellos in this time.
    let mut ensemble = Ensemble::started(3, |config| config.peer_timeout_ms = 1_000).await;
    let (addr, begun) = (ensemble.addr(0), &frame(&[7; 100])[..50]);
    for length in [1, 4, 8, 50] {
        let on_lane = async |lane| {
            let mut stranger = Stranger::posing(addr, &hello(&ensemble, 2, 1, lane)).await;
            stranger.send(&begun[..length]).await;
            stranger.records().await;
        };
        join_all([APPEND, CONTROL, SNAPSHOT, FORWARD].map(on_lane)).await;
    }
    // A connection without a complete hello is ended, too.
    for length in [0, 1, 8, 50] {
        let mut stranger = Stranger::silent(addr).await;
        stranger.send(&begun[..length]).await;
        assert!(stranger.records().await.is_empty());
    }
    ensemble.stop_all().await;
}

/// Encoded answer to a hello: the variant "refused", with the reason "no member".
const REFUSED_AS_NO_MEMBER: (u32, u32) = (1, 0);

/// Two clusters may have the same name and the same node ids; their uuids differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_of_the_same_name_is_turned_away_before_any_frame_of_raft() {
    let scene = Scene::new().await;
    let uuid = Some(scene.ensemble.node(0).state().cluster().unwrap().founding().uuid.0);
    let other = Some([9; 16]);
    for lane in [APPEND, CONTROL, SNAPSHOT, FORWARD] {
        let hello = |uuid| Hello { uuid, ..hello(&scene.ensemble, 2, 1, lane) };
        let refusals = Stranger::hasty(scene.ensemble.addr(0), &hello(other)).await.records().await;
        assert_eq!(refusals, [codec::encode(&(1u32, 3u32))], "lane {lane}");
        for welcome in [uuid, None] {
            let mut member = Stranger::hasty(scene.ensemble.addr(0), &hello(welcome)).await;
            assert_eq!(member.record().await.unwrap()[1], 0, "lane {lane}");
        }
    }
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_tells_a_stranger_neither_the_cluster_nor_its_members() {
    let mut ensemble = Ensemble::new(3, |config| config.cluster_id = "a-secret-name".into());
    ensemble.start(0).await;
    let own = Hello { cluster: "a-secret-name".into(), ..Hello::of(2, 1, CONTROL) };
    let hellos = [
        Hello { cluster: "guess".into(), ..own.clone() },
        Hello { from: 9, ..own.clone() },
        Hello { from: 1, ..own.clone() },
        Hello { to: 3, ..own.clone() },
    ];
    for hello in hellos {
        let mut stranger = Stranger::hasty(ensemble.addr(0), &hello).await;
        let refusals = stranger.records().await;
        assert_eq!(refusals, [codec::encode(&REFUSED_AS_NO_MEMBER)], "{hello:?}");
    }
    // A stranger that knows the name and the ids hears which versions or levels the node accepts,
    // and no uuid.
    let later = [
        (Hello { version: 9, ..own.clone() }, 1u32, (4u16, 4u16)),
        (Hello { version: 3, ..own.clone() }, 1, (4, 4)),
        (Hello { level: 9, ..own.clone() }, 2, (1, LEVEL_MAX)),
    ];
    for (hello, kind, known) in later {
        let refusals = Stranger::hasty(ensemble.addr(0), &hello).await.records().await;
        assert_eq!(refusals, [codec::encode(&(1u32, kind, known))], "{hello:?}");
    }
    // A hello is short. A longer one is refused before its bytes have come.
    let mut stranger = Stranger::silent(ensemble.addr(0)).await;
    stranger.send(&(8u32 << 10).to_le_bytes()).await;
    stranger.send(&[0; 4]).await;
    assert!(stranger.records().await.is_empty());
    ensemble.stop_all().await;
}

/// A received snapshot is checked before it replaces the node's own snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_cannot_be_read_is_refused_and_never_current() {
    let scene = Scene::new().await;
    let (last, vote) = (scene.next(50), leader_vote(scene.term, scene.leader as u64 + 1));
    // One chunk of bytes that are no records.
    let raw = [0x55u8; 64];
    let packed = lz4_flex::block::compress_prepend_size(&raw);
    let mut chunk = crc32fast::hash(&packed).to_le_bytes().to_vec();
    chunk.extend_from_slice(&packed);
    let node = storage::Member { peer_addr: "127.0.0.1:1".into(), ..storage::Member::default() };
    let membership =
        MembershipRecord { configs: vec![[1, 2, 3].into()], nodes: [1, 2, 3].map(|id| (id, node.clone())).into() };
    let meta = codec::SnapshotMetaRecord {
        last_log_id: Some(last),
        last_membership: codec::StoredMembershipRecord { log_id: Some(id(0, 0)), membership },
    };
    let mut hash = sha2::Sha256::default();
    sha2::Digest::update(&mut hash, (chunk.len() as u32).to_le_bytes());
    sha2::Digest::update(&mut hash, &chunk);
    sha2::Digest::update(&mut hash, codec::encode(&meta));
    let sha256: [u8; 32] = sha2::Digest::finalize(hash).into();
    let bytes = chunk.len() as u64;
    let manifest = storage::Manifest { meta, chunk_count: 1, bytes, records: 1, sha256 };
    let mut stranger = scene.pose(SNAPSHOT).await;
    stranger.send(&frame(&codec::encode(&(0u32, vote, manifest)))).await;
    stranger.send(&frame(&codec::encode(&(1u32, chunk)))).await;
    stranger.send(&frame(&codec::encode(&2u32))).await;
    let answers = stranger.records().await;
    let refusal = answers.last().expect("an answer");
    assert_eq!(refusal[1], 2, "{refusal:?}");
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_whose_checksum_is_wrong_ends_its_connection() {
    let scene = Scene::new().await;
    let mut stranger = scene.pose(APPEND).await;
    let mut bytes = scene.append(vec![entry(scene.next(1), b"x")]).frame();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    stranger.send(&bytes).await;
    let answers = timeout(Duration::from_secs(30), stranger.records()).await.unwrap();
    assert!(answers.iter().all(|answer| answer[2] == 4), "{answers:?}");
    scene.goes_on().await;
}
