//! The server: accepts connections, bounds their number, serves them, and ends them at shutdown.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use accept::{Admission, AdmissionConfig, Full, Incoming, Listeners, Place};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use axum::response::Response;
use replica::{Entrance, Reception, Replica};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::RestConfig;
use crate::http::connection::Connections;
use crate::http::peer::{Known, Peer};
use crate::problem::Problem;
use crate::request::door::Door;
use crate::request::operator::for_operators;
use crate::routes::routes;

/// Largest number of connections to the admin socket. Beyond: a connection that sent no request or
/// is idle is closed for the new connection; without one, the new connection is closed.
const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Largest number of connections beyond the bound that get a refusal at one time. Any more are
/// closed without an answer.
const REFUSALS_MAX: usize = 64;
/// Time that a refused client has to read its answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of times that the listeners' backlogs are emptied at shutdown before the listeners are
/// closed.
const LAST_LOOKS: usize = 2;
/// Number of errors of accept at shutdown after which the backlogs are not emptied further.
/// A pause follows each error.
const LAST_ERRORS_MAX: usize = 50;

/// Serves the API until `shutdown` resolves, and for two more periods, `drain_delay_ms` and
/// `drain_time_ms`. In both the node reports itself as not ready; in the second, each connection
/// ends after its next answer. Then the server ends waits, lets requests in progress end for a
/// bounded time, and returns.
///
/// # Errors
/// Never at present: an error of accept is logged, and accept is tried again.
pub async fn serve(
    entrances: impl Into<Entrances>,
    replica: Replica,
    config: RestConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let stopping = CancellationToken::new();
    let Entrances { listeners, admin } = entrances.into();
    let (drain_delay, drain_time) =
        (Duration::from_millis(config.drain_delay_ms), Duration::from_millis(config.drain_time_ms));
    let server = Arc::new(Server::new(replica, config, stopping.clone()));
    if let Some(admin) = admin {
        tokio::spawn(Arc::clone(&server).accept_operators(admin));
    }
    let own = Arc::clone(&server);
    tokio::spawn(async move { own.stopping.run_until_cancelled(own.reception.give_back()).await });
    server.accept(&listeners, shutdown).await;
    server.door.stops_soon();
    if !drain_delay.is_zero() {
        server.accept(&listeners, tokio::time::sleep(drain_delay)).await;
    }
    server.door.close();
    if !drain_time.is_zero() {
        server.accept(&listeners, tokio::time::sleep(drain_time)).await;
    }
    server.accept_the_last(&listeners).await;
    drop(listeners);
    stopping.cancel();
    server.drain().await;
    Ok(())
}

/// Listeners of the HTTP server.
#[derive(Debug, Default)]
pub struct Entrances {
    /// Listeners for all clients.
    pub listeners: Listeners,
    /// Admin socket for operators: file permissions let only the node's own user open it.
    pub admin: Option<UnixListener>,
}

impl From<Listeners> for Entrances {
    fn from(listeners: Listeners) -> Entrances {
        Entrances { listeners, admin: None }
    }
}

impl From<TcpListener> for Entrances {
    fn from(listener: TcpListener) -> Entrances {
        Listeners::from(listener).into()
    }
}

struct Server {
    door: Arc<Door>,
    connections: Connections,
    /// Connections for operators, with the same routes.
    admin_connections: Connections,
    reception: Reception,
    /// Count and bound of the operators' connections. They are counted separately, so that
    /// operators are admitted when the clients' bound is reached.
    admin_places: Arc<Admission>,
    refusals: Arc<Semaphore>,
    stopping: CancellationToken,
}

impl Server {
    fn new(replica: Replica, config: RestConfig, stopping: CancellationToken) -> Server {
        let door = Door::new(replica.clone(), config, stopping.clone());
        let (routes, config) = (routes(Arc::clone(&door)), &door.config);
        let admin_connections = Connections::new(for_operators(routes.clone()), config, stopping.clone());
        let connections = Connections::new(routes, config, stopping.clone());
        let bounds = AdmissionConfig {
            connections_max: config.connections_max,
            connections_per_address_max: config.connections_per_address_max,
            exempt: config.exempt.clone(),
        };
        let admin_places = Admission::new(&AdmissionConfig {
            connections_max: ADMIN_CONNECTIONS_MAX,
            connections_per_address_max: ADMIN_CONNECTIONS_MAX,
            exempt: config.exempt.clone(),
        });
        Server {
            door,
            connections,
            admin_connections,
            reception: Reception::new(Entrance::Http, replica, &bounds),
            admin_places,
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            stopping,
        }
    }

    /// Accepts the connections that wait in the listeners' backlogs. Closing a listener would reset
    /// them, and lose the bytes sent on them.
    async fn accept_the_last(self: &Arc<Self>, listeners: &Listeners) {
        let take = |(incoming, addr): (Incoming, SocketAddr)| Arc::clone(self).take(incoming, addr.ip());
        each_of_the_last(|| listeners.accept(), |error| self.reception.cannot_accept(error), take).await;
    }

    /// Accepts connections until `end` resolves.
    async fn accept(self: &Arc<Self>, listeners: &Listeners, end: impl Future<Output = ()> + Send) {
        let take = |(incoming, addr): (Incoming, SocketAddr)| Arc::clone(self).take(incoming, addr.ip());
        self.reception.accept_until(end, || listeners.accept(), take).await;
    }

    /// Accepts operators' connections until the server stops.
    async fn accept_operators(self: Arc<Self>, admin: UnixListener) {
        let take = |(stream, _)| Arc::clone(&self).take_operator(stream);
        self.reception.accept_until(self.stopping.cancelled(), || admin.accept(), take).await;
    }

    /// Serves a connection of the admin socket, or closes it when the bound on such connections is
    /// reached.
    fn take_operator(self: Arc<Self>, stream: UnixStream) {
        // The caller is a program on this machine.
        let addr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let Ok(place) = self.admin_places.enter(addr) else { return };
        place.serve(|place| async move {
            let known =
                Known { addr, place: Some(place), is_exempt: true, on_loopback: true, is_secure: false, subject: None };
            self.admin_connections.serve(stream, Some(Peer::new(known))).await;
        });
    }

    /// Serves a connection, or refuses it when a bound on connections is reached.
    fn take(self: Arc<Self>, incoming: Incoming, addr: IpAddr) {
        let full = match self.reception.enter(addr) {
            Ok((place, connected)) => {
                place.serve(|place| async move {
                    self.connection(incoming, addr, place).await;
                    drop(connected);
                });
                return;
            }
            Err(full) => full,
        };
        if let Ok(permit) = self.refusals.clone().try_acquire_owned()
            // TLS clients get no refusal: the handshake would cost the work that the bound saves.
            && let Some(stream) = incoming.into_plain()
        {
            tokio::spawn(async move {
                // A client that does not read in time misses its refusal.
                let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream, self.door.unasked(refusal(full)))).await;
                drop(permit);
            });
        }
    }

    async fn connection(&self, incoming: Incoming, addr: IpAddr, place: Arc<Place>) {
        if let Err(error) = incoming.set_options() {
            debug!(%error, "cannot set the options of a connection");
        }
        let (on_loopback, is_secure) = (incoming.is_on_loopback(), incoming.is_secure());
        let opened = tokio::select! {
            biased;
            // A connection without TLS opens at once, and is served even if it came just before
            // shutdown.
            opened = incoming.open() => opened,
            () = self.stopping.cancelled() => return,
        };
        // The listener has logged the failed handshake.
        let Ok(stream) = opened else { return };
        let subject = stream.subject().map(str::to_owned);
        let is_exempt = place.is_exempt();
        let peer = Peer::new(Known { addr, place: Some(place), is_exempt, on_loopback, is_secure, subject });
        self.connections.serve(stream, Some(peer)).await;
    }

    /// Waits, for a bounded time, until every connection has ended and every ticket of a vanished
    /// client is withdrawn.
    async fn drain(&self) {
        let ended = async { tokio::join!(self.reception.emptied(), self.admin_places.emptied(), self.door.quiet()) };
        let timeout = Duration::from_millis(self.door.config.shutdown_timeout_ms);
        if tokio::time::timeout(timeout, ended).await.is_err() {
            warn!("connections were still open at shutdown");
        }
    }
}

/// Calls `take` with each connection in the backlog, and `failed` with each error of accept.
/// Accepting goes on after an error, which may be about one connection alone.
async fn each_of_the_last<T, A, F>(accept: impl Fn() -> A, failed: impl Fn(io::Error) -> F, take: impl Fn(T))
where
    A: Future<Output = io::Result<T>>,
    F: Future<Output = ()>,
{
    let mut errors = 0;
    for _ in 0..LAST_LOOKS {
        // Yielding lets the runtime poll its sockets.
        tokio::task::yield_now().await;
        while let Ok(accepted) = tokio::time::timeout(Duration::ZERO, accept()).await {
            match accepted {
                Ok(connection) => take(connection),
                Err(_) if errors == LAST_ERRORS_MAX => return,
                Err(error) => {
                    errors += 1;
                    failed(error).await;
                }
            }
        }
    }
}

/// Returns the problem (503) for a connection beyond the bound `full`.
fn refusal(full: Full) -> Problem {
    let whose = if full == Full::Door { "" } else { " from your address" };
    Problem::unavailable(format!("too many connections{whose} to this node: go to another one"), 1_000)
}

/// Sends the refusal without waiting for a request, then waits for the client to close: a reset
/// would discard the answer.
async fn refuse(mut stream: TcpStream, refusal: Response) -> io::Result<()> {
    let (mut head, body) = refusal.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.map_err(io::Error::other)?;
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let mut answer = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        answer.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    answer.extend([b"\r\n", &*body].concat());
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 4096];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn the_last_connections_are_let_in_behind_one_that_failed() {
        let accepted = RefCell::new([Err(()), Ok(1), Err(()), Ok(2)].into_iter());
        let accept = || async {
            let next = accepted.borrow_mut().next();
            match next {
                Some(accepted) => accepted.map_err(|()| io::ErrorKind::ConnectionAborted.into()),
                None => std::future::pending().await,
            }
        };
        let taken = RefCell::new(Vec::new());
        each_of_the_last(accept, async |_| {}, |connection| taken.borrow_mut().push(connection)).await;
        assert_eq!(taken.into_inner(), [1, 2]);
    }

    #[tokio::test]
    async fn a_listener_that_always_fails_keeps_no_door_open() {
        let errors = Cell::new(0);
        let accept = async || Err::<(), _>(io::ErrorKind::Other.into());
        each_of_the_last(accept, async |_| errors.set(errors.get() + 1), |()| {}).await;
        assert_eq!(errors.get(), LAST_ERRORS_MAX);
    }
}
