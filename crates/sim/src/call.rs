//! What clients ask of nodes. It stands for the HTTP door: the same calls to the same handle.

use std::sync::Arc;
use std::time::Duration;

use replica::{
    Consistency, Done, Error, EventBatch, EventKinds, EventsError, Finalized, Order, OrderError, Replica, Step, Touch,
    WaitEnd, WatchKey,
};
use tokio::time::{Instant, sleep};
use znode::lock::LockStatus;
use znode::{Applied, Credential, FencingToken, Request, SessionId, State, ZPath, Zxid, lock};

/// A call's number, unique in a run.
pub type CallId = u64;

/// What a client asks.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are as many as clients, one at a time each")]
pub enum Call {
    /// Write this.
    Propose(Request),
    /// Show the state, as fresh as asked.
    Read(Consistency),
    /// A heartbeat.
    Touch(Credential),
    /// What happened since.
    Events {
        /// Where.
        key: WatchKey,
        /// After which zxid.
        since: Zxid,
    },
    /// Raise the level to the highest that a member knows.
    Finalize,
    /// Tell when the ticket holds, or is gone.
    WaitGrant(ZPath),
    /// Tell when the znode is there.
    WaitExists(ZPath),
    /// An operator's order.
    Order(Order),
}

impl Call {
    /// The session for which it counts as a heartbeat.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Call::Propose(request) => request.credential.map(|credential| credential.session),
            Call::Touch(credential) => Some(credential.session),
            Call::Read(_) | Call::Finalize | Call::Events { .. } => None,
            Call::WaitGrant(_) | Call::WaitExists(_) | Call::Order(_) => None,
        }
    }
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The ticket holds.
    Granted(FencingToken),
    /// The ticket is gone.
    Gone,
    /// The znode is there.
    Exists,
    /// It is not so yet.
    NotYet,
    /// The node has stopped, is full, or cannot serve.
    Ended,
}

/// What a node answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Call::Propose`].
    Applied(Result<Applied, Error>),
    /// To [`Call::Read`].
    State(Result<Arc<State>, Error>),
    /// To [`Call::Finalize`].
    Finalized(Result<Finalized, Error>),
    /// To [`Call::Touch`].
    Touched(Result<Touch, Error>),
    /// To [`Call::Events`].
    Events(Result<EventBatch, EventsError>),
    /// To [`Call::Order`].
    Ordered(Result<Done, OrderError>),
    /// To the waits.
    Waited {
        /// What it came to.
        waited: Waited,
        /// The wait was told late, or not at all, of what it waited for: the state of this node
        /// that had it.
        missed: Option<Zxid>,
    },
}

/// A wait looks by itself so often at what it waits to be told of.
const LOOK_MS: u64 = 20;
/// A wait that is told so long after the state had what it waited for, by the node's own clock, is
/// told late. A change wakes those who wait in the same moment; a node that stands still sees
/// neither. Two looks, so that a wait whose deadline meets the change itself is none.
const LATE_MS: u64 = 2 * LOOK_MS;

/// Does what is asked, within `within`.
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
        Call::Events { key, since } => Reply::Events(replica.events(key, EventKinds::ALL, since, deadline).await),
        Call::Order(order) => Reply::Ordered(replica.order(order, deadline).await),
        Call::WaitGrant(ticket) => wait(replica, deadline, |state| granted(state, &ticket)).await,
        Call::WaitExists(path) => wait(replica, deadline, |state| exists(state, &path)).await,
    }
}

async fn wait(replica: &Replica, deadline: Instant, look: impl Fn(&State) -> Step<Waited>) -> Reply {
    let mut waiting = std::pin::pin!(replica.wait_for(deadline, &look));
    // Since when it is so, and in which state.
    let mut seen: Option<(Instant, Zxid)> = None;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut waiting => break ended,
            () = sleep(Duration::from_millis(LOOK_MS)) => {}
        }
        let state = replica.state();
        // A ticket that is gone is no miss: this wait watches its predecessor only.
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
