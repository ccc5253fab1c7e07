//! The heartbeat that goes with an acquire, so that its answer can say how long the lock is safe.

use tokio::task::JoinHandle;
use znode::Credential;

use crate::door::Door;
use crate::sessions::safe_for_ms;

/// A heartbeat on its way to the leader, beside the request that it came with. Dropped with it.
pub(crate) struct Heartbeat(JoinHandle<u64>);

impl Heartbeat {
    pub(crate) fn send(door: &Door, credential: Credential) -> Heartbeat {
        let (replica, deadline) = (door.replica().clone(), door.read_deadline());
        Heartbeat(tokio::spawn(async move {
            let touch = replica.touch(credential, deadline).await;
            touch.map_or(0, |touch| safe_for_ms(touch.timeout_ms))
        }))
    }

    /// How long, from the moment the client sent its request, the session is safe; 0 when the leader did not say.
    pub(crate) async fn safe_for_ms(self) -> u64 {
        self.0.await.unwrap_or(0)
    }
}
