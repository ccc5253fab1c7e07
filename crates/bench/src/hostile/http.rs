//! Hostile traffic over HTTP.

use tokio::time::Instant;

use super::attack::{Tally, Target, swarm};
use crate::error::Error;

/// Headers that announce a body of 4 MiB, and the first byte of that body.
pub(crate) const ANNOUNCED: &str = "content-type: application/json\r\ncontent-length: 4194304\r\n\r\nx";
/// Headers of a chunked body, the size of a first chunk of 4 MiB, and its first byte.
pub(crate) const CHUNKED: &str = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n400000\r\nx";

/// Number of clients, each with one connection and one request at a time.
const CLIENTS: usize = 12;

/// Keeps `count` requests open whose bodies never arrive in full.
pub(crate) async fn hold_bodies(target: &Target, count: usize, rest: &str, until: Instant, tally: &Tally) {
    swarm(count, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        client.begin("POST", &format!("/v1/znodes/held-{number}"), rest).await?;
        tally.sent(1);
        // The server waits for the body for a while, refuses the request, and closes the
        // connection.
        let status = client.answer().await?;
        tally.answer((200..300).contains(&status));
        Ok(())
    })
    .await;
}

/// Sends writes with idempotency keys. The cluster keeps their answers while the sessions last.
pub(crate) async fn fill_with_replies(target: &Target, until: Instant, tally: &Tally) {
    swarm(CLIENTS, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        client.open_session(60_000).await?;
        // 64 is the number of idempotency keys that the cluster remembers for one session.
        for key in 0..64 {
            let path = format!("/v1/znodes/kept-{number}-?mode=persistent-sequential");
            let key = format!("{number:08x}-0000-4000-8000-{key:012x}");
            tally.ask(&mut client, "POST", &path, Some(&key), &[b'x'; 100]).await?;
        }
        Ok(())
    })
    .await;
}

/// Opens sessions and does nothing in them.
pub(crate) async fn open_sessions(target: &Target, until: Instant, tally: &Tally) {
    repeat(target, ("POST", "/v1/sessions", b"{\"timeout\":\"300s\"}"), until, tally).await;
}

/// Asks for digests of the state.
pub(crate) async fn ask_digests(target: &Target, until: Instant, tally: &Tally) {
    repeat(target, ("GET", "/v1/cluster?digest=true", b""), until, tally).await;
}

/// Sends one request again and again. A status of 500 or more leads to a new connection.
async fn repeat(target: &Target, (method, path, body): (&str, &str, &[u8]), until: Instant, tally: &Tally) {
    swarm(CLIENTS, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        loop {
            let status = tally.ask(&mut client, method, path, None, body).await?;
            if status >= 500 {
                return Err(Error::Answer(format!("{path}: {status}")));
            }
        }
    })
    .await;
}
