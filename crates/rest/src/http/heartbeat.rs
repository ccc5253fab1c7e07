//! The heartbeat that goes with an acquire, so that its answer can say how long the lock is safe.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use znode::Credential;

use crate::request::door::Door;

/// A grant is not held back for its heartbeat any longer.
const PATIENCE: Duration = Duration::from_millis(500);

/// A heartbeat on its way to the leader, beside the request that it came with.
pub(crate) struct Heartbeat(JoinHandle<u64>);

impl Heartbeat {
    pub(crate) fn send(door: &Door, credential: Credential) -> Heartbeat {
        let (replica, deadline) = (door.replica.clone(), door.read_deadline());
        Heartbeat(tokio::spawn(async move {
            let touch = replica.touch(credential, deadline).await;
            touch.map_or(0, |touch| safe_for_ms(touch.timeout_ms))
        }))
    }

    /// How long, from the moment the client sent its request, the session is safe; 0 when the
    /// leader did not say.
    pub(crate) async fn safe_for_ms(mut self) -> u64 {
        let answered = timeout(PATIENCE, &mut self.0).await;
        answered.map_or(0, |safe_for_ms| safe_for_ms.unwrap_or(0))
    }
}

/// How long, counted from the moment the client sent the request, the session cannot have expired.
///
/// The leader counts the timeout from the arrival, which is later. What is taken off pays for
/// clocks that run at different speeds.
pub(crate) fn safe_for_ms(timeout_ms: u32) -> u64 {
    u64::from(timeout_ms - timeout_ms / 50)
}
