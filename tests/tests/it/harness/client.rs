//! A client of one node, and sessions that are kept alive in the background.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bytes::Bytes;
use testkit::http::{self, Answer, Call};
use testkit::{Pace, until};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use zlock_client::api::NewSession;

/// The HTTP client of `testkit`, which sends a request once, with additions for tests.
pub(crate) struct Client(http::Client);

impl Deref for Client {
    type Target = http::Client;

    fn deref(&self) -> &http::Client {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut http::Client {
        &mut self.0
    }
}

impl Client {
    /// Makes a client that connects at the first call.
    pub(crate) fn new(endpoint: &str) -> Client {
        Client(http::Client::new(endpoint))
    }

    /// Sends a repeatable call until the node answers with its outcome: an election may interrupt
    /// it.
    pub(crate) async fn ask(&mut self, call: Call) -> Answer {
        let mut pace = Pace::new("the node answers with an outcome");
        loop {
            pace.next().await;
            let answer = self.send(call.clone()).await.expect("the node answers");
            if !matches!(answer.status, 503 | 504) {
                return answer;
            }
        }
    }

    /// Creates a new znode, and retries while elections interrupt it: on a busy machine even a
    /// healthy leader may be replaced.
    pub(crate) async fn create(&mut self, path: &str, data: impl Into<Bytes>) {
        let (call, mut unknown) = (Call::post(path).body(data), false);
        until("the znode is created", async || match self.send(call.clone()).await.expect("the node answers") {
            answer if answer.status == 201 || (answer.status == 409 && unknown) => Some(()),
            answer if matches!(answer.status, 503 | 504) => {
                unknown |= answer.status == 504;
                None
            }
            answer => panic!("{answer:?}"),
        })
        .await;
    }

    /// Opens a session.
    pub(crate) async fn open_session(&mut self, timeout_ms: u64) -> Session {
        let body = format!("{{\"timeout\":\"{timeout_ms}ms\",\"label\":\"test\"}}");
        let call = Call::post("/v1/sessions").header("content-type", "application/json").body(body);
        let opened: NewSession = self.ask(call).await.json();
        Session { id: opened.session, key: opened.session_key, timeout_ms: u64::from(opened.timeout_ms) }
    }
}

/// An open session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) timeout_ms: u64,
}

impl AsRef<str> for Session {
    fn as_ref(&self) -> &str {
        &self.key
    }
}

impl Session {
    /// Sends keep-alives to the endpoints in turn, until the result is dropped. A slow endpoint is
    /// passed over.
    pub(crate) fn keep_alive(&self, endpoints: Vec<String>) -> KeepAliveTask {
        let session = self.clone();
        KeepAliveTask(tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(session.timeout_ms / 8));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut clients: Vec<_> = endpoints.iter().map(|endpoint| Client::new(endpoint)).collect();
            for turn in 0.. {
                ticks.tick().await;
                let count = clients.len();
                let call = Call::post(format!("/v1/sessions/{}/keepalive", session.id)).session(&session);
                let call = call.within(Duration::from_millis(session.timeout_ms / 4));
                let _ = clients[turn % count].send(call).await;
            }
        }))
    }
}

/// Background task that keeps a session alive until this value is dropped.
pub(crate) struct KeepAliveTask(JoinHandle<()>);

impl Drop for KeepAliveTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
