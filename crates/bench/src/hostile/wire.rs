//! Hostile traffic over ZooKeeper's protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jute::{
    Acl, AddWatchRequest, CreateRequest, MultiOp, PathOnly, PathVersion, PathWatch, Request, SetDataRequest,
    SetWatches, create_flags, error, op,
};
use tokio::time::{Instant, sleep, timeout};

use super::attack::{Tally, Target, swarm};
use crate::client::{Link, ZooKeeper};
use crate::error::Error;

/// Path of the large subtree.
const BIG: &str = "/big";
/// Number of znodes in the large subtree.
const BIG_ZNODES: usize = 300_000;
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
/// Number of ephemeral znodes of all sessions that expire together.
const EXPIRING_ZNODES: usize = 79_000;
/// Timeout of the sessions that expire together, in milliseconds.
const EXPIRING_MS: i32 = 6_000;
const SESSION_MS: i32 = 60_000;
/// Interval of the pings that keep a session of [`SESSION_MS`] alive.
const PING: Duration = Duration::from_secs(20);
/// Number of connections to each node that send nothing.
const SILENT: usize = 4_200;
/// Interval at which a client that reads nothing checks its connection.
const PROBE: Duration = Duration::from_millis(200);

/// Creates `count` znodes. Each connection creates its batches in ascending order.
async fn create(target: &Target, count: usize, path: impl Fn(usize) -> String) -> Result<(), Error> {
    let path = &path;
    let load = |number: usize| async move {
        let mut client = None;
        for batch in (number * BATCH..count).step_by(LOADERS * BATCH) {
            let paths = (batch..(batch + BATCH).min(count)).map(path);
            let creations = ZooKeeper::creations(paths, b"", create_flags::PERSISTENT);
            let mut tries = 0;
            while let Err(error) = create_batch(target, number + tries, &mut client, &creations).await {
                tries += 1;
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

/// Creates one batch of znodes. A client whose connection failed is dropped.
async fn create_batch(
    target: &Target,
    node: usize,
    client: &mut Option<ZooKeeper>,
    creations: &Request,
) -> Result<(), Error> {
    let mut connected = match client.take() {
        Some(client) => client,
        None => target.wire(node, SESSION_MS).await?,
    };
    connected.create_all(creations).await?;
    *client = Some(connected);
    Ok(())
}

/// Sends a request `count` times at once, and counts the answers.
async fn ask(client: &mut ZooKeeper, count: u64, request: &Request, tally: &Tally) -> Result<(), Error> {
    (0..count).for_each(|_| client.queue(request));
    client.flush().await?;
    tally.sent(count);
    for _ in 0..count {
        tally.answer(client.next_answer().await?.0 == error::OK);
    }
    Ok(())
}

/// Sends pings until the server closes the connection, and reads nothing. A client that reads
/// nothing does not see the end of its connection, but its pings fail then.
async fn stay(client: &mut ZooKeeper) -> Result<(), Error> {
    loop {
        sleep(PROBE).await;
        client.send_ping().await?;
    }
}

/// Creates the large subtree.
pub(crate) async fn load_subtree(target: &Target) -> Result<(), Error> {
    create(target, 1, |_| BIG.into()).await?;
    create(target, BIG_ZNODES.div_ceil(DIRECTORY), |number| format!("{BIG}/{number}")).await?;
    create(target, BIG_ZNODES, |number| format!("{BIG}/{}/{number}", number / DIRECTORY)).await
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
    let request = &Request::Multi(pair.iter().cycle().take(BATCH).cloned().collect());
    swarm(4, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        client.create(&format!("/zookeeper/quota{BIG}"), b"").await?;
        loop {
            ask(&mut client, 1, request, tally).await?;
        }
    })
    .await;
}

/// Sends a request again and again on each of `count` connections, `at_once` times without waiting.
async fn pipeline(target: &Target, count: usize, at_once: u64, request: &Request, until: Instant, tally: &Tally) {
    swarm(count, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        loop {
            ask(&mut client, at_once, request, tally).await?;
        }
    })
    .await;
}

/// Sends thousands of small requests that each ask for the number of znodes in the whole subtree.
pub(crate) async fn ask_sizes(target: &Target, until: Instant, tally: &Tally) {
    let request = Request::GetAllChildrenNumber(PathOnly { path: BIG.into() });
    pipeline(target, 3, 1_000, &request, until, tally).await;
}

/// Sends many small requests at once, on many connections.
pub(crate) async fn ask_existence(target: &Target, until: Instant, tally: &Tally) {
    let request = Request::Exists(PathWatch { path: "/zookeeper".into(), watch: false });
    pipeline(target, 1_000, 900, &request, until, tally).await;
}

/// Opens sessions with many ephemeral znodes. Returns them with their open connections.
pub(crate) async fn sessions_with_ephemerals(target: &Target) -> Result<Vec<ZooKeeper>, Error> {
    let each = EXPIRING_ZNODES / EXPIRING;
    let one = |number: usize| async move {
        let mut client = target.wire(number, EXPIRING_MS).await?;
        let directory = format!("/expiring-{number}");
        client.create(&directory, b"").await?;
        for batch in (0..each).step_by(BATCH) {
            let paths = (batch..(batch + BATCH).min(each)).map(|znode| format!("{directory}/{znode}"));
            client.create_all(&ZooKeeper::creations(paths, b"", create_flags::EPHEMERAL)).await?;
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
            let flags = create_flags::PERSISTENT_SEQUENTIAL;
            let creation = CreateRequest { path, data: Vec::new().into(), acl, flags };
            ask(&mut client, 1, &Request::Create(op::CREATE, creation), tally).await?;
        }
        Ok(())
    })
    .await;
}

/// Opens connections that send nothing.
pub(crate) async fn stay_silent(target: &Target, until: Instant, tally: &Tally) {
    swarm(SILENT * target.wire.len(), until, tally, |number| async move {
        let addr = &target.wire[number % target.wire.len()];
        let link = Link::open_from(target.source(number), addr).await?;
        tally.sent(1);
        link.ended().await;
        Err(Error::Gone)
    })
    .await;
}

/// Opens sessions, and keeps them alive as ZooKeeper clients do.
pub(crate) async fn hold_sessions(target: &Target, count: usize, until: Instant, tally: &Tally) {
    swarm(count, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        tally.sent(1);
        while timeout(PING, client.ended()).await.is_err() {
            client.send_ping().await?;
        }
        Err(Error::Gone)
    })
    .await;
}

/// Asks for long answers, and never reads them.
pub(crate) async fn leave_unread(target: &Target, until: Instant, tally: &Tally) {
    let request = &Request::GetChildren(PathWatch { path: WIDE.into(), watch: false });
    swarm(100, until, tally, |number| async move {
        let mut client = target.wire(number, SESSION_MS).await?;
        (0..16).for_each(|_| client.queue(request));
        client.flush().await?;
        tally.sent(16);
        stay(&mut client).await
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
            ask(&mut client, 1, &Request::SetWatches(set), tally).await?;
        }
        stay(&mut client).await
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
        client.call(&Request::AddWatch(watch)).await?;
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
        let request = Request::Multi((0..BATCH).map(set).collect());
        loop {
            ask(&mut client, 1, &request, tally).await?;
            sleep(Duration::from_millis(100)).await;
        }
    });
    tokio::join!(watching, changing);
}
