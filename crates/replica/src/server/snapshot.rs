//! Receiving a snapshot from a leader.

use std::io;
use std::sync::Arc;

use storage::Vote;
use storage::codec::{LogIdRecord, VoteRecord};
use tokio::time::{Instant, timeout};

use crate::raft::continuity;
use crate::raft::state_machine::{RaftSnapshot, other_level};
use crate::raft::transport::{FramedStream, SnapshotAnswer, SnapshotFrame, malformed, receive_snapshot, while_working};

use super::Server;

/// Receives and installs one snapshot.
pub(super) async fn receive(server: &Arc<Server>, mut framed: FramedStream) -> io::Result<()> {
    let begin = timeout(server.consensus.peer_timeout, framed.next::<SnapshotFrame>()).await??;
    let Some(SnapshotFrame::Begin { vote, manifest }) = begin else {
        return Err(malformed("a snapshot did not begin with its manifest".into()));
    };
    let last = manifest.meta.last_log_id;
    let installed = async {
        if let Some(higher) = agree(server, vote, last).await? {
            return Ok(higher);
        }
        if !server.bootstrap.gate.admits(vote.term) {
            return Err(io::Error::other("this node's data directory is new; it is not ready for a snapshot yet"));
        }
        let received = receive_snapshot(
            &server.consensus.host,
            &mut framed,
            server.consensus.peer_timeout,
            &server.snapshots,
            server.consensus.cluster.program().levels,
            manifest,
        )
        .await?;
        // Checked again, because the transfer took some time.
        if let Some(higher) = agree(server, vote, last).await? {
            return Ok(higher);
        }
        let (id, bytes) = (received.id(), received.bytes());
        let snapshot = RaftSnapshot { meta: received.meta().clone(), snapshot: received };
        let install = server.consensus.raft.install_full_snapshot(Vote::from(vote), snapshot);
        let installed = while_working(&mut framed, server.consensus.peer_timeout, install).await?;
        let response = installed.map_err(|error| io::Error::other(error.to_string()))?;
        tracing::info!(id, bytes, "snapshot installed");
        Ok((&response.vote).into())
    };
    let answer = match installed.await {
        Ok(vote) => SnapshotAnswer::Done(vote),
        Err(error) => {
            if other_level(&error).is_some() {
                server.consensus.cluster.doubt_level(vote.node_id);
            }
            if let Some(times) = server.uninstalled.note(Instant::now()) {
                tracing::warn!(%error, times, "a snapshot was not installed");
            }
            SnapshotAnswer::Failed(error.to_string())
        }
    };
    timeout(server.consensus.peer_timeout, framed.send(&answer)).await?
}

/// Refuses a snapshot whose last entry contradicts the committed entries of this node, because Raft
/// would end if it installed the snapshot. Returns this node's vote if it is newer than the
/// sender's, because the sender no longer leads then.
async fn agree(server: &Server, vote: VoteRecord, last: Option<LogIdRecord>) -> io::Result<Option<VoteRecord>> {
    match continuity::look(&server.consensus.raft, last.into_iter().collect()).await {
        Some(looked) if looked.deposes(vote) => Ok(Some(looked.vote)),
        Some(looked) if !looked.agrees => {
            Err(malformed("the snapshot contradicts what is committed on this node".into()))
        }
        // If Raft has ended, the next call of Raft reports it.
        _ => Ok(None),
    }
}
