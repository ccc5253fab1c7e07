//! The listener: accepting, bounding, serving and ending connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use accept::{Admission, AdmissionConfig, Full, Incoming, Listeners, Place};
use jute::Frames;
use replica::{Entrance, Replica, Seldom, TurnedAway, descriptors_wanted, want_descriptors};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::WireConfig;
use crate::listen::handshake::{Guest, greet};
use crate::operate::system_znodes::make_own_znodes;
use crate::session::connection::Connection;
use crate::session::door::{Door, ListensOn};
use crate::watch::departures::send_away;
use crate::watch::evictions::evict;

/// Pause after a failed accept, as when all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Name of the setting that bounds the number of all connections, for log messages.
const CONNECTIONS_MAX: &str = "zookeeper.connections_max";
const CONNECTIONS_PER_ADDRESS_MAX: &str = "zookeeper.connections_per_address_max";

/// Serves ZooKeeper clients on `listeners` until `shutdown` resolves, then ends all connections and
/// returns. Sessions stay open, and their clients can resume them on another node.
///
/// # Errors
/// An error when there is no listener with an address.
pub async fn serve(
    listeners: impl Into<Listeners>,
    replica: Replica,
    config: WireConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let stopping = CancellationToken::new();
    let connections = Admission::new(&AdmissionConfig {
        connections_max: config.connections_max,
        connections_per_address_max: config.address_connections_max(),
        exempt: config.exempt.clone(),
    });
    let listeners = listeners.into();
    let [plain, secure] = listeners.addrs();
    let listens_on = ListensOn { plain, secure };
    if plain.or(secure).is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
    }
    let door = Arc::new(Door::new(replica, config, listens_on, stopping.clone())?);
    let mut shutdown = std::pin::pin!(shutdown);
    spawn_own_work(&door);
    tokio::spawn(give_back(Arc::clone(&door), Arc::clone(&connections)));
    let (refused, ousted, unaccepted) = (Seldom::default(), Seldom::default(), Seldom::default());
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listeners.accept() => accepted,
        };
        match accepted {
            Ok((incoming, addr)) => {
                // Between two accepts, the present connections are served.
                tokio::task::yield_now().await;
                // At the bound the connection is closed at once, and its client goes to the next
                // node.
                let place = match connections.enter(addr.ip()) {
                    Ok(place) => place,
                    Err(full) => {
                        let cause = if full == Full::Door { TurnedAway::DoorFull } else { TurnedAway::AddressFull };
                        door.replica.count_turned_away(Entrance::ZooKeeper, cause);
                        tell_refused(&refused, full, addr);
                        continue;
                    }
                };
                tell_ousted(&door, &ousted, &place);
                let door = Arc::clone(&door);
                let connected = door.replica.connected(Entrance::ZooKeeper);
                place.serve(|place| async move {
                    connection(door, incoming, addr, &place).await;
                    drop(connected);
                });
            }
            Err(error) => {
                want_descriptors(&error);
                if let Some(times) = unaccepted.note(Instant::now()) {
                    warn!(%error, times, "cannot accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    stopping.cancel();
    connections.emptied().await;
    Ok(())
}

/// Closes one connection each time that a listener of this process gets no file descriptor for a
/// new connection, until the server stops.
async fn give_back(door: Arc<Door>, connections: Arc<Admission>) {
    let given = Seldom::default();
    loop {
        tokio::select! {
            () = door.stopping.cancelled() => return,
            () = descriptors_wanted() => {}
        }
        let Some(source) = connections.give_one() else { continue };
        door.replica.count_turned_away(Entrance::ZooKeeper, TurnedAway::GaveWay);
        if let Some(times) = given.note(Instant::now()) {
            let (door, addr, bound) = ("zookeeper", source.map(|addr| addr.to_string()), "open_files");
            warn!(door, addr, bound, times, "a connection gave way: no file descriptor is left");
        }
    }
}

/// Starts the background tasks, which run until the server stops.
fn spawn_own_work(door: &Arc<Door>) {
    let own = Arc::clone(door);
    tokio::spawn(async move {
        tokio::select! {
            () = make_own_znodes(&own.replica, &own.config.addr) => {}
            () = own.stopping.cancelled() => {}
        }
    });
    let own = Arc::clone(door);
    tokio::spawn(async move {
        tokio::select! {
            () = evict(&own.unread, &own.hub) => {}
            () = own.stopping.cancelled() => {}
        }
    });
    let own = Arc::clone(door);
    tokio::spawn(async move {
        tokio::select! {
            () = send_away(&own.replica, &own.hub) => {}
            () = own.stopping.cancelled() => {}
        }
    });
    for _ in 0..Handle::current().metrics().num_workers() {
        let own = Arc::clone(door);
        tokio::spawn(async move {
            tokio::select! {
                () = own.hub.send_events() => {}
                () = own.stopping.cancelled() => {}
            }
        });
    }
}

fn tell_refused(refused: &Seldom, full: Full, addr: SocketAddr) {
    if let Some(times) = refused.note(Instant::now()) {
        let bound = if full == Full::Door { CONNECTIONS_MAX } else { CONNECTIONS_PER_ADDRESS_MAX };
        let addr = addr.ip();
        warn!(door = "zookeeper", %addr, bound, times, "a connection is refused: there are too many");
    }
}

fn tell_ousted(door: &Door, ousted: &Seldom, place: &Place) {
    let Some(addr) = place.ousted() else { return };
    door.replica.count_turned_away(Entrance::ZooKeeper, TurnedAway::GaveWay);
    if let Some(times) = ousted.note(Instant::now()) {
        let bound = CONNECTIONS_MAX;
        warn!(door = "zookeeper", %addr, bound, times, "a connection of the address that has most gave way to another address");
    }
}

async fn connection(door: Arc<Door>, incoming: Incoming, addr: SocketAddr, place: &Place) {
    if let Err(error) = incoming.set_options() {
        debug!(%error, "cannot set the options of a connection");
    }
    let mut frames = Frames::new(0);
    let greeted = async {
        // A failed TLS handshake is logged elsewhere.
        let mut stream = incoming.open().await.ok()?;
        let client = greet(&door, &mut stream, Guest { addr, place }, &mut frames).await?;
        Some((stream, client))
    };
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        () = door.stopping.cancelled() => None,
    };
    let Some((stream, client)) = greeted else { return };
    let (reading, writing) = stream.into_split();
    Connection::new(door, client).serve(reading, writing, frames).await;
}
