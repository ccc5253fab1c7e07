//! What clients ask of nodes. It stands for the HTTP door: the same calls to the same handle.

use std::sync::Arc;
use std::time::Duration;

use replica::{Consistency, Error, EventBatch, EventKinds, EventsError, Replica, Step, Touch, WaitEnd, WatchKey};
use tokio::time::Instant;
use znode::lock::LockStatus;
use znode::{Applied, Credential, FencingToken, Request, State, ZPath, Zxid, lock};

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
    /// Tell when the ticket holds, or is gone.
    WaitGrant(ZPath),
    /// Tell when the znode is there.
    WaitExists(ZPath),
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
    /// It is not so yet; `missed`: it was, and the wait did not notice. The zxid at which it became so.
    NotYet {
        /// When this node's state already had it.
        missed: Option<Zxid>,
    },
    /// The node has stopped, or is full.
    Ended,
}

/// What a node answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To [`Call::Propose`].
    Applied(Result<Applied, Error>),
    /// To [`Call::Read`].
    State(Result<Arc<State>, Error>),
    /// To [`Call::Touch`].
    Touched(Result<Touch, Error>),
    /// To [`Call::Events`].
    Events(Result<EventBatch, EventsError>),
    /// To the waits.
    Waited(Waited),
}

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
        Call::Touch(credential) => Reply::Touched(replica.touch(credential, deadline).await),
        Call::Events { key, since } => Reply::Events(replica.events(key, EventKinds::ALL, since, deadline).await),
        Call::WaitGrant(ticket) => Reply::Waited(wait(replica, deadline, |state| granted(state, &ticket)).await),
        Call::WaitExists(path) => Reply::Waited(wait(replica, deadline, |state| exists(state, &path)).await),
    }
}

async fn wait(replica: &Replica, deadline: Instant, look: impl Fn(&State) -> Step<Waited>) -> Waited {
    // A deadline that meets the change itself is no miss: look at what was there a moment before.
    let before = tokio::time::sleep_until(deadline - Duration::from_millis(20));
    let watching = async {
        before.await;
        let state = replica.state();
        match look(&state) {
            Step::Ready(Waited::Granted(_) | Waited::Exists) => Some(state.last_zxid()),
            // A ticket that is gone: this wait watches its predecessor only.
            Step::Ready(_) | Step::Watch(_) => None,
        }
    };
    let (waited, missed) = tokio::join!(replica.wait_for(deadline, &look), async {
        tokio::time::timeout_at(deadline, watching).await.ok().flatten()
    });
    match waited {
        Ok(waited) => waited,
        Err(WaitEnd::Deadline) => Waited::NotYet { missed },
        Err(WaitEnd::TooMany | WaitEnd::Stopped) => Waited::Ended,
    }
}

fn granted(state: &State, ticket: &ZPath) -> Step<Waited> {
    match lock::status(state, ticket) {
        Ok(LockStatus::Held { token, .. }) => Step::Ready(Waited::Granted(token)),
        Ok(LockStatus::Waiting { predecessor }) => Step::Watch(WatchKey::Node(predecessor)),
        Err(_) => Step::Ready(Waited::Gone),
    }
}

fn exists(state: &State, path: &ZPath) -> Step<Waited> {
    match state.node(path) {
        Some(_) => Step::Ready(Waited::Exists),
        None => Step::Watch(WatchKey::Node(path.clone())),
    }
}
