//! A client of the ZooKeeper door that never sends a request twice and says whether one without an
//! answer was sent.
//!
//! [`Connection`] is one connection and its packets. [`Zk`] is a session over many of them: a task
//! owns the connection: it greets nodes one after the other, resumes the session, brings its
//! watches back, sends requests without waiting for answers ([`Zk::begin`]), pings, and leaves a
//! node that is silent. What a client of the protocol may rely on is checked on the way, and what
//! breaks it ends the client with [`Failure::Wrong`]: answers in the order of requests, zxids that
//! never go back, on any node.

mod armed;
mod connection;
mod link;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jute::{Record, Request};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

pub use connection::Connection;
use link::Link;

/// An answer comes within this time, or it is late.
const ANSWER_MAX: Duration = Duration::from_millis(1_500);

/// Requests of one client that wait for a connection.
const ASKED_MAX: usize = 256;
/// Events that no caller has taken. Beyond it the client goes to another node, and its events have
/// a gap.
const EVENTS_MAX: usize = 1 << 16;
/// How long the first connection may take.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The node's last zxid at the answer.
    pub zxid: u64,
    /// The answer's body.
    pub body: Vec<u8>,
    /// The node, from 1.
    pub node: u64,
    /// Its place among all packets of the client, events too.
    pub place: u64,
    /// Which of the client's connections.
    pub connection: u64,
}

impl Reply {
    /// The body as what it should be.
    ///
    /// # Errors
    /// [`Failure::Wrong`] when it is not that.
    pub fn read<T: Record>(&self) -> Result<T, Failure> {
        T::from_bytes(&self.body).map_err(|error| Failure::Wrong(format!("an answer cannot be read: {error}")))
    }
}

/// Why there is no answer, or none that says yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An error code: it did not happen.
    Refused(i32),
    /// It was not sent.
    NotSent(String),
    /// The connection broke behind it.
    Broken(String),
    /// It was sent and not answered in time.
    TimedOut,
    /// The session is over. The request was not sent.
    Expired,
    /// The node broke a rule of the protocol.
    Wrong(String),
}

/// A watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened: one of [`jute::event`].
    pub kind: i32,
    /// Where.
    pub path: String,
    /// The change's zxid; 0 when the node does not say.
    pub zxid: u64,
    /// As in [`Reply`].
    pub place: u64,
    /// As in [`Reply`].
    pub connection: u64,
}

/// What the task and its owner both know.
struct Shared {
    /// Counts connections. Between two of them events may have been missed.
    connection: AtomicU64,
    /// The session; 0 before the first connection.
    session: watch::Sender<u64>,
}

/// One thing for the task to do.
enum Ask {
    Request { request: Request, claimed: Arc<AtomicBool>, answer: oneshot::Sender<Result<Reply, Failure>> },
    Hop,
}

/// A client with a session.
pub struct Zk {
    asks: mpsc::Sender<Ask>,
    events: mpsc::Receiver<Event>,
    shared: Arc<Shared>,
    session: u64,
    task: AbortHandle,
}

impl Drop for Zk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request on its way.
pub struct Begun {
    /// Taken by the one that comes first: the task to send it, or its owner to give it up.
    claimed: Arc<AtomicBool>,
    answer: Result<oneshot::Receiver<Result<Reply, Failure>>, Failure>,
    deadline: Instant,
}

impl Begun {
    /// Waits for the answer.
    ///
    /// # Errors
    /// When there is none in time, or it is no yes.
    pub async fn answer(self) -> Result<Reply, Failure> {
        match timeout_at(self.deadline, self.answer?).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::Broken("the client ended".into())),
            Err(_) if !self.claimed.swap(true, Ordering::SeqCst) => Err(Failure::NotSent("not connected".into())),
            Err(_) => Err(Failure::TimedOut),
        }
    }
}

impl Zk {
    /// Opens a session at any of these `host:port`, the node of number `first` (from 0, or any
    /// number beyond) before others.
    ///
    /// # Errors
    /// When a minute was not enough.
    pub async fn open(doors: &[String], first: u64, timeout: Duration) -> Result<Zk, String> {
        let (asks, asked) = mpsc::channel(ASKED_MAX);
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        let (session, mut opened) = watch::channel(0);
        let shared = Arc::new(Shared { connection: AtomicU64::new(0), session });
        let link = Link::new(doors, first, timeout, asked, tell, shared.clone());
        let task = tokio::spawn(link.run()).abort_handle();
        let mut zk = Zk { asks, events, shared, session: 0, task };
        let session = tokio::time::timeout(OPEN_MAX, opened.wait_for(|session| *session != 0)).await;
        zk.session = *session.map_err(|_| "no session was opened")?.map_err(|error| error.to_string())?;
        Ok(zk)
    }

    /// The session's id: the owner in histories.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Which connection it is on, or will be.
    pub fn connection(&self) -> u64 {
        self.shared.connection.load(Ordering::SeqCst)
    }

    /// Sends a request behind those that were begun before. Nothing is waited for.
    pub fn begin(&self, request: Request) -> Begun {
        let (answer, receive) = oneshot::channel();
        let claimed = Arc::new(AtomicBool::new(false));
        let asked = self.asks.try_send(Ask::Request { request, claimed: claimed.clone(), answer });
        let answer = asked.map(|()| receive).map_err(|_| Failure::NotSent("too many requests wait".into()));
        Begun { claimed, answer, deadline: Instant::now() + ANSWER_MAX }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As [`Begun::answer`].
    pub async fn ask(&self, request: Request) -> Result<Reply, Failure> {
        self.begin(request).answer().await
    }

    /// The same, for an answer that is a record.
    ///
    /// # Errors
    /// As [`Begun::answer`].
    pub async fn get<T: Record>(&self, request: Request) -> Result<T, Failure> {
        self.ask(request).await?.read()
    }

    /// Leaves the node for the next one.
    pub fn hop(&self) {
        // When the queue is full the client is busy finding a node anyway.
        let _ = self.asks.try_send(Ask::Hop);
    }

    /// The next event, if one comes within this time.
    pub async fn event(&mut self, wait: Duration) -> Option<Event> {
        timeout(wait, self.events.recv()).await.ok().flatten()
    }

    /// The events that have come.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}
