//! Clients of a node that cannot serve: they are to go to another one.

use std::time::Duration;

use replica::Replica;
use tokio::time::sleep;
use tracing::debug;

use crate::watch::hub::Hub;

/// A pause until those are looked for that have come meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// Closes all connections while the node cannot serve, until it is dropped.
///
/// Without that a client whose pings are answered would stay, and so would what it holds, although
/// nothing that it writes comes to its end.
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
