//! The heartbeat of an acquire, from which the answer tells how long the lock is safe.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use znode::Credential;

use crate::request::door::Door;

/// Longest time that a grant waits for its heartbeat.
const PATIENCE: Duration = Duration::from_millis(500);

/// A heartbeat that was sent to the leader beside a request.
pub(crate) struct Heartbeat(JoinHandle<u64>);

impl Heartbeat {
    pub(crate) fn send(door: &Door, credential: Credential) -> Heartbeat {
        let (replica, deadline) = (door.replica.clone(), door.read_deadline());
        Heartbeat(tokio::spawn(async move {
            let touch = replica.touch(credential, deadline).await;
            touch.map_or(0, |touch| safe_for_ms(touch.timeout_ms))
        }))
    }

    /// Waits for the time, counted from the client's request, for which the session is safe; 0 when
    /// the leader did not answer.
    pub(crate) async fn safe_for_ms(mut self) -> u64 {
        let answered = timeout(PATIENCE, &mut self.0).await;
        answered.map_or(0, |safe_for_ms| safe_for_ms.unwrap_or(0))
    }
}

/// Returns the time, counted from the client's request, in which the session cannot expire.
///
/// The leader counts the timeout from the arrival of the request, which is later. The 2 % that are
/// subtracted allow for clocks that run at different speeds.
pub(crate) fn safe_for_ms(timeout_ms: u32) -> u64 {
    u64::from(timeout_ms - timeout_ms / 50)
}
