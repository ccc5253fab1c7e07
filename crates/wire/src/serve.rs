//! Connections: accept, bound, serve, end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jute::Frames;
use replica::Replica;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::WireConfig;
use crate::connection::Connection;
use crate::door::Door;
use crate::handshake::greet;
use crate::own::make_own_znodes;

/// After an accept that failed for want of something (file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves ZooKeeper clients on `listener` until `shutdown` resolves, then ends all connections and returns. Sessions
/// stay: clients resume them on another node.
///
/// # Errors
/// When the listener has no address.
pub async fn serve(
    listener: TcpListener,
    replica: Replica,
    config: WireConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let stopping = CancellationToken::new();
    let connections = Arc::new(Semaphore::new(config.connections_max.min(Semaphore::MAX_PERMITS)));
    let all = u32::try_from(config.connections_max).unwrap_or(u32::MAX);
    let listens_on = listener.local_addr()?.to_string();
    let door = Arc::new(Door::new(replica, config, listens_on, stopping.clone()));
    let mut shutdown = std::pin::pin!(shutdown);
    let own = Arc::clone(&door);
    tokio::spawn(async move {
        tokio::select! {
            () = make_own_znodes(&own.replica, &own.config.addr) => {}
            () = own.stopping.cancelled() => {}
        }
    });
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                // Beyond the bound: closed at once, and the client goes on to the next node.
                let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
                let door = Arc::clone(&door);
                tokio::spawn(async move {
                    connection(door, stream, addr).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.cancel();
    // It is never closed.
    let _ = connections.acquire_many(all).await;
    Ok(())
}

async fn connection(door: Arc<Door>, mut stream: TcpStream, addr: SocketAddr) {
    if let Err(error) = set_options(&stream) {
        debug!(%error, "cannot set the options of a connection");
    }
    let mut frames = Frames::new(0);
    let client = tokio::select! {
        client = greet(&door, &mut stream, addr, &mut frames) => client,
        () = door.stopping.cancelled() => None,
    };
    let Some(client) = client else { return };
    let (reading, writing) = stream.into_split();
    Connection::new(door, client).serve(reading, writing, frames).await;
}

/// A dead client is noticed within half a minute also while nothing is written to it.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
    SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(3))
}
