//! Workloads: the operations of the clients, with a file for each kind of promise.
//!
//! A workload is prepared once. Then its workers take steps of one operation or a few, at the rate
//! of the run. After the last fault is mended each worker settles (sends its last requests), and
//! the workload reads the final state.

mod bank;
mod delays;
mod door;
mod elections;
mod ephemerals;
mod fenced;
mod guarded;
mod locks;
mod mixed;
mod own_session;
mod owner;
mod pool;
mod queues;
mod register;
mod retries;
mod revokes;
mod sequences;
mod sessions;
mod stretches;
mod waiter;
mod watchers;
mod wishes;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::http::Call;

pub use bank::Bank;
pub use delays::Delays;
pub use door::Doors;
pub use elections::Elections;
pub use ephemerals::Ephemerals;
pub use fenced::Fenced;
pub use locks::{LockKind, Locks};
pub use mixed::Mixed;
pub use queues::{QueueKind, Queues};
pub use register::Registers;
pub use retries::Retries;
pub use revokes::Revokes;
pub use sequences::Sequences;
pub use sessions::Sessions;
pub use watchers::Watchers;

/// Path of the znode below which the workloads create their znodes.
pub const ROOT: &str = "/jepsen";

/// A workload: what its clients do.
pub trait Work: Send + Sync + Sized + 'static {
    /// State of one worker between its steps, such as its session.
    type Worker: Default + Send + 'static;

    /// Creates the znodes that all workers need, before the first step. The workload's own znode,
    /// which has its name and is below `/jepsen`, exists already.
    fn prepare(&self, _client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Returns the first state of the worker with this index, from 0.
    fn worker(&self, _index: usize) -> Self::Worker {
        Self::Worker::default()
    }

    /// Makes the next operation, or the next few, of one worker.
    fn step(&self, worker: &mut Self::Worker, client: &mut Client) -> impl Future<Output = Result<(), String>> + Send;

    /// Sends the last requests of one worker, after its last step and the last mend.
    fn settle(&self, _worker: Self::Worker, _client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Reads the final state, when all workers have settled.
    fn finish(&self, _client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }
}

/// Znodes that are known to exist, so that each is created only once.
#[derive(Default)]
pub(crate) struct Made {
    paths: Mutex<BTreeSet<String>>,
}

impl Made {
    /// Creates the znode unless it is known to exist.
    pub(crate) async fn ensure(&self, client: &mut Client, path: &str, data: &str) -> Result<(), String> {
        if self.paths.lock().await.contains(path) {
            return Ok(());
        }
        client.ensure(path, data).await?;
        self.paths.lock().await.insert(path.to_owned());
        Ok(())
    }

    /// Returns the paths of all these znodes.
    pub(crate) async fn all(&self) -> BTreeSet<String> {
        self.paths.lock().await.clone()
    }
}

/// Creates `/jepsen` and the znode of a workload below it.
pub(crate) async fn make_root(client: &mut Client, name: &str) -> Result<(), String> {
    client.ensure(ROOT, "").await?;
    client.ensure(&format!("{ROOT}/{name}"), "").await
}

/// Returns the number of the present period of the run, from 0. Names of keys and locks contain it:
/// new keys in each period keep the parts of a history small that a checker judges together.
pub(crate) fn epoch(client: &Client, length: Duration) -> u64 {
    Duration::from_nanos(client.now_ns()).as_secs() / length.as_secs().max(1)
}

/// Records a read at the end of a run, which is retried until it is answered.
pub(crate) async fn final_read(
    client: &mut Client,
    f: &str,
    value: Value,
    call: Call,
    result: impl FnOnce(&crate::answer::Answer) -> Value,
) -> Result<(), String> {
    client.invoke(f, value);
    let answer = client.insist(call, |answer| answer.is_problem("no-node")).await?;
    let value = result(&answer);
    client.end(crate::history::Kind::Ok, f, value, None, Some(&answer));
    Ok(())
}
