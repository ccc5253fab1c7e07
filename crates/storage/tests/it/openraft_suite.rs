//! openraft's test suite for log stores and state machines. The state machine is a small one that
//! keeps its snapshots in this crate.

use std::io;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use storage::{LogId, LogStore, Outcome, Payload, Snapshot, SnapshotMeta, Storage, StoredMembership, TypeConfig};
use tempfile::TempDir;

use crate::harness::{data_dir, open};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Machine, (TempDir, Storage)> for Builder {
    async fn build(&self) -> Result<((TempDir, Storage), LogStore, Machine), StorageError<TypeConfig>> {
        let (parent, dir) = data_dir();
        let storage = open(&dir).unwrap();
        let machine = Machine { storage: storage.clone(), applied: Arc::default() };
        Ok(((parent, storage.clone()), storage.log, machine))
    }
}

#[derive(Clone)]
struct Machine {
    storage: Storage,
    applied: Arc<Mutex<(Option<LogId>, StoredMembership)>>,
}

type Stored = openraft::alias::SnapshotOf<TypeConfig, Snapshot>;

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = Snapshot;

    async fn build_snapshot(&mut self) -> io::Result<Stored> {
        let (last_log_id, last_membership) = self.applied.lock().unwrap().clone();
        let writer = self.storage.snapshots.writer()?;
        let snapshot = writer.finish(&SnapshotMeta { last_log_id, last_membership })?;
        Ok(Stored { meta: snapshot.meta().clone(), snapshot })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Snapshot;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok(self.applied.lock().unwrap().clone())
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut applied = self.applied.lock().unwrap();
            applied.0 = Some(entry.log_id);
            if let Payload::Membership(membership) = entry.payload {
                applied.1 = StoredMembership::new(Some(entry.log_id), membership);
            }
            if let Some(responder) = responder {
                responder.send(Outcome(Arc::new(())));
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Snapshot) -> io::Result<()> {
        let mut receiver = self.storage.snapshots.receive(snapshot.manifest().clone())?;
        for index in 0..snapshot.chunk_count() {
            receiver.push_chunk(&snapshot.chunk(index)?)?;
        }
        receiver.finish(|_| Ok(()))?;
        *self.applied.lock().unwrap() = (meta.last_log_id, meta.last_membership.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Stored>> {
        let current = self.storage.snapshots.current();
        Ok(current.map(|snapshot| Stored { meta: snapshot.meta().clone(), snapshot }))
    }
}

#[test]
fn openrafts_own_suite_passes() {
    // The suite sleeps for seconds after events that are over by then; a paused clock skips the
    // sleeps.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(Suite::test_all(Builder)).unwrap();
}
