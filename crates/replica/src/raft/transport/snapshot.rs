//! The snapshot lane: a manifest, the chunks, one answer.

use std::io;
use std::time::Duration;

use storage::codec::VoteRecord;
use storage::{Snapshot, SnapshotStore};
use tokio::time::{interval, timeout};
use znode::Levels;

use super::connect::Target;
use super::frame::Framed;
use super::messages::{SnapshotAnswer, SnapshotFrame};
use crate::local::host::Host;
use crate::raft::state_machine::StateMachine;

/// Chunks that are read, or written, in one go.
const CHUNKS_AT_ONCE: u32 = 64;

/// Sends a snapshot and waits until the peer has installed it. The answer is the peer's vote.
pub(crate) async fn send_snapshot(
    target: &Target,
    peer_timeout: Duration,
    vote: VoteRecord,
    snapshot: Snapshot,
) -> io::Result<VoteRecord> {
    // Before the peer waits for it: to copy a long snapshot takes longer than a peer may be silent.
    let source = snapshot.clone();
    target.identity.host.blocking(move || source.prepare()).await?;
    let mut framed = target.connect().await?;
    let manifest = snapshot.manifest().clone();
    framed.queue(&SnapshotFrame::Begin { vote, manifest })?;
    let mut next = 0;
    while next < snapshot.chunk_count() {
        let end = snapshot.chunk_count().min(next + CHUNKS_AT_ONCE);
        let source = snapshot.clone();
        let chunks = target
            .identity
            .host
            .blocking(move || (next..end).map(|index| source.chunk(index)).collect::<io::Result<Vec<_>>>());
        for chunk in chunks.await? {
            framed.queue(&SnapshotFrame::Chunk(chunk))?;
        }
        flush(&mut framed, peer_timeout).await?;
        next = end;
    }
    framed.queue(&SnapshotFrame::End)?;
    flush(&mut framed, peer_timeout).await?;
    loop {
        match timeout(peer_timeout, framed.next::<SnapshotAnswer>()).await {
            Err(_) => return Err(silent()),
            Ok(answer) => match answer?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))? {
                SnapshotAnswer::Working => {}
                SnapshotAnswer::Done(vote) => return Ok(vote),
                SnapshotAnswer::Failed(why) => return Err(io::Error::other(why)),
            },
        }
    }
}

/// Sends what is queued, in ten times the silence that a peer is allowed.
async fn flush(framed: &mut Framed, peer_timeout: Duration) -> io::Result<()> {
    timeout(peer_timeout * 10, framed.flush()).await.map_err(|_| silent())?
}

/// Receives the snapshot that `begin` announced, and makes it current.
pub(crate) async fn receive_snapshot(
    host: &Host,
    framed: &mut Framed,
    peer_timeout: Duration,
    store: &SnapshotStore,
    known: Levels,
    manifest: storage::Manifest,
) -> io::Result<Snapshot> {
    let store = store.clone();
    // The sender may have sent all there is, and wait for an answer, while most of it waits for
    // this node's disk.
    let mut receiver = while_working(framed, peer_timeout, host.blocking(move || store.receive(manifest))).await??;
    let mut chunks = Vec::new();
    loop {
        let frame = timeout(peer_timeout * 10, framed.next::<SnapshotFrame>()).await.map_err(|_| silent())??;
        let ended = match frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))? {
            SnapshotFrame::Chunk(chunk) => {
                chunks.push(chunk);
                false
            }
            SnapshotFrame::End => true,
            SnapshotFrame::Begin { .. } => return Err(io::Error::other("a snapshot began within a snapshot")),
        };
        if ended || chunks.len() >= CHUNKS_AT_ONCE as usize {
            let batch = std::mem::take(&mut chunks);
            let written = host.blocking(move || {
                batch.iter().try_for_each(|chunk| receiver.push_chunk(chunk))?;
                Ok(receiver)
            });
            receiver = while_working(framed, peer_timeout, written).await??;
        }
        if ended {
            let finished = host.blocking(move || {
                // What cannot be read must not become current: the next start would begin with it.
                let received = receiver.finish(|snapshot| StateMachine::read(snapshot, known).map(drop))?;
                // Raft reads it next, and ends when that fails. A copy that does not fit is the end
                // of this transfer only.
                received.prepare().map(|()| received)
            });
            return while_working(framed, peer_timeout, finished).await?;
        }
    }
}

/// Waits for `work` and tells the sender now and then that this node is at it.
pub(crate) async fn while_working<T>(
    framed: &mut Framed,
    peer_timeout: Duration,
    work: impl Future<Output = T>,
) -> io::Result<T> {
    let mut work = std::pin::pin!(work);
    let mut tick = interval(peer_timeout / 4);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            _ = tick.tick() => framed.send(&SnapshotAnswer::Working).await?,
        }
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer is silent")
}
