//! Download of backups, which may be larger than memory.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::connection::Passed;
use crate::client::tries::Tries;
use crate::client::verdict::{Verdict, judge};

/// Longest time for which a node may send no bytes during a download.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Pause after every endpoint was tried once without success.
const PAUSE: Duration = Duration::from_millis(200);

impl Client {
    /// Downloads a backup: passes its bytes to `take` as they arrive, and returns their number.
    /// With `local`, one node answers from its own state without a quorum. For operators.
    ///
    /// The caller must check that the backup is complete, by the hash at its end.
    ///
    /// # Errors
    /// As any read, before the first byte. `Unavailable` when `take` fails, and when the connection
    /// breaks off in the middle. A caller that must tell these two apart notes the error in `take`.
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
                match judge(&pool.addr, ending, &call, false) {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::fake_node::fake_node;

    /// Starts a node that sends the head of an HTTP answer and the body's beginning `part`, and
    /// then closes the connection.
    async fn breaking_node(part: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4_096]).await;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{part}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        addr
    }

    /// Downloads from a node that breaks off after `part`, and then from a good node if the client
    /// asks it.
    async fn backup(part: &'static str) -> (Result<u64, Error>, Vec<u8>) {
        let (good, _requests) = fake_node(async |_| "whole".to_owned()).await;
        let client = Client::builder([breaking_node(part).await, good]).build().unwrap();
        let mut taken = Vec::new();
        let answer = client.backup(false, |bytes| {
            taken.extend_from_slice(&bytes);
            Ok(())
        });
        (answer.await, taken)
    }

    #[tokio::test]
    async fn another_node_is_asked_if_the_first_breaks_off_before_its_first_byte() {
        let (answer, taken) = backup("").await;
        assert_eq!((answer.unwrap(), &taken[..]), (5, &b"whole"[..]));
    }

    #[tokio::test]
    async fn what_breaks_off_in_the_middle_is_an_error() {
        let (answer, taken) = backup("half").await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
        assert_eq!(taken, b"half");
    }
}
