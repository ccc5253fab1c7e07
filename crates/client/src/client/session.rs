//! One session, and the task that keeps it alive.
//!
//! The client fences itself: `safe_until` counts from the moment a heartbeat was *sent*, on the
//! client's own clock, and when it passes without a newer answer the session is lost, whatever the
//! cluster may think. The cluster cannot have expired it before: it counts the same time, from the
//! heartbeat's arrival.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::{KeptAlive, OpenSession, ProblemType, SessionOpened};
use hyper::Method;
use hyper::header::HeaderValue;
use tokio::sync::{broadcast, watch};

use crate::client::call::{Call, Prefer};
use crate::client::clock::Moment;
use crate::client::error::Error;
use crate::client::fate::Loss;
use crate::client::life::{Life, SessionState};
use crate::client::transport::Transport;
use crate::client::window::{Slot, Window};

/// A change of a session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    /// The session's id.
    pub session: u64,
    /// Its state from now on.
    pub state: SessionState,
}

/// A session of this client.
pub(crate) struct Session {
    pub(crate) id: u64,
    /// The value of the header; secret.
    key: HeaderValue,
    timeout: Duration,
    life: Mutex<Life>,
    state: watch::Sender<SessionState>,
    events: broadcast::Sender<SessionEvent>,
    pub(crate) window: Arc<Window>,
    /// Whether a lock with a delay was asked for in it.
    delays: AtomicBool,
}

impl Session {
    /// Opens a session and begins to keep it alive.
    pub(crate) async fn open(
        transport: &Arc<Transport>,
        wish: &OpenSession,
        events: broadcast::Sender<SessionEvent>,
        deadline: Moment,
    ) -> Result<Arc<Session>, Error> {
        // Without a session there is no key. An open whose answer was lost leaves a session that
        // no caller uses, and that ends by itself.
        let call = Call::write(Method::POST, "/v1/sessions".into()).json(wish).repeatable();
        let answer = transport.send(&call, deadline).await?;
        let opened: SessionOpened = answer.json()?;
        let mut key = HeaderValue::from_str(&opened.session)
            .map_err(|_| Error::unknown("a session was opened, and its key is no header's value"))?;
        key.set_sensitive(true);
        let session = Arc::new(Session {
            id: opened.id,
            key,
            timeout: Duration::from_millis(opened.timeout_ms.into()),
            life: Mutex::new(Life::new(answer.sent, Duration::from_millis(opened.safe_for_ms))),
            state: watch::Sender::new(SessionState::Connected),
            events,
            window: Arc::default(),
            delays: AtomicBool::new(false),
        });
        session.tell(SessionState::Connected);
        tokio::spawn(keep(Arc::clone(&session), Arc::clone(transport)));
        Ok(session)
    }

    /// The value of the session's header.
    pub(crate) fn key(&self) -> &HeaderValue {
        &self.key
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The state at this moment: by the clock, not by when a task last ran.
    ///
    /// Who is told that the session is lost acts on it, and gives nothing back, for example. So it
    /// stays lost then, though an answer may be there already that would have kept it.
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

    /// Whether something held in the session is certainly still held in it.
    pub(crate) fn is_safe(&self) -> bool {
        !self.state().is_final()
    }

    /// How much longer it cannot be lost; nothing once it has ended.
    pub(crate) fn safe_for(&self) -> Duration {
        if self.is_safe() { self.safe_until().remaining() } else { Duration::ZERO }
    }

    /// Returns when the session is lost or closed.
    pub(crate) async fn ended(&self) -> Loss {
        let mut states = self.state.subscribe();
        // The sender lives as long as self.
        let _ = states.wait_for(|state| state.is_final()).await;
        self.loss()
    }

    /// What its end is to what was held in it.
    fn loss(&self) -> Loss {
        match self.state() {
            SessionState::Closed => Loss::Closed,
            SessionState::Connected | SessionState::Suspended | SessionState::Lost => Loss::Expired,
        }
    }

    /// An answer to a request that was sent at `sent` said how long the session is safe.
    pub(crate) fn heard(&self, sent: Moment, safe_for_ms: u64) {
        self.life().heard(sent, Duration::from_millis(safe_for_ms));
        self.refresh();
    }

    /// The cluster said that the session has ended, or the clock did.
    pub(crate) fn lose(&self) {
        self.set(SessionState::Lost);
    }

    /// One heartbeat, which is tried until the deadline. What its answer says of the session is
    /// noted.
    pub(crate) async fn heartbeat(&self, transport: &Transport, deadline: Moment) -> Result<(), Error> {
        let attempt = (self.timeout / 6).min(transport.timeouts.attempt);
        let call = Call::write(Method::POST, format!("/v1/sessions/{}/keepalive", self.id));
        // Through any node: followers pass heartbeats on together, and the leader need not know
        // every client.
        let call = call.session(&self.key).repeatable().prefer(Prefer::Any).attempt_timeout(attempt);
        let answer = transport.send_now(&call, deadline).await.inspect_err(|error| self.notice(error))?;
        self.heard(answer.sent, answer.json::<KeptAlive>()?.safe_for_ms);
        Ok(())
    }

    /// Room for one more write with a key.
    ///
    /// # Errors
    /// `Unavailable` when there is none by the deadline.
    pub(crate) async fn slot(&self, deadline: Moment) -> Result<Slot, Error> {
        let slot = tokio::time::timeout(deadline.remaining(), self.window.enter()).await;
        slot.map_err(|_| Error::unavailable("an earlier write of this session is still unfinished"))
    }

    /// Notes what an error says about the session.
    pub(crate) fn notice(&self, error: &Error) {
        if matches!(error.code(), Some(ProblemType::SessionExpired | ProblemType::AuthFailed)) {
            self.lose();
        }
    }

    /// Notes that a lock with this delay is about to be asked for.
    pub(crate) fn note_delay(&self, lock_delay: Option<Duration>) {
        if lock_delay.is_some_and(|delay| !delay.is_zero()) {
            self.note_any_delay();
        }
    }

    /// Notes that a lock with a delay may be asked for in it.
    pub(crate) fn note_any_delay(&self) {
        self.delays.store(true, Ordering::Relaxed);
    }

    /// Whether the session is lost and must end by its timeout: only then the delay of its locks
    /// begins. Closed, it would give them to others at once.
    fn must_expire(&self) -> bool {
        self.delays.load(Ordering::Relaxed) && self.state() == SessionState::Lost
    }

    /// Closes the session: its ephemerals and locks go at once. One that must expire is left to do
    /// so.
    pub(crate) async fn close(&self, transport: &Transport, deadline: Moment) -> Result<(), Error> {
        if self.must_expire() {
            return Ok(());
        }
        self.set(SessionState::Closed);
        self.delete(transport, deadline).await
    }

    async fn delete(&self, transport: &Transport, deadline: Moment) -> Result<(), Error> {
        let call = Call::write(Method::DELETE, format!("/v1/sessions/{}", self.id)).session(&self.key).repeatable();
        match transport.send_now(&call, deadline).await {
            Ok(_) => Ok(()),
            // It is gone, which is what was wanted; maybe an earlier try did it.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Brings what is told up to the clock.
    fn refresh(&self) {
        let state = self.life().at(Moment::now());
        self.set(state);
    }

    fn set(&self, state: SessionState) {
        let changed = self.state.send_if_modified(|told| {
            // The end is final.
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
        // No listener is no error.
        let _ = self.events.send(SessionEvent { session: self.id, state });
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without its key.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

/// Keeps a session alive until it ends, and tells that it has.
async fn keep(session: Arc<Session>, transport: Arc<Transport>) {
    tokio::select! {
        _ = session.ended() => {}
        () = beat(&session, &transport) => {}
        () = fence(&session) => {}
    }
    // Whichever of them saw the deadline pass: from here on no other task would tell it.
    session.refresh();
    if *session.state.borrow() == SessionState::Lost && !session.must_expire() {
        // The cluster may think otherwise, and then others would wait for what this client no
        // longer dares to use.
        let _ = session.delete(&transport, Moment::now().after(session.timeout)).await;
    }
}

/// Looks at the clock. In short steps: a tokio timer does not count the time that the machine
/// sleeps.
async fn fence(session: &Session) {
    let step = (session.timeout / 50).clamp(Duration::from_millis(10), Duration::from_millis(500));
    while session.is_safe() {
        session.refresh();
        tokio::time::sleep(step.min(session.safe_until().remaining())).await;
    }
}

/// Sends heartbeats until the session has ended, by the cluster's word or by the clock.
async fn beat(session: &Session, transport: &Transport) {
    while !session.state().is_final() {
        // Clients that opened their sessions together shall not beat together.
        tokio::time::sleep(session.timeout.mul_f64(0.2 + 0.05 * fastrand::f64())).await;
        // What it says of the session is noted.
        let _ = session.heartbeat(transport, session.safe_until()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A guard that is dropped now, for example: it is not given back, as it goes with the
        // session.
        assert_eq!(session.state(), SessionState::Lost);
        // The answer to a heartbeat that had waited in the socket while this process was stopped.
        session.heard(Moment::now(), 10_000);
        assert_eq!(session.state(), SessionState::Lost);
        assert_eq!(session.ended().await, Loss::Expired);
    }
}
