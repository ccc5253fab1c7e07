//! Client that speaks ZooKeeper's protocol. ZooKeeper and zlock receive the same bytes.

use std::collections::VecDeque;

use jute::{
    Acl, ConnectRequest, ConnectResponse, CreateRequest, Input, MultiOp, MultiResult, Names, PathOnly, PathVersion,
    PathWatch, Record, ReplyHeader, Request, SetDataRequest, WatcherEvent, create_flags, error, op, read_multi_results,
    xid,
};
use testkit::zookeeper::packet;

use super::link::Link;
use crate::error::Error;

/// A client with one session.
pub(crate) struct ZooKeeper {
    link: Link,
    xid: i32,
    /// Watch events that arrived while an answer was awaited, oldest first.
    events: VecDeque<WatcherEvent>,
    /// The request that resumes the session.
    session: ConnectRequest,
}

impl ZooKeeper {
    /// Connects and opens a session.
    pub(crate) async fn open(addr: &str, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        ZooKeeper::over(Link::open(addr).await?, timeout_ms).await
    }

    /// Opens a session on an open connection.
    pub(crate) async fn over(link: Link, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        let (password, read_only) = ([0_u8; 16].as_slice().into(), Some(false));
        let session = ConnectRequest { timeout_ms, password, read_only, ..ConnectRequest::default() };
        ZooKeeper::connect(link, session).await
    }

    /// Resumes the session of another connection, on any node.
    pub(crate) async fn resume(addr: &str, of: &ZooKeeper) -> Result<ZooKeeper, Error> {
        ZooKeeper::connect(Link::open(addr).await?, of.session.clone()).await
    }

    async fn connect(mut link: Link, mut session: ConnectRequest) -> Result<ZooKeeper, Error> {
        link.out.extend(jute::framed(|out| session.write(out)));
        link.flush().await?;
        let answer = next_packet(&mut link).await?;
        let answer = ConnectResponse::from_bytes(&answer).map_err(|_| Error::answer("handshake", &answer))?;
        if answer.session_id == 0 {
            return Err(Error::Gone);
        }
        (session.session_id, session.password) = (answer.session_id, answer.password);
        Ok(ZooKeeper { link, xid: 0, events: VecDeque::new(), session })
    }

    /// Appends a request to the bytes that the next [`ZooKeeper::flush`] sends.
    pub(crate) fn queue(&mut self, request: &Request) {
        self.xid += 1;
        self.link.out.extend(packet(self.xid, request));
    }

    /// Sends the queued requests.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        self.link.flush().await
    }

    /// Returns the error code and body of the next answer. Events that come before it are kept.
    pub(crate) async fn next_answer(&mut self) -> Result<(i32, Vec<u8>), Error> {
        loop {
            let (header, body) = self.packet().await?;
            if header.xid != xid::EVENT && header.xid != xid::PING {
                self.session.last_zxid_seen = self.session.last_zxid_seen.max(header.zxid);
                return Ok((header.error, body));
            }
        }
    }

    /// Returns the header and body of the next packet. A watch event is also kept.
    async fn packet(&mut self) -> Result<(ReplyHeader, Vec<u8>), Error> {
        let bytes = next_packet(&mut self.link).await?;
        let mut input = Input::new(&bytes);
        let header: ReplyHeader = input.read().map_err(|_| Error::answer("header", &bytes))?;
        let body = bytes[bytes.len() - input.remaining()..].to_vec();
        if header.xid == xid::EVENT {
            self.events.push_back(WatcherEvent::from_bytes(&body).map_err(|_| Error::answer("event", &body))?);
        }
        Ok((header, body))
    }

    /// Sends one request. Returns the error code and body of the answer.
    pub(crate) async fn call(&mut self, request: &Request) -> Result<(i32, Vec<u8>), Error> {
        self.queue(request);
        self.flush().await?;
        self.next_answer().await
    }

    /// Sends a request, and parses the answer. Fails on an error code.
    async fn done<T: Record>(&mut self, request: Request) -> Result<T, Error> {
        let (code, answer) = self.call(&request).await?;
        if code != error::OK {
            return Err(Error::Answer(format!("operation {}: error {code}", request.op())));
        }
        T::from_bytes(&answer).map_err(|_| Error::answer("body", &answer))
    }

    /// Returns a request to create a znode that anyone may use.
    pub(crate) fn creation(path: &str, data: &[u8], flags: i32) -> CreateRequest {
        let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
        CreateRequest { path: path.to_owned(), data: data.into(), acl, flags }
    }

    /// Returns a transaction that creates znodes.
    pub(crate) fn creations(paths: impl Iterator<Item = String>, data: &[u8], flags: i32) -> Request {
        let creation = |path: String| MultiOp::Create(op::CREATE, ZooKeeper::creation(&path, data, flags));
        Request::Multi(paths.map(creation).collect())
    }

    /// Sends a transaction that creates znodes. Succeeds also if one of them exists, because an
    /// earlier try may have been applied without an answer.
    pub(crate) async fn create_all(&mut self, creations: &Request) -> Result<(), Error> {
        let (code, body) = self.call(creations).await?;
        let results = read_multi_results(&mut Input::new(&body)).map_err(|_| Error::answer("multi", &body))?;
        let there = |result: &MultiResult| matches!(result, MultiResult::Error(error::NODE_EXISTS));
        let made = code == error::OK && results.iter().all(|result| matches!(result, MultiResult::Created(..)));
        if made || results.iter().any(there) {
            return Ok(());
        }
        let refused = results.iter().find(|result| !matches!(result, MultiResult::Error(error::OK)));
        Err(Error::Answer(format!("multi: error {code}, {refused:?}")))
    }

    /// Creates a znode. Succeeds also if the znode exists.
    pub(crate) async fn create(&mut self, path: &str, data: &[u8]) -> Result<(), Error> {
        let creation = ZooKeeper::creation(path, data, create_flags::PERSISTENT);
        match self.call(&Request::Create(op::CREATE, creation)).await? {
            (error::OK | error::NODE_EXISTS, _) => Ok(()),
            (code, _) => Err(Error::Answer(format!("create {path}: error {code}"))),
        }
    }

    pub(crate) async fn set(&mut self, path: &str, data: &[u8]) -> Result<(), Error> {
        let request = SetDataRequest { path: path.to_owned(), data: data.into(), version: -1 };
        self.done::<jute::Stat>(Request::SetData(request)).await.map(drop)
    }

    pub(crate) async fn get(&mut self, path: &str, watch: bool) -> Result<(), Error> {
        let request = PathWatch { path: path.to_owned(), watch };
        self.done::<jute::DataStat>(Request::GetData(request)).await.map(drop)
    }

    /// Sends `sync` and a read together, as a ZooKeeper client does to read the current value.
    pub(crate) async fn get_synced(&mut self, path: &str) -> Result<(), Error> {
        self.queue(&Request::Sync(PathOnly { path: path.to_owned() }));
        self.queue(&Request::GetData(PathWatch { path: path.to_owned(), watch: false }));
        self.flush().await?;
        for _ in 0..2 {
            if let (code @ ..0, _) = self.next_answer().await? {
                return Err(Error::Answer(format!("sync and get: error {code}")));
            }
        }
        Ok(())
    }

    /// Curator's `InterProcessMutex.acquire` with protected names: creates a znode, lists the
    /// queue, and watches the znode before its own.
    pub(crate) async fn lock(&mut self, directory: &str) -> Result<String, Error> {
        let unique = self.session.session_id & 0xffff_ffff_ffff;
        let name = format!("{directory}/_c_00000000-0000-4000-8000-{unique:012x}-lock-");
        let creation = ZooKeeper::creation(&name, b"127.0.0.1", create_flags::EPHEMERAL_SEQUENTIAL);
        let own = self.done::<PathOnly>(Request::Create(op::CREATE, creation)).await?.path;
        loop {
            let Some(before) = self.predecessor(directory, &own).await? else { return Ok(own) };
            let watched = PathWatch { path: before.clone(), watch: true };
            match self.call(&Request::GetData(watched)).await? {
                (error::OK, _) => self.until_event(&before).await?,
                // The znode was deleted between the list and the watch.
                (error::NO_NODE, _) => {}
                (code, _) => return Err(Error::Answer(format!("watch {before}: error {code}"))),
            }
        }
    }

    async fn predecessor(&mut self, directory: &str, own: &str) -> Result<Option<String>, Error> {
        let listing = PathWatch { path: directory.to_owned(), watch: false };
        let names = self.done::<Names>(Request::GetChildren(listing)).await?.names;
        let number = |name: &str| name.get(name.len().saturating_sub(10)..).map(str::to_owned);
        let mine = number(own);
        let before = names.into_iter().filter(|name| number(name) < mine).max_by_key(|name| number(name));
        Ok(before.map(|name| format!("{directory}/{name}")))
    }

    /// Waits for a watch event of `path`.
    pub(crate) async fn until_event(&mut self, path: &str) -> Result<(), Error> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event.path == path {
                    return Ok(());
                }
            }
            self.packet().await?;
        }
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<(), Error> {
        let which = PathVersion { path: path.to_owned(), version: -1 };
        match self.call(&Request::Delete(which)).await? {
            (error::OK, _) => Ok(()),
            (code, _) => Err(Error::Answer(format!("delete {path}: error {code}"))),
        }
    }

    /// Waits until the server ends the connection.
    pub(crate) async fn ended(&self) {
        self.link.ended().await;
    }

    /// Sends a ping, and does not wait for the answer.
    pub(crate) async fn send_ping(&mut self) -> Result<(), Error> {
        self.link.out.extend(packet(xid::PING, &Request::Ping));
        self.flush().await
    }

    /// Sends a ping, and waits for its answer.
    pub(crate) async fn ping(&mut self) -> Result<(), Error> {
        self.send_ping().await?;
        while self.packet().await?.0.xid != xid::PING {}
        Ok(())
    }

    pub(crate) async fn close_session(&mut self) -> Result<(), Error> {
        self.call(&Request::CloseSession).await.map(drop)
    }
}

/// Reads the next packet, without its length in front.
async fn next_packet(link: &mut Link) -> Result<Vec<u8>, Error> {
    link.need(4).await?;
    let length = link.bytes()[..4].try_into().map(u32::from_be_bytes).expect("four bytes are there") as usize;
    link.need(4 + length).await?;
    let packet = link.bytes()[4..4 + length].to_vec();
    link.consume(4 + length);
    Ok(packet)
}
