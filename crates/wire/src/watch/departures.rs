//! Departures: a node that cannot serve sends its clients to other nodes.

use std::time::Duration;

use replica::Replica;
use tokio::time::sleep;
use tracing::debug;

use crate::watch::hub::Hub;

/// Pause before connections are closed that have come since.
const PAUSE: Duration = Duration::from_millis(100);

/// Closes all connections while the node cannot serve. Runs until it is dropped.
///
/// Otherwise a client whose pings are answered would stay, and keep its locks, although none of its
/// writes would be executed.
pub(crate) async fn send_away(replica: &Replica, hub: &Hub) {
    loop {
        replica.cannot_serve().await;
        for client in hub.clients() {
            debug!(session = %client.session(), addr = %client.addr, "a client is sent away: this node cannot serve");
            client.close();
        }
        sleep(PAUSE).await;
    }
}
