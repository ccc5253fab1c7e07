//! Heartbeat of an acquire, which tells for how long the session, and so the lock, cannot expire.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use znode::Credential;

use crate::request::door::Door;

/// Longest time for which the answer with a granted lock waits for the leader's reply to the
/// session's heartbeat.
const PATIENCE: Duration = Duration::from_millis(500);

/// A heartbeat that was sent to the leader in parallel with the acquire.
pub(crate) struct Heartbeat(JoinHandle<u64>);

impl Heartbeat {
    pub(crate) fn send(door: &Door, credential: Credential) -> Heartbeat {
        let (replica, deadline) = (door.replica.clone(), door.read_deadline());
        Heartbeat(tokio::spawn(async move {
            let touch = replica.touch(credential, deadline).await;
            touch.map_or(0, |touch| safe_for_ms(touch.timeout_ms))
        }))
    }

    /// Waits for the leader's reply. Returns the time in milliseconds, counted from the client's
    /// request, in which the session cannot expire; 0 when the leader did not reply in time.
    pub(crate) async fn safe_for_ms(mut self) -> u64 {
        let answered = timeout(PATIENCE, &mut self.0).await;
        answered.map_or(0, |safe_for_ms| safe_for_ms.unwrap_or(0))
    }
}

/// Returns the time in milliseconds, counted from the client's request, in which the session cannot
/// expire.
///
/// The leader counts the timeout from the arrival of the heartbeat, which is later. 2 % are
/// subtracted because clocks run at different speeds.
pub(crate) fn safe_for_ms(timeout_ms: u32) -> u64 {
    u64::from(timeout_ms - timeout_ms / 50)
}
