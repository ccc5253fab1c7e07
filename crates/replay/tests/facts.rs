//! Tests of the facts that a replay finds in logs, which the tests write.

// clippy's exception covers the test functions, but not the functions that they call.
#![allow(clippy::unwrap_used)]

use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogStorage as _};
use openraft::type_config::TypeConfigExt as _;
use replay::{Fact, Node, replay};
use storage::{Command, Entry, LogId, Storage, StorageConfig, TypeConfig};
use znode::{
    Acquire, Credential, HeldTicket, LockMode, Op, Request, RequestKey, SessionId, Term, TicketRef, Txn, ZPath,
    encode_txn,
};

const LOCK: &str = "/l";

fn open(session: u8) -> Request {
    let client = znode::ClientInfo::default();
    Request::new(Op::OpenSession {
        secret_hash: [session; 16],
        timeout_ms: 10_000,
        label: String::new(),
        address: None,
        client,
    })
}

/// Returns a request in the session that the log entry with the index `session` has opened.
fn of(session: u8, op: Op) -> Request {
    Request::of(Credential { session: SessionId(u64::from(session)), secret_hash: [session; 16] }, op)
}

fn acquire(session: u8, lock_delay_ms: u32) -> Request {
    let acquire = Acquire { lock_delay_ms, ..Acquire::new(ZPath::parse(LOCK).unwrap(), LockMode::Exclusive) };
    Request { key: Some(RequestKey([session; 16])), ..of(session, Op::Acquire(acquire)) }
}

fn release(session: u8) -> Request {
    let lock = ZPath::parse(LOCK).unwrap();
    of(session, Op::Release { ticket: TicketRef::Held(HeldTicket { lock, mode: None, token: None, owner: None }) })
}

fn expire(session: u8) -> Request {
    Request::new(Op::ExpireSessions { sessions: vec![SessionId(u64::from(session))], term: Term(1) })
}

/// Returns the facts of a log with these requests from entry 1 on. The last `uncommitted` entries
/// are not committed.
async fn told(requests: Vec<Request>, uncommitted: u64) -> Vec<Fact> {
    let parent = tempfile::tempdir().unwrap();
    let data_dir = parent.path().join("data");
    let config = StorageConfig {
        data_dir: data_dir.clone(),
        cluster_id: "test".into(),
        node_id: 1,
        free_disk_min_bytes: 0,
        ballast_bytes: 0,
        has_peers: false,
    };
    let storage = Storage::open(config).unwrap();
    let blank = Entry { log_id: LogId::new_term_index(1, 0), payload: EntryPayload::Blank };
    let entries = (1..).zip(requests).map(|(index, request)| {
        let bytes = encode_txn(&Txn { proven: false, time_ms: 0, request });
        Entry { log_id: LogId::new_term_index(1, index), payload: EntryPayload::Normal(Command(bytes.into())) }
    });
    let entries: Vec<Entry> = std::iter::once(blank).chain(entries).collect();
    let committed = LogId::new_term_index(1, entries.len() as u64 - 1 - uncommitted);
    let mut log = storage.log.clone();
    log.save_committed(Some(committed)).await.unwrap();
    let (done, flushed) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(done)).await.unwrap();
    flushed.await.unwrap().unwrap();
    let closing = storage.closing();
    drop((log, storage));
    closing.closed().await;
    let mut facts = Vec::new();
    replay(Node { data_dir, cluster_id: "test".into(), node_id: 1 }, |fact| facts.push(fact)).await.unwrap();
    facts
}

fn granted(fact: &Fact) -> Option<(u64, u64, u64, LockMode)> {
    match fact {
        Fact::Granted { zxid, session, token, mode, .. } => Some((*zxid, *session, *token, *mode)),
        _ => None,
    }
}

fn ended(fact: &Fact) -> Option<(u64, u64, u64)> {
    match fact {
        Fact::Ended { zxid, session, token, .. } => Some((*zxid, *session, *token)),
        _ => None,
    }
}

#[tokio::test]
async fn a_grant_a_release_and_the_grant_that_follows_are_told() {
    let facts = told(vec![open(1), open(2), acquire(1, 0), acquire(2, 0), release(1)], 0).await;
    assert_eq!(
        facts[..3],
        [
            Fact::Began { zxid: 0 },
            Fact::SessionOpened { zxid: 1, session: 1 },
            Fact::SessionOpened { zxid: 2, session: 2 },
        ]
    );
    let grants: Vec<_> = facts.iter().filter_map(granted).collect();
    assert_eq!(grants, [(3, 1, 3, LockMode::Exclusive), (5, 2, 4, LockMode::Exclusive)]);
    assert_eq!(facts.iter().filter_map(ended).collect::<Vec<_>>(), [(5, 1, 3)]);
    assert!(matches!(facts.last(), Some(Fact::Applied { zxid: 5, .. })), "{facts:?}");
}

#[tokio::test]
async fn a_holder_that_expires_holds_no_longer_though_its_lock_node_lingers() {
    let facts = told(vec![open(1), acquire(1, 5_000), expire(1)], 0).await;
    assert_eq!(facts.iter().filter_map(ended).collect::<Vec<_>>(), [(3, 1, 2)]);
    assert!(facts.contains(&Fact::SessionEnded { zxid: 3, session: 1 }), "{facts:?}");
}

#[tokio::test]
async fn what_is_not_known_to_be_committed_is_not_told() {
    let facts = told(vec![open(1), acquire(1, 0)], 1).await;
    assert_eq!(facts.iter().filter_map(granted).collect::<Vec<_>>(), []);
    assert!(matches!(facts.last(), Some(Fact::Applied { zxid: 1, .. })), "{facts:?}");
}

#[tokio::test]
async fn a_directory_that_is_none_of_a_node_is_refused_and_stays_as_it_is() {
    let parent = tempfile::tempdir().unwrap();
    let data_dir = parent.path().join("typo");
    let node = Node { data_dir: data_dir.clone(), cluster_id: "test".into(), node_id: 1 };
    let refused = replay(node, |fact| panic!("{fact:?}")).await;
    assert!(matches!(refused, Err(replay::Error::NoData(_))), "{refused:?}");
    assert!(!data_dir.exists());
}
