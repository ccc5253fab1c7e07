//! Clients that take one lock, one client after the other, over HTTP or ZooKeeper's protocol, and
//! record the times of releases and grants.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jute::{Acl, CreateRequest, Names, PathOnly, PathVersion, PathWatch, Request, create_flags, error, op};
use testkit::zookeeper::{Failure, Zk};
use tokio::sync::watch;
use zlock_client::api::Ticket;

use crate::harness::{Answer, Call, Client, Pace, Session};

/// Timeout of the clients' sessions.
pub(super) const TIMEOUT: Duration = Duration::from_secs(6);
/// Time limit of a request that does not wait for the lock.
const SOON: Duration = Duration::from_secs(1);
/// Pause between two checks of a ZooKeeper client for events on its connection.
const LOOK: Duration = Duration::from_millis(50);

/// Times of releases and grants, in the order of the lock's holders.
#[derive(Clone, Default)]
pub(super) struct Marks(Arc<Mutex<(Vec<Instant>, Vec<Instant>)>>);

impl Marks {
    fn released(&self) {
        self.0.lock().unwrap().0.push(Instant::now());
    }

    fn granted(&self) {
        self.0.lock().unwrap().1.push(Instant::now());
    }

    /// The longest time from a release to the next grant. The first grant has no release before it.
    pub(super) fn longest(&self) -> Duration {
        let marks = self.0.lock().unwrap();
        let gaps = marks.0.iter().zip(&marks.1[1..]).map(|(released, granted)| *granted - *released);
        gaps.max().unwrap()
    }
}

/// A client that takes and releases a lock once. It tries the nodes in an order of its own.
pub(super) struct Contender {
    /// Addresses of the nodes for this client's protocol, in the order in which the client tries
    /// them.
    pub(super) doors: Vec<String>,
    pub(super) marks: Marks,
    /// Longest wait that the client asks of an HTTP node before it asks again.
    pub(super) wait: Duration,
    /// Becomes true when the client may release the lock.
    pub(super) may_release: watch::Receiver<bool>,
}

impl Contender {
    /// Takes the lock over HTTP, with an idempotency key, and releases it.
    pub(super) async fn over_http(mut self, lock: &str, session: Session) {
        let _kept_alive = session.keep_alive(self.doors.clone());
        let acquire = Call::post(format!("/v1/locks{lock}?keep=true&wait={}ms", self.wait.as_millis()));
        let acquire = acquire.session(&session).once().within(self.wait + SOON);
        let mut nodes = Nodes::new(&self.doors);
        let ticket = loop {
            match nodes.ask(&acquire).await.json() {
                Ticket::Held { ticket, .. } => break ticket,
                Ticket::Waiting { .. } => {}
            }
        };
        self.marks.granted();
        self.may_release.wait_for(|may| *may).await.unwrap();
        self.marks.released();
        let release = Call::delete(format!("/v1/tickets{ticket}")).session(&session).once().within(SOON);
        let answer = nodes.ask(&release).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Takes the lock over ZooKeeper's protocol with ZooKeeper's lock recipe, and releases it. The
    /// client gives up when its session is over.
    pub(super) async fn over_zookeeper(mut self, lock: &str) {
        let mut zk = Zk::open(&self.doors, 0, TIMEOUT).await.unwrap();
        let ticket = enqueue(&zk, lock).await;
        if !granted(&mut zk, lock, &ticket).await {
            return;
        }
        self.marks.granted();
        self.may_release.wait_for(|may| *may).await.unwrap();
        self.marks.released();
        let mut pace = Pace::new("the lock is given back");
        loop {
            pace.next().await;
            match zk.ask(Request::Delete(PathVersion { path: format!("{lock}/{ticket}"), version: -1 })).await {
                Ok(_) | Err(Failure::Refused(error::NO_NODE) | Failure::Expired) => return,
                Err(_) => {}
            }
        }
    }
}

/// Makes one write after the other, until `over` is true. Returns the longest time of a write.
pub(super) async fn longest_write(doors: Vec<String>, over: watch::Receiver<bool>) -> Duration {
    let call = Call::put("/v1/znodes").body("x").within(SOON);
    let (mut nodes, mut longest) = (Nodes::new(&doors), Duration::ZERO);
    let mut pace = Pace::new("the queues are over");
    while !*over.borrow() {
        pace.next().await;
        let begun = Instant::now();
        assert_eq!(nodes.ask(&call).await.status, 200);
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// Creates the client's ticket, and the lock's directory if it is missing. Returns the ticket's
/// name. The id of the session in the name lets the client find a ticket whose creation was not
/// answered, since a node may close the connection at any time.
async fn enqueue(zk: &Zk, lock: &str) -> String {
    let prefix = format!("{:016x}-lock-", zk.session());
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    let directory = CreateRequest { path: lock.into(), data: Vec::new().into(), acl, flags: 0 };
    let ticket = CreateRequest {
        path: format!("{lock}/{prefix}"),
        flags: create_flags::EPHEMERAL_SEQUENTIAL,
        ..directory.clone()
    };
    let mut pace = Pace::new("a ticket is created over ZooKeeper's protocol");
    loop {
        pace.next().await;
        let failure = match zk.get(Request::Create(op::CREATE, ticket.clone())).await {
            Ok(PathOnly { path }) => return path.rsplit('/').next().unwrap().to_owned(),
            Err(failure) => failure,
        };
        match failure {
            // The next round sees whether the directory exists.
            Failure::Refused(error::NO_NODE) => _ = zk.ask(Request::Create(op::CREATE, directory.clone())).await,
            Failure::Refused(_) | Failure::Expired | Failure::Wrong(_) => panic!("{failure:?}"),
            Failure::NotSent(_) | Failure::Broken(_) | Failure::TimedOut => {
                if let Some(ticket) = find(zk, lock, &prefix).await {
                    return ticket;
                }
            }
        }
    }
}

/// Returns the name of the lock's ticket with this prefix; `None` when there is none.
async fn find(zk: &Zk, lock: &str, prefix: &str) -> Option<String> {
    let mut pace = Pace::new("a node lists the tickets of a lock");
    loop {
        pace.next().await;
        // A node lists what a sync has brought to it.
        if zk.ask(Request::Sync(PathOnly { path: "/".into() })).await.is_err() {
            continue;
        }
        match zk.get(Request::GetChildren(PathWatch { path: lock.into(), watch: false })).await {
            Ok(Names { names }) => return names.into_iter().find(|name| name.starts_with(prefix)),
            Err(Failure::Refused(error::NO_NODE)) => return None,
            Err(Failure::Expired) => panic!("the session of a client that waits is over"),
            Err(_) => {}
        }
    }
}

/// Number at the end of a ticket's name, by which tickets are ordered.
fn number(ticket: &str) -> &str {
    &ticket[ticket.len() - 10..]
}

/// Waits until `own`, the name of the client's ticket, is the first in the queue. Returns false if
/// the session ended before that.
async fn granted(zk: &mut Zk, lock: &str, own: &str) -> bool {
    let mut pace = Pace::new("the lock is granted over ZooKeeper's protocol");
    loop {
        pace.next().await;
        let connection = zk.connection();
        let list = PathWatch { path: lock.into(), watch: false };
        let names = match zk.get(Request::GetChildren(list)).await {
            Ok(Names { names }) => names,
            Err(Failure::Expired) => return false,
            Err(_) => continue,
        };
        if !names.iter().any(|name| name == own) {
            return false;
        }
        let before = names.iter().filter(|name| number(name) < number(own)).max_by_key(|name| number(name));
        let Some(before) = before else { return true };
        let watched = PathWatch { path: format!("{lock}/{before}"), watch: true };
        if zk.ask(Request::Exists(watched)).await.is_ok() {
            while zk.event(LOOK).await.is_none() && zk.connection() == connection {}
        }
    }
}

/// Nodes that a client asks in turn: it goes to the next node when a request's outcome is unknown.
struct Nodes {
    clients: Vec<Client>,
    at: usize,
}

impl Nodes {
    fn new(doors: &[String]) -> Nodes {
        Nodes { clients: doors.iter().map(|door| Client::new(door)).collect(), at: 0 }
    }

    async fn ask(&mut self, call: &Call) -> Answer {
        let mut pace = Pace::new("a node answers");
        loop {
            pace.next().await;
            match self.clients[self.at].send(call.clone()).await {
                Ok(answer) if !matches!(answer.status, 503 | 504) => return answer,
                _ => self.at = (self.at + 1) % self.clients.len(),
            }
        }
    }
}
