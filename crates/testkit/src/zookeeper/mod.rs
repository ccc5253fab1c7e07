//! A ZooKeeper client that sends each request at most once. For a request without an answer it
//! reports whether the request was sent.
//!
//! [`Connection`] is one connection with its packets. [`Zk`] is a session over consecutive
//! connections, which a task owns. The task connects to the nodes in turn, resumes the session,
//! sets its watches again, sends requests without waiting for earlier answers ([`Zk::begin`]),
//! pings, and leaves a node that does not answer. It also checks guarantees of the protocol:
//! answers have the order of the requests, and zxids never go back, on any node. A violation ends
//! the client with [`Failure::Wrong`].

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

pub use connection::{Connection, packet};
use link::Link;

/// Time after which a request without an answer fails with [`Failure::TimedOut`].
const ANSWER_MAX: Duration = Duration::from_millis(1_500);

/// Largest number of requests of one client that wait to be sent.
const ASKED_MAX: usize = 256;
/// Largest number of events that no caller has taken. If there are more, the client changes to
/// another node, and events are missing in between.
const EVENTS_MAX: usize = 1 << 16;
/// Longest time for opening the session.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// Successful answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The zxid in the answer's header, which is the last one that the node had applied.
    pub zxid: u64,
    /// The body of the answer.
    pub body: Vec<u8>,
    /// The number of the node, from 1.
    pub node: u64,
    /// The position of the answer among all packets that the client received, events included.
    pub place: u64,
    /// The number of the client's connection that received the answer, from 0.
    pub connection: u64,
}

impl Reply {
    /// Parses the body as a record.
    ///
    /// # Errors
    /// [`Failure::Wrong`] when the body cannot be parsed as a `T`.
    pub fn read<T: Record>(&self) -> Result<T, Failure> {
        T::from_bytes(&self.body).map_err(|error| Failure::Wrong(format!("an answer cannot be read: {error}")))
    }
}

/// Failure of a request without a successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The node refused the request with an error code: nothing happened.
    Refused(i32),
    /// The request was not sent.
    NotSent(String),
    /// The connection broke after the request was sent.
    Broken(String),
    /// The request was sent and not answered in time.
    TimedOut,
    /// The session is over. The request was not sent.
    Expired,
    /// The node broke a rule of the protocol.
    Wrong(String),
}

/// A watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of the event: one of [`jute::event`].
    pub kind: i32,
    /// The path of the znode.
    pub path: String,
    /// The zxid of the change; 0 when the node does not send it.
    pub zxid: u64,
    /// The position of the event among all packets that the client received, as in [`Reply`].
    pub place: u64,
    /// The number of the client's connection, as in [`Reply`].
    pub connection: u64,
}

/// State that a [`Zk`] shares with the background task of its connection.
struct Shared {
    /// Number of the present connection, from 0. Events between two connections can be missed.
    connection: AtomicU64,
    /// The id of the session; 0 before the first connection.
    session: watch::Sender<u64>,
}

/// Message of a [`Zk`] to the task that owns its connection.
enum Ask {
    Request { request: Request, claimed: Arc<AtomicBool>, answer: oneshot::Sender<Result<Reply, Failure>> },
    Hop,
}

/// ZooKeeper client with one session.
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

/// A request that was passed to the [`Zk`]'s background task, and whose answer can be awaited.
pub struct Begun {
    /// Set by the background task when it sends the request, or by the caller when it gives the
    /// request up, whichever comes first. So a request that was given up unsent is never sent.
    claimed: Arc<AtomicBool>,
    answer: Result<oneshot::Receiver<Result<Reply, Failure>>, Failure>,
    deadline: Instant,
}

impl Begun {
    /// Waits for the answer.
    ///
    /// # Errors
    /// A [`Failure`] when no answer comes in time, or the request is refused.
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
    /// Opens a session at one of the addresses `doors`, each a `host:port`. Begins with the address
    /// of index `first`, modulo their number.
    ///
    /// # Errors
    /// A message when no session is open after a minute.
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

    /// The id of the session. Histories of workloads use it to identify the owner of a lock or
    /// znode.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The number of the present connection, or of the next one while there is none.
    pub fn connection(&self) -> u64 {
        self.shared.connection.load(Ordering::SeqCst)
    }

    /// Queues a request behind earlier requests, without waiting for its answer.
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

    /// Sends a request, waits for its answer, and parses it as a record.
    ///
    /// # Errors
    /// As [`Begun::answer`].
    pub async fn get<T: Record>(&self, request: Request) -> Result<T, Failure> {
        self.ask(request).await?.read()
    }

    /// Makes the client change to the next node.
    pub fn hop(&self) {
        // An error is ignored: the queue is full only while the client has no connection.
        let _ = self.asks.try_send(Ask::Hop);
    }

    /// Returns the next event; `None` when none arrives within `wait`.
    pub async fn event(&mut self, wait: Duration) -> Option<Event> {
        timeout(wait, self.events.recv()).await.ok().flatten()
    }

    /// Takes all events that have arrived, without waiting.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}
