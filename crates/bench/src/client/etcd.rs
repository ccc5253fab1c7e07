//! Client of etcd over gRPC. Its lock is the one of the Go client's `concurrency` package: one
//! transaction puts the client's key, then watches wait for the deletion of the earlier keys.

use super::grpc::{Grpc, StreamId};
use super::protobuf::{Fields, Message};
use crate::error::Error;

/// A client of one etcd server, with a lease if it takes locks.
pub(crate) struct Etcd {
    grpc: Grpc,
    lease: u64,
    watches: Option<StreamId>,
    beats: Option<StreamId>,
}

/// Id of a member, and id of the leader that it knows.
pub(crate) struct Status {
    pub(crate) member: u64,
    /// The leader's id; 0 while no member leads.
    pub(crate) leader: u64,
}

impl Etcd {
    pub(crate) async fn open(addr: &str) -> Result<Etcd, Error> {
        Ok(Etcd { grpc: Grpc::open(addr).await?, lease: 0, watches: None, beats: None })
    }

    /// Connects, and uses the lease of another connection.
    pub(crate) async fn resume(addr: &str, of: &Etcd) -> Result<Etcd, Error> {
        Ok(Etcd { lease: of.lease, ..Etcd::open(addr).await? })
    }

    pub(crate) async fn status(&mut self) -> Result<Status, Error> {
        let answer = self.grpc.unary("/etcdserverpb.Maintenance/Status", b"").await?;
        let header = Fields::all(&answer, 1).next().unwrap_or_default();
        Ok(Status { member: Fields::number(header, 2), leader: Fields::number(&answer, 4) })
    }

    pub(crate) async fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let request = Message::default().bytes(1, key.as_bytes()).bytes(2, value);
        self.grpc.unary("/etcdserverpb.KV/Put", &request.0).await.map(drop)
    }

    /// Puts many keys in one transaction.
    pub(crate) async fn put_all(&mut self, keys: impl Iterator<Item = String>, value: &[u8]) -> Result<(), Error> {
        let puts = keys.map(|key| {
            let put = Message::default().bytes(1, key.as_bytes()).bytes(2, value);
            Message::default().message(2, put)
        });
        let request = puts.fold(Message::default(), |txn, put| txn.message(2, put));
        self.grpc.unary("/etcdserverpb.KV/Txn", &request.0).await.map(drop)
    }

    pub(crate) async fn get(&mut self, key: &str, linearizable: bool) -> Result<(), Error> {
        let mut request = Message::default().bytes(1, key.as_bytes());
        if !linearizable {
            request = request.number(7, 1);
        }
        let answer = self.grpc.unary("/etcdserverpb.KV/Range", &request.0).await?;
        match Fields::all(&answer, 2).next() {
            Some(_) => Ok(()),
            None => Err(Error::Answer(format!("{key} is not there"))),
        }
    }

    pub(crate) async fn grant_lease(&mut self, seconds: u64) -> Result<(), Error> {
        let answer =
            self.grpc.unary("/etcdserverpb.Lease/LeaseGrant", &Message::default().number(1, seconds).0).await?;
        self.lease = Fields::number(&answer, 2);
        Ok(())
    }

    pub(crate) async fn revoke_lease(&mut self) -> Result<(), Error> {
        self.grpc.unary("/etcdserverpb.Lease/LeaseRevoke", &Message::default().number(1, self.lease).0).await.map(drop)
    }

    /// Sends a heartbeat of the lease: one message each way, on a stream that stays open.
    pub(crate) async fn keep_alive(&mut self) -> Result<(), Error> {
        let stream = *self.beats.get_or_insert_with(|| self.grpc.start("/etcdserverpb.Lease/LeaseKeepAlive"));
        self.grpc.send(stream, &Message::default().number(1, self.lease).0).await?;
        let answer = self.grpc.next(stream).await?;
        if Fields::number(&answer, 3) == 0 { Err(Error::Gone) } else { Ok(()) }
    }

    /// `Mutex.Lock` of etcd's Go client: puts this client's key below `name`, and waits until every
    /// earlier key below `name` is deleted. Returns the client's key.
    pub(crate) async fn lock(&mut self, name: &str) -> Result<String, Error> {
        let own = format!("{name}/{:x}", self.lease);
        let absent = Message::default().number(1, 0).number(2, 1).bytes(3, own.as_bytes()).number(5, 0);
        let put = Message::default().bytes(1, own.as_bytes()).bytes(2, b"").number(3, self.lease);
        let owner = first_created(name).number(5, 1);
        let request = Message::default()
            .message(1, absent)
            .message(2, Message::default().message(2, put))
            .message(2, Message::default().message(1, owner));
        let answer = self.grpc.unary("/etcdserverpb.KV/Txn", &request.0).await?;
        if Fields::number(&answer, 2) == 0 {
            return Err(Error::Answer(format!("{own} is there already")));
        }
        let revision = revision(&answer);
        let owner = Fields::all(&answer, 3).nth(1).and_then(|op| Fields::all(op, 1).next()).unwrap_or_default();
        let owner = Fields::all(owner, 2).next().map(|kv| Fields::number(kv, 2));
        if owner.is_some_and(|created| created != revision) {
            self.wait_for_those_before(name, revision - 1).await?;
        }
        Ok(own)
    }

    async fn wait_for_those_before(&mut self, name: &str, revision_max: u64) -> Result<(), Error> {
        loop {
            let request = first_created(name).number(5, 2).number(13, revision_max);
            let answer = self.grpc.unary("/etcdserverpb.KV/Range", &request.0).await?;
            let Some(last) = Fields::all(&answer, 2).next() else { return Ok(()) };
            let key = Fields::all(last, 1).next().unwrap_or_default().to_vec();
            self.watch(&key, revision(&answer)).await?;
            self.next_event().await?;
        }
    }

    /// Watches a key, including deletions since `revision`. Returns when the server has confirmed
    /// the watch.
    pub(crate) async fn watch(&mut self, key: &[u8], revision: u64) -> Result<(), Error> {
        let stream = *self.watches.get_or_insert_with(|| self.grpc.start("/etcdserverpb.Watch/Watch"));
        let mut create = Message::default().bytes(1, key);
        if revision > 0 {
            create = create.number(3, revision);
        }
        self.grpc.send(stream, &Message::default().message(1, create).0).await?;
        loop {
            let answer = self.grpc.next(stream).await?;
            if Fields::number(&answer, 3) == 1 {
                return Ok(());
            }
        }
    }

    /// Waits for an event, and cancels its watch as the Go client does.
    pub(crate) async fn next_event(&mut self) -> Result<(), Error> {
        let Some(stream) = self.watches else { return Err(Error::Answer("nothing is watched".into())) };
        loop {
            let answer = self.grpc.next(stream).await?;
            if Fields::all(&answer, 11).next().is_some() {
                let cancel = Message::default().number(1, Fields::number(&answer, 2));
                return self.grpc.send(stream, &Message::default().message(2, cancel).0).await;
            }
        }
    }

    pub(crate) async fn unlock(&mut self, key: &str) -> Result<(), Error> {
        let request = Message::default().bytes(1, key.as_bytes());
        self.grpc.unary("/etcdserverpb.KV/DeleteRange", &request.0).await.map(drop)
    }
}

/// Returns a range request for one key below `name`, chosen by its time of creation. The caller
/// adds the sort direction, which selects the oldest or the newest key.
fn first_created(name: &str) -> Message {
    // End of the range: in ASCII '0' follows '/', so the range has all keys that begin with
    // `name/`.
    Message::default()
        .bytes(1, format!("{name}/").as_bytes())
        .bytes(2, format!("{name}0").as_bytes())
        .number(3, 1)
        .number(6, 2)
}

fn revision(answer: &[u8]) -> u64 {
    Fields::number(Fields::all(answer, 1).next().unwrap_or_default(), 3)
}
