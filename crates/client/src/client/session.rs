//! A session, and the task that keeps it alive.
//!
//! The client fences itself: `safe_until` counts from the moment at which a heartbeat was *sent*,
//! on the client's own clock. When that time passes without a newer answer, the session is lost for
//! the client, even if the cluster still has it. The cluster cannot have expired the session
//! earlier, as it counts the same time from the arrival of the heartbeat.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crate::api::{KeepAlive, NewSession, OpenSession, ProblemType};
use hyper::Method;
use hyper::header::HeaderValue;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};

use crate::client::call::{Call, Prefer};
use crate::client::clock::Moment;
use crate::client::error::Error;
use crate::client::fate::Loss;
use crate::client::life::{Life, SessionState};
use crate::client::transport::Transport;
use crate::client::window::{Slot, Window};

/// Time beyond its deadline in which the task that closes a session may report the outcome.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// A change of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The id of the session.
    pub session: u64,
    /// The new state of the session.
    pub state: SessionState,
}

/// A session of this client.
pub(crate) struct Session {
    pub(crate) id: u64,
    /// The value of the session header, which is secret.
    pub(crate) key: HeaderValue,
    pub(crate) timeout: Duration,
    life: Mutex<Life>,
    state: watch::Sender<SessionState>,
    events: broadcast::Sender<SessionEvent>,
    pub(crate) window: Arc<Window>,
    /// Whether the session may have asked for a lock with a lock-delay
    /// ([`crate::Lock::lock_delay`]).
    delays: AtomicBool,
}

impl Session {
    /// Opens a session, and keeps it alive by a task on `runtime`. This is the client's runtime:
    /// the runtime of the caller may end earlier.
    pub(crate) async fn open(
        transport: &Arc<Transport>,
        runtime: &Handle,
        wish: &OpenSession,
        events: broadcast::Sender<SessionEvent>,
        deadline: Moment,
    ) -> Result<Arc<Session>, Error> {
        // An idempotency key needs a session, so the open has none. An open whose answer was lost
        // leaves an unused session, which expires.
        let call = Call::write(Method::POST, "/v1/sessions".into()).json(wish).repeatable();
        let answer = transport.send(&call, deadline).await?;
        let opened: NewSession = answer.json()?;
        let mut key = HeaderValue::from_str(&opened.session_key)
            .map_err(|_| Error::unknown("a session was opened, and its key is no header's value"))?;
        key.set_sensitive(true);
        let session = Arc::new(Session {
            id: opened.session,
            key,
            timeout: Duration::from_millis(opened.timeout_ms.into()),
            life: Mutex::new(Life::new(answer.sent, Duration::from_millis(opened.safe_for_ms))),
            state: watch::Sender::new(SessionState::Connected),
            events,
            window: Arc::default(),
            delays: AtomicBool::new(false),
        });
        session.tell(SessionState::Connected);
        runtime.spawn(keep(Arc::clone(&session), Arc::clone(transport)));
        Ok(session)
    }

    /// Returns the state at this moment. It is computed from the clock, as the background task may
    /// not have run since the deadline.
    ///
    /// Callers act on a lost session: for example, a dropped guard sends no release. Therefore the
    /// session stays lost from then on, even if an answer that would have kept it has already
    /// arrived.
    pub(crate) fn state(&self) -> SessionState {
        let told = *self.state.borrow();
        if told.is_final() {
            return told;
        }
        let state = self.life().at(Moment::now());
        if state.is_final() {
            self.set(state);
        }
        state
    }

    pub(crate) fn safe_until(&self) -> Moment {
        self.life().safe_until()
    }

    /// Tells whether the session has certainly not ended.
    pub(crate) fn is_safe(&self) -> bool {
        !self.state().is_final()
    }

    /// The time for which the session cannot be lost; zero once it has ended.
    pub(crate) fn safe_for(&self) -> Duration {
        if self.is_safe() { self.safe_until().remaining() } else { Duration::ZERO }
    }

    /// Waits until the session is lost or closed, and returns the reason.
    ///
    /// Each poll of the future looks at the clock. After a pause of the process, the timer of the
    /// task that publishes the loss may fire later than the other wakes of the polling task.
    pub(crate) async fn ended(&self) -> Loss {
        let mut states = self.state.subscribe();
        let mut told = pin!(states.wait_for(|state| state.is_final()));
        // An error of `told` means that the sender is dropped, which lives as long as self.
        poll_fn(|context| if self.is_safe() { told.as_mut().poll(context).map(drop) } else { Poll::Ready(()) }).await;
        self.loss()
    }

    /// Reason for which the locks of the ended session are lost.
    fn loss(&self) -> Loss {
        match self.state() {
            SessionState::Closed => Loss::Closed,
            SessionState::Connected | SessionState::Suspended | SessionState::Lost => Loss::Expired,
        }
    }

    /// Notes the answer to a request that was sent at `sent`: the session cannot expire for
    /// `safe_for_ms` from `sent` on.
    pub(crate) fn heard(&self, sent: Moment, safe_for_ms: u64) {
        self.life().heard(sent, Duration::from_millis(safe_for_ms));
        self.refresh();
    }

    /// Notes that the session is lost, as the cluster reported or the clock showed.
    pub(crate) fn lose(&self) {
        self.set(SessionState::Lost);
    }

    /// Sends one heartbeat, which is tried until the deadline, and extends the session's deadline
    /// by the answer.
    pub(crate) async fn heartbeat(&self, transport: &Transport, deadline: Moment) -> Result<(), Error> {
        let attempt = (self.timeout / 6).min(transport.timeouts.attempt);
        let call = Call::write(Method::POST, format!("/v1/sessions/{}/keepalive", self.id));
        // Sent to any node: followers forward the heartbeats of many clients together, so that the
        // leader does not need a connection to every client.
        let call = call.session(&self.key).repeatable().prefer(Prefer::Any).attempt_timeout(attempt);
        let answer = transport.send_now(&call, deadline).await.inspect_err(|error| self.notice(error))?;
        self.heard(answer.sent, answer.json::<KeepAlive>()?.safe_for_ms);
        Ok(())
    }

    /// Waits until one more write with an idempotency key may begin: see [`Window`].
    ///
    /// # Errors
    /// `Unavailable` when too many writes are still unfinished at the deadline.
    pub(crate) async fn slot(&self, deadline: Moment) -> Result<Slot, Error> {
        let slot = tokio::time::timeout(deadline.remaining(), self.window.enter()).await;
        slot.map_err(|_| Error::unavailable("an earlier write of this session is still unfinished"))
    }

    /// Marks the session as lost if the error says that it has ended.
    pub(crate) fn notice(&self, error: &Error) {
        if matches!(error.code(), Some(ProblemType::SessionExpired | ProblemType::AuthFailed)) {
            self.lose();
        }
    }

    /// Notes that the session is about to ask for a lock with this lock-delay; `None` and zero are
    /// no delay.
    pub(crate) fn note_delay(&self, lock_delay: Option<Duration>) {
        if lock_delay.is_some_and(|delay| !delay.is_zero()) {
            self.note_any_delay();
        }
    }

    /// Notes that the session may ask for a lock with a lock-delay.
    pub(crate) fn note_any_delay(&self) {
        self.delays.store(true, Ordering::Relaxed);
    }

    /// Tells whether the session is lost and must end by its timeout, because only an expiry begins
    /// the delay of its locks. A close would give the locks to other clients at once.
    fn must_expire(&self) -> bool {
        self.delays.load(Ordering::Relaxed) && self.state() == SessionState::Lost
    }

    /// Closes the session: its ephemeral znodes and locks go at once. A session that must expire
    /// ([`Session::must_expire`]) is not closed.
    ///
    /// The request is sent by a task on `runtime`, the client's runtime. So it is sent even if the
    /// caller drops the future: no other task closes a session in the state `Closed`.
    pub(crate) async fn close(
        self: &Arc<Session>,
        transport: &Arc<Transport>,
        runtime: &Handle,
        deadline: Moment,
    ) -> Result<(), Error> {
        if self.must_expire() {
            return Ok(());
        }
        self.set(SessionState::Closed);
        let (session, on) = (Arc::clone(self), Arc::clone(transport));
        let sent = runtime.spawn(async move { session.delete(&on, deadline).await });
        match tokio::time::timeout(deadline.remaining().saturating_add(CLOSE_GRACE), sent).await {
            Ok(Ok(deleted)) => deleted,
            // The client's runtime has ended.
            Ok(Err(_)) => self.delete(transport, deadline).await,
            // The client's runtime does not run.
            Err(_) => Err(Error::unknown("the close of the session was not confirmed in time")),
        }
    }

    async fn delete(&self, transport: &Transport, deadline: Moment) -> Result<(), Error> {
        let call = Call::write(Method::DELETE, format!("/v1/sessions/{}", self.id)).session(&self.key).repeatable();
        match transport.send_now(&call, deadline).await {
            Ok(_) => Ok(()),
            // The session is gone already, perhaps by an earlier try.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Computes the state from the clock, and publishes it if it has changed.
    fn refresh(&self) {
        let state = self.life().at(Moment::now());
        self.set(state);
    }

    fn set(&self, state: SessionState) {
        let changed = self.state.send_if_modified(|told| {
            // A final state stays.
            let changed = !told.is_final() && *told != state;
            if changed {
                *told = state;
            }
            changed
        });
        if changed {
            self.tell(state);
        }
    }

    fn tell(&self, state: SessionState) {
        // A send without listeners is no error.
        let _ = self.events.send(SessionEvent { session: self.id, state });
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the session's id and state, but not its key.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

/// Keeps a session alive until it ends, and publishes its end.
async fn keep(session: Arc<Session>, transport: Arc<Transport>) {
    tokio::select! {
        _ = session.ended() => {}
        () = beat(&session, &transport) => {}
        () = fence(&session) => {}
    }
    // Any of the three futures may have ended because the deadline passed. No other task would
    // publish the loss.
    session.refresh();
    if *session.state.borrow() == SessionState::Lost && !session.must_expire() {
        // The cluster may still have the session, and other clients would wait for locks that this
        // client no longer uses.
        let _ = session.delete(&transport, Moment::now().after(session.timeout)).await;
    }
}

/// Publishes the state of the session by the clock until the session has ended. Sleeps in short
/// steps, as a tokio timer does not count the time for which the machine sleeps.
async fn fence(session: &Session) {
    let step = (session.timeout / 50).clamp(Duration::from_millis(10), Duration::from_millis(500));
    while session.is_safe() {
        session.refresh();
        tokio::time::sleep(step.min(session.safe_until().remaining())).await;
    }
}

/// Sends heartbeats until the session has ended, as the cluster reports or the clock shows.
async fn beat(session: &Session, transport: &Transport) {
    while !session.state().is_final() {
        // The random part spreads the heartbeats of clients that opened their sessions at one time.
        tokio::time::sleep(session.timeout.mul_f64(0.2 + 0.05 * fastrand::f64())).await;
        // The result needs no handling here, as `heartbeat` notes the answer or the error in the
        // session.
        let _ = session.heartbeat(transport, session.safe_until()).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::client::fake_node::fake_node;

    #[tokio::test]
    async fn a_session_outlives_the_runtime_that_opened_it() {
        let (addr, mut requests) = fake_node(async |request: String| match request.as_str() {
            "POST /v1/sessions" => {
                r#"{"session":5,"session_key":"5.00","timeout_ms":1000,"safe_for_ms":58800}"#.to_owned()
            }
            _ => r#"{"session":5,"timeout_ms":1000,"safe_for_ms":58800}"#.to_owned(),
        })
        .await;
        let client = crate::Client::builder([addr]).build().unwrap();
        let opener = client.clone();
        let opened = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(opener.session_id()).unwrap()
        });
        // The node, which answers the open, runs on this thread.
        assert_eq!(tokio::task::spawn_blocking(|| opened.join().unwrap()).await.unwrap(), 5);
        assert_eq!(requests.recv().await.unwrap(), "POST /v1/sessions");
        for _ in 0..2 {
            assert_eq!(requests.recv().await.unwrap(), "POST /v1/sessions/5/keepalive");
        }
        assert_eq!(client.session_state(), Some(SessionState::Connected));
    }

    #[tokio::test]
    async fn a_close_that_is_given_up_goes_on_in_the_background() {
        for by_run in [false, true] {
            let (addr, mut requests) = fake_node(async |_| {
                r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":58800}"#.to_owned()
            })
            .await;
            let client = crate::Client::connect([addr]).await.unwrap();
            let kept = client.clone();
            let closed = match by_run {
                true => client.run(async |_| ()).now_or_never().is_some(),
                false => client.close().now_or_never().is_some(),
            };
            assert!(!closed && kept.session_state().is_none());
            for expected in ["POST /v1/sessions", "DELETE /v1/sessions/5"] {
                assert_eq!(requests.recv().await.unwrap(), expected);
            }
        }
    }

    #[tokio::test]
    async fn a_session_that_was_called_lost_stays_lost() {
        let session = Session {
            id: 1,
            key: HeaderValue::from_static("1.x"),
            timeout: Duration::from_secs(10),
            life: Mutex::new(Life::new(Moment::ZERO, Duration::from_millis(1))),
            state: watch::Sender::new(SessionState::Connected),
            events: broadcast::Sender::new(1),
            window: Arc::default(),
            delays: AtomicBool::new(false),
        };
        // For example, a guard that is dropped now sends no release, as its lock ends with the
        // session.
        assert_eq!(session.state(), SessionState::Lost);
        // The answer to a heartbeat, which had waited in the socket while this process was stopped.
        session.heard(Moment::now(), 10_000);
        assert_eq!(session.state(), SessionState::Lost);
        assert_eq!(session.ended().await, Loss::Expired);
    }
}
