//! The handshake: from a connection's first byte to its session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use accept::{Place, Stream, source};
use jute::{Buffer, ConnectRequest, ConnectResponse, Frames, PASSWORD_BYTES, Record, framed};
use replica::{Consistency, Error};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};
use znode::{ClientInfo, Credential, Op, Reply, Request, SessionId, Zxid};

use crate::client::outbox::Outbox;
use crate::client::{Arrival, Client};
use crate::operate::four_letter_words;
use crate::session::door::Door;

/// Longest first packet, in bytes. A ConnectRequest has 45, and no real password makes it this
/// long.
const FIRST_PACKET_MAX: usize = 1_024;
/// Time for a node to catch up with a client that has seen a later zxid.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Time for which a new session is proposed again while queues are full.
const FULL_MAX: Duration = Duration::from_secs(1);
/// Pause between two proposals of a new session.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for telling a client that its session has ended.
const FAREWELL: Duration = Duration::from_secs(2);
/// Label of all sessions that this door opens, for lists of sessions.
const LABEL: &str = "zookeeper";
/// Name of the program of this door's clients, for lists of sessions.
const PROGRAM: &str = "zookeeper client";

/// A client without a session, with its place among the connections.
#[derive(Clone, Copy)]
pub(crate) struct Guest<'a> {
    pub(crate) addr: SocketAddr,
    pub(crate) place: &'a Place,
}

/// The reason for which a client gets no session.
enum NoSession {
    /// The session has ended, or the password is wrong. The client is told.
    Expired,
    /// The node cannot decide. The connection is closed, and the client goes to another node.
    Unavailable(String),
}

/// Shakes hands with a client. `None` if no session came of it, or if it sent a four-letter word.
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
    // A session may be opened from here on, so this connection must not make room for one of
    // another address that has as many.
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

/// Reads the first packet. A four-letter word of a monitoring tool is answered here; `None` then,
/// and for any other first bytes that are no packet.
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

/// Opens a session, or attaches the client to the session that it names. Both are entries of the
/// log that this node has applied afterwards, so the client sees here whatever it has seen on other
/// nodes.
async fn session(door: &Door, guest: Guest<'_>, request: &ConnectRequest) -> Result<(Arrival, Vec<u8>), NoSession> {
    // As in ZooKeeper, a client that comes while the node does not serve goes to the next node at
    // once.
    if !door.is_serving() {
        return Err(NoSession::Unavailable("this node does not serve".into()));
    }
    // A client could hold a lock by the order of names, and no answer of this door could prevent
    // that.
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
        // ZooKeeper's protocol has no field for a client's name, so only the address is known.
        let seen = Some(guest.addr.ip().to_canonical());
        let client = ClientInfo { program: PROGRAM.into(), ..ClientInfo::at(seen) };
        if address.is_some_and(|address| !door.session_rates.take(address)) {
            return Err(NoSession::Unavailable("too many new sessions from its address".into()));
        }
        Request::new(Op::OpenSession { secret_hash, timeout_ms, label: LABEL.into(), address, client })
    } else {
        let credential = Some(Credential { session: named, secret_hash });
        Request { credential, ..Request::new(Op::AttachSession { connection, timeout_ms }) }
    };
    let opened = propose_session(door, propose).await?;
    let Reply::SessionOpened { session, timeout_ms } = opened else {
        return Err(NoSession::Unavailable("an open was not answered as one".into()));
    };
    let credential = Credential { session, secret_hash };
    if connection != 0 {
        // The leader must count with the new timeout before the client does.
        let touched = door.replica.touch(credential, door.propose_deadline()).await;
        touched.map_err(no_session)?;
    }
    let number = door.next_number();
    let timeout = Duration::from_millis(timeout_ms.into());
    let addr = guest.addr;
    Ok((Arrival { number, addr, credential, connection, timeout }, password))
}

/// Logs from time to time that clients come with a later zxid, which may be that of another
/// cluster.
fn tell_ahead(door: &Door, addr: SocketAddr, session: SessionId, seen: Zxid) {
    if let Some(times) = door.ahead.note(Instant::now()) {
        let zxid = door.replica.state().last_zxid().0;
        warn!(%session, %addr, seen = seen.0, zxid, times, "a ZooKeeper client has seen a later zxid than this node has");
    }
}

async fn propose_session(door: &Door, request: Request) -> Result<Reply, NoSession> {
    let Ok(_place) = door.writes.acquire().await else {
        return Err(NoSession::Unavailable("the door closes".into()));
    };
    let give_up = Instant::now() + FULL_MAX;
    let applied = loop {
        match door.replica.propose(request.clone(), door.propose_deadline()).await {
            // Nothing was proposed, most likely because this node's queues are full.
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
