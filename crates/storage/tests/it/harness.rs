//! Helpers of all tests: data directories, and short functions to write to a storage.

use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use storage::{
    Command, Entry, Error, LogId, Member, Membership, Payload, Snapshot, SnapshotMeta, Storage, StorageConfig,
    StoredMembership, TypeConfig,
};
use tempfile::TempDir;

pub(crate) fn config(dir: &Path) -> StorageConfig {
    StorageConfig {
        data_dir: dir.to_path_buf(),
        cluster_id: "test".into(),
        node_id: 1,
        free_disk_min_bytes: 0,
        ballast_bytes: 0,
        has_peers: false,
    }
}

pub(crate) fn open(dir: &Path) -> Result<Storage, Error> {
    Storage::open(config(dir))
}

/// Seeds that the environment variable `STORAGE_SEEDS=FROM..TO` asks for.
pub(crate) fn seeds_asked() -> Option<Range<u64>> {
    let asked = std::env::var("STORAGE_SEEDS").ok()?;
    let (from, to) = asked.split_once("..").expect("STORAGE_SEEDS is FROM..TO");
    Some(from.parse().unwrap()..to.parse().unwrap())
}

/// Random numbers of a test, with their seed: the first one that `STORAGE_SEEDS` asks for, or 0.
pub(crate) fn seeded() -> (u64, fastrand::Rng) {
    let seed = seeds_asked().map_or(0, |seeds| seeds.start);
    (seed, fastrand::Rng::with_seed(seed))
}

/// Number of rounds of a test with random numbers: more if seeds are asked for, as `.ci/long` does.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if seeds_asked().is_some() { long } else { short }
}

/// Path of a new data directory. It is removed when the returned `TempDir` is dropped.
pub(crate) fn data_dir() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    (parent, dir)
}

/// Path of a new data directory, in memory where possible. For tests that only kill processes: a
/// kill loses no written bytes, so they need no real disk.
pub(crate) fn data_dir_in_memory() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let dir = parent.path().join("data");
    (parent, dir)
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

pub(crate) fn entry(term: u64, index: u64, bytes: &[u8]) -> Entry {
    Entry { log_id: log_id(term, index), payload: Payload::Normal(Command(bytes.to_vec().into())) }
}

pub(crate) fn bytes_of(entry: &Entry) -> &[u8] {
    match &entry.payload {
        Payload::Normal(Command(bytes)) => bytes,
        other => panic!("a command was expected and not {other}"),
    }
}

/// Appends entries and waits until they are durable.
pub(crate) async fn append(storage: &Storage, entries: Vec<Entry>) -> std::io::Result<()> {
    let (done, flushed) = TypeConfig::oneshot();
    storage.log.clone().append(entries, IOFlushed::signal(done)).await?;
    flushed.await.unwrap()
}

pub(crate) fn members() -> Membership {
    let member = |id: u64| Member {
        peer_addr: format!("127.0.0.1:710{id}"),
        http_addr: format!("127.0.0.1:720{id}"),
        extra: [("zone".to_owned(), vec![id as u8])].into(),
    };
    Membership::new(
        vec![[1, 2, 3].into()],
        [1, 2, 3].map(|id| (id, member(id))).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    )
    .unwrap()
}

pub(crate) fn meta(term: u64, index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last_log_id: Some(log_id(term, index)),
        last_membership: StoredMembership::new(Some(log_id(1, 0)), members()),
    }
}

/// Returns pseudorandom records for `seed`: some empty, some larger than a chunk, some
/// incompressible.
pub(crate) fn records(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let record = |rng: &mut fastrand::Rng| {
        let len = if rng.u8(..) < 8 { rng.usize(..100_000) } else { rng.usize(..600) };
        if rng.bool() { vec![rng.u8(..); len] } else { (0..len).map(|_| rng.u8(..)).collect() }
    };
    (0..count).map(|_| record(&mut rng)).collect()
}

pub(crate) fn write_snapshot(storage: &Storage, records: &[Vec<u8>], meta: &SnapshotMeta) -> std::io::Result<Snapshot> {
    let mut writer = storage.snapshots.writer()?;
    for record in records {
        writer.push(record)?;
    }
    writer.finish(meta)
}

pub(crate) fn read_snapshot(snapshot: &Snapshot) -> Vec<Vec<u8>> {
    snapshot.records().map(|record| record.unwrap()).collect()
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_dir(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}
