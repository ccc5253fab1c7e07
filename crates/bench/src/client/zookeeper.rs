//! Client that speaks ZooKeeper's protocol. ZooKeeper and zlock receive the same bytes.

use std::collections::VecDeque;

use jute::{
    Acl, ConnectRequest, ConnectResponse, CreateRequest, Input, MultiOp, MultiResult, Names, PathOnly, PathVersion,
    PathWatch, Record, ReplyHeader, RequestHeader, SetDataRequest, WatcherEvent, create_flags, error, op,
    read_multi_results, write_multi, xid,
};

use super::link::Link;
use crate::error::Error;

/// A client with one session.
pub(crate) struct ZooKeeper {
    link: Link,
    xid: i32,
    /// Watch events that arrived while an answer was awaited, oldest first.
    events: VecDeque<WatcherEvent>,
    /// Id of the session, which also makes the names of lock nodes unique.
    session_id: i64,
    password: Vec<u8>,
    last_zxid: i64,
}

/// An answer: its header and the body behind it.
struct Packet {
    header: ReplyHeader,
    body: Vec<u8>,
}

impl ZooKeeper {
    /// Connects and opens a session.
    pub(crate) async fn open(addr: &str, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        ZooKeeper::over(Link::open(addr).await?, timeout_ms).await
    }

    /// Opens a session on an open connection.
    pub(crate) async fn over(link: Link, timeout_ms: i32) -> Result<ZooKeeper, Error> {
        ZooKeeper::connect(link, timeout_ms, 0, vec![0; 16], 0).await
    }

    /// Resumes the session of another connection, on any node.
    pub(crate) async fn resume(addr: &str, timeout_ms: i32, of: &ZooKeeper) -> Result<ZooKeeper, Error> {
        ZooKeeper::connect(Link::open(addr).await?, timeout_ms, of.session_id, of.password.clone(), of.last_zxid).await
    }

    async fn connect(
        mut link: Link,
        timeout_ms: i32,
        session_id: i64,
        password: Vec<u8>,
        seen: i64,
    ) -> Result<ZooKeeper, Error> {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: seen,
            timeout_ms,
            session_id,
            password: password.into(),
            read_only: Some(false),
        };
        link.out.extend(jute::framed(|out| request.write(out)));
        link.flush().await?;
        let packet = packet(&mut link).await?;
        let answer: ConnectResponse = Input::new(&packet).read().map_err(|_| Error::answer("handshake", &packet))?;
        if answer.session_id == 0 {
            return Err(Error::Gone);
        }
        let password = answer.password.into_bytes();
        Ok(ZooKeeper {
            link,
            xid: 0,
            events: VecDeque::new(),
            session_id: answer.session_id,
            password,
            last_zxid: seen,
        })
    }

    /// Appends a request to the bytes that the next [`ZooKeeper::flush`] sends.
    pub(crate) fn queue(&mut self, op: i32, body: impl FnOnce(&mut Vec<u8>)) {
        self.xid += 1;
        let header = RequestHeader { xid: self.xid, op };
        let out = &mut self.link.out;
        let start = out.len();
        out.extend([0; 4]);
        header.write(out);
        body(out);
        let length = i32::try_from(out.len() - start - 4).expect("requests of the workloads are short").to_be_bytes();
        out[start..start + 4].copy_from_slice(&length);
    }

    /// Sends the queued requests.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        self.link.flush().await
    }

    /// Returns the error code and body of the next answer. Events that come before it are kept.
    pub(crate) async fn next_answer(&mut self) -> Result<(i32, Vec<u8>), Error> {
        loop {
            let packet = self.packet().await?;
            match packet.header.xid {
                xid::EVENT => self.keep(&packet)?,
                xid::PING => {}
                _ => {
                    self.last_zxid = self.last_zxid.max(packet.header.zxid);
                    return Ok((packet.header.error, packet.body));
                }
            }
        }
    }

    async fn packet(&mut self) -> Result<Packet, Error> {
        let bytes = packet(&mut self.link).await?;
        let mut input = Input::new(&bytes);
        let header: ReplyHeader = input.read().map_err(|_| Error::answer("header", &bytes))?;
        let body = bytes[bytes.len() - input.remaining()..].to_vec();
        Ok(Packet { header, body })
    }

    fn keep(&mut self, packet: &Packet) -> Result<(), Error> {
        let event = WatcherEvent::from_bytes(&packet.body).map_err(|_| Error::answer("event", &packet.body))?;
        self.events.push_back(event);
        Ok(())
    }

    /// Sends one request. Returns the error code and body of the answer.
    pub(crate) async fn call(&mut self, op: i32, body: &impl Record) -> Result<(i32, Vec<u8>), Error> {
        self.queue(op, |out| body.write(out));
        self.flush().await?;
        self.next_answer().await
    }

    /// Sends a request, and parses the answer. Fails on an error code.
    async fn done<T: Record>(&mut self, op: i32, body: &impl Record) -> Result<T, Error> {
        let (code, answer) = self.call(op, body).await?;
        if code != error::OK {
            return Err(Error::Answer(format!("operation {op}: error {code}")));
        }
        T::from_bytes(&answer).map_err(|_| Error::answer("body", &answer))
    }

    /// Returns a request to create a znode that anyone may use.
    pub(crate) fn creation(path: &str, data: &[u8], flags: i32) -> CreateRequest {
        let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
        CreateRequest { path: path.to_owned(), data: data.into(), acl, flags }
    }

    /// Sends one transaction. Returns the error code and body of the answer.
    pub(crate) async fn multi(&mut self, ops: &[MultiOp]) -> Result<(i32, Vec<u8>), Error> {
        self.queue(op::MULTI, |out| write_multi(ops, out));
        self.flush().await?;
        self.next_answer().await
    }

    /// Creates many znodes in one transaction.
    pub(crate) async fn create_all(&mut self, paths: impl Iterator<Item = String>, data: &[u8]) -> Result<(), Error> {
        let creation =
            |path: String| MultiOp::Create(op::CREATE, ZooKeeper::creation(&path, data, create_flags::PERSISTENT));
        let ops: Vec<MultiOp> = paths.map(creation).collect();
        let (code, body) = self.multi(&ops).await?;
        let results = read_multi_results(&mut Input::new(&body)).map_err(|_| Error::answer("multi", &body))?;
        let done = results.iter().all(|result| matches!(result, MultiResult::Created(..)));
        if code == error::OK && done { Ok(()) } else { Err(Error::Answer(format!("multi: error {code}"))) }
    }

    /// Creates a znode. Succeeds also if the znode exists.
    pub(crate) async fn create(&mut self, path: &str, data: &[u8]) -> Result<(), Error> {
        match self.call(op::CREATE, &ZooKeeper::creation(path, data, create_flags::PERSISTENT)).await? {
            (error::OK | error::NODE_EXISTS, _) => Ok(()),
            (code, _) => Err(Error::Answer(format!("create {path}: error {code}"))),
        }
    }

    pub(crate) async fn set(&mut self, path: &str, data: &[u8]) -> Result<(), Error> {
        let request = SetDataRequest { path: path.to_owned(), data: data.into(), version: -1 };
        self.done::<jute::Stat>(op::SET_DATA, &request).await.map(drop)
    }

    pub(crate) async fn get(&mut self, path: &str, watch: bool) -> Result<(), Error> {
        let request = PathWatch { path: path.to_owned(), watch };
        self.done::<jute::DataStat>(op::GET_DATA, &request).await.map(drop)
    }

    /// Sends `sync` and a read together, as a ZooKeeper client does to read the current value.
    pub(crate) async fn get_synced(&mut self, path: &str) -> Result<(), Error> {
        self.queue(op::SYNC, |out| PathOnly { path: path.to_owned() }.write(out));
        self.queue(op::GET_DATA, |out| PathWatch { path: path.to_owned(), watch: false }.write(out));
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
        let name = format!("{directory}/_c_00000000-0000-4000-8000-{:012x}-lock-", self.session_id & 0xffff_ffff_ffff);
        let creation = ZooKeeper::creation(&name, b"127.0.0.1", create_flags::EPHEMERAL_SEQUENTIAL);
        let own = self.done::<PathOnly>(op::CREATE, &creation).await?.path;
        loop {
            let Some(before) = self.predecessor(directory, &own).await? else { return Ok(own) };
            let watched = PathWatch { path: before.clone(), watch: true };
            match self.call(op::GET_DATA, &watched).await? {
                (error::OK, _) => self.until_event(&before).await?,
                // The znode was deleted between the list and the watch.
                (error::NO_NODE, _) => {}
                (code, _) => return Err(Error::Answer(format!("watch {before}: error {code}"))),
            }
        }
    }

    async fn predecessor(&mut self, directory: &str, own: &str) -> Result<Option<String>, Error> {
        let listing = PathWatch { path: directory.to_owned(), watch: false };
        let names = self.done::<Names>(op::GET_CHILDREN, &listing).await?.names;
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
            let packet = self.packet().await?;
            if packet.header.xid == xid::EVENT {
                self.keep(&packet)?;
            }
        }
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<(), Error> {
        match self.call(op::DELETE, &PathVersion { path: path.to_owned(), version: -1 }).await? {
            (error::OK, _) => Ok(()),
            (code, _) => Err(Error::Answer(format!("delete {path}: error {code}"))),
        }
    }

    /// Sends a ping, and does not wait for the answer.
    pub(crate) async fn send_ping(&mut self) -> Result<(), Error> {
        let header = RequestHeader { xid: xid::PING, op: op::PING };
        self.link.out.extend(jute::framed(|out| header.write(out)));
        self.flush().await
    }

    /// Sends a ping, and waits for its answer.
    pub(crate) async fn ping(&mut self) -> Result<(), Error> {
        self.send_ping().await?;
        while self.packet().await?.header.xid != xid::PING {}
        Ok(())
    }

    pub(crate) async fn close_session(&mut self) -> Result<(), Error> {
        self.xid += 1;
        let header = RequestHeader { xid: self.xid, op: op::CLOSE_SESSION };
        self.link.out.extend(jute::framed(|out| header.write(out)));
        self.flush().await?;
        self.next_answer().await.map(drop)
    }
}

/// Receives a whole packet.
async fn packet(link: &mut Link) -> Result<Vec<u8>, Error> {
    link.need(4).await?;
    let length = link.bytes()[..4].try_into().map(u32::from_be_bytes).expect("four bytes are there") as usize;
    link.need(4 + length).await?;
    let packet = link.bytes()[4..4 + length].to_vec();
    link.consume(4 + length);
    Ok(packet)
}
