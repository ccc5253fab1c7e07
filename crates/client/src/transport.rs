//! Sends calls until one is answered: endpoints in turn, pauses in between, a deadline at the end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::headers;
use tls::Connector;
use tokio::sync::Semaphore;

use crate::Error;
use crate::backoff::Backoff;
use crate::call::{Answer, Call};
use crate::clock::Moment;
use crate::connection::{Ending, Pool};
use crate::endpoints::Endpoints;
use crate::verdict::{Verdict, judge};

/// How long things may take.
#[derive(Clone, Debug)]
pub(crate) struct Timeouts {
    /// For a connection.
    pub(crate) connect: Duration,
    /// For one try, beyond the time that the node was asked to wait.
    pub(crate) attempt: Duration,
    /// For a call with all its tries.
    pub(crate) operation: Duration,
    /// How long one long-poll lasts.
    pub(crate) poll: Duration,
}

/// Pauses between tries.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Short calls at once. More wait for their turn.
const CALLS_MAX: usize = 128;
/// Long-polls at once. More wait for their turn; apart from the short calls, so that a release never waits for a poll.
const POLLS_MAX: usize = 1_024;

/// The way to the nodes.
#[derive(Debug)]
pub(crate) struct Transport {
    pools: Vec<Pool>,
    endpoints: Mutex<Endpoints>,
    pub(crate) timeouts: Timeouts,
    calls: Semaphore,
    polls: Semaphore,
}

impl Transport {
    pub(crate) fn new(addrs: Vec<String>, connector: Option<Connector>, timeouts: Timeouts) -> Transport {
        let endpoints = Mutex::new(Endpoints::new(addrs.len()));
        let pools = addrs.into_iter().map(|addr| Pool::new(addr, connector.clone())).collect();
        Transport { pools, endpoints, timeouts, calls: Semaphore::new(CALLS_MAX), polls: Semaphore::new(POLLS_MAX) }
    }

    /// The addresses, in the order in which they were given.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(Pool::addr)
    }

    /// When a call that begins now must have ended.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::now().after(self.timeouts.operation)
    }

    /// Sends a call until it is answered.
    ///
    /// # Errors
    /// `Unavailable` at the deadline when certainly no try had an effect, else `Unknown`; refusals as they come.
    pub(crate) async fn send(&self, call: &Call, deadline: Moment) -> Result<Answer, Error> {
        let turns = if call.wait.is_zero() { &self.calls } else { &self.polls };
        let Ok(turn) = tokio::time::timeout(deadline.remaining(), turns.acquire()).await else {
            return Err(Error::unavailable("too many calls of this client are on their way"));
        };
        let _turn = turn.expect("the semaphore is never closed");
        self.send_now(call, deadline).await
    }

    /// The same, however many calls are on their way: for heartbeats.
    pub(crate) async fn send_now(&self, call: &Call, deadline: Moment) -> Result<Answer, Error> {
        let mut backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        let mut maybe_done = false;
        let mut failed = None;
        let mut last = "there was no time to ask anybody".to_owned();
        loop {
            let left = deadline.remaining();
            if left.is_zero() {
                return Err(if maybe_done { Error::unknown(last) } else { Error::unavailable(last) });
            }
            let index = self.endpoints().choose(call.prefer, failed, Moment::now(), |count| fastrand::usize(..count));
            match judge(self.attempt(index, call, left).await, call.repeat, maybe_done) {
                Verdict::Done(answer) => {
                    self.endpoints().succeeded(index);
                    return Ok(answer);
                }
                Verdict::Failed(error) => {
                    if !matches!(error, Error::Refused { .. }) {
                        self.endpoints().failed(index, Moment::now());
                    }
                    return Err(error);
                }
                Verdict::Again { reason, maybe_done: maybe, retry_after } => {
                    maybe_done |= maybe;
                    failed = Some(index);
                    last = reason;
                    let pause = self.after_failure(index, &mut backoff, retry_after);
                    tokio::time::sleep(pause.min(deadline.remaining())).await;
                }
            }
        }
    }

    /// Asks one endpoint, once.
    ///
    /// # Errors
    /// As [`Transport::send`], where another try is not made.
    pub(crate) async fn send_to(&self, index: usize, call: &Call) -> Result<Answer, Error> {
        match judge(self.attempt(index, call, self.timeouts.operation).await, call.repeat, false) {
            Verdict::Done(answer) => Ok(answer),
            Verdict::Failed(error) => Err(error),
            Verdict::Again { reason, maybe_done: true, .. } => Err(Error::unknown(reason)),
            Verdict::Again { reason, .. } => Err(Error::unavailable(reason)),
        }
    }

    async fn attempt(&self, index: usize, call: &Call, left: Duration) -> Ending {
        let beyond_wait = call.attempt_timeout.unwrap_or(self.timeouts.attempt);
        let ending = self.pools[index].exchange(call, left.min(call.wait + beyond_wait), self.timeouts.connect).await;
        if let Ending::Answered(reply) = &ending {
            let (node, leader) = (reply.number(headers::NODE), reply.number(headers::LEADER));
            // Something that is no node, a proxy for example, names neither.
            if node.is_some() {
                self.endpoints().answered(index, node, leader);
            }
        }
        ending
    }

    /// How long to pause: not at all, in essence, while somebody else can be asked.
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
