//! Both doors at once, on the same znodes: every other worker comes through each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::zookeeper::Zk;

use super::{
    AccountDoor, Batch, Change, Door, Following, Http, LockDoor, Poll, Register, RegisterDoor, Seen, SessionDoor,
    Taken, Told, WatchDoor, Wish, ZooKeeper,
};
use crate::answer::Answer;
use crate::client::{Client, Session};

/// A worker's door, HTTP or ZooKeeper's, and what chooses the next worker's.
pub struct Both {
    addrs: Arc<[String]>,
    workers: Arc<AtomicUsize>,
    own: Own,
}

enum Own {
    Http(Http),
    Zookeeper(ZooKeeper),
}

/// A session that was opened at one of the doors.
pub enum Opened {
    /// At the HTTP door.
    Http(Session),
    /// At ZooKeeper's.
    Zookeeper(Zk),
}

impl Both {
    /// Both doors of a cluster, with the `host:port` of ZooKeeper's doors.
    pub fn new(zookeeper: Vec<String>) -> Both {
        Both { addrs: zookeeper.into(), workers: Arc::default(), own: Own::Http(Http) }
    }
}

/// The same call at the worker's own door.
macro_rules! at_own {
    ($own:expr, $door:ident => $call:expr) => {
        match $own {
            Own::Http($door) => $call,
            Own::Zookeeper($door) => $call,
        }
    };
}

/// The same call at the door of a session.
macro_rules! at_its {
    ($opened:expr, $session:ident => $call:ident($($argument:expr),*)) => {
        match $opened {
            Opened::Http($session) => Http::$call($($argument),*),
            Opened::Zookeeper($session) => ZooKeeper::$call($($argument),*),
        }
    };
    ($opened:expr, $session:ident => $call:ident($($argument:expr),*).await) => {
        match $opened {
            Opened::Http($session) => Http::$call($($argument),*).await,
            Opened::Zookeeper($session) => ZooKeeper::$call($($argument),*).await,
        }
    };
}

impl Door for Both {
    fn fresh(&self) -> Both {
        let before = self.workers.fetch_add(1, Ordering::Relaxed);
        let own = if before.is_multiple_of(2) {
            Own::Http(Http)
        } else {
            Own::Zookeeper(ZooKeeper { addrs: self.addrs.clone(), zk: None })
        };
        Both { addrs: self.addrs.clone(), workers: self.workers.clone(), own }
    }

    async fn enter(&mut self, client: &mut Client) -> Result<(), String> {
        at_own!(&mut self.own, door => door.enter(client).await)
    }

    fn after(&mut self, answer: &Answer) {
        at_own!(&mut self.own, door => door.after(answer));
    }
}

impl SessionDoor for Both {
    type Session = Opened;

    async fn open(&self, client: &mut Client, timeout_ms: u64) -> Result<Opened, String> {
        match &self.own {
            Own::Http(door) => door.open(client, timeout_ms).await.map(Opened::Http),
            Own::Zookeeper(door) => door.open(client, timeout_ms).await.map(Opened::Zookeeper),
        }
    }

    fn id(session: &Opened) -> u64 {
        at_its!(session, session => id(session))
    }

    async fn close(session: &Opened, client: &mut Client) -> Answer {
        at_its!(session, session => close(session, client).await)
    }
}

impl LockDoor for Both {
    fn node_waits(session: &Opened) -> bool {
        at_its!(session, session => node_waits(session))
    }

    async fn acquire(session: &mut Opened, wish: &Wish<'_>, client: &mut Client) -> Told<Taken> {
        at_its!(session, session => acquire(session, wish, client).await)
    }

    async fn release(session: &mut Opened, ticket: &str, client: &mut Client) -> Told<u64> {
        at_its!(session, session => release(session, ticket, client).await)
    }
}

impl RegisterDoor for Both {
    async fn make(&self, client: &mut Client, path: &str) -> bool {
        at_own!(&self.own, door => door.make(client, path).await)
    }

    async fn read(&self, client: &mut Client, path: &str, current: bool) -> Told<Register> {
        at_own!(&self.own, door => door.read(client, path, current).await)
    }

    async fn write(&self, client: &mut Client, path: &str, value: i64, version: Option<i32>) -> Answer {
        at_own!(&self.own, door => door.write(client, path, value, version).await)
    }
}

impl AccountDoor for Both {
    fn looks_at_once(&self) -> bool {
        at_own!(&self.own, door => door.looks_at_once())
    }

    async fn look(&self, client: &mut Client, paths: &[String]) -> Told<Vec<Seen>> {
        at_own!(&self.own, door => door.look(client, paths).await)
    }

    async fn set_all(&self, client: &mut Client, sides: &[(String, Seen)]) -> Answer {
        at_own!(&self.own, door => door.set_all(client, sides).await)
    }

    async fn check(&self, client: &mut Client, seen: &[(String, Seen)], marker: &str) -> Answer {
        at_own!(&self.own, door => door.check(client, seen, marker).await)
    }
}

impl WatchDoor for Both {
    type Place = Following;

    fn wait(&self) -> Duration {
        at_own!(&self.own, door => door.wait())
    }

    fn follows_one_node(&self) -> bool {
        at_own!(&self.own, door => door.follows_one_node())
    }

    fn tells_children(&self) -> bool {
        at_own!(&self.own, door => door.tells_children())
    }

    async fn change(&self, client: &mut Client, path: &str, change: Change, marker: &str) -> Answer {
        at_own!(&self.own, door => door.change(client, path, change, marker).await)
    }

    async fn reset(&mut self, client: &mut Client, root: &str, place: &mut Following) -> Told<u64> {
        match &mut self.own {
            Own::Http(door) => door.reset(client, root, &mut ()).await,
            Own::Zookeeper(door) => door.reset(client, root, place).await,
        }
    }

    async fn poll(&mut self, client: &mut Client, root: &str, place: &mut Following, poll: Poll) -> Told<Batch> {
        match &mut self.own {
            Own::Http(door) => door.poll(client, root, &mut (), poll).await,
            Own::Zookeeper(door) => door.poll(client, root, place, poll).await,
        }
    }
}
