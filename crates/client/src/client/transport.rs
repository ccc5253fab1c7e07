//! Sends a call until it is answered: tries one endpoint after another, with pauses, up to a
//! deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::headers;
use tokio::sync::Semaphore;

use crate::client::backoff::Backoff;
use crate::client::call::{Answer, Call};
use crate::client::clock::Moment;
use crate::client::connection::{Approach, Ending, Pool};
use crate::client::endpoints::Endpoints;
use crate::client::error::Error;
use crate::client::tries::Tries;
use crate::client::verdict::{Verdict, judge};

/// Time limits of calls.
#[derive(Clone, Debug)]
pub(crate) struct Timeouts {
    /// Timeout for opening a connection.
    pub(crate) connect: Duration,
    /// Time for one try, beyond the time that the node was asked to wait.
    pub(crate) attempt: Duration,
    /// Time for a call with all its tries.
    pub(crate) operation: Duration,
    /// Length of one long-poll.
    pub(crate) poll: Duration,
}

/// Upper bound of the pause after the first failed try. Each further failure doubles the bound, up
/// to `PAUSE_MAX`.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Largest number of calls without a long-poll that may be under way at once. Further calls wait.
const CALLS_MAX: usize = 128;
/// Largest number of long-polls under way at once. Further long-polls wait. They are counted
/// separately from other calls, so that a release never waits for a long-poll.
const POLLS_MAX: usize = 1_024;

/// Connections to all nodes.
pub(crate) struct Transport {
    /// The connections to each endpoint, in the order in which the endpoints were given.
    pub(crate) pools: Vec<Pool>,
    endpoints: Mutex<Endpoints>,
    /// Whether any endpoint has ever answered a call of this client.
    reached: AtomicBool,
    pub(crate) timeouts: Timeouts,
    calls: Semaphore,
    polls: Semaphore,
}

impl Transport {
    pub(crate) fn new(addrs: Vec<String>, approach: &Approach, timeouts: Timeouts) -> Transport {
        let endpoints = Mutex::new(Endpoints::new(addrs.len()));
        let pools = addrs.into_iter().map(|addr| Pool::new(addr, approach.clone())).collect();
        let (calls, polls) = (Semaphore::new(CALLS_MAX), Semaphore::new(POLLS_MAX));
        Transport { pools, endpoints, reached: AtomicBool::new(false), timeouts, calls, polls }
    }

    /// The addresses of the endpoints, in the order in which they were given.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(|pool| &*pool.addr)
    }

    /// Returns the address of an endpoint whose last try succeeded; `None` if there is none.
    pub(crate) fn live_addr(&self) -> Option<&str> {
        let live = self.endpoints().live()?;
        Some(&self.pools[live].addr)
    }

    /// Tells whether the leader's endpoint is known.
    pub(crate) fn knows_leader(&self) -> bool {
        self.endpoints().leader().is_some()
    }

    /// Returns the deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::now().after(self.timeouts.operation)
    }

    /// Sends a call until it is answered.
    ///
    /// # Errors
    /// A refusal is returned at once. At the deadline `Unavailable` when certainly no try had an
    /// effect, else `Unknown`. If no endpoint has ever answered, `Unavailable` is returned after a
    /// few tries: the endpoints are wrong, or the cluster is down.
    pub(crate) async fn send(&self, call: &Call, deadline: Moment) -> Result<Answer, Error> {
        self.send_in_turn(call, deadline).await.map(|(answer, _)| answer)
    }

    /// Sends a call like [`Transport::send`], and also returns the index of the answering endpoint
    /// for [`Transport::send_to`].
    pub(crate) async fn send_in_turn(&self, call: &Call, deadline: Moment) -> Result<(Answer, usize), Error> {
        let turns = if call.wait.is_zero() { &self.calls } else { &self.polls };
        let Ok(turn) = tokio::time::timeout(deadline.remaining(), turns.acquire()).await else {
            return Err(Error::unavailable("too many calls of this client are on their way"));
        };
        let _turn = turn.expect("the semaphore is never closed");
        self.send_until_answered(call, deadline).await
    }

    /// Sends a call like [`Transport::send`], but without the bound on calls under way, so that a
    /// heartbeat waits for no other call.
    pub(crate) async fn send_now(&self, call: &Call, deadline: Moment) -> Result<Answer, Error> {
        self.send_until_answered(call, deadline).await.map(|(answer, _)| answer)
    }

    async fn send_until_answered(&self, call: &Call, deadline: Moment) -> Result<(Answer, usize), Error> {
        let mut backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        let mut tries = Tries::new(self.pools.len());
        let mut maybe_done = false;
        let mut failed = None;
        loop {
            let left = deadline.remaining();
            if left.is_zero() || (tries.are_hopeless() && !self.reached.load(Ordering::Relaxed)) {
                let words = tries.words();
                return Err(if maybe_done { Error::unknown(words) } else { Error::unavailable(words) });
            }
            let index = self.endpoints().choose(call.prefer, failed, Moment::now(), |count| fastrand::usize(..count));
            let ending = self.attempt(index, call, left).await;
            match judge(&self.pools[index].addr, ending, call, maybe_done) {
                Verdict::Done(answer) => {
                    self.endpoints().succeeded(index);
                    return Ok((answer, index));
                }
                Verdict::Refused(error) => {
                    self.endpoints().succeeded(index);
                    return Err(error);
                }
                Verdict::Failed(error) => {
                    // An invalid call was not sent, so it is no failure of the endpoint.
                    if !matches!(error, Error::Refused { .. }) {
                        self.endpoints().failed(index, Moment::now());
                    }
                    return Err(error);
                }
                Verdict::Again { reason, maybe_done: maybe, unreachable, retry_after } => {
                    maybe_done |= maybe && !call.is_read();
                    failed = Some(index);
                    tries.failed(index, reason, unreachable);
                    let pause = self.after_failure(index, &mut backoff, retry_after);
                    tokio::time::sleep(pause.min(deadline.remaining())).await;
                }
            }
        }
    }

    /// Sends a call once, to the endpoint with this index.
    ///
    /// # Errors
    /// As [`Transport::send`], without further tries.
    pub(crate) async fn send_to(&self, index: usize, call: &Call) -> Result<Answer, Error> {
        let ending = self.attempt(index, call, self.timeouts.operation).await;
        match judge(&self.pools[index].addr, ending, call, false) {
            Verdict::Done(answer) => Ok(answer),
            Verdict::Refused(error) | Verdict::Failed(error) => Err(error),
            Verdict::Again { reason, maybe_done: true, .. } if !call.is_read() => Err(Error::unknown(reason)),
            Verdict::Again { reason, .. } => Err(Error::unavailable(reason)),
        }
    }

    async fn attempt(&self, index: usize, call: &Call, left: Duration) -> Ending {
        let beyond_wait = call.attempt_timeout.unwrap_or(self.timeouts.attempt);
        let timeout = left.min(call.wait.saturating_add(beyond_wait));
        let ending = self.pools[index].exchange(call, timeout, self.timeouts.connect).await;
        if let Ending::Answered(reply) = &ending {
            self.reached.store(true, Ordering::Relaxed);
            let (node, leader) = (reply.number(headers::NODE), reply.number(headers::LEADER));
            // An answer without a node id comes from another program, such as a proxy.
            if node.is_some() {
                self.endpoints().answered(index, node, leader);
            }
        }
        ending
    }

    /// Notes the failure of an endpoint, and returns the pause before the next try. The node's
    /// `Retry-After` counts only if no other endpoint can be asked.
    fn after_failure(&self, index: usize, backoff: &mut Backoff, retry_after: Option<Duration>) -> Duration {
        let now = Moment::now();
        let mut endpoints = self.endpoints();
        endpoints.failed(index, now);
        let pause = backoff.next(fastrand::f64());
        if endpoints.has_other(index, now) { pause } else { pause.max(retry_after.unwrap_or_default().min(PAUSE_MAX)) }
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::Client;
    use crate::client::fake_node::fake_node;

    /// Returns an address at which nothing listens, with the socket that keeps it.
    fn dead() -> (TcpSocket, String) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = socket.local_addr().unwrap().to_string();
        (socket, addr)
    }

    #[tokio::test]
    async fn endpoints_where_nothing_listens_are_named_at_once() {
        let ((_one, one), (_other, other)) = (dead(), dead());
        let endpoints = [one.clone(), other.clone(), "no-such-host.invalid:1".into()];
        // Without an early end, the call would be tried for a day. A name server may be slow.
        let client = Client::builder(endpoints).operation_timeout(Duration::from_secs(86_400));
        let client = client.connect_timeout(Duration::from_secs(60)).build().unwrap();
        let error = client.session_id().await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        for part in [
            &*format!("{one}: Connection refused"),
            &*format!("{other}: Connection refused"),
            "no-such-host.invalid:1: ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[tokio::test]
    async fn nothing_is_unknown_of_a_read_whose_answer_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            // Reads the request, and closes the connection without an answer.
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4_096]).await;
            }
        });
        let client = Client::builder([addr]).operation_timeout(Duration::from_millis(300)).build().unwrap();
        let read = client.get("/a").await;
        assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    }

    /// Returns a problem document of the given kind, as JSON.
    fn problem(kind: &str, status: u16, outcome: &str) -> String {
        format!(
            r#"{{"type":"urn:zlock:problem:{kind}","title":"T","status":{status},"detail":"d","outcome":"{outcome}","zxid":1}}"#
        )
    }

    #[tokio::test]
    async fn an_endpoint_that_refuses_is_well_again() {
        for refusal in [problem("no-node", 404, "refused"), problem("request-key-evicted", 409, "refused")] {
            let asked = Arc::new(AtomicBool::new(false));
            let (addr, _requests) = fake_node(move |_| {
                let is_second = asked.swap(true, Ordering::Relaxed);
                let answer = if is_second { refusal.clone() } else { problem("unavailable", 503, "unavailable") };
                async { answer }
            })
            .await;
            let client = Client::builder([addr]).build().unwrap();
            client.get("/a").await.unwrap_err();
            let endpoints = client.inner.transport.endpoints();
            assert!(!endpoints.rests(0), "{endpoints:?}");
        }
    }

    #[tokio::test]
    async fn endless_timeouts_are_like_no_timeouts() {
        let (addr, _requests) = fake_node(async |_| problem("no-node", 404, "refused")).await;
        let endless = Duration::MAX;
        let client = Client::builder([addr]).attempt_timeout(endless).connect_timeout(endless);
        let client = client.operation_timeout(endless).session_timeout(endless).build().unwrap();
        assert!(client.get("/a").await.unwrap_err().is_no_node());
        let mut watcher = client.watch("/a", crate::WatchKind::Exists);
        watcher.resume_from(1);
        assert!(watcher.next().await.unwrap_err().is_no_node(), "a long-poll adds its wait to the timeout");
    }

    #[tokio::test]
    async fn nodes_that_were_there_are_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        // Answers one request, then closes its listener.
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}").await;
        });
        let patience = Duration::from_secs(3);
        let client = Client::builder([addr]).operation_timeout(patience).build().unwrap();
        // The node has answered, but not with a znode.
        assert!(matches!(client.get("/a").await, Err(Error::Unknown { .. })));
        let began = Instant::now();
        assert!(matches!(client.get("/a").await, Err(Error::Unavailable { .. })));
        assert!(began.elapsed() >= patience, "it may be restarting");
    }
}
