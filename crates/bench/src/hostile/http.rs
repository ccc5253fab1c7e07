//! Hostile traffic over HTTP.

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::attack::{SOURCE, Tally, Target, again};
use crate::client::connect_from;
use crate::error::Error;

/// A head that promises a body of 4 MiB, and its first byte.
pub(crate) const ANNOUNCED: &str = "content-length: 4194304\r\n\r\nx";
/// The same in chunks.
pub(crate) const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n400000\r\nx";

/// Connections with one request each; sessions that one client is at.
const CLIENTS: usize = 12;

/// Keeps so many requests open whose bodies do not come.
pub(crate) async fn hold_bodies(target: &Target, count: usize, rest: &str, until: Instant, tally: &Tally) {
    let hold = |number: usize| {
        again(until, tally, move || async move {
            let addr = &target.rest[number % target.rest.len()];
            let mut stream = connect_from(SOURCE, addr).await?;
            let head = format!("POST /v1/znodes/held-{number} HTTP/1.1\r\nhost: {addr}\r\n");
            let head = format!("{head}content-type: application/json\r\n{rest}");
            stream.write_all(head.as_bytes()).await?;
            // Until the server says no, which is all that it can say.
            let mut answer = [0; 1024];
            let read = stream.read(&mut answer).await?;
            tally.answer(read == 0);
            Ok(())
        })
    };
    join_all((0..count).map(hold)).await;
}

/// Writes with keys, whose answers the cluster keeps for as long as the sessions last.
pub(crate) async fn fill_with_replies(target: &Target, until: Instant, tally: &Tally) {
    let fill = |number: usize| {
        again(until, tally, move || async move {
            let mut client = target.rest(number).await?;
            client.open_session(60_000).await?;
            // As many as are remembered for one session.
            for key in 0..64 {
                let path = format!("/v1/znodes/kept-{number}-?mode=persistent-sequential");
                let key = format!("{number:08x}-0000-4000-8000-{key:012x}");
                let status = client.call("POST", &path, Some(&key), &[b'x'; 100]).await?;
                tally.answer((200..300).contains(&status));
            }
            Ok(())
        })
    };
    join_all((0..CLIENTS).map(fill)).await;
}

/// Opens sessions and does nothing in them.
pub(crate) async fn open_sessions(target: &Target, until: Instant, tally: &Tally) {
    let open = |number: usize| {
        again(until, tally, move || async move {
            let mut client = target.rest(number).await?;
            loop {
                let status = client.call("POST", "/v1/sessions", None, b"{\"timeout_ms\":300000}").await?;
                tally.answer((200..300).contains(&status));
                if status >= 500 {
                    return Err(Error::Answer("full".into()));
                }
            }
        })
    };
    join_all((0..CLIENTS).map(open)).await;
}

/// Asks for digests of the state.
pub(crate) async fn ask_digests(target: &Target, until: Instant, tally: &Tally) {
    let ask = |number: usize| {
        again(until, tally, move || async move {
            let mut client = target.rest(number).await?;
            loop {
                let status = client.call("GET", "/v1/cluster?digest=true", None, b"").await?;
                tally.answer((200..300).contains(&status));
                if status >= 500 {
                    return Err(Error::Answer("busy".into()));
                }
            }
        })
    };
    join_all((0..CLIENTS).map(ask)).await;
}
