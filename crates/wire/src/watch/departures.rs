//! Closing of all connections of a node that cannot serve, so that its clients go to other nodes.

use std::time::Duration;

use replica::Replica;
use tokio::time::sleep;
use tracing::debug;

use crate::watch::hub::Hub;

/// Pause between two closings of all connections, while the node cannot serve.
const PAUSE: Duration = Duration::from_millis(100);

/// Closes all connections, again and again while the node cannot serve. Runs until the future is
/// dropped.
///
/// Without this, a client would stay as long as its pings are answered, and keep its locks,
/// although none of its writes is executed.
pub(crate) async fn send_away(replica: &Replica, hub: &Hub) {
    loop {
        replica.cannot_serve().await;
        for client in hub.clients() {
            debug!(session = %client.session(), addr = %client.arrival.addr, "a client is sent away: this node cannot serve");
            client.close();
        }
        sleep(PAUSE).await;
    }
}
