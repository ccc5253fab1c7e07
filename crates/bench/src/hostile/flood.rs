//! Floods over HTTP: many connections that have a request under way all the time, or that do not
//! read their answers.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::attack::{Tally, Target, again, swarm};
use crate::error::Error;

/// Number of locks that [`hold_locks`] acquires, so that a listing of all locks is long.
const LOCKS: usize = 1_200;
/// Number of sessions that hold the listed locks.
const HOLDERS: usize = 4;
/// Length of the large request bodies, in bytes.
const LARGE: usize = 1_000_000;
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

/// A request, and the number of connections that each repeat it.
pub(crate) struct Repeated<'a> {
    pub(crate) connections: usize,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
    /// Whether all requests go to one follower; otherwise they go to all nodes.
    pub(crate) at_follower: bool,
}

impl Repeated<'_> {
    /// Returns the request that lists all locks.
    pub(crate) fn listing(connections: usize) -> Repeated<'static> {
        Repeated { connections, method: "GET", path: "/v1/locks?page_size=1000", body: b"", at_follower: false }
    }

    /// Returns the request for the OpenAPI document.
    pub(crate) fn document() -> Repeated<'static> {
        Repeated { connections: 1_000, method: "GET", path: "/openapi.json", body: b"", at_follower: false }
    }

    /// Sends the request again and again. A client whose connection ends opens a new one.
    pub(crate) async fn send(&self, target: &Target, until: Instant, tally: &Tally) {
        swarm(self.connections, until, tally, |number| async move {
            let node = if self.at_follower { target.follower } else { number % target.rest.len() };
            let mut client = target.rest_at(node, number).await?;
            loop {
                tally.ask(&mut client, self.method, self.path, None, self.body).await?;
            }
        })
        .await;
    }
}

/// Sends large bodies to a follower.
pub(crate) async fn send_large_bodies(target: &Target, until: Instant, tally: &Tally) {
    let body = vec![b'x'; LARGE];
    let (method, path) = ("PUT", "/v1/znodes/large");
    Repeated { connections: 300, method, path, body: &body, at_follower: true }.send(target, until, tally).await;
}

/// Writes data, asks for it, and reads nothing of the answer.
pub(crate) async fn leave_data_unread(target: &Target, until: Instant, tally: &Tally) {
    let body = vec![b'x'; LARGE];
    let body = &body[..];
    swarm(1_200, until, tally, |number| async move {
        let path = format!("/v1/znodes/unread-{}", number % 8);
        let mut client = target.rest(number).await?;
        let status = tally.ask(&mut client, "PUT", &path, None, body).await?;
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

/// Sends long polls. `head_bytes` is the size of an extra header in each request; 0 for none.
pub(crate) async fn wait(target: &Target, connections: usize, head_bytes: usize, until: Instant, tally: &Tally) {
    let filler = format!("x-filler: {}\r\n\r\n", "x".repeat(head_bytes));
    let filler = if head_bytes == 0 { "\r\n" } else { filler.as_str() };
    swarm(connections, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        client.begin("GET", "/v1/znodes?watch=children&wait=60s", filler).await?;
        tally.sent(1);
        let status = client.answer().await?;
        tally.answer((200..300).contains(&status));
        Ok(())
    })
    .await;
}

/// Opens connections that send nothing, and writes large bodies over another connection.
pub(crate) async fn idle_and_write(target: &Target, until: Instant, tally: &Tally) {
    let body = vec![b'x'; LARGE];
    let body = &body[..];
    let write = again(until, tally, move || async move {
        let mut client = target.rest(0).await?;
        for number in 0..70 {
            tally.ask(&mut client, "PUT", &format!("/v1/znodes/idle-{}", number % 4), None, body).await?;
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
    let body = vec![b'x'; LARGE];
    let body = &body[..];
    swarm(8, until, tally, |number| async move {
        let mut client = target.rest(number).await?;
        loop {
            let path = format!("/v1/znodes/full-{number}-?mode=persistent-sequential");
            let status = tally.ask(&mut client, "POST", &path, None, body).await?;
            if status >= 300 {
                sleep(PROBE).await;
            }
        }
    })
    .await;
}

/// Waits until the server resets the connection. A client that reads nothing notices the reset only
/// as an error of the socket.
async fn until_it_ends(client: &crate::client::Rest) -> Result<(), Error> {
    loop {
        sleep(PROBE).await;
        client.is_open()?;
    }
}
