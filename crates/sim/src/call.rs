//! Calls of clients to nodes. A call stands for an HTTP request: it uses the node's `Replica`
//! handle, as the HTTP server does.

use std::sync::Arc;
use std::time::Duration;

use replica::{
    Consistency, Error, EventBatch, EventKinds, EventQuery, EventsError, FinalizeOutcome, Order, OrderError,
    OrderOutcome, Replica, Step, Touch, WaitEnd, WatchKey,
};
use tokio::time::{Instant, sleep};
use znode::lock::LockStatus;
use znode::{Credential, FencingToken, Request, SessionId, State, TxnOutcome, ZPath, Zxid, lock};

/// A call's number, unique in a run.
pub type CallId = u64;

/// Request of a client.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are as many as clients, one at a time each")]
pub enum Call {
    /// A write.
    Propose(Request),
    /// A read of the state with this consistency.
    Read(Consistency),
    /// A heartbeat of a session.
    Touch(Credential),
    /// A long-poll for events.
    Events {
        /// The znodes to watch.
        key: WatchKey,
        /// The zxid after which events are returned.
        since: Zxid,
    },
    /// Raises the cluster's format level to the highest that any member's program knows. Refused
    /// unless all members know that level.
    Finalize,
    /// Waits until the ticket (lock node) holds its lock, or is gone.
    WaitGrant(ZPath),
    /// Waits until the znode exists.
    WaitExists(ZPath),
    /// An operator's order to change the members or to transfer leadership.
    Order(Order),
}

impl Call {
    /// The session for which the call counts as a heartbeat; `None` for calls without a session.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Call::Propose(request) => request.credential.map(|credential| credential.session),
            Call::Touch(credential) => Some(credential.session),
            Call::Read(_) | Call::Finalize | Call::Events { .. } => None,
            Call::WaitGrant(_) | Call::WaitExists(_) | Call::Order(_) => None,
        }
    }
}

/// Result of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The ticket holds the lock.
    Granted(FencingToken),
    /// The ticket is gone.
    Gone,
    /// The znode exists.
    Exists,
    /// The deadline passed before the condition was true.
    NotYet,
    /// The wait ended because the node has stopped, has too many waits, or cannot serve.
    Ended,
}

/// Answer of a node.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Answer to [`Call::Propose`].
    Applied(Result<TxnOutcome, Error>),
    /// Answer to [`Call::Read`].
    State(Result<Arc<State>, Error>),
    /// Answer to [`Call::Finalize`].
    Finalized(Result<FinalizeOutcome, Error>),
    /// Answer to [`Call::Touch`].
    Touched(Result<Touch, Error>),
    /// Answer to [`Call::Events`].
    Events(Result<EventBatch, EventsError>),
    /// Answer to [`Call::Order`].
    Ordered(Result<OrderOutcome, OrderError>),
    /// Answer to [`Call::WaitGrant`] or [`Call::WaitExists`].
    Waited {
        /// The result of the wait.
        waited: Waited,
        /// Zxid of the node's state in which the condition was first true, for a wait that ended
        /// `LATE_MS` or more after this state; `None` for a wait that ended in time.
        missed: Option<Zxid>,
    },
}

/// Interval at which the simulation checks the condition of a wait, to find a node that ends the
/// wait too late. These checks do not end the wait.
const LOOK_MS: u64 = 20;
/// Delay, by the node's own clock, from which on the end of a wait counts as late. A node must wake
/// a waiter at once. The delay is two intervals of the checks, because the deadline of a wait may
/// coincide with the change. While a node is paused, its clock and its state stand still.
const LATE_MS: u64 = 2 * LOOK_MS;

/// Carries out a client's call at a node. Gives up when the time `within` has passed.
pub async fn serve(replica: &Replica, call: Call, within: Duration) -> Reply {
    let deadline = Instant::now() + within;
    match call {
        Call::Propose(request) => {
            if let Some(credential) = request.credential {
                replica.touch_soon(credential);
            }
            Reply::Applied(replica.propose(request, deadline).await)
        }
        Call::Read(consistency) => Reply::State(replica.read(consistency, deadline).await),
        Call::Finalize => Reply::Finalized(replica.finalize(None, deadline).await),
        Call::Touch(credential) => Reply::Touched(replica.touch(credential, deadline).await),
        Call::Events { key, since } => {
            let query = EventQuery { key, kinds: EventKinds::ALL, since, reader: None };
            Reply::Events(replica.events(query, deadline).await)
        }
        Call::Order(order) => Reply::Ordered(replica.order(order, deadline).await),
        Call::WaitGrant(ticket) => wait(replica, deadline, |state| granted(state, &ticket)).await,
        Call::WaitExists(path) => wait(replica, deadline, |state| exists(state, &path)).await,
    }
}

async fn wait(replica: &Replica, deadline: Instant, look: impl Fn(&State) -> Step<Waited>) -> Reply {
    let mut waiting = std::pin::pin!(replica.wait_for(deadline, &look));
    // Time and state at which the condition was first seen to be true.
    let mut seen: Option<(Instant, Zxid)> = None;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut waiting => break ended,
            () = sleep(Duration::from_millis(LOOK_MS)) => {}
        }
        let state = replica.state();
        // Only a grant, or the existence of the awaited znode, can count as missed; the end of a
        // ticket cannot.
        let is_so = matches!(look(&state), Step::Ready(Waited::Granted(_) | Waited::Exists));
        seen = seen.or_else(|| Some((Instant::now(), state.last_zxid()))).filter(|_| is_so);
    };
    let late = |(since, _): &(Instant, Zxid)| since.elapsed() >= Duration::from_millis(LATE_MS);
    let missed = seen.filter(late).map(|(_, zxid)| zxid);
    let waited = match ended {
        Ok(waited) => waited,
        Err(WaitEnd::Deadline) => Waited::NotYet,
        Err(WaitEnd::TooMany | WaitEnd::CannotServe | WaitEnd::Stopped) => Waited::Ended,
    };
    Reply::Waited { waited, missed }
}

fn granted(state: &State, ticket: &ZPath) -> Step<Waited> {
    match lock::status(state, ticket) {
        Ok(LockStatus::Held { token, .. }) => Step::Ready(Waited::Granted(token)),
        Ok(LockStatus::Waiting { .. }) => Step::Watch(WatchKey::Node(ticket.clone())),
        Err(_) => Step::Ready(Waited::Gone),
    }
}

fn exists(state: &State, path: &ZPath) -> Step<Waited> {
    match state.node(path) {
        Some(_) => Step::Ready(Waited::Exists),
        None => Step::Watch(WatchKey::Node(path.clone())),
    }
}
