//! Child process that writes to a storage until it ends or is killed, and the checks of its data
//! afterwards.
//!
//! The test binary runs itself again as the child. The child prints on stdout each step before it
//! begins and each acknowledgement. The parent reads until the pipe closes, opens the directory and
//! compares its content with the printed lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use storage::{Storage, StorageConfig, Vote};

use crate::harness::{
    append, block_on, bytes_of, config, entry, log_id, meta, open, read_snapshot, records, write_snapshot,
};

/// Time without output after which a child counts as hanging; a child needs far less.
const HANGS_AFTER: Duration = Duration::from_secs(60);
const BALLAST: &str = "ZLOCK_STORAGE_CHILD_BALLAST";
const DIR: &str = "ZLOCK_STORAGE_CHILD_DIR";
const CYCLES: &str = "ZLOCK_STORAGE_CHILD_CYCLES";
const KILL_AT: &str = "ZLOCK_STORAGE_CHILD_KILL_AT";
const FAIL_AT: &str = "ZLOCK_STORAGE_CHILD_FAIL_AT";

/// Parameters of a child process.
#[derive(Default)]
pub(crate) struct Run<'a> {
    /// Number of cycles of writes before the child ends by itself.
    pub(crate) cycles: u32,
    /// Failpoint at which the child kills itself, and the number of the pass at which it does, from
    /// 1.
    pub(crate) kill_at: Option<(&'a str, u32)>,
    /// Failpoint that returns an error, and the number of the pass at which it does, from 1.
    pub(crate) fail_at: Option<(&'a str, u32)>,
    /// Size in bytes of the ballast in the child's data directory; 0 for none.
    pub(crate) ballast_bytes: u64,
    /// More environment variables of the child.
    pub(crate) env: Vec<(&'a str, String)>,
}

impl Run<'_> {
    pub(crate) fn spawn(&self, dir: &Path) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "workload::child", "--nocapture", "--test-threads=1"]);
        command.env(DIR, dir).env(CYCLES, self.cycles.to_string()).envs(self.env.iter().map(|(k, v)| (k, v)));
        for (name, at) in [(KILL_AT, self.kill_at), (FAIL_AT, self.fail_at)] {
            if let Some((failpoint, nth)) = at {
                command.env(name, format!("{failpoint} {nth}"));
            }
        }
        command.env(BALLAST, self.ballast_bytes.to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }
}

/// A running child process, and its output.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Reads the facts that the child prints, and adds them to `told`. Kills the child after
    /// `lines_max` facts; otherwise waits for its end.
    pub(crate) fn watch(mut self, told: &mut Told, lines_max: usize) -> Ended {
        let watchdog = Watchdog::new(&self.child);
        let mut line = String::new();
        let mut heard = 0;
        while heard < lines_max && self.lines.read_line(&mut line).unwrap() > 0 {
            watchdog.feed();
            // A line without a newline counts too.
            if let Some(words) = line.trim_end().strip_prefix("told ") {
                told.hear(words);
                heard += 1;
            }
            line.clear();
        }
        if heard == lines_max {
            self.child.kill().unwrap();
            while self.lines.read_line(&mut line).unwrap() > 0 {
                if let Some(words) = line.strip_prefix("told ").and_then(|words| words.strip_suffix('\n')) {
                    told.hear(words);
                }
                line.clear();
            }
        }
        let output = self.child.wait_with_output().unwrap();
        Ended { ok: output.status.success(), stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
    }
}

/// Thread that kills a child without output for [`HANGS_AFTER`], so that the test fails instead of
/// hanging.
struct Watchdog(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Watchdog {
    fn new(child: &Child) -> Watchdog {
        let pid = rustix::process::Pid::from_child(child);
        let (done, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let ended = loop {
                match ended.recv_timeout(HANGS_AFTER) {
                    Ok(()) => {}
                    Err(ended) => break ended,
                }
            };
            if ended == std::sync::mpsc::RecvTimeoutError::Timeout {
                let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Watchdog(Some((done, thread)))
    }

    /// Restarts the watchdog's timeout, because the child has printed a line.
    fn feed(&self) {
        let (alive, _) = self.0.as_ref().expect("it is there until it is dropped");
        let _killed = alive.send(());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (done, thread) = self.0.take().unwrap();
        drop(done);
        thread.join().unwrap();
    }
}

/// Exit status and stderr of a child that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ok: bool,
    pub(crate) stderr: String,
}

/// Facts that children printed: their acknowledged writes, and the cuts and purges that they began.
#[derive(Default, Debug)]
pub(crate) struct Told {
    vote_term: u64,
    entries: BTreeMap<u64, u64>,
    purging: Option<u64>,
    snapshot: u64,
    joined: bool,
    founded: bool,
    pub(crate) facts: usize,
}

impl Told {
    fn hear(&mut self, words: &str) {
        let mut words = words.split(' ');
        let what = words.next().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        self.facts += 1;
        match what {
            "voted" => self.vote_term = number(),
            "appended" => {
                let (term, from, to) = (number(), number(), number());
                self.entries.extend((from..to).map(|index| (index, term)));
            }
            "cutting" => drop(self.entries.split_off(&number())),
            "purging" => self.purging = Some(number()),
            "snapshot" => self.snapshot = number(),
            "joined" => self.joined = true,
            "founded" => self.founded = true,
            other => panic!("the child said {other:?}"),
        }
    }

    /// Opens `dir` and checks that all acknowledged writes are in it.
    #[track_caller]
    pub(crate) fn check(&self, dir: &Path, context: &str) {
        let storage = open(dir).unwrap_or_else(|error| panic!("{context}: {error}"));
        block_on(self.check_open(&storage, context));
    }

    async fn check_open(&self, storage: &Storage, context: &str) {
        let mut log = storage.log.clone();
        let term = log.vote().map_or(0, |vote| vote.leader_id.term);
        assert!(term >= self.vote_term, "{context}: voted in {}, found {term}", self.vote_term);
        let state = log.get_log_state().await.unwrap();
        let purged = state.last_purged_log_id.map(|id| id.index);
        assert!(purged <= self.purging, "{context}: purged {purged:?}, told {:?}", self.purging);
        let found = log.try_get_log_entries(..).await.unwrap();
        let found: BTreeMap<u64, _> = found.iter().map(|entry| (entry.log_id.index, entry)).collect();
        for (&index, &term) in self.entries.iter().filter(|(index, _)| Some(**index) > purged) {
            let entry = found.get(&index).unwrap_or_else(|| panic!("{context}: entry {index} is lost"));
            assert_eq!(entry.log_id, log_id(term, index), "{context}");
            assert_eq!(bytes_of(entry), content(term, index), "{context}: entry {index}");
        }
        let snapshot = storage.snapshots.current();
        let at = snapshot.as_ref().map_or(0, |snapshot| snapshot.manifest().meta.last_log_id.unwrap().index);
        assert!(at >= self.snapshot, "{context}: snapshot {} was acknowledged, {at} is current", self.snapshot);
        if let Some(snapshot) = snapshot {
            assert_eq!(read_snapshot(&snapshot), records(at, RECORDS), "{context}: snapshot {at}");
        }
        assert!(storage.meta.joined() || !self.joined, "{context}: joined and forgot it");
        assert!(storage.meta.founding() == Some(FOUNDING) || !self.founded, "{context}: founded and forgot it");
    }
}

const RECORDS: usize = 40;
/// Values of [`storage::Seed::founding`]: the cluster's uuid, zxid base and number of its Raft
/// group.
const FOUNDING: ([u8; 16], u64, u32) = ([7; 16], 1 << 50, 3);

fn content(term: u64, index: u64) -> Vec<u8> {
    vec![(term ^ index) as u8; 20 + (index % 50) as usize * 8]
}

fn tell(words: &str) {
    // Each line is one unbuffered write, so that a line printed before a kill is in the pipe.
    std::io::stdout().write_all(format!("told {words}\n").as_bytes()).unwrap();
}

/// Not a test, but the code of the child process. Without its environment variables it does
/// nothing.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let cycles = std::env::var(CYCLES).unwrap().parse().unwrap();
    set_up_failpoints();
    let ballast_bytes = std::env::var(BALLAST).unwrap().parse().unwrap();
    let storage = match Storage::open(StorageConfig { ballast_bytes, ..config(&dir) }) {
        Ok(storage) => storage,
        Err(error) => {
            eprintln!("refused: {error}");
            std::process::exit(3);
        }
    };
    if cycles == 0 {
        return block_on(look(&storage));
    }
    if let Err(error) = block_on(work(&storage, cycles)) {
        // Checks that after a fatal error every kind of write is refused.
        let reason = storage.fatal().reason();
        if reason.is_none() {
            eprintln!("not fatal: {error}");
            std::process::exit(5);
        }
        let refused = block_on(append(&storage, vec![])).is_err()
            && block_on(storage.log.clone().save_vote(&Vote::new(u64::MAX, 1))).is_err()
            && storage.snapshots.writer().is_err()
            && write_snapshot(&storage, &[], &meta(1, u64::MAX)).is_err();
        eprintln!("failed: {error}; refused afterwards: {refused}");
        std::process::exit(if refused { 4 } else { 6 });
    }
    let fatal = storage.fatal().clone();
    drop(storage);
    // Waits until all snapshots are closed: their threads hold the directory's lock.
    std::fs::File::open(dir.join("LOCK")).unwrap().lock().unwrap();
    if let Some(reason) = fatal.reason() {
        eprintln!("failed at the end: {reason}");
        std::process::exit(4);
    }
}

fn set_up_failpoints() {
    if let Ok(at) = std::env::var(KILL_AT) {
        let (name, nth) = at.split_once(' ').unwrap();
        let passes = std::sync::atomic::AtomicU32::new(0);
        let nth: u32 = nth.parse().unwrap();
        let kill = move || {
            if passes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == nth {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
                // Waits for the signal, which may arrive a little later.
                loop {
                    std::thread::park();
                }
            }
        };
        fail::cfg_callback(name, kill).unwrap();
    }
    if let Ok(at) = std::env::var(FAIL_AT) {
        let (name, nth) = at.split_once(' ').unwrap();
        let before = nth.parse::<u32>().unwrap() - 1;
        let actions = if before == 0 { "1*return".into() } else { format!("{before}*off->1*return") };
        fail::cfg(name, &actions).unwrap();
    }
}

/// Checks the content of each entry and of the snapshot. Prints the entries as acknowledged writes.
async fn look(storage: &Storage) {
    let mut log = storage.log.clone();
    let first = log.purged().map_or(0, |id| id.index + 1);
    for (next, found) in (first..).zip(log.try_get_log_entries(..).await.unwrap()) {
        let (term, index) = (found.log_id.committed_leader_id().term, found.log_id.index);
        assert_eq!(index, next, "a gap in the log");
        assert_eq!(bytes_of(&found), content(term, index));
        tell(&format!("appended {term} {index} {}", index + 1));
    }
    if let Some(snapshot) = storage.snapshots.current() {
        let at = snapshot.manifest().meta.last_log_id.unwrap().index;
        assert_eq!(read_snapshot(&snapshot), records(at, RECORDS), "snapshot {at}");
    }
}

/// Repeats a cycle with every kind of write, beginning where the last child stopped.
async fn work(storage: &Storage, cycles: u32) -> std::io::Result<()> {
    let mut log = storage.log.clone();
    for cycle in 0..cycles {
        let term = log.vote().map_or(0, |vote| vote.leader_id.term) + 1;
        log.save_vote(&Vote::new(term, 1)).await?;
        tell(&format!("voted {term}"));
        let mut next = log.last().map_or(0, |id| id.index + 1);
        for batch in 1..=4 {
            append(storage, (next..next + batch).map(|index| entry(term, index, &content(term, index))).collect())
                .await?;
            tell(&format!("appended {term} {next} {}", next + batch));
            next += batch;
        }
        tell(&format!("cutting {}", next - 2));
        let last = log.try_get_log_entries(next - 3..next - 2).await?[0].log_id;
        log.truncate_after(Some(last)).await?;
        log.save_committed(Some(last)).await?;
        if cycle == 0 {
            storage.meta.set_joined()?;
            tell("joined");
            storage.meta.set_founding(FOUNDING)?;
            tell("founded");
        }
        snapshot(storage, last.committed_leader_id().term, last.index)?;
        tell(&format!("purging {}", last.index - 3));
        let upto = log.try_get_log_entries(last.index - 3..last.index - 2).await?[0].log_id;
        log.purge(upto).await?;
    }
    Ok(())
}

/// Takes a snapshot, then receives a copy of the same snapshot as if it came from another node.
fn snapshot(storage: &Storage, term: u64, index: u64) -> std::io::Result<()> {
    write_snapshot(storage, &records(index, RECORDS), &meta(term, index))?;
    tell(&format!("snapshot {index}"));
    let current = storage.snapshots.current().unwrap();
    let mut receiver = storage.snapshots.receive(current.manifest().clone())?;
    for chunk in 0..current.chunk_count() {
        receiver.push_chunk(&current.chunk(chunk)?)?;
    }
    drop(current);
    receiver.finish(|_| Ok(()))?;
    // Abandons a snapshot, so that its database must be removed.
    let mut abandoned = storage.snapshots.writer()?;
    abandoned.push(&[1; 50_000])?;
    Ok(())
}
