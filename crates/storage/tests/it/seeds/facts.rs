//! Facts about a node (the writes that it began and those that it acknowledged), and their
//! comparison with the node's storage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use openraft::RaftLogReader;
use storage::Storage;

use crate::harness::{bytes_of, meta, read_snapshot, records};

pub(super) const RECORDS: usize = 6;
/// Values of [`storage::Seed::founding`]: the cluster's uuid, zxid base and number of its Raft
/// group.
pub(super) const FOUNDING: ([u8; 16], u64, u32) = ([9; 16], 1 << 40, 2);

/// Pseudorandom content of the log entry; one in eight is up to 12,000 bytes long, to span several
/// pages.
pub(super) fn content(term: u64, index: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(term << 32 | index);
    let len = if rng.u8(..8) == 0 { rng.usize(..12_000) } else { rng.usize(..300) };
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

/// Bounds of a stored value: at least the acknowledged value, and at most the value of a write that
/// was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Between<T> {
    acknowledged: T,
    begun: T,
}

impl<T: Copy + PartialEq + PartialOrd + std::fmt::Debug> Between<T> {
    fn judge(&self, what: &str, found: T) -> Result<(), String> {
        let fits = self.acknowledged <= found && found <= self.begun;
        let Between { acknowledged, begun } = self;
        if fits {
            Ok(())
        } else {
            Err(format!("{what}: {acknowledged:?} was acknowledged, {begun:?} begun, {found:?} found"))
        }
    }

    fn set(&mut self, value: T) {
        (self.acknowledged, self.begun) = (value, value);
    }
}

/// Facts about a node: the writes that it began and those that it acknowledged. Positions in the
/// log are the index of the next entry, so 0 stands for no entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    vote: Between<u64>,
    purged: Between<u64>,
    committed: Between<u64>,
    /// Index after the last entry of the snapshot, and the term of that entry.
    snapshot: Between<(u64, u64)>,
    joined: Between<bool>,
    founded: Between<bool>,
    /// Terms of acknowledged entries, by index.
    entries: BTreeMap<u64, u64>,
    /// Terms by index of entries that may or may not exist: their append was not acknowledged, or
    /// their cut had begun.
    maybe: BTreeMap<u64, BTreeSet<u64>>,
}

impl Facts {
    /// Parses the text of a file with one fact in each line.
    pub(super) fn read(text: &str) -> Facts {
        let mut facts = Facts::default();
        // Ignores an incomplete last line of a killed process.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().for_each(|line| facts.hear(line));
        facts
    }

    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let what = words.next().unwrap();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        match what {
            "voting" => self.vote.begun = number(),
            "voted" => self.vote.set(number()),
            "purging" => self.purged.begun = number(),
            "purged" => self.purged.set(number()),
            "committing" => self.committed.begun = number(),
            "committed" => self.committed.set(number()),
            "closed" => self.committed.acknowledged = self.committed.begun,
            "snapshotting" => self.snapshot.begun = (number(), number()),
            "snapshot" => self.snapshot.set((number(), number())),
            "joining" => self.joined.begun = true,
            "joined" => self.joined.set(true),
            "founding" => self.founded.begun = true,
            "founded" => self.founded.set(true),
            "appending" => {
                let (term, from, to) = (number(), number(), number());
                (from..to).for_each(|index| _ = self.maybe.entry(index).or_default().insert(term));
            }
            "appended" => {
                let (term, from, to) = (number(), number(), number());
                (from..to).for_each(|index| drop(self.maybe.remove(&index)));
                self.entries.extend((from..to).map(|index| (index, term)));
            }
            "cutting" => {
                for (index, term) in self.entries.split_off(&number()) {
                    self.maybe.entry(index).or_default().insert(term);
                }
            }
            "cut" => drop(self.maybe.split_off(&number())),
            other => panic!("{other:?} is no fact"),
        }
    }

    /// Compares the facts with a storage that was just opened. Returns their number, and a text
    /// with the facts that describe the storage's present content, which is durable after the open.
    pub(super) async fn judge(&self, storage: &Storage) -> Result<(usize, String), String> {
        let mut log = storage.log.clone();
        let mut found = String::new();
        let vote = log.vote().map_or(0, |vote| vote.leader_id.term);
        self.vote.judge("vote", vote)?;
        let next = |id: Option<storage::LogId>| id.map_or(0, |id| id.index + 1);
        let (purged, committed) = (next(log.purged()), next(log.committed()));
        self.purged.judge("purged", purged)?;
        self.committed.judge("committed", committed)?;
        let (joined, founding) = (storage.meta.joined(), storage.meta.founding());
        self.joined.judge("joined", joined)?;
        self.founded.judge("founded", founding == Some(FOUNDING))?;
        writeln!(found, "voted {vote}\npurged {purged}\ncommitted {committed}").unwrap();
        found += if joined { "joined\n" } else { "" };
        found += if founding.is_some() { "founded\n" } else { "" };
        if let Some((index, term)) = self.judge_snapshot(storage)? {
            writeln!(found, "snapshot {index} {term}").unwrap();
        }
        let entries = log.try_get_log_entries(..).await.map_err(|error| error.to_string())?;
        let mut at = purged;
        for entry in &entries {
            let (index, term) = (entry.log_id.index, entry.log_id.committed_leader_id().term);
            let told = self.entries.get(&index) == Some(&term);
            let maybe = self.maybe.get(&index).is_some_and(|terms| terms.contains(&term));
            if index != at || !(told || maybe) || bytes_of(entry) != content(term, index) {
                return Err(format!("entry {index} of term {term} was never written so; entry {at} is the next one"));
            }
            at += 1;
            writeln!(found, "appended {term} {index} {at}").unwrap();
        }
        match self.entries.range(at..).next() {
            Some((index, term)) => Err(format!("entry {index} of term {term} is lost: the log ends before {at}")),
            None => Ok((self.entries.len() + 6, found)),
        }
    }

    fn judge_snapshot(&self, storage: &Storage) -> Result<Option<(u64, u64)>, String> {
        let current = storage.snapshots.current();
        let id = |snapshot: &storage::Snapshot| snapshot.meta().last_log_id.unwrap();
        let at = current.as_ref().map(id).map(|id| (id.index + 1, id.committed_leader_id().term));
        self.snapshot.judge("snapshot", at.unwrap_or_default())?;
        if let (Some(snapshot), Some((next, term))) = (current, at)
            && (read_snapshot(&snapshot) != records(next, RECORDS) || *snapshot.meta() != meta(term, next - 1))
        {
            return Err(format!("the snapshot up to {next} is not what was written"));
        }
        Ok(at)
    }
}
