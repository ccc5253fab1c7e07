//! `/v1/admin/backup`: the whole state (znodes, sessions and locks) as a file.
//!
//! The state is cloned, which costs little because clones share their data. A background thread
//! writes the clone into a short queue, from which the client reads at its own speed, while other
//! clients write. Until the client has the whole file, memory holds only that queue, and the old
//! versions of data that changed since the clone.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::http::header::CONTENT_DISPOSITION;
use backup::{Manifest, Saved};
use bytes::Bytes;
use hyper::body::Frame;
use replica::{Bound, Consistency};
use tokio::sync::mpsc;
use znode::Zxid;

use crate::problem::Problem;
use crate::request::call::{Answer, Call, answer, with_header};
use crate::request::turns::LastBackup;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(save)];

/// Size in bytes of one piece of a backup file. The answer is sent in such pieces.
const PIECE_BYTES: usize = 64 << 10;
/// Largest number of pieces in the queue between the writer of the backup and the HTTP answer. A
/// full queue makes the writer wait.
const PIECES_WAITING: usize = 4;

/// Writes a backup of the state, as a file.
#[utoipa::path(get, path = "/v1/admin/backup", operation_id = "adminBackup", tag = "admin",
    params(("local" = Option<bool>, Query,
        description = "true: the state that this node has applied, without a linearizable read; for a node without a \
            quorum")),
    responses((status = 200,
        description = "The file, in the format of docs/dev/storage-format.md. It is complete if its last 32 bytes are \
            the SHA-256 of all bytes before them", body = Vec<u8>, content_type = "application/octet-stream",
        example = "the bytes of the file")))]
pub(crate) async fn save(mut call: Call) -> Answer {
    let local = call.query.flag("local")?;
    std::mem::take(&mut call.query).finish()?;
    let (replica, backups) = (&call.door.replica, &call.door.backups);
    let Ok(turn) = Arc::clone(&backups.turn).try_acquire_owned() else {
        return Err(Problem::too_many(Bound::Backups, "backups"));
    };
    let consistency = if local { Consistency::Local { min_zxid: Zxid(0) } } else { Consistency::Linearizable };
    let state = replica.read(consistency, call.door.read_deadline()).await?;
    let status = replica.status();
    let saved = Saved { program: env!("CARGO_PKG_VERSION").into(), at_ms: now_ms(), node_id: status.node_id, local };
    let manifest = Manifest::of(&state, &status.cluster_id, saved);
    let manifest = manifest.ok_or_else(|| Problem::unavailable("the cluster is being founded", 1_000))?;
    let zxid = state.last_zxid();
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING);
    let work = move || {
        replica::background::leave_the_processor();
        let mut out = Pieces { pieces: pieces.clone(), piece: Vec::with_capacity(PIECE_BYTES) };
        match backup::write(&state, &manifest, &mut out) {
            Ok(written) => {
                tracing::info!(zxid = manifest.zxid, bytes = written.bytes, "a backup was written");
                let _ = pieces.blocking_send(Piece::End { bytes: written.bytes });
            }
            Err(error) => tracing::info!(%error, zxid = manifest.zxid, "a backup was given up"),
        }
        // Freeing the old versions of changed data takes time, too, so it is done before the next
        // backup may start.
        drop(state);
        drop(turn);
    };
    let thread = std::thread::Builder::new().name("zlock-backup".to_owned()).spawn(work);
    thread.map_err(|error| Problem::unavailable(format!("no thread for a backup: {error}"), 1_000))?;
    let body = Body::new(Stream { waiting, last: Arc::clone(&backups.last), ended: false });
    let response = answer(StatusCode::OK, zxid, "application/octet-stream", body);
    Ok(with_header(response, CONTENT_DISPOSITION, format!("attachment; filename=\"{zxid}.zlock-backup\"")))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Item of the queue between the thread that writes the backup and the HTTP answer.
enum Piece {
    Bytes(Bytes),
    /// The end of the file, with its length. Without it, the answer is broken off, so that the
    /// client sees that the file is incomplete.
    End {
        bytes: u64,
    },
}

/// Writer that cuts the backup file into pieces for the HTTP answer, and waits while the queue of
/// pieces is full.
struct Pieces {
    pieces: mpsc::Sender<Piece>,
    piece: Vec<u8>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
        self.pieces.blocking_send(Piece::Bytes(piece.into())).map_err(gone)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..fits]);
        if self.piece.len() == PIECE_BYTES {
            self.send()?;
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// Body of the HTTP answer: the pieces of the backup file, from the queue that [`Pieces`] fills.
struct Stream {
    waiting: mpsc::Receiver<Piece>,
    /// Set once the connection has taken all pieces.
    last: Arc<accept::Mutex<LastBackup>>,
    ended: bool,
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.waiting.poll_recv(cx).map(|piece| match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End { bytes }) => {
                *self.last.lock() = LastBackup { at_seconds: now_ms() / 1_000, bytes };
                self.ended = true;
                None
            }
            None => Some(Err(io::Error::other("the backup was not written to its end"))),
        })
    }
}
