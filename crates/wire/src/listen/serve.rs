//! The listener: accepting, bounding, serving and ending connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use accept::{AdmissionConfig, Incoming, Listeners, Place};
use jute::Frames;
use replica::{Entrance, Reception, Replica};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::WireConfig;
use crate::listen::handshake::{Guest, greet};
use crate::operate::system_znodes::make_own_znodes;
use crate::session::connection::Connection;
use crate::session::door::Door;
use crate::watch::departures::send_away;
use crate::watch::evictions::evict;

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
    let bounds = AdmissionConfig {
        connections_max: config.connections_max,
        connections_per_address_max: config.connections_per_address_max,
        exempt: config.exempt.clone(),
    };
    let reception = Arc::new(Reception::new(Entrance::ZooKeeper, replica.clone(), &bounds));
    let listeners = listeners.into();
    let listens_on = listeners.addrs();
    if listens_on == [None; 2] {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
    }
    let door = Arc::new(Door::new(replica, config, listens_on, stopping.clone())?);
    spawn_own_work(&door);
    let (own, giving) = (Arc::clone(&door), Arc::clone(&reception));
    tokio::spawn(async move { own.stopping.run_until_cancelled(giving.give_back()).await });
    let take = |(incoming, addr): (Incoming, SocketAddr)| {
        // At the bound the connection is closed at once, and its client goes to the next node.
        let Ok((place, connected)) = reception.enter(addr.ip()) else { return };
        let door = Arc::clone(&door);
        place.serve(|place| async move {
            connection(door, incoming, addr, &place).await;
            drop(connected);
        });
    };
    reception.accept_until(shutdown, || listeners.accept(), take).await;
    drop(listeners);
    stopping.cancel();
    reception.emptied().await;
    Ok(())
}

/// Starts the background tasks, which run until the server stops.
fn spawn_own_work(door: &Arc<Door>) {
    let own = Arc::clone(door);
    tokio::spawn(async move {
        own.stopping.run_until_cancelled(make_own_znodes(&own.replica, &own.config.addr)).await;
    });
    let own = Arc::clone(door);
    tokio::spawn(async move { own.stopping.run_until_cancelled(evict(&own.unread, &own.hub)).await });
    let own = Arc::clone(door);
    tokio::spawn(async move { own.stopping.run_until_cancelled(send_away(&own.replica, &own.hub)).await });
    for _ in 0..Handle::current().metrics().num_workers() {
        let own = Arc::clone(door);
        tokio::spawn(async move { own.stopping.run_until_cancelled(own.hub.send_events()).await });
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
