//! One client type for all systems, so that a workload is the same code on each system.

mod etcd;
mod grpc;
mod link;
mod protobuf;
mod redis;
mod rest;
mod zookeeper;

pub(crate) use self::etcd::Etcd;
pub(crate) use self::link::{Link, connect_from};
pub(crate) use self::redis::Redis;
pub(crate) use self::rest::Rest;
pub(crate) use self::zookeeper::ZooKeeper;
use crate::error::Error;

/// Default timeout of sessions and leases in seconds; a scenario may choose its own.
pub(crate) const SESSION_TIMEOUT_S: u16 = 30;

/// Protocol that a client speaks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Rest,
    ZooKeeper,
    Etcd,
    Redis,
}

/// Client of one server: a connection with one request under way at a time.
pub(crate) enum Client {
    Rest(Rest),
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
    Redis(Redis),
}

impl Client {
    /// Connects to a server. Over ZooKeeper's protocol this opens a session, too.
    pub(crate) async fn open(door: Door, addr: &str) -> Result<Client, Error> {
        Client::open_with(door, addr, SESSION_TIMEOUT_S).await
    }

    /// Connects to a server. ZooKeeper's session begins here, with this timeout in seconds. For
    /// HTTP and etcd, [`Client::open_session`] opens the session or lease afterwards.
    async fn open_with(door: Door, addr: &str, timeout_s: u16) -> Result<Client, Error> {
        Ok(match door {
            Door::Rest => Client::Rest(Rest::open(addr).await?),
            Door::ZooKeeper => Client::ZooKeeper(ZooKeeper::open(addr, i32::from(timeout_s) * 1000).await?),
            Door::Etcd => Client::Etcd(Etcd::open(addr).await?),
            Door::Redis => Client::Redis(Redis::open(addr).await?),
        })
    }

    /// Connects, and opens a session or lease with this timeout in seconds.
    pub(crate) async fn with_session(door: Door, addr: &str, timeout_s: u16) -> Result<Client, Error> {
        let mut client = Client::open_with(door, addr, timeout_s).await?;
        client.open_session(timeout_s).await?;
        Ok(client)
    }

    /// Connects to another node with the session of this client.
    pub(crate) async fn resume(&self, addr: &str) -> Result<Client, Error> {
        Ok(match self {
            Client::Rest(rest) => Client::Rest(Rest::resume(addr, rest).await?),
            Client::Etcd(etcd) => Client::Etcd(Etcd::resume(addr, etcd).await?),
            Client::ZooKeeper(of) => Client::ZooKeeper(ZooKeeper::resume(addr, of).await?),
            Client::Redis(_) => Client::Redis(Redis::open(addr).await?),
        })
    }

    /// Opens the session or lease that locks need. Does nothing for a ZooKeeper client, because its
    /// session began with the connection, and nothing for Redis, which has no sessions.
    pub(crate) async fn open_session(&mut self, timeout_s: u16) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.open_session(u64::from(timeout_s) * 1000).await,
            Client::Etcd(etcd) => etcd.grant_lease(u64::from(timeout_s)).await,
            Client::ZooKeeper(_) | Client::Redis(_) => Ok(()),
        }
    }

    /// Ends the session or lease.
    pub(crate) async fn close_session(&mut self) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.close_session().await,
            Client::Etcd(etcd) => etcd.revoke_lease().await,
            Client::ZooKeeper(zookeeper) => zookeeper.close_session().await,
            Client::Redis(_) => Ok(()),
        }
    }

    /// Sends a heartbeat of the session or lease.
    pub(crate) async fn keep_alive(&mut self) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.keep_alive().await,
            Client::Etcd(etcd) => etcd.keep_alive().await,
            Client::ZooKeeper(zookeeper) => zookeeper.ping().await,
            Client::Redis(_) => Ok(()),
        }
    }

    /// Makes sure that a znode or key is there.
    pub(crate) async fn create(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.create(name, data).await,
            Client::ZooKeeper(zookeeper) => zookeeper.create(&format!("/{name}"), data).await,
            Client::Etcd(etcd) => etcd.put(name, data).await,
            Client::Redis(redis) => redis.set(name, data).await,
        }
    }

    /// Replaces the data of a znode or key.
    pub(crate) async fn set(&mut self, name: &str, data: &[u8]) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.set(name, data).await,
            Client::ZooKeeper(zookeeper) => zookeeper.set(&format!("/{name}"), data).await,
            Client::Etcd(etcd) => etcd.put(name, data).await,
            Client::Redis(redis) => redis.set(name, data).await,
        }
    }

    /// Reads a value: the current one, or else that of the server's own copy, which may be old.
    pub(crate) async fn get(&mut self, name: &str, linearizable: bool) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.get(name, linearizable).await,
            Client::ZooKeeper(zookeeper) if linearizable => zookeeper.get_synced(&format!("/{name}")).await,
            Client::ZooKeeper(zookeeper) => zookeeper.get(&format!("/{name}"), false).await,
            Client::Etcd(etcd) => etcd.get(name, linearizable).await,
            Client::Redis(redis) => redis.get(name).await,
        }
    }

    /// Takes a lock by the recipe of the measured system. Returns the ticket, key or token that
    /// releases the lock.
    pub(crate) async fn lock(&mut self, name: &str) -> Result<String, Error> {
        match self {
            Client::Rest(rest) => rest.lock(name).await,
            Client::ZooKeeper(zookeeper) => zookeeper.lock(&format!("/{name}")).await,
            Client::Etcd(etcd) => etcd.lock(name).await,
            Client::Redis(redis) => redis.lock(name).await,
        }
    }

    /// Releases a lock.
    pub(crate) async fn unlock(&mut self, name: &str, ticket: &str) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.unlock(ticket).await,
            Client::ZooKeeper(zookeeper) => zookeeper.delete(ticket).await,
            Client::Etcd(etcd) => etcd.unlock(ticket).await,
            Client::Redis(redis) => redis.unlock(name, ticket).await,
        }
    }

    /// Begins to watch a znode or key.
    pub(crate) async fn watch(&mut self, name: &str) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.watch(name).await,
            Client::ZooKeeper(zookeeper) => zookeeper.get(&format!("/{name}"), true).await,
            Client::Etcd(etcd) => etcd.watch(name.as_bytes(), 0).await,
            Client::Redis(_) => Err(Error::Absent("Redis has no watches that survive a lost connection".into())),
        }
    }

    /// Waits for the event of the watch that [`Client::watch`] began.
    pub(crate) async fn told(&mut self, name: &str) -> Result<(), Error> {
        match self {
            Client::Rest(rest) => rest.told().await,
            Client::ZooKeeper(zookeeper) => zookeeper.until_event(&format!("/{name}")).await,
            Client::Etcd(etcd) => etcd.next_event().await,
            Client::Redis(_) => Ok(()),
        }
    }

    /// Creates many znodes or keys in one transaction.
    pub(crate) async fn create_all(&mut self, names: impl Iterator<Item = String>, data: &[u8]) -> Result<(), Error> {
        match self {
            Client::ZooKeeper(zookeeper) => {
                let paths = names.map(|name| format!("/{name}"));
                let creations = ZooKeeper::creations(paths, data, jute::create_flags::PERSISTENT);
                zookeeper.create_all(&creations).await
            }
            Client::Etcd(etcd) => etcd.put_all(names, data).await,
            Client::Rest(_) | Client::Redis(_) => Err(Error::Absent("not loaded through this door".into())),
        }
    }
}
