//! Server for peers: a listener, and one task for each connection.

mod answer;
mod append;
mod snapshot;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use accept::{Defer, MutualAcceptor, Seldom};
use storage::{SnapshotStore, want_descriptors};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::follower::bootstrap::Bootstrap;
use crate::follower::session_heartbeats::SessionHeartbeats;
use crate::leader::operators::Operators;
use crate::operate::upgrade::Upgrade;
use crate::raft::ahead_of_leader::Accounts;
use crate::raft::consensus::Consensus;
use crate::raft::decoded_entries::DecodedEntries;
use crate::raft::transport::{CallerPlace, Callers, FramedStream, Identity, Lane, Listener, Stream, welcome};
use crate::read::Reads;
use crate::view::life::Life;
use crate::write::propose::Proposer;

/// Sender that a connection on [`Lane::Control`] or [`Lane::Forward`] holds while it may owe
/// answers. It sends nothing: its channel closes when the last such connection ends, and then the
/// server ends.
type Answering = mpsc::Sender<Infallible>;
/// Weak form of [`Answering`], which every connection gets. Only a connection on [`Lane::Control`]
/// or [`Lane::Forward`] upgrades it.
type MayAnswer = mpsc::WeakSender<Infallible>;

/// Server that answers peers.
pub(crate) struct Server {
    pub(crate) identity: Identity,
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) life: Arc<Life>,
    pub(crate) bootstrap: Arc<Bootstrap>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) heartbeats: Arc<SessionHeartbeats>,
    pub(crate) operators: Arc<Operators>,
    pub(crate) upgrade: Arc<Upgrade>,
    pub(crate) snapshots: SnapshotStore,
    /// Entries from the leader that are decoded and not yet applied.
    pub(crate) decoded: Arc<DecodedEntries>,
    /// Limit on the log lines about frames that were refused at the peer port.
    pub(crate) refused: Seldom,
    /// Limit on the log lines about snapshots that were not installed.
    pub(crate) uninstalled: Seldom,
    pub(crate) accounts: Accounts,
}

/// Accepts peers until the node has stopped and has answered all questions that it took. Some
/// answers depend on entries that come only over other connections, perhaps from a new leader.
pub(crate) async fn serve(server: Arc<Server>, mut listener: Listener) {
    let mut connections = JoinSet::new();
    let callers = Arc::<Callers>::default();
    let tls = listener.tls();
    let unaccepted = Seldom::default();
    let (answering, mut answered) = mpsc::channel(1);
    let may_answer = answering.downgrade();
    let mut answering: Option<Answering> = Some(answering);
    let stop = server.life.stopped();
    let mut stopped = pin!(stop.wait());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped, if answering.is_some() => answering = None,
            _ = answered.recv() => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            // Always accepted: `callers` has a bound, and a connection beyond the bound replaces
            // another one.
            accepted = listener.accept() => match accepted {
                Ok((stream, addr)) => {
                    let (place, replaced) = callers.enter(addr);
                    let caller = NewCaller { stream, addr, place };
                    let served = connection(Arc::clone(&server), caller, tls.clone(), may_answer.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            biased;
                            Ok(()) = replaced => tracing::debug!("a peer connection has lost its place"),
                            () = served => {}
                        }
                    });
                }
                // Most likely the process is out of file descriptors: the HTTP and ZooKeeper
                // servers are asked to close connections that they can spare.
                Err(error) => {
                    want_descriptors(&error);
                    if let Some(times) = unaccepted.note(Instant::now()) {
                        tracing::warn!(%error, times, "cannot accept a peer");
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

/// Connection that was accepted at the peer port, before its handshake.
struct NewCaller {
    stream: Stream,
    addr: Option<IpAddr>,
    place: CallerPlace,
}

async fn connection(server: Arc<Server>, caller: NewCaller, tls: Option<Arc<MutualAcceptor>>, may_answer: MayAnswer) {
    let NewCaller { stream, addr, place } = caller;
    let served = async {
        let peer_timeout = server.consensus.peer_timeout;
        let stream = timeout(peer_timeout, stream.accept_tls(tls.as_deref(), addr)).await??;
        let mut framed = FramedStream::new(stream, peer_timeout)?;
        let Some(hello) = welcome(&server.identity, &mut framed, place, peer_timeout).await? else {
            return Ok(());
        };
        let (counters, has_tls) = (&server.proposer.view.counters, framed.certificate_uris().is_some());
        counters.peer_connected(has_tls);
        let _open = Defer(|| counters.peer_disconnected(has_tls));
        // A peer that connects can be reached again, most likely.
        let _ = server.consensus.raft.trigger().reset_backoff([hello.from]).await;
        match hello.lane {
            Lane::Append => append::take(&server, framed, hello.from).await,
            Lane::Control | Lane::Forward => {
                let _answering = may_answer.upgrade();
                answer::answer(&server, framed, hello.from).await
            }
            Lane::Snapshot => snapshot::receive(&server, framed).await,
        }
    };
    match served.await {
        Ok(()) => {}
        // A stranger can cause this error as often as it likes, so the log line is limited.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            if let Some(times) = server.refused.note(Instant::now()) {
                // Logged as a string, which is quoted, so that a stranger's text cannot forge a log
                // line.
                let (addr, error) = (addr.map(|addr| addr.to_string()), error.to_string());
                tracing::warn!(addr, error, times, "refused at the peer port: no member says this");
            }
        }
        Err(error) => tracing::debug!(%error, "peer connection ended"),
    }
}

async fn flush(server: &Server, framed: &mut FramedStream) -> io::Result<()> {
    timeout(server.consensus.peer_timeout, framed.flush()).await?
}
