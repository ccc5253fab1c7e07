//! A logical single-threaded client: it sends the requests of one worker of a workload and records
//! them in the history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::zookeeper::Zk;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use zlock_client::api::{Millis, NewSession, OpenSession};

use crate::answer::{Answer, Effect};
use crate::endpoints::Endpoints;
use crate::history::{Entry, Kind, Process};
use crate::http::{Call, Http};
use crate::recorder::Recorder;

/// Longest time for which a request is repeated that must be answered.
const TRIED_MAX: Duration = Duration::from_secs(60);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Deadline for the tries of one request that must be answered.
pub(crate) struct Patience {
    deadline: Instant,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { deadline: Instant::now() + TRIED_MAX }
    }

    /// Waits before the next try, after a failed one. `what` names what is tried.
    ///
    /// # Errors
    /// The error of the failed try, if the deadline is over.
    pub(crate) async fn after(&self, what: &str, answer: &Answer) -> Result<(), String> {
        if Instant::now() > self.deadline {
            return Err(format!("{what}: {}", answer.error.as_deref().unwrap_or_default()));
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// A client, which is one process of the history. After an operation of unknown outcome it
/// continues as a new process.
pub struct Client {
    /// Random choices of the client.
    pub rng: fastrand::Rng,
    /// Connections of the client.
    pub http: Http,
    recorder: Arc<Recorder>,
    endpoints: Endpoints,
    process: u64,
    crashed: bool,
}

impl Client {
    /// Returns a client of these nodes.
    pub fn new(endpoints: &Endpoints, recorder: &Arc<Recorder>, seed: u64) -> Client {
        Client {
            rng: fastrand::Rng::with_seed(seed),
            http: Http::new(endpoints),
            recorder: recorder.clone(),
            endpoints: endpoints.clone(),
            process: recorder.new_process(),
            crashed: false,
        }
    }

    /// Tells whether an operation since the previous call had an unknown outcome.
    pub fn take_crashed(&mut self) -> bool {
        std::mem::take(&mut self.crashed)
    }

    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        self.recorder.now_ns()
    }

    /// Returns the id of a random member.
    pub fn any_node(&mut self) -> u64 {
        self.http.any(&mut self.rng)
    }

    /// Sends a request once, to a random node.
    pub async fn send(&mut self, call: Call) -> Answer {
        let node = self.any_node();
        self.http.send(node, call).await
    }

    /// Records the invocation of an operation.
    pub fn invoke(&mut self, f: &str, value: Value) {
        self.note(Kind::Invoke, f, value, None, None, None);
    }

    /// Records the completion of an operation. After `Info` the client goes on as a new process.
    pub fn end(&mut self, outcome: Kind, f: &str, value: Value, error: Option<String>, answer: Option<&Answer>) {
        let node = answer.map(|answer| answer.node);
        let zxid = answer.and_then(|answer| answer.zxid).filter(|_| outcome == Kind::Ok);
        self.note(outcome, f, value, error, node, zxid);
        if outcome == Kind::Info {
            self.process = self.recorder.new_process();
            self.crashed = true;
        }
    }

    /// Records the completion of an operation with the outcome, error, node and zxid of its answer.
    pub fn end_as(&mut self, answer: &Answer, f: &str, value: Value) {
        self.end(answer.outcome, f, value, answer.error.clone(), Some(answer));
    }

    /// Performs an operation that is one request to a random node, and returns the answer.
    ///
    /// `result` makes the value to record from an `Ok` answer. If `result` returns `None`, or the
    /// answer is not `Ok`, the argument `value` is recorded.
    pub async fn operate(
        &mut self,
        f: &str,
        value: Value,
        call: Call,
        result: impl FnOnce(&mut Answer) -> Option<Value>,
    ) -> Answer {
        self.invoke(f, value.clone());
        let mut answer = self.send(call).await;
        let done = if answer.is_ok() { result(&mut answer) } else { None };
        self.end_as(&answer, f, done.unwrap_or(value));
        answer
    }

    fn note(&self, kind: Kind, f: &str, value: Value, error: Option<String>, node: Option<u64>, zxid: Option<u64>) {
        let process = Process::Client(self.process);
        self.recorder.record(Entry { index: 0, time: 0, process, kind, f: f.to_owned(), value, error, node, zxid });
    }

    /// Sends a request to random nodes until it is answered. The request is not part of the
    /// history.
    ///
    /// `settled` tells which answers other than `Ok` also end the repetition, such as a refusal
    /// that was expected.
    ///
    /// # Errors
    /// The last answer's error, after a minute without success.
    pub async fn insist(&mut self, call: Call, settled: impl Fn(&Answer) -> bool) -> Result<Answer, String> {
        let patience = Patience::new();
        loop {
            let answer = self.send(call.clone()).await;
            if answer.is_ok() || settled(&answer) {
                return Ok(answer);
            }
            patience.after(&format!("{call:?}"), &answer).await?;
        }
    }

    /// Creates a persistent znode with this data unless the znode exists.
    ///
    /// # Errors
    /// When no request succeeded within a minute.
    pub async fn ensure(&mut self, path: &str, data: &str) -> Result<(), String> {
        let call = Call::post(format!("/v1/znodes{path}")).body(data.to_owned());
        self.insist(call, |answer| answer.is_problem("node-exists")).await.map(|_| ())
    }

    /// Opens a session over HTTP. A task sends its heartbeats until the session is dropped, or
    /// paused by [`Session::set_quiet`].
    ///
    /// # Errors
    /// When no request succeeded within a minute.
    pub async fn open_session(&mut self, timeout_ms: u64) -> Result<Session, String> {
        let wish = OpenSession { timeout: Some(Millis(timeout_ms)), label: "jepsen".into(), client: None };
        let mut answer = self.insist(Call::post("/v1/sessions").json(&wish), |_| false).await?;
        let opened: NewSession = answer.read(Effect::Write).ok_or("the session cannot be read")?;
        let seed = self.rng.u64(..);
        Ok(Session::keep(opened, &self.endpoints, seed))
    }
}

/// A session with the task that keeps it alive, or with its client of ZooKeeper's protocol.
pub struct Session {
    /// Id of the session. Histories have it in the field `owner`.
    pub id: u64,
    /// Session key, the value of the session header in HTTP; empty over ZooKeeper's protocol.
    pub key: String,
    /// Session timeout as the cluster granted it; zero over ZooKeeper's protocol.
    pub timeout: Duration,
    /// Client of ZooKeeper's protocol that opened the session; `None` for a session over HTTP.
    pub zk: Option<Zk>,
    quiet: Arc<AtomicBool>,
    keeper: Option<AbortHandle>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.keeper.iter().for_each(AbortHandle::abort);
    }
}

impl Session {
    fn keep(opened: NewSession, endpoints: &Endpoints, seed: u64) -> Session {
        let quiet = Arc::new(AtomicBool::new(false));
        let timeout = Duration::from_millis(u64::from(opened.timeout_ms));
        let keeper = tokio::spawn(keep_alive(
            opened.session,
            opened.session_key.clone(),
            timeout,
            Http::new(endpoints),
            quiet.clone(),
            seed,
        ));
        let keeper = Some(keeper.abort_handle());
        Session { id: opened.session, key: opened.session_key, timeout, zk: None, quiet, keeper }
    }

    /// Returns a session that the client of ZooKeeper's protocol keeps alive.
    pub fn over_zookeeper(zk: Zk) -> Session {
        let (id, key, quiet) = (zk.session(), String::new(), Arc::default());
        Session { id, key, timeout: Duration::ZERO, zk: Some(zk), quiet, keeper: None }
    }

    /// Stops or resumes the heartbeats, because a paused client sends none.
    pub fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::SeqCst);
    }
}

async fn keep_alive(id: u64, key: String, timeout: Duration, mut http: Http, quiet: Arc<AtomicBool>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut node = http.any(&mut rng);
    loop {
        tokio::time::sleep(timeout / 5).await;
        let until = Instant::now() + timeout / 5;
        // The next node is tried when one does not answer, as a client library does.
        while !quiet.load(Ordering::SeqCst) {
            let call = Call::post(format!("/v1/sessions/{id}/keepalive")).session(&key);
            let answer = http.send(node, call).await;
            if answer.is_ok() || Instant::now() > until {
                break;
            }
            if answer.is_problem("session-expired") {
                return;
            }
            node = http.after(node);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::http::NoAnswer;

    use super::*;
    use crate::answer::judge;

    #[tokio::test]
    async fn a_request_that_is_never_answered_is_told_of() {
        let answer = judge(Effect::Read, Err(NoAnswer::TimedOut), 1);
        assert_eq!(Patience::new().after("key 0-1", &answer).await, Ok(()));
        let over = Patience { deadline: Instant::now().checked_sub(PAUSE).expect("the machine runs for longer") };
        assert_eq!(over.after("key 0-1", &answer).await, Err("key 0-1: timed-out".to_owned()));
    }
}
