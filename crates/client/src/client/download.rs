//! Backups, which are answers that may be larger than memory.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::connection::Passed;
use crate::client::tries::Tries;
use crate::client::verdict::{Verdict, judge};

/// Longest silence of a node in the middle of a backup.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Pause between two rounds through the endpoints.
const PAUSE: Duration = Duration::from_millis(200);

impl Client {
    /// Passes the bytes of a backup to `take` as they come, and returns their number. With `local`,
    /// one node answers from its own state without a quorum. For operators.
    ///
    /// The reader must check that the backup is complete; a backup ends with a hash.
    ///
    /// # Errors
    /// As any read, before the first byte; the first error of `take` as `Unavailable`;
    /// `Unavailable` when the node broke off in the middle.
    pub async fn backup(&self, local: bool, mut take: impl FnMut(Bytes) -> io::Result<()>) -> Result<u64, Error> {
        let call = Call::get(Target::route("/v1/admin/backup").with_some("local", local.then_some(true)).finish());
        let (transport, deadline) = (&self.inner.transport, self.deadline());
        let mut tries = Tries::new(transport.pools.len());
        loop {
            for (index, pool) in transport.pools.iter().enumerate() {
                let within = transport.timeouts.connect.min(deadline.remaining());
                let ending = match pool.pass_on(&call, within, SILENCE_MAX, &mut take).await {
                    Passed::All(bytes) => return Ok(bytes),
                    Passed::Part(why) => return Err(Error::unavailable(format!("{}: {why}", pool.addr))),
                    Passed::Nothing(ending) => ending,
                };
                match judge(&pool.addr, ending, call.repeat, false) {
                    Verdict::Refused(error) | Verdict::Failed(error) => return Err(error),
                    Verdict::Again { reason, unreachable, .. } => tries.failed(index, reason, unreachable),
                    Verdict::Done(_) => return Err(Error::unavailable(format!("{}: no backup", pool.addr))),
                }
            }
            if deadline.remaining() <= PAUSE || tries.are_hopeless() {
                return Err(Error::unavailable(tries.words()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
