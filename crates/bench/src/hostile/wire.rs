//! Hostile traffic over ZooKeeper's protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jute::{
    Acl, AddWatchRequest, CreateRequest, Input, MultiOp, MultiResult, PathOnly, PathVersion, PathWatch, Record as _,
    SetDataRequest, SetWatches, create_flags, error, op, read_multi_results,
};
use tokio::time::{Instant, sleep};

use super::attack::{Sizes, Tally, Target, swarm};
use crate::client::{ZooKeeper, connect_from};
use crate::error::Error;

/// Path of the large subtree.
const BIG: &str = "/big";
/// Number of znodes in each directory of the large subtree.
const DIRECTORY: usize = 1_000;
/// Path of the znode with a long list of children.
const WIDE: &str = "/wide";
/// Number of children in the long list.
const NAMES: usize = 20_000;
/// Length of the children's names in bytes.
const NAME_BYTES: usize = 100;
/// Number of operations in one transaction: the largest number that the servers allow.
const BATCH: usize = 128;
/// Number of tries of one batch, because a busy machine may fail some of them.
const TRIES: usize = 20;
/// Number of connections over which [`create`] creates znodes.
const LOADERS: usize = 16;
/// Number of sessions that expire together.
const EXPIRING: usize = 24;
/// Timeout of the sessions that expire together, in milliseconds.
const EXPIRING_MS: i32 = 6_000;
const SESSION_MS: i32 = 60_000;
/// Interval at which a client that reads nothing checks its connection.
const PROBE: Duration = Duration::from_millis(200);

/// Creates `count` znodes. Each connection creates its batches in ascending order.
async fn create(target: &Target, count: usize, path: impl Fn(usize) -> String) -> Result<(), Error> {
    let path = &path;
    let load = |number: usize| async move {
        let mut client = None;
        for batch in (number * BATCH..count).step_by(LOADERS * BATCH) {
            let creation =
                |znode| MultiOp::Create(op::CREATE, ZooKeeper::creation(&path(znode), b"", create_flags::PERSISTENT));
            let ops: Vec<MultiOp> = (batch..(batch + BATCH).min(count)).map(creation).collect();
            let mut tries = 0;
            while let Err(error) = create_batch(target, number + tries, &mut client, &ops).await {
                tries += 1;
                client = None;
                if tries == TRIES {
                    return Err(error);
                }
            }
        }
        // The session is not closed: it expires after the client is dropped.
        Ok(())
    };
    stream::iter(0..LOADERS).map(load).buffer_unordered(LOADERS).try_collect::<()>().await
}

/// Creates one batch of znodes. Succeeds also if one of them exists, because an earlier try may
/// have been applied without an answer.
async fn create_batch(
    target: &Target,
    node: usize,
    client: &mut Option<ZooKeeper>,
    ops: &[MultiOp],
) -> Result<(), Error> {
    let mut connected = match client.take() {
        Some(client) => client,
        None => target.wire(node, SESSION_MS).await?,
    };
    let (code, body) = connected.multi(ops).await?;
    let results = read_multi_results(&mut Input::new(&body)).map_err(|_| Error::answer("multi", &body))?;
    let there = |result: &MultiResult| matches!(result, MultiResult::Error(error::NODE_EXISTS));
    let made = code == error::OK && results.iter().all(|result| matches!(result, MultiResult::Created(..)));
    if !made && !results.iter().any(there) {
        let refused = results.iter().find(|result| !matches!(result, MultiResult::Error(error::OK)));
        return Err(Error::Answer(format!("multi: error {code}, {refused:?}")));
    }
    *client = Some(connected);
    Ok(())
}

/// Creates the large subtree.
pub(crate) async fn load_subtree(target: &Target) -> Result<(), Error> {
    let Sizes { subtree, .. } = target.sizes;
    create(target, 1, |_| BIG.into()).await?;
    create(target, subtree.div_ceil(DIRECTORY), |number| format!("{BIG}/{number}")).await?;
    create(target, subtree, |number| format!("{BIG}/{}/{number}", number / DIRECTORY)).await
}

/// Creates the znode with a long list of children.
pub(crate) async fn load_names(target: &Target) -> Result<(), Error> {
    create(target, 1, |_| WIDE.into()).await?;
    create(target, NAMES, |number| format!("{WIDE}/{number:0>NAME_BYTES$}")).await
}

/// Sends transactions that each make the nodes count the znodes of the large subtree 64 times.
pub(crate) async fn recount(target: &Target, until: Instant, tally: &Tally) {
    let path = format!("/zookeeper/quota{BIG}/zookeeper_limits");
    let set = ZooKeeper::creation(&path, b"count=-1,bytes=-1", create_flags::PERSISTENT);
    let take = PathVersion { path, version: -1 };
    let pair = [MultiOp::Create(op::CREATE, set), MultiOp::Delete(take)];
    let ops: Vec<MultiOp> = pair.iter().cycle().take(BATCH).cloned().collect();
    let ops = &ops;
    swarm(4, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        let directory = ZooKeeper::creation(&format!("/zookeeper/quota{BIG}"), b"", create_flags::PERSISTENT);
        client.call(op::CREATE, &directory).await?;
        loop {
            tally.sent(1);
            tally.answer(client.multi(ops).await?.0 == error::OK);
        }
    })
    .await;
}

/// Sends thousands of small requests that each ask for the number of znodes in the whole subtree.
pub(crate) async fn ask_sizes(target: &Target, until: Instant, tally: &Tally) {
    swarm(3, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        loop {
            for _ in 0..1_000 {
                let which = PathOnly { path: BIG.into() };
                client.queue(op::GET_ALL_CHILDREN_NUMBER, |out| which.write(out));
            }
            client.flush().await?;
            tally.sent(1_000);
            for _ in 0..1_000 {
                tally.answer(client.next_answer().await?.0 == error::OK);
            }
        }
    })
    .await;
}

/// Opens sessions with many ephemeral znodes. Returns them with their open connections.
pub(crate) async fn sessions_with_ephemerals(target: &Target) -> Result<Vec<ZooKeeper>, Error> {
    let each = target.sizes.ephemerals / EXPIRING;
    let one = |number: usize| async move {
        let mut client = target.wire(number, EXPIRING_MS).await?;
        let directory = format!("/expiring-{number}");
        client.create(&directory, b"").await?;
        for batch in (0..each).step_by(BATCH) {
            let creation = |znode| {
                let path = format!("{directory}/{znode}");
                MultiOp::Create(op::CREATE, ZooKeeper::creation(&path, b"", create_flags::EPHEMERAL))
            };
            let ops: Vec<MultiOp> = (batch..(batch + BATCH).min(each)).map(creation).collect();
            if client.multi(&ops).await?.0 != error::OK {
                return Err(Error::Answer("ephemerals are refused".into()));
            }
        }
        Ok(client)
    };
    stream::iter(0..EXPIRING).map(one).buffer_unordered(EXPIRING).try_collect().await
}

/// Creates znodes whose ACLs are long and all different.
pub(crate) async fn fill_with_acls(target: &Target, until: Instant, tally: &Tally) {
    swarm(6, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        // The time makes these ACLs differ from those of an earlier connection.
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        for znode in 0_u64.. {
            let entry = |entry: usize| Acl {
                perms: 31,
                scheme: "digest".into(),
                id: format!("{entry:0>180}-{number}-{znode}-{at}:x"),
            };
            let acl = (0..64).map(entry).collect();
            let path = format!("/acl-{number}-");
            let request =
                CreateRequest { path, data: Vec::new().into(), acl, flags: create_flags::PERSISTENT_SEQUENTIAL };
            tally.sent(1);
            tally.answer(client.call(op::CREATE, &request).await?.0 == error::OK);
        }
        Ok(())
    })
    .await;
}

/// Opens connections that send nothing.
pub(crate) async fn stay_silent(target: &Target, until: Instant, tally: &Tally) {
    swarm(target.sizes.connections * target.wire.len(), until, tally, |number| async move {
        let stream = connect_from(target.source(number), &target.wire[number % target.wire.len()]).await?;
        tally.sent(1);
        // Waits until the server closes the connection.
        let ended = async {
            while stream.readable().await.is_ok() {
                if stream.try_read(&mut [0; 64]).is_ok_and(|read| read == 0) {
                    return;
                }
            }
        };
        ended.await;
        Err(Error::Gone)
    })
    .await;
}

/// Asks for long answers, and never reads them.
pub(crate) async fn leave_unread(target: &Target, until: Instant, tally: &Tally) {
    swarm(100, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        for _ in 0..16 {
            let which = PathWatch { path: WIDE.into(), watch: false };
            client.queue(op::GET_CHILDREN, |out| which.write(out));
        }
        client.flush().await?;
        tally.sent(16);
        // A client that reads nothing does not see the end of its connection, but its pings fail
        // then.
        loop {
            sleep(PROBE).await;
            client.send_ping().await?;
        }
    })
    .await;
}

/// Sends many small requests at once, on many connections.
pub(crate) async fn pipeline(target: &Target, until: Instant, tally: &Tally) {
    const QUESTIONS: u64 = 900;
    swarm(1_000, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        loop {
            for _ in 0..QUESTIONS {
                let which = PathWatch { path: "/zookeeper".into(), watch: false };
                client.queue(op::EXISTS, |out| which.write(out));
            }
            client.flush().await?;
            tally.sent(QUESTIONS);
            for _ in 0..QUESTIONS {
                tally.answer(client.next_answer().await?.0 == error::OK);
            }
        }
    })
    .await;
}

/// Sets watches on paths of the maximal length.
pub(crate) async fn set_long_watches(target: &Target, until: Instant, tally: &Tally) {
    const EACH: usize = 100_000;
    const AT_ONCE: usize = 1_000;
    swarm(10, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        for batch in (0..EACH).step_by(AT_ONCE) {
            let path = |watch: usize| format!("/{number:0>200}/{:0>200}/{:0>200}/{:0>200}/{watch:0>200}", 1, 2, 3);
            let exist = (batch..batch + AT_ONCE).map(path).collect();
            let set = SetWatches { exist, ..SetWatches::default() };
            client.queue(op::SET_WATCHES, |out| set.write(out));
            client.flush().await?;
            tally.sent(1);
            tally.answer(client.next_answer().await?.0 == error::OK);
        }
        loop {
            sleep(PROBE).await;
            client.send_ping().await?;
        }
    })
    .await;
}

/// Changes znodes that many connections watch, so that each change causes many events.
pub(crate) async fn change_what_many_watch(target: &Target, until: Instant, tally: &Tally) {
    const WATCHING: usize = 500;
    let directory = |number: usize| format!("/storm-{}", number % target.wire.len());
    let directory = &directory;
    let watching = swarm(WATCHING, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        let watch = AddWatchRequest { path: directory(number), mode: 1 };
        client.call(op::ADD_WATCH, &watch).await?;
        loop {
            client.until_event(&format!("{}/{}", directory(number), BATCH - 1)).await?;
        }
    });
    let changing = swarm(target.wire.len(), until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        let path = |znode: usize| format!("{}/{znode}", directory(number));
        let _ = client.create(&directory(number), b"").await;
        for znode in 0..BATCH {
            let _ = client.create(&path(znode), b"").await;
        }
        let set =
            |znode| MultiOp::SetData(SetDataRequest { path: path(znode), data: b"x".as_slice().into(), version: -1 });
        let ops: Vec<MultiOp> = (0..BATCH).map(set).collect();
        loop {
            tally.sent(1);
            tally.answer(client.multi(&ops).await?.0 == error::OK);
            sleep(Duration::from_millis(100)).await;
        }
    });
    tokio::join!(watching, changing);
}
