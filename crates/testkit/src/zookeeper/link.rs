//! Task that owns the connection of a [`super::Zk`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jute::{ConnectRequest, Frames, Input, ReplyHeader, Request, WatcherEvent, error, xid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout};

use super::armed::Armed;
use super::connection::{Connection, packet};
use super::{Ask, Event, Failure, Reply, Shared};

/// Longest time that a node may take for the connect response, to receive a request, or to answer.
const SILENCE_MAX: Duration = Duration::from_millis(1_500);
/// Time without a request after which a client sends a ping.
const PING_AFTER: Duration = Duration::from_millis(500);
/// Time between two checks for a due ping and a silent node.
const TICK: Duration = Duration::from_millis(100);
/// Pause between two tries to open a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Largest number of requests that wait for an answer.
const SENT_MAX: usize = 256;

/// A request that was sent.
struct Sent {
    xid: i32,
    request: Request,
    /// Channel for the result to the caller; `None` for `SetWatches2`, which the link itself sends
    /// after a reconnect.
    answer: Option<oneshot::Sender<Result<Reply, Failure>>>,
}

/// Reason for the end of a connection, with a description.
enum Over {
    /// The connection ended or the node is silent; the client tries the next node.
    Gone(String),
    /// The node broke a rule of the protocol; the client ends.
    Wrong(String),
}

enum Greeting {
    Welcome(Connection),
    Expired,
    None,
}

pub(super) struct Link {
    doors: Vec<String>,
    /// Index in `doors` (addresses of the nodes' ZooKeeper servers) of the present node.
    at: usize,
    /// Request that opens or resumes the session. It has the last zxid that the client has seen.
    session: ConnectRequest,
    next_xid: i32,
    place: u64,
    armed: Armed,
    sent: VecDeque<Sent>,
    asks: mpsc::Receiver<Ask>,
    events: mpsc::Sender<Event>,
    shared: Arc<Shared>,
}

impl Link {
    pub(super) fn new(
        doors: &[String],
        first: u64,
        timeout: Duration,
        asks: mpsc::Receiver<Ask>,
        events: mpsc::Sender<Event>,
        shared: Arc<Shared>,
    ) -> Link {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let session = ConnectRequest { timeout_ms, read_only: Some(false), ..ConnectRequest::default() };
        Link {
            doors: doors.to_vec(),
            at: (first % doors.len().max(1) as u64) as usize,
            session,
            next_xid: 0,
            place: 0,
            armed: Armed::default(),
            sent: VecDeque::new(),
            asks,
            events,
            shared,
        }
    }

    /// Connects to the nodes in turn and serves the client's requests, until the session is over or
    /// a node broke a rule of the protocol.
    pub(super) async fn run(mut self) {
        let end = loop {
            match self.greet().await {
                Greeting::Welcome(connection) => {
                    let over = self.serve(connection).await;
                    self.shared.connection.fetch_add(1, Ordering::SeqCst);
                    let (failure, last) = match over {
                        Over::Gone(why) => (Failure::Broken(why), false),
                        Over::Wrong(why) => (Failure::Wrong(why), true),
                    };
                    for sent in self.sent.drain(..) {
                        sent.answer.map(|answer| answer.send(Err(failure.clone())));
                    }
                    if last {
                        break failure;
                    }
                }
                Greeting::Expired => break Failure::Expired,
                Greeting::None => tokio::time::sleep(PAUSE).await,
            }
            self.at = (self.at + 1) % self.doors.len();
        };
        while let Some(ask) = self.asks.recv().await {
            if let Ask::Request { answer, .. } = ask {
                let _ = answer.send(Err(end.clone()));
            }
        }
    }

    async fn greet(&mut self) -> Greeting {
        let exchange = Connection::greet(&self.doors[self.at], &self.session);
        let Ok(Ok((connection, response))) = timeout(SILENCE_MAX, exchange).await else { return Greeting::None };
        if response.timeout_ms <= 0 {
            return Greeting::Expired;
        }
        (self.session.session_id, self.session.password) = (response.session_id, response.password);
        self.shared.session.send_replace(u64::try_from(response.session_id).unwrap_or(u64::MAX));
        Greeting::Welcome(connection)
    }

    async fn serve(&mut self, connection: Connection) -> Over {
        let Connection { stream, mut frames } = connection;
        let (mut reading, mut writing) = stream.into_split();
        let mut buffer = vec![0; 16 << 10];
        let (mut heard, mut said) = (Instant::now(), Instant::now());
        let mut ticks = interval(TICK);
        let mut out = Vec::new();
        if let Some(request) = self.armed.again(self.session.last_zxid_seen) {
            self.send(request, None, &mut out);
        }
        loop {
            if !out.is_empty() {
                said = Instant::now();
                match timeout(SILENCE_MAX, writing.write_all(&out)).await {
                    Ok(Ok(())) => out.clear(),
                    _ => return Over::Gone("it does not take what it is sent".into()),
                }
            }
            tokio::select! {
                read = reading.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => return Over::Gone("closed".into()),
                    Ok(read) => {
                        heard = Instant::now();
                        frames.push(&buffer[..read]);
                        if let Err(over) = self.take_all(&mut frames) {
                            return over;
                        }
                    }
                },
                Some(ask) = self.asks.recv(), if self.sent.len() < SENT_MAX => match ask {
                    Ask::Request { request, claimed, answer } => {
                        // Not sent if the caller has given the request up.
                        if !claimed.swap(true, Ordering::SeqCst) {
                            self.send(request, Some(answer), &mut out);
                        }
                    }
                    Ask::Hop => return Over::Gone("the client left".into()),
                },
                _ = ticks.tick() => {
                    if said.elapsed() > PING_AFTER {
                        out = packet(xid::PING, &Request::Ping);
                    }
                    // A ping was sent after [`PING_AFTER`], so a live node has answered by now.
                    if heard.elapsed() > PING_AFTER + SILENCE_MAX {
                        return Over::Gone("silent".into());
                    }
                }
            }
        }
    }

    fn send(&mut self, request: Request, answer: Option<oneshot::Sender<Result<Reply, Failure>>>, out: &mut Vec<u8>) {
        let xid = if matches!(request, Request::SetWatches2(_)) {
            xid::SET_WATCHES
        } else {
            self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
            self.next_xid
        };
        out.extend_from_slice(&packet(xid, &request));
        self.sent.push_back(Sent { xid, request, answer });
    }

    fn take_all(&mut self, frames: &mut Frames) -> Result<(), Over> {
        while let Some(packet) = frames.next_packet().map_err(|error| Over::Wrong(error.to_string()))? {
            self.place += 1;
            let mut input = Input::new(packet);
            let unreadable = |error| Over::Wrong(format!("a packet cannot be read: {error}"));
            let header: ReplyHeader = input.read().map_err(unreadable)?;
            match header.xid {
                xid::EVENT => {
                    let event: WatcherEvent = input.read().map_err(unreadable)?;
                    self.tell(header.zxid, event)?;
                }
                xid::PING => {}
                _ => {
                    let body = packet[packet.len() - input.remaining()..].to_vec();
                    self.answered(&header, body)?;
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, zxid: i64, event: WatcherEvent) -> Result<(), Over> {
        self.armed.fired(event.kind, &event.path);
        let connection = self.shared.connection.load(Ordering::SeqCst);
        let zxid = u64::try_from(zxid).unwrap_or(0);
        let event = Event { kind: event.kind, path: event.path, zxid, place: self.place, connection };
        self.events.try_send(event).map_err(|_| Over::Gone("no client reads the events".into()))
    }

    fn answered(&mut self, header: &ReplyHeader, body: Vec<u8>) -> Result<(), Over> {
        let Some(sent) = self.sent.pop_front() else {
            return Err(Over::Wrong(format!("an answer to nothing: {header:?}")));
        };
        let seen = self.session.last_zxid_seen;
        let why = if sent.xid != header.xid {
            Some(format!("an answer to {} where {} was due", header.xid, sent.xid))
        } else if header.zxid < seen {
            Some(format!("node {} answers at {} after {seen} was seen", self.at + 1, header.zxid))
        } else {
            None
        };
        if let Some(why) = why {
            self.sent.push_front(sent);
            return Err(Over::Wrong(why));
        }
        self.session.last_zxid_seen = header.zxid;
        self.armed.answered(&sent.request, header.error);
        let reply = Reply {
            zxid: u64::try_from(header.zxid).unwrap_or(0),
            body,
            node: self.at as u64 + 1,
            place: self.place,
            connection: self.shared.connection.load(Ordering::SeqCst),
        };
        let result = if header.error == error::OK { Ok(reply) } else { Err(Failure::Refused(header.error)) };
        // A failed send is ignored: the caller has given the request up.
        sent.answer.map(|answer| answer.send(result));
        Ok(())
    }
}
