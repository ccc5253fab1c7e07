//! Hostile traffic over HTTP: many connections that have a request under way all the time, that do
//! not read their answers, or whose requests never arrive in full.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::attack::{Tally, Target, again, swarm};
use crate::client::Rest;
use crate::error::Error;

/// A request: method, path and body.
pub(crate) type Request = (&'static str, &'static str, &'static [u8]);

/// Request that lists all locks.
pub(crate) const LISTING: Request = ("GET", "/v1/locks?page_size=1000", b"");
/// Request for the OpenAPI document.
pub(crate) const DOCUMENT: Request = ("GET", "/openapi.json", b"");
/// Request that opens a session.
pub(crate) const SESSION: Request = ("POST", "/v1/sessions", b"{\"timeout\":\"300s\"}");
/// Request for the digest of the state.
pub(crate) const DIGEST: Request = ("GET", "/v1/cluster?digest=true", b"");
/// Request that writes a large body.
pub(crate) const LARGE: Request = ("PUT", "/v1/znodes/large", &BODY);

/// Method and path of a long poll.
pub(crate) const POLL: (&str, &str) = ("GET", "/v1/znodes?watch=children&wait=60s");
/// Method and path of a request whose body never arrives in full.
pub(crate) const HELD: (&str, &str) = ("POST", "/v1/znodes/held");
/// Headers that announce a body of 4 MiB, and the first byte of that body.
pub(crate) const ANNOUNCED: &str = "content-type: application/json\r\ncontent-length: 4194304\r\n\r\nx";
/// Headers of a chunked body, the size of a first chunk of 4 MiB, and its first byte.
pub(crate) const CHUNKED: &str = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n400000\r\nx";

/// Number of locks that [`hold_locks`] acquires, so that a listing of all locks is long.
const LOCKS: usize = 1_200;
/// Number of sessions that hold the listed locks.
const HOLDERS: usize = 4;
/// A large body.
static BODY: [u8; 1_000_000] = [b'x'; 1_000_000];
/// Interval at which a client that reads nothing checks its connection.
const PROBE: Duration = Duration::from_millis(200);

/// Acquires the locks for a listing, in sessions that live for a minute without heartbeats.
pub(crate) async fn hold_locks(target: &Target) -> Result<(), Error> {
    let hold = |number: usize| async move {
        let mut client = target.rest(number).await?;
        client.open_session(60_000).await?;
        for lock in (number..LOCKS).step_by(HOLDERS) {
            client.join(&format!("listed/{lock:04}")).await?;
        }
        Ok::<(), Error>(())
    };
    join_all((0..HOLDERS).map(hold)).await.into_iter().collect()
}

/// Creates the znodes that the traffic writes to.
pub(crate) async fn make_znodes(target: &Target) -> Result<(), Error> {
    let mut client = target.rest(0).await?;
    client.create("large", b"").await?;
    for number in 0..8 {
        client.create(&format!("unread-{number}"), b"").await?;
        client.create(&format!("idle-{number}"), b"").await?;
    }
    Ok(())
}

/// Sends a request again and again on each of `count` connections. A client whose connection ends
/// opens a new one.
pub(crate) async fn repeat(target: &Target, count: usize, request: Request, until: Instant, tally: &Tally) {
    let (method, path, body) = request;
    swarm(count, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        loop {
            tally.ask(&mut client, method, path, None, body).await?;
        }
    })
    .await;
}

/// Keeps `count` requests open: long polls, or requests whose bodies never arrive in full. `rest`
/// is the request without its first line and its header `host`.
pub(crate) async fn hold(
    target: &Target,
    count: usize,
    (method, path): (&str, &str),
    rest: &str,
    until: Instant,
    tally: &Tally,
) {
    swarm(count, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        client.begin(method, path, rest).await?;
        tally.sent(1);
        // The server waits for a body for a while, refuses the request, and closes the connection.
        let status = client.answer().await?;
        tally.answer((200..300).contains(&status));
        Ok(())
    })
    .await;
}

/// Sends writes with idempotency keys. The cluster keeps their answers while the sessions last.
pub(crate) async fn fill_with_replies(target: &Target, until: Instant, tally: &Tally) {
    swarm(12, until, tally, |number| async move {
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

/// Writes data, asks for it, and reads nothing of the answer.
pub(crate) async fn leave_data_unread(target: &Target, until: Instant, tally: &Tally) {
    swarm(1_200, until, tally, |number| async move {
        let path = format!("/v1/znodes/unread-{}", number % 8);
        let mut client = target.rest(number).await?;
        let status = tally.ask(&mut client, "PUT", &path, None, &BODY).await?;
        if status >= 300 {
            return Err(Error::Answer(format!("{path}: {status}")));
        }
        client.begin("GET", &path, "\r\n").await?;
        until_it_ends(&client).await
    })
    .await;
}

/// Asks for listings of 1,000 locks with their queues, and reads no answer.
pub(crate) async fn leave_pages_unread(target: &Target, until: Instant, tally: &Tally) {
    swarm(600, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        // So many answers that the sockets' buffers cannot take them.
        for _ in 0..16 {
            client.begin("GET", "/v1/locks?page_size=1000&queues=true", "\r\n").await?;
        }
        tally.sent(16);
        until_it_ends(&client).await
    })
    .await;
}

/// Opens connections that send nothing, and writes large bodies over another connection.
pub(crate) async fn idle_and_write(target: &Target, until: Instant, tally: &Tally) {
    let write = again(until, tally, move || async move {
        let mut client = target.rest(0).await?;
        for number in 0..70 {
            tally.ask(&mut client, "PUT", &format!("/v1/znodes/idle-{}", number % 4), None, &BODY).await?;
        }
        Ok(())
    });
    let idle = swarm(1_000 * target.rest.len(), until, tally, |number| async move {
        let client = target.rest(number).await?;
        tally.sent(1);
        client.ended().await;
        Err(Error::Gone)
    });
    tokio::join!(write, idle);
}

/// Fills the replicated state with znodes, up to its limit.
pub(crate) async fn fill_state(target: &Target, until: Instant, tally: &Tally) {
    swarm(8, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        loop {
            let path = format!("/v1/znodes/full-{number}-?mode=persistent-sequential");
            let status = tally.ask(&mut client, "POST", &path, None, &BODY).await?;
            if status >= 300 {
                sleep(PROBE).await;
            }
        }
    })
    .await;
}

/// Waits until the server resets the connection. A client that reads nothing notices the reset only
/// as an error of the socket.
async fn until_it_ends(client: &Rest) -> Result<(), Error> {
    loop {
        sleep(PROBE).await;
        client.is_open()?;
    }
}
