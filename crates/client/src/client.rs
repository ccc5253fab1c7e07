//! Client of a cluster, and the modules that it consists of.

mod backoff;
mod barrier;
mod builder;
mod call;
mod claim;
mod clock;
mod connection;
mod double_barrier;
mod download;
mod election;
mod endpoints;
mod environment;
mod error;
#[cfg(test)]
mod fake_node;
mod fate;
mod group;
mod guard;
mod holding;
mod life;
mod lock;
mod multi_lock;
mod opened_session;
mod operate;
mod own_details;
mod secure;
mod semaphore;
mod session;
mod simple_lock;
#[cfg(test)]
mod tests;
mod transport;
mod tries;
mod txn;
mod verdict;
mod views;
mod watch;
mod window;
mod znodes;

use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api::{Millis, OpenSession, ProblemType};
use futures_util::FutureExt as _;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::broadcast;

use crate::client::call::{Answer, Call, Target};
use crate::client::clock::Moment;
use crate::client::connection::Approach;
use crate::client::session::Session;
use crate::client::transport::{Timeouts, Transport};

pub use barrier::DistributedBarrier;
pub use builder::ClientBuilder;
pub use double_barrier::DistributedDoubleBarrier;
pub use election::{Election, Leadership, Observer};
pub use error::Error;
pub use fate::Loss;
pub use group::Group;
pub use guard::Guard;
pub use life::SessionState;
pub use lock::{Lock, RwLock, WithError};
pub use multi_lock::{MultiGuard, MultiLock};
pub use opened_session::OpenedSession;
pub use semaphore::Semaphore;
pub use session::SessionEvent;
pub use simple_lock::SimpleLock;
pub use txn::Transaction;
pub use views::NewMember;
pub use watch::{WatchKind, Watcher};
pub use znodes::{CreateRequest, DeleteRequest, SetDataRequest, Znode};

/// Number of session state changes that are kept for a slow listener.
const EVENTS_MAX: usize = 64;

/// A client of a cluster. Clones are cheap; they share the connections and the session.
///
/// The first call that needs a session opens one. The session is kept alive in the background, and
/// closed when the last clone and the last guard are gone. When the session is lost, its guards are
/// lost, and the next call that needs a session opens another.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) transport: Arc<Transport>,
    wish: OpenSession,
    /// Lock that a call holds while it opens a session, so that concurrent calls open only one
    /// session.
    opening: tokio::sync::Mutex<()>,
    session: Mutex<Option<Arc<Session>>>,
    events: broadcast::Sender<SessionEvent>,
    /// Runtime for the background work: heartbeats, and the releases of dropped guards.
    runtime: Handle,
}

impl Client {
    pub(crate) fn new(addrs: Vec<String>, approach: &Approach, timeouts: Timeouts, wish: OpenSession) -> Client {
        let inner = Inner {
            transport: Arc::new(Transport::new(addrs, approach, timeouts)),
            wish,
            opening: tokio::sync::Mutex::default(),
            session: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            runtime: Handle::current(),
        };
        Client { inner: Arc::new(inner) }
    }

    /// Returns a stream of the changes of session states from now on. A listener that is more than
    /// 64 changes behind misses the oldest changes.
    pub fn session_events(&self) -> SessionEvents {
        SessionEvents(self.inner.events.subscribe())
    }

    /// The state of the present session; `None` before a session was opened and after
    /// [`Client::close`].
    pub fn session_state(&self) -> Option<SessionState> {
        self.inner.present().map(|session| session.state())
    }

    /// Returns the endpoint of a node whose last request succeeded, so that a program can send
    /// requests that this client does not offer. `None` if there is no such node.
    pub fn live_endpoint(&self) -> Option<String> {
        self.inner.transport.live_addr().map(str::to_owned)
    }

    /// Returns the id of the present session. Opens a session if there is none.
    ///
    /// # Errors
    /// When no node opens a session in time.
    pub async fn session_id(&self) -> Result<u64, Error> {
        Ok(self.session().await?.id)
    }

    /// Returns the agreed timeout of the present session: the time for which the cluster keeps it
    /// without a heartbeat. Opens a session if there is none.
    ///
    /// # Errors
    /// As [`Client::session_id`].
    pub async fn session_timeout(&self) -> Result<Duration, Error> {
        Ok(self.session().await?.timeout)
    }

    /// Closes the session: its locks and ephemeral znodes go at once. The client stays usable; the
    /// next call that needs a session opens another. A session that the client has given up as lost
    /// is not closed if it asked for a lock with a delay ([`Lock::lock_delay`]): it is left to
    /// expire in the cluster, because only an expiry starts the delay.
    ///
    /// # Errors
    /// When the cluster did not confirm the close in time. The session then ends by its timeout.
    ///
    /// Dropping the future after its first poll does not stop the close, which goes on in the
    /// background.
    pub async fn close(&self) -> Result<(), Error> {
        let session = self.inner.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        match session {
            Some(session) => session.close(&self.inner.transport, &self.inner.runtime, self.deadline()).await,
            None => Ok(()),
        }
    }

    /// Runs the work with this client, then closes the session, even if the work returns an error
    /// or panics. So a guard that the work leaves behind does not keep other clients waiting until
    /// the session times out.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zlock_client::Error> {
    /// use zlock_client::{Client, Error};
    ///
    /// let client = Client::connect(["localhost:7001"]).await?;
    /// client.run(async |client| {
    ///     let guard = client.lock("/orders").acquire().await?;
    ///     client.set("/orders-state", "worked on").if_lock(&guard).await?;
    ///     Ok::<(), Error>(())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The close may take as long as any operation. If the cluster does not confirm it, the session
    /// ends by its timeout. Clones of the client lose the session, too. Dropping the future drops
    /// the work and the client: the session is closed in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        // The panic continues below, so no caller sees a state that it left half changed.
        let ended = AssertUnwindSafe(work(&self)).catch_unwind().await;
        let _ = self.close().await;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the present session. Opens another session if there is none, or if the present one
    /// is lost or closed.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.inner.usable() {
            return Ok(session);
        }
        let deadline = self.deadline();
        let opening = tokio::time::timeout(deadline.remaining(), self.inner.opening.lock()).await;
        let _opening = opening.map_err(|_| Error::unavailable("another call could not open a session"))?;
        if let Some(session) = self.inner.usable() {
            return Ok(session);
        }
        let Inner { transport, runtime, wish, events, .. } = &*self.inner;
        let session = Session::open(transport, runtime, wish, events.clone(), deadline).await?;
        *self.inner.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Sends a read without a session, and parses the JSON document of the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, target: Target) -> Result<(T, Answer), Error> {
        let answer = self.ask(target).await?;
        Ok((answer.json()?, answer))
    }

    /// Sends a read without a session. The answer may have no body.
    pub(crate) async fn ask(&self, target: Target) -> Result<Answer, Error> {
        self.inner.transport.send(&Call::get(target.finish()), self.deadline()).await
    }

    /// Sends a long-poll without a session, which the node answers after `wait` at the latest.
    pub(crate) async fn poll<T: DeserializeOwned>(&self, target: Target, wait: Duration) -> Result<T, Error> {
        let call = Call::get(target.with("wait", Millis::from(wait)).finish()).waiting(wait);
        self.inner.transport.send(&call, self.deadline().after(wait)).await?.json()
    }

    /// Reads a list page by page. `target` makes the request for the page after a cursor, and
    /// `parts` splits a page into its elements and the next cursor.
    pub(crate) async fn pages<P: DeserializeOwned, T, C>(
        &self,
        target: impl Fn(Option<C>) -> Result<Target, Error>,
        mut parts: impl FnMut(P) -> (Vec<T>, Option<C>),
    ) -> Result<Vec<T>, Error> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = parts(self.read::<P>(target(after)?).await?.0);
            all.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Sends a write, which is applied at most once even if it is sent several times.
    pub(crate) async fn write<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let key = uuid::Uuid::new_v4();
        let session = self.session().await?;
        let error = match self.write_in(&session, call.clone().key(key)).await {
            Ok(answer) => return answer.json(),
            Err(error) => error,
        };
        // The session had ended before this client noticed it, and the write was not applied. It is
        // repeated in a new session, so that the caller need not repeat it.
        if error.code() == Some(ProblemType::SessionExpired) {
            let session = self.session().await?;
            return self.write_in(&session, call.key(key)).await?.json();
        }
        Err(error)
    }

    /// Sends a write in the given session. The call must have its idempotency key.
    pub(crate) async fn write_in(&self, session: &Arc<Session>, call: Call) -> Result<Answer, Error> {
        let deadline = self.deadline();
        let _slot = session.slot(deadline).await?;
        let answer = self.inner.transport.send(&call.session(&session.key), deadline).await;
        if let Err(error) = &answer {
            session.notice(error);
        }
        answer
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.inner.transport.deadline()
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.runtime.spawn(work);
    }
}

impl Inner {
    fn present(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn usable(&self) -> Option<Arc<Session>> {
        self.present().filter(|session| session.is_safe())
    }
}

/// Writes the endpoints and the session, but not the session's key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<&str> = self.inner.transport.addrs().collect();
        let (session, mut shown) = (self.inner.present(), f.debug_struct("Client"));
        shown.field("endpoints", &endpoints).field("session", &session).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = session {
            let (transport, runtime) = (Arc::clone(&self.transport), self.runtime.clone());
            // If the close fails, the session ends by its timeout.
            self.runtime.spawn(async move { session.close(&transport, &runtime, transport.deadline()).await });
        }
    }
}

/// Stream of changes of session states, from [`Client::session_events`].
pub struct SessionEvents(broadcast::Receiver<SessionEvent>);

impl fmt::Debug for SessionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEvents").finish_non_exhaustive()
    }
}

impl SessionEvents {
    /// Returns the next change; `None` when all clones of the client are dropped. Dropping the
    /// future loses no change.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        loop {
            match self.0.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
