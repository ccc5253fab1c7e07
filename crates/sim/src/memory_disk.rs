//! A disk in memory. A crash loses the writes that were not synced.
//!
//! Snapshots and the node's identity are written by the code that writes to a real disk, in the
//! same order and with the same syncs. The Raft log of a simulated node is not on this disk.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::simulation::{Engine, FileRecord, Parts, Place, Tree};
use storage::{Error, Identity};

/// Maps of keys to values: the databases of snapshots by their numbers, and, without a number, the
/// node's small records.
type Trees = BTreeMap<Option<u64>, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Content of a node's disk, which outlives the simulated process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    /// Content that the simulated process reads, unsynced writes included.
    trees: Trees,
    synced: Trees,
    /// Writes that are in `trees` and not yet in `synced`, in order.
    unsynced: VecDeque<Write>,
    /// Number of simulated crashes and wipes so far. Handles that were opened before the last crash
    /// or wipe get errors.
    boot: u64,
}

#[derive(Clone, Debug)]
enum Write {
    Insert { tree: Option<u64>, key: Vec<u8>, value: Vec<u8> },
    RemoveAll { tree: Option<u64> },
}

impl MemoryDisk {
    /// Opens the disk of a node. An empty disk is given the node's identity first.
    ///
    /// # Errors
    /// [`Error::Damaged`] and others. A simulated crash must never cause an error.
    pub fn open(&self, identity: Identity) -> Result<Parts, Error> {
        let (boot, is_new) = {
            let contents = self.lock();
            (contents.boot, contents.trees.is_empty())
        };
        let database = MemoryDatabase { disk: self.clone(), boot };
        let place = Arc::new(database.tree(None));
        storage::simulation::open(place, database, identity, is_new)
    }

    /// Number of writes that are not synced. A loss of power would keep some of the oldest of these
    /// writes and lose the later ones.
    pub fn unsynced(&self) -> usize {
        self.lock().unsynced.len()
    }

    /// Simulates a loss of power: the first `kept` unsynced writes reach the disk. A node that has
    /// the disk open gets errors from now on.
    pub fn crash(&self, kept: usize) {
        let mut contents = self.lock();
        contents.boot += 1;
        contents.unsynced.truncate(kept);
        contents.sync();
        contents.trees = contents.synced.clone();
    }

    /// Empties the disk. A node that has the disk open gets errors from now on.
    pub fn wipe(&self) {
        let mut contents = self.lock();
        *contents = Contents { boot: contents.boot + 1, ..Contents::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn sync(&mut self) {
        for write in std::mem::take(&mut self.unsynced) {
            apply(&mut self.synced, write);
        }
    }
}

fn apply(trees: &mut Trees, write: Write) {
    match write {
        Write::Insert { tree, key, value } => drop(trees.entry(tree).or_default().insert(key, value)),
        Write::RemoveAll { tree } => drop(trees.remove(&tree)),
    }
}

/// Access of one simulated process to a [`MemoryDisk`]. After a crash or wipe, all its calls return
/// errors.
#[derive(Clone, Debug)]
struct MemoryDatabase {
    disk: MemoryDisk,
    boot: u64,
}

impl MemoryDatabase {
    fn tree(&self, number: Option<u64>) -> MemoryTree {
        MemoryTree { database: self.clone(), number }
    }

    fn sync(&self) -> io::Result<()> {
        self.contents()?.sync();
        Ok(())
    }

    fn contents(&self) -> io::Result<MutexGuard<'_, Contents>> {
        let contents = self.disk.lock();
        if contents.boot == self.boot { Ok(contents) } else { Err(io::Error::other("the machine has lost power")) }
    }

    fn write(&self, write: Write) -> io::Result<()> {
        let mut contents = self.contents()?;
        apply(&mut contents.trees, write.clone());
        contents.unsynced.push_back(write);
        Ok(())
    }
}

/// Snapshot databases on a [`MemoryDisk`]. Reads use the database itself; only sled needs a copy
/// for reading.
impl Engine for MemoryDatabase {
    fn lock(&self) -> io::Result<Option<Arc<File>>> {
        Ok(None)
    }

    fn begin(&self, number: u64) -> io::Result<Box<dyn Tree>> {
        Ok(Box::new(self.tree(Some(number))))
    }

    fn publish(&self, _number: u64) -> io::Result<Vec<FileRecord>> {
        self.sync().map(|()| Vec::new())
    }

    fn open(&self, number: u64, _files: &[FileRecord], _spare: u64) -> io::Result<Box<dyn Tree>> {
        Ok(Box::new(self.tree(Some(number))))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.write(Write::RemoveAll { tree: Some(number) })
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        Ok(self.disk.lock().trees.keys().copied().flatten().collect())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}

/// One map of keys to values on a [`MemoryDisk`], such as a snapshot's database.
#[derive(Clone, Debug)]
struct MemoryTree {
    database: MemoryDatabase,
    number: Option<u64>,
}

impl Tree for MemoryTree {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let contents = self.database.contents()?;
        Ok(contents.trees.get(&self.number).and_then(|tree| tree.get(key)).cloned())
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.database.write(Write::Insert { tree: self.number, key: key.into(), value: value.into() })
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// The node's small records are keys of one map on the disk.
impl Place for MemoryTree {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.get(name.as_bytes())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.insert(name.as_bytes(), bytes)?;
        self.database.sync()
    }
}

#[cfg(test)]
mod tests {
    use storage::SnapshotMeta;

    use super::*;

    fn identity() -> Identity {
        Identity { cluster_id: "c".into(), node_id: 1 }
    }

    #[test]
    fn a_loss_of_power_takes_what_was_not_synced() {
        let disk = MemoryDisk::default();
        let parts = disk.open(identity()).unwrap();
        parts.meta.set_joined().unwrap();
        let mut writer = parts.snapshots.writer().unwrap();
        writer.push(b"one").unwrap();
        let snapshot = writer.finish(&SnapshotMeta::default()).unwrap();
        let mut writer = parts.snapshots.writer().unwrap();
        writer.push(&[7; 100_000]).unwrap();
        let unsynced = disk.unsynced();
        assert!(unsynced > 1);
        disk.crash(unsynced - 1);
        assert!(writer.push(&[7; 100_000]).is_err());
        let again = disk.open(identity()).unwrap();
        assert!(again.meta.joined());
        assert_eq!(again.snapshots.current().unwrap().manifest(), snapshot.manifest());
        assert_eq!(disk.lock().trees.len(), 2, "what the crash left of the second snapshot is gone");
        disk.wipe();
        assert!(disk.open(identity()).unwrap().snapshots.current().is_none());
    }
}
