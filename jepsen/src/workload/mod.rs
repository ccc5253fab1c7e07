//! Work of the clients: one file for each kind of promise.
//!
//! A workload is prepared once, then its workers take steps, one operation or a few each, at the
//! pace of the run. After the last fault is healed each worker settles and the workload reads what
//! is left.

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
mod patience;
mod pool;
mod queues;
mod register;
mod retries;
mod revokes;
mod sequences;
mod sessions;
mod stretches;
mod waiter;
mod waits;
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

/// Everything that the harness makes lies below this znode.
pub const ROOT: &str = "/jepsen";

/// Work of the clients under one workload.
pub trait Work: Send + Sync + Sized + 'static {
    /// State that one worker keeps from step to step.
    type Worker: Send + 'static;

    /// Name of the workload. All its znodes lie below a znode of that name.
    fn name(&self) -> &'static str;

    /// Makes what all workers need.
    fn prepare(&self, client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        make_root(client, self.name())
    }

    /// A worker that has done nothing yet.
    fn worker(&self, index: usize) -> Self::Worker;

    /// The next thing that a worker does.
    fn step(&self, worker: &mut Self::Worker, client: &mut Client) -> impl Future<Output = Result<(), String>> + Send;

    /// Ends the work of one worker once everything is healed.
    fn settle(&self, _worker: Self::Worker, _client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Reads what is left, when all workers have settled.
    fn finish(&self, _client: &mut Client) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }
}

/// Znodes that are known to be there, so that each is made once.
#[derive(Default)]
pub(crate) struct Made {
    paths: Mutex<BTreeSet<String>>,
}

impl Made {
    /// Makes the znode unless that was done before.
    pub(crate) async fn ensure(&self, client: &mut Client, path: &str, data: &str) -> Result<(), String> {
        if self.paths.lock().await.contains(path) {
            return Ok(());
        }
        client.ensure(path, data).await?;
        self.paths.lock().await.insert(path.to_owned());
        Ok(())
    }

    /// All znodes that were made.
    pub(crate) async fn all(&self) -> BTreeSet<String> {
        self.paths.lock().await.clone()
    }
}

/// Makes `/jepsen` and a znode below it.
pub(crate) async fn make_root(client: &mut Client, name: &str) -> Result<(), String> {
    client.ensure(ROOT, "").await?;
    client.ensure(&format!("{ROOT}/{name}"), "").await
}

/// The number of the stretch of this length that the run is in. Names with it keep the parts that a
/// checker looks at small.
pub(crate) fn epoch(client: &Client, length: Duration) -> u64 {
    Duration::from_nanos(client.now_ns()).as_secs() / length.as_secs().max(1)
}

/// Records a read that goes on until it is answered: the last look at what is left.
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
