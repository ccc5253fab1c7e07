//! The handshake: from a connection's first byte to its session.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use accept::{Place, Stream, source};
use jute::{Buffer, ConnectRequest, ConnectResponse, Frames, PASSWORD_BYTES, Record, framed};
use replica::{Bound, Consistency, Error};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};
use znode::{ClientInfo, Credential, Op, Reply, Request, SessionId, Zxid};

use crate::client::outbox::Outbox;
use crate::client::{Arrival, Client};
use crate::operate::four_letter_words;
use crate::session::door::Door;

/// Longest first packet in bytes. A ConnectRequest has 45 bytes, and somewhat more with a long
/// password.
const FIRST_PACKET_MAX: usize = 1_024;
/// Longest time for which a node waits to apply a zxid that a connecting client has already seen.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Time for which a new session is proposed repeatedly while the node's queues are full.
const FULL_MAX: Duration = Duration::from_secs(1);
/// Pause between two proposals of a new session.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time for telling a connecting client that its session has ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// Label that all sessions of ZooKeeper clients get. Lists of sessions show it.
const LABEL: &str = "zookeeper";
/// Program name that all sessions of ZooKeeper clients get. Lists of sessions show it.
const PROGRAM: &str = "zookeeper client";

/// A connecting client: its address, and its entry in the count of connections.
#[derive(Clone, Copy)]
pub(crate) struct Guest<'a> {
    pub(crate) addr: SocketAddr,
    pub(crate) place: &'a Place,
}

/// Reason why a client gets no session.
enum NoSession {
    /// The session has ended, or the password is wrong. The client is told that the session has
    /// expired.
    Expired,
    /// The node cannot open or find a session. The connection is closed, and the client tries
    /// another node.
    Unavailable(String),
}

/// Performs the handshake with a connecting client. `None` if the client got no session, or sent a
/// four-letter word.
pub(crate) async fn greet(
    door: &Arc<Door>,
    stream: &mut Stream,
    guest: Guest<'_>,
    frames: &mut Frames,
) -> Option<Arc<Client>> {
    let request = tokio::time::timeout(
        Duration::from_millis(door.config.handshake_timeout_ms),
        first_packet(door, stream, frames),
    );
    let request = request.await.ok()??;
    // The connection is busy from here on, so that it is not closed for a new one while its session
    // is being opened.
    guest.place.heard();
    let read_only = request.read_only.map(|_| false);
    let (arrival, password) = match session(door, guest, &request).await {
        Ok(session) => session,
        Err(NoSession::Expired) => {
            let password = Buffer::from(vec![0; PASSWORD_BYTES]);
            let gone = ConnectResponse { password, read_only, ..ConnectResponse::default() };
            let gone = framed(|out| gone.write(out));
            let farewell = async {
                stream.write_all(&gone).await?;
                stream.shutdown().await
            };
            let _ = tokio::time::timeout(FAREWELL, farewell).await;
            return None;
        }
        Err(NoSession::Unavailable(reason)) => {
            debug!(addr = %guest.addr, reason, "a client was sent away");
            return None;
        }
    };
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: i32::try_from(arrival.timeout.as_millis()).unwrap_or(i32::MAX),
        session_id: i64::try_from(arrival.credential.session.0).unwrap_or(i64::MAX),
        password: Buffer::from(password),
        read_only,
    };
    let closed = door.stopping.child_token();
    let account = door.unread.account((!guest.place.is_exempt()).then(|| source(guest.addr.ip())));
    let outbox = Outbox::new(door.config.unread_bytes_max, account, closed.clone());
    let client = Client::new(arrival, outbox, closed);
    let client = Arc::new(client.certified(stream.subject()));
    client.outbox.push(framed(|out| response.write(out)));
    door.hub.join(&client);
    Some(client)
}

/// Reads the first packet. `None` if the first bytes are no packet: they are invalid, or a
/// four-letter word of a monitoring tool, which is answered here.
async fn first_packet(door: &Arc<Door>, stream: &mut Stream, frames: &mut Frames) -> Option<ConnectRequest> {
    frames.set_packet_max(FIRST_PACKET_MAX);
    let mut buffer = [0; 4096];
    loop {
        if let Some(word) = frames.first_word().filter(|word| four_letter_words::is_one(*word)) {
            let answer = four_letter_words::answer(door, word).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            return None;
        }
        if let Some(packet) = frames.next_packet().ok()? {
            let request = ConnectRequest::from_bytes(packet).ok()?;
            frames.set_packet_max(door.config.packet_bytes_max);
            return Some(request);
        }
        let read = stream.read(&mut buffer).await.ok()?;
        if read == 0 {
            return None;
        }
        frames.push(&buffer[..read]);
    }
}

/// Opens a session, or attaches the client to the session that it names. Either needs a log entry,
/// and the node answers only after it has applied this entry. So the client sees at least the state
/// that it has seen on other nodes.
async fn session(door: &Door, guest: Guest<'_>, request: &ConnectRequest) -> Result<(Arrival, Vec<u8>), NoSession> {
    // As in ZooKeeper, a node that does not serve closes the connection, so that the client tries
    // the next node at once.
    if !door.is_serving() {
        return Err(NoSession::Unavailable("this node does not serve".into()));
    }
    // After a restore no lock may be granted for a while, but ZooKeeper clients infer from the
    // order of names that they hold a lock.
    if door.replica.state().is_restoring() {
        return Err(NoSession::Unavailable("the cluster was restored a short time ago".into()));
    }
    let seen = Zxid(u64::try_from(request.last_zxid_seen).unwrap_or(0));
    if seen > door.replica.state().last_zxid() {
        let deadline = Instant::now() + CATCH_UP;
        let caught_up = door.replica.read(Consistency::Local { min_zxid: seen }, deadline).await.map(drop);
        caught_up.map_err(|_| {
            tell_ahead(door, guest.addr, SessionId(u64::try_from(request.session_id).unwrap_or(0)), seen);
            NoSession::Unavailable("it has seen more than this node".into())
        })?;
    }
    let timeout_ms = u32::try_from(request.timeout_ms).unwrap_or(0);
    let (mut random, mut connection) = ([0; PASSWORD_BYTES], [0; 8]);
    let drawn = getrandom::fill(&mut random).and_then(|()| getrandom::fill(&mut connection));
    drawn.map_err(|error| NoSession::Unavailable(error.to_string()))?;
    let named = SessionId(u64::try_from(request.session_id).unwrap_or(u64::MAX));
    let (password, connection) = match named.0 {
        0 => (random.to_vec(), 0),
        _ => (request.password.0.clone().unwrap_or_default(), u64::from_ne_bytes(connection) | 1),
    };
    let secret_hash = znode::secret_hash(Sha256::digest(&password).into());
    let propose = if connection == 0 {
        let address = (!guest.place.is_exempt()).then(|| guest.addr.ip());
        // ZooKeeper's protocol does not have a client's name, so only its address is known.
        let seen = Some(guest.addr.ip().to_canonical());
        let client = ClientInfo { program: PROGRAM.into(), ..ClientInfo::at(seen) };
        if address.is_some_and(|address| !door.session_rates.take(address)) {
            door.replica.count_refused(Bound::SessionRate);
            return Err(NoSession::Unavailable("too many new sessions from its address".into()));
        }
        Request::new(Op::OpenSession { secret_hash, timeout_ms, label: LABEL.into(), address, client })
    } else {
        let credential = Some(Credential { session: named, secret_hash });
        Request { credential, ..Request::new(Op::AttachSession { connection, timeout_ms }) }
    };
    let source = (!guest.place.is_exempt()).then(|| guest.addr.ip());
    let opened = propose_session(door, source, propose).await?;
    let Reply::SessionOpened { session, timeout_ms } = opened else {
        return Err(NoSession::Unavailable("an open was not answered as one".into()));
    };
    let credential = Credential { session, secret_hash };
    if connection != 0 {
        // The leader must know the new timeout before the client uses it.
        let touched = door.replica.touch(credential, door.propose_deadline()).await;
        touched.map_err(no_session)?;
    }
    let number = door.next_number();
    let timeout = Duration::from_millis(timeout_ms.into());
    let addr = guest.addr;
    Ok((Arrival { number, addr, credential, connection, timeout }, password))
}

/// Logs, at a limited rate, that clients have seen a later zxid than this node. They may come from
/// another cluster.
fn tell_ahead(door: &Door, addr: SocketAddr, session: SessionId, seen: Zxid) {
    if let Some(times) = door.ahead.note(Instant::now()) {
        let zxid = door.replica.state().last_zxid().0;
        warn!(%session, %addr, seen = seen.0, zxid, times, "a ZooKeeper client has seen a later zxid than this node has");
    }
}

/// Proposes the opening or the resumption of a session of a client at the address `source`; `None`
/// stands for an exempt address.
async fn propose_session(door: &Door, source: Option<IpAddr>, request: Request) -> Result<Reply, NoSession> {
    let Ok(_pass) = timeout(FULL_MAX, door.handshakes.enter(source, 1)).await else {
        return Err(NoSession::Unavailable("too many sessions of its address are being opened or resumed".into()));
    };
    let Ok(_place) = door.writes.acquire().await else {
        return Err(NoSession::Unavailable("the door closes".into()));
    };
    let give_up = Instant::now() + FULL_MAX;
    let applied = loop {
        match door.replica.propose(request.clone(), door.propose_deadline()).await {
            // The session was not proposed, probably because this node's queues are full.
            Err(Error::Unavailable { .. }) if Instant::now() < give_up => sleep(PAUSE).await,
            other => break other.map_err(no_session)?,
        }
    };
    applied.reply.map_err(|refusal| no_session(Error::Refused(refusal.error)))
}

fn no_session(error: Error) -> NoSession {
    match error {
        Error::Refused(znode::Error::SessionExpired | znode::Error::AuthFailed) => NoSession::Expired,
        other => NoSession::Unavailable(other.to_string()),
    }
}
