//! The answering side: a listener for peers, one task for each connection.

mod answer;
mod append;
mod snapshot;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::node::Node;
use crate::operate::seldom::Seldom;
use crate::raft::transport::{Callers, Framed, Lane, Listener, Place, Stream, welcome};

/// Held, as a sender of nothing, by every connection that may owe answers to questions.
type Answering = mpsc::Sender<Infallible>;
/// The same before it is known whether the caller may ask any.
type MayAnswer = mpsc::WeakSender<Infallible>;

/// Accepts peers until the node stops, and then for as long as it owes answers to questions: the
/// entries that decide them come in on other connections, and those of a new leader may be new.
pub(crate) async fn serve(node: Arc<Node>, mut listener: Listener) {
    let mut connections = JoinSet::new();
    let callers = Arc::<Callers>::default();
    let unaccepted = Seldom::default();
    let (answering, mut answered) = mpsc::channel(1);
    let may_answer = answering.downgrade();
    let mut answering: Option<Answering> = Some(answering);
    let stop = node.stopped();
    let mut stopped = pin!(stop.wait());
    loop {
        tokio::select! {
            biased;
            () = &mut stopped, if answering.is_some() => answering = None,
            _ = answered.recv() => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            // Always: `callers` has a bound, and a caller too many costs another one its place.
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let (place, replaced) = callers.enter(stream.addr());
                    let served = connection(Arc::clone(&node), stream, place, may_answer.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            biased;
                            Ok(()) = replaced => tracing::debug!("a peer connection has lost its place"),
                            () = served => {}
                        }
                    });
                }
                // Out of file descriptors, most likely: give the others time to end.
                Err(error) => {
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

async fn connection(node: Arc<Node>, stream: Stream, place: Place, may_answer: MayAnswer) {
    let addr = stream.addr();
    let served = async {
        let mut framed = Framed::new(stream, node.silence())?;
        let Some(hello) = welcome(&node.identity, &mut framed, place, node.silence()).await? else {
            return Ok(());
        };
        // Who connects can be reached again, most likely.
        let _ = node.raft.trigger().reset_backoff([hello.from]).await;
        match hello.lane {
            Lane::Append => append::take(&node, framed, hello.from).await,
            Lane::Control | Lane::Forward => {
                let _answering = may_answer.upgrade();
                answer::answer(&node, framed, hello.from).await
            }
            Lane::Snapshot => snapshot::receive(&node, framed).await,
        }
    };
    match served.await {
        Ok(()) => {}
        // A stranger can bring this about as often as it likes.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            if let Some(times) = node.refused.note(Instant::now()) {
                // A text, so that what a stranger says is quoted and begins no line of its own.
                let (addr, error) = (addr.map(|addr| addr.to_string()), error.to_string());
                tracing::warn!(addr, error, times, "refused at the peer port: no member says this");
            }
        }
        Err(error) => tracing::debug!(%error, "peer connection ended"),
    }
}

async fn flush(node: &Node, framed: &mut Framed) -> io::Result<()> {
    timeout(node.silence(), framed.flush()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
