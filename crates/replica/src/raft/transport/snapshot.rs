//! Sending and receiving of a snapshot: its manifest, its chunks, and the receiver's answer.

use std::io;
use std::time::Duration;

use storage::codec::VoteRecord;
use storage::{Snapshot, SnapshotStore};
use tokio::time::{Instant, interval, interval_at, sleep, timeout};
use znode::Levels;

use super::connect::Target;
use super::frame::{Exchange, FramedStream, malformed};
use super::messages::{SnapshotAnswer, SnapshotFrame};
use crate::local::host::Host;
use crate::raft::state_machine::StateMachine;

/// Largest number of chunks that one blocking step reads or writes.
const CHUNKS_AT_ONCE: u32 = 64;
/// Multiple of `peer_timeout` after which a transfer that makes no progress is given up. The whole
/// transfer has no bound, because a link may be slow.
const STILL_MAX: u32 = 10;

/// Sends a snapshot and waits until the peer has installed it. Returns the peer's vote after that.
pub(crate) async fn send_snapshot(
    target: &Target,
    peer_timeout: Duration,
    vote: VoteRecord,
    snapshot: Snapshot,
) -> io::Result<VoteRecord> {
    // Done before connecting, because copying a long snapshot takes longer than a peer may be
    // silent.
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
    installed(&mut framed, peer_timeout).await
}

/// Sends the queued frames. Fails when for [`STILL_MAX`] times `peer_timeout` no byte was sent and
/// the peer did not report that it is at work.
async fn flush(framed: &mut FramedStream, peer_timeout: Duration) -> io::Result<()> {
    while framed.queued_bytes() > 0 {
        let before = framed.queued_bytes();
        match timeout(peer_timeout * STILL_MAX, framed.exchange()).await {
            Ok(exchanged) => match exchanged? {
                Exchange::Flushed | Exchange::Message(SnapshotAnswer::Working) => {}
                Exchange::Message(SnapshotAnswer::Failed(why)) => return Err(io::Error::other(why)),
                Exchange::Message(SnapshotAnswer::Done(_)) => return Err(malformed("it is not sent yet".into())),
                Exchange::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            },
            Err(_) if framed.queued_bytes() == before => return Err(silent()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Waits until the peer has installed the snapshot. Returns the peer's vote.
async fn installed(framed: &mut FramedStream, peer_timeout: Duration) -> io::Result<VoteRecord> {
    loop {
        let answer = timeout(peer_timeout, framed.next()).await.map_err(|_| silent())??;
        match answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))? {
            SnapshotAnswer::Working => {}
            SnapshotAnswer::Done(vote) => return Ok(vote),
            SnapshotAnswer::Failed(why) => return Err(io::Error::other(why)),
        }
    }
}

/// Receives the snapshot with this manifest, and makes it the store's current one. `known` has the
/// format levels that this node's program knows.
pub(crate) async fn receive_snapshot(
    host: &Host,
    framed: &mut FramedStream,
    peer_timeout: Duration,
    store: &SnapshotStore,
    known: Levels,
    manifest: storage::Manifest,
) -> io::Result<Snapshot> {
    let store = store.clone();
    // The sender may have sent everything and wait for an answer, while most of the snapshot waits
    // for this node's disk.
    let mut receiver = while_working(framed, peer_timeout, host.blocking(move || store.receive(manifest))).await??;
    let mut chunks = Vec::new();
    loop {
        let ended = match next(framed, peer_timeout).await? {
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
                // Checked, because the next start would begin with the current snapshot, even an
                // unreadable one.
                let received = receiver.finish(|snapshot| StateMachine::read(snapshot, known).map(drop))?;
                // Raft reads the snapshot next, and would end if the copy that it reads did not fit
                // on the disk. Here such an error ends only the transfer.
                received.prepare().map(|()| received)
            });
            return while_working(framed, peer_timeout, finished).await?;
        }
    }
}

/// Waits for the sender's next frame. Meanwhile tells the sender periodically that this node is at
/// work: the sender may have sent all frames while a slow link still delivers them.
async fn next(framed: &mut FramedStream, peer_timeout: Duration) -> io::Result<SnapshotFrame> {
    let mut still = std::pin::pin!(sleep(peer_timeout * STILL_MAX));
    let mut tick = interval_at(Instant::now() + peer_timeout / 4, peer_timeout / 4);
    loop {
        tokio::select! {
            biased;
            exchanged = framed.exchange() => match exchanged? {
                Exchange::Message(part) => return Ok(part),
                Exchange::Flushed => {}
                Exchange::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            },
            () = &mut still => return Err(silent()),
            // At most one such message waits, because a sender of an older build reads none before
            // it has sent everything.
            _ = tick.tick(), if framed.queued_bytes() == 0 => framed.queue(&SnapshotAnswer::Working)?,
        }
    }
}

/// Waits for `work`, and meanwhile tells the sender periodically that this node is at work.
pub(crate) async fn while_working<T>(
    framed: &mut FramedStream,
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

    use super::super::connect::Identity;
    use super::super::frame::Terms;
    use super::super::messages::FRAME_BYTES_MAX;
    use super::super::refusal::VERSIONS;
    use super::super::stream::Stream;
    use super::*;

    const PEER_TIMEOUT: Duration = Duration::from_secs(1);
    const CHUNK_BYTES: usize = 4 << 10;

    /// Makes one end of a connection to node `peer`, for which the handshake is over.
    fn end(stream: DuplexStream, peer: u64) -> FramedStream {
        let mut framed = FramedStream::new(Stream::Simulated(Box::new(stream)), PEER_TIMEOUT).unwrap();
        let rules = Identity::new("c", 3 - peer, &[1, 2]).rules(peer);
        framed.set_terms(Terms { version: VERSIONS.1, frame_bytes_max: FRAME_BYTES_MAX, rules, place: None });
        framed
    }

    /// Sender's and receiver's end of a slow link. It takes up to 64 KiB from the sender at once,
    /// passes on 4 KiB each half second, and stops after `passes` times. Answers pass at once.
    fn link(passes: usize) -> (FramedStream, FramedStream) {
        let (sender, from) = duplex(64 << 10);
        let (to, receiver) = duplex(CHUNK_BYTES);
        let ((mut from_read, mut from_write), (mut to_read, mut to_write)) = (split(from), split(to));
        tokio::spawn(async move {
            let (mut part, mut tick) = ([0; CHUNK_BYTES], interval(PEER_TIMEOUT / 2));
            for _ in 0..passes {
                tick.tick().await;
                let count = from_read.read(&mut part).await.unwrap();
                to_write.write_all(&part[..count]).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        tokio::spawn(async move { tokio::io::copy(&mut to_read, &mut from_write).await });
        (end(sender, 2), end(receiver, 1))
    }

    async fn send(mut framed: FramedStream) -> io::Result<VoteRecord> {
        for _ in 0..CHUNKS_AT_ONCE {
            framed.queue(&SnapshotFrame::Chunk(vec![7; CHUNK_BYTES]))?;
        }
        flush(&mut framed, PEER_TIMEOUT).await?;
        framed.queue(&SnapshotFrame::End)?;
        flush(&mut framed, PEER_TIMEOUT).await?;
        installed(&mut framed, PEER_TIMEOUT).await
    }

    /// Receives a snapshot. Returns the number of chunks before its end.
    async fn receive(mut framed: FramedStream) -> io::Result<u32> {
        let mut chunks = 0;
        while let SnapshotFrame::Chunk(_) = next(&mut framed, PEER_TIMEOUT).await? {
            chunks += 1;
        }
        let vote = VoteRecord { term: 3, node_id: 2, committed: true };
        framed.send(&SnapshotAnswer::Done(vote)).await?;
        Ok(chunks)
    }

    /// The transfer takes half a minute. For its last eight seconds all bytes have left the sender
    /// and the link still delivers them.
    #[tokio::test(start_paused = true)]
    async fn a_snapshot_comes_over_a_slow_link() {
        let (sender, receiver) = link(usize::MAX);
        let (sent, received) = tokio::join!(send(sender), receive(receiver));
        assert_eq!((sent.unwrap().term, received.unwrap()), (3, CHUNKS_AT_ONCE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_of_which_nothing_moves_is_given_up_at_both_ends() {
        let (sender, receiver) = link(20);
        let begun = Instant::now();
        let (sent, received) = tokio::join!(send(sender), receive(receiver));
        let errors = (sent.unwrap_err().kind(), received.unwrap_err().kind());
        assert_eq!(errors, (io::ErrorKind::TimedOut, io::ErrorKind::TimedOut));
        assert!(begun.elapsed() < PEER_TIMEOUT * (20 + 3 * STILL_MAX), "{:?}", begun.elapsed());
    }
}
