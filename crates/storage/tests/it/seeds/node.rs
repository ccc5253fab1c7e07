//! Process on the simulated disk. It opens the storage, checks all acknowledged writes, and makes
//! random new ones.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::exit;

use fastrand::Rng;
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use storage::{Snapshot, SnapshotStore, Storage, TypeConfig, Vote};

use super::facts::{FOUNDING, Facts, RECORDS, content};
use crate::harness::{data_dir_in_memory, entry, meta, open, records};

pub(super) const DIR: &str = "ZLOCK_SEEDS_DIR";
pub(super) const FACTS: &str = "ZLOCK_SEEDS_FACTS";
pub(super) const SEED: &str = "ZLOCK_SEEDS_SEED";
pub(super) const OPS: &str = "ZLOCK_SEEDS_OPS";

/// Exit code when acknowledged data is missing.
pub(super) const WRONG: i32 = 3;
/// Exit code when an operation of the disk failed.
pub(super) const FAILED: i32 = 4;

/// A node of this process that makes random writes.
struct Node {
    storage: Storage,
    rng: Rng,
    told: File,
}

/// Not a test, but the code of the child process. Without its environment variables it does
/// nothing.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let var = |name| std::env::var(name).unwrap();
    fail::cfg("log.chunk-bytes", "return(30000)").unwrap();
    let (facts, mut rng) = (PathBuf::from(var(FACTS)), Rng::with_seed(var(SEED).parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let storage = open(&dir).unwrap_or_else(|error| {
            eprintln!("not opened: {error}");
            exit(if matches!(error, storage::Error::Damaged { .. }) { WRONG } else { FAILED });
        });
        match Facts::read(&fs::read_to_string(&facts).unwrap_or_default()).judge(&storage).await {
            Ok((judged, found)) => {
                println!("judged {judged}");
                replace(&facts, &found).unwrap();
            }
            Err(wrong) => {
                eprintln!("{wrong}");
                exit(WRONG);
            }
        }
        let told = OpenOptions::new().append(true).open(&facts).unwrap();
        let closes = rng.bool();
        let mut node = Node { storage, rng, told };
        if let Err(error) = node.work(var(OPS).parse().unwrap()).await {
            eprintln!("failed: {error}");
            exit(FAILED);
        }
        if !closes {
            exit(0);
        }
        node.close(&dir).await;
    });
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

impl Node {
    fn tell(&mut self, fact: &str) {
        // Each line is one write, so that after a kill it is complete or missing.
        self.told.write_all(format!("{fact}\n").as_bytes()).unwrap();
    }

    async fn close(self, dir: &Path) {
        let Node { storage, mut told, .. } = self;
        let (closing, fatal) = (storage.closing(), storage.fatal().clone());
        drop(storage);
        closing.closed().await;
        // Waits until all snapshots are closed: their threads hold the directory's lock.
        File::open(dir.join("LOCK")).unwrap().lock().unwrap();
        if fatal.reason().is_some() {
            exit(FAILED);
        }
        told.write_all(b"closed\n").unwrap();
    }

    fn term(&self) -> u64 {
        self.storage.log.vote().map_or(0, |vote| vote.leader_id.term)
    }

    /// Index after the last entry of the log.
    fn next(&self) -> u64 {
        self.storage.log.last().map_or(0, |id| id.index + 1)
    }

    /// Index after the last entry of the current snapshot.
    fn contained(&self) -> u64 {
        self.storage.snapshots.current().map_or(0, |snapshot| snapshot.meta().last_log_id.unwrap().index + 1)
    }

    fn committed(&self) -> u64 {
        self.storage.log.committed().map_or(0, |id| id.index + 1)
    }

    async fn work(&mut self, ops: u32) -> io::Result<()> {
        if ops > 0 && self.contained() > self.next() {
            // The last process was killed after a snapshot arrived and before the log was purged.
            self.purge(self.contained()).await?;
        }
        for _ in 0..ops {
            match self.rng.u8(..100) {
                0..=9 => self.vote().await?,
                10..=59 => self.append().await?,
                60..=66 => self.cut().await?,
                67..=76 => self.commit().await?,
                77..=84 => self.build().await?,
                85..=89 => self.receive().await?,
                90..=95 => {
                    let kept = self.rng.u64(..20);
                    self.purge(self.contained().saturating_sub(kept)).await?;
                }
                96..=97 => self.abandon()?,
                _ => self.mark()?,
            }
        }
        Ok(())
    }

    async fn vote(&mut self) -> io::Result<()> {
        let term = self.term() + self.rng.u64(1..4);
        self.tell(&format!("voting {term}"));
        self.storage.log.save_vote(&Vote::new(term, 1)).await?;
        self.tell(&format!("voted {term}"));
        Ok(())
    }

    /// Makes several appends to the log without waiting in between, as Raft does.
    async fn append(&mut self) -> io::Result<()> {
        let (term, mut next, mut waiting) = (self.term(), self.next(), Vec::new());
        for _ in 0..self.rng.u64(1..4) {
            let to = next + self.rng.u64(1..5);
            self.tell(&format!("appending {term} {next} {to}"));
            let entries: Vec<_> = (next..to).map(|index| entry(term, index, &content(term, index))).collect();
            let (done, flushed) = TypeConfig::oneshot();
            self.storage.log.append(entries, IOFlushed::signal(done)).await?;
            waiting.push((next, to, flushed));
            next = to;
        }
        for (from, to, flushed) in waiting {
            flushed.await.map_err(|_| io::Error::other("nobody flushes"))??;
            self.tell(&format!("appended {term} {from} {to}"));
        }
        Ok(())
    }

    /// Cuts uncommitted entries from the log's end, as a follower does for a new leader.
    async fn cut(&mut self) -> io::Result<()> {
        let lowest = self.committed().max(self.contained()).max(1);
        if lowest >= self.next() {
            return Ok(());
        }
        let from = self.rng.u64(lowest..self.next());
        let before = self.storage.log.try_get_log_entries(from - 1..from).await?.first().map(|entry| entry.log_id);
        let Some(before) = before.or(self.storage.log.purged()) else { return Ok(()) };
        self.vote().await?;
        self.tell(&format!("cutting {from}"));
        self.storage.log.truncate_after(Some(before)).await?;
        self.tell(&format!("cut {from}"));
        Ok(())
    }

    async fn commit(&mut self) -> io::Result<()> {
        if self.committed() < self.next() {
            let upto = self.rng.u64(self.committed()..self.next());
            let found = self.storage.log.try_get_log_entries(upto..upto + 1).await?;
            if let [found] = &found[..] {
                self.tell(&format!("committing {}", upto + 1));
                self.storage.log.save_committed(Some(found.log_id)).await?;
            }
        }
        Ok(())
    }

    async fn build(&mut self) -> io::Result<()> {
        self.commit().await?;
        let next = self.committed();
        if next <= self.contained() {
            return Ok(());
        }
        let term = self.storage.log.committed().unwrap().committed_leader_id().term;
        self.tell(&format!("snapshotting {next} {term}"));
        write(&self.storage.snapshots, term, next)?;
        self.tell(&format!("snapshot {next} {term}"));
        Ok(())
    }

    /// Receives a snapshot that is ahead of the log, as a lagging follower does.
    async fn receive(&mut self) -> io::Result<()> {
        let (term, next) = (self.term(), self.next() + self.rng.u64(1..30));
        let (_parent, dir) = data_dir_in_memory();
        let elsewhere = open(&dir).unwrap();
        let sent = write(&elsewhere.snapshots, term, next)?;
        self.tell(&format!("snapshotting {next} {term}"));
        let mut receiver = self.storage.snapshots.receive(sent.manifest().clone())?;
        for chunk in 0..sent.chunk_count() {
            receiver.push_chunk(&sent.chunk(chunk)?)?;
        }
        receiver.finish(|_| Ok(()))?;
        self.tell(&format!("snapshot {next} {term}"));
        self.purge(next).await
    }

    async fn purge(&mut self, next: u64) -> io::Result<()> {
        if next <= self.storage.log.purged().map_or(0, |id| id.index + 1) {
            return Ok(());
        }
        let found = self.storage.log.try_get_log_entries(next - 1..next).await?.first().map(|entry| entry.log_id);
        let contained = self.storage.snapshots.current().and_then(|snapshot| snapshot.meta().last_log_id);
        let upto = found.or(contained.filter(|id| id.index == next - 1));
        let Some(upto) = upto else { return Ok(()) };
        self.tell(&format!("purging {next}"));
        self.storage.log.purge(upto).await?;
        self.tell(&format!("purged {next}"));
        Ok(())
    }

    fn abandon(&mut self) -> io::Result<()> {
        let mut abandoned = self.storage.snapshots.writer()?;
        abandoned.push(&[1; 50_000])
    }

    fn mark(&mut self) -> io::Result<()> {
        if self.rng.bool() {
            self.tell("joining");
            self.storage.meta.set_joined()?;
            self.tell("joined");
        } else if self.storage.meta.founding().is_none() {
            self.tell("founding");
            self.storage.meta.set_founding(FOUNDING)?;
            self.tell("founded");
        }
        Ok(())
    }
}

fn write(snapshots: &SnapshotStore, term: u64, next: u64) -> io::Result<Snapshot> {
    let mut writer = snapshots.writer()?;
    for record in records(next, RECORDS) {
        writer.push(&record)?;
    }
    writer.finish(&meta(term, next - 1))
}
