//! One node, from its settings to its exit code.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use replica::{Failure, Replica};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::{error, info, warn};

use crate::config::Settings;
use crate::{Exit, logging, refuse, say};

/// Runs a node until it is told to stop, or fails.
pub(crate) fn run(settings: Settings, until_stdin_ends: bool) -> Exit {
    if let Err(reason) = logging::start(&settings.log) {
        return refuse(&reason);
    }
    #[cfg(feature = "planted")]
    if let Err(reason) = crate::planted::plant() {
        return refuse(&reason);
    }
    let runtime = match runtime(settings.threads) {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start threads: {error}")),
    };
    let exit = match runtime.block_on(serve(settings, until_stdin_ends)) {
        Ok(exit) => exit,
        Err(reason) => refuse(&reason),
    };
    // What is still running has had its time.
    runtime.shutdown_background();
    exit
}

/// A node is one chain of short steps, from a client's packet to the log and back. On several threads each step wakes another
/// thread for the next, which costs more than the step; one thread for every two cores leaves room for the disk's, too.
fn runtime(threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { (cores / 2).max(1) } else { threads };
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).enable_all().build()
}

/// Who may end this node.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    stdin_ended: Option<oneshot::Receiver<()>>,
    /// A file that may not grow is a disk error like others, and no reason for the kernel to end the process.
    _file_too_large: Signal,
}

impl StopSignals {
    fn listen(until_stdin_ends: bool) -> Result<StopSignals, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            stdin_ended: until_stdin_ends.then(stdin_ended),
            _file_too_large: listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    async fn next(&mut self) -> &'static str {
        let stdin_ended = async {
            match &mut self.stdin_ended {
                Some(ended) => drop(ended.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            () = stdin_ended => "end of stdin",
        }
    }
}

/// Reads stdin to its end on a thread of its own: a runtime would wait for that read when it stops.
fn stdin_ended() -> oneshot::Receiver<()> {
    let (tx, rx) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tx.send(());
    });
    rx
}

/// `Err` says why the node did not start.
async fn serve(settings: Settings, until_stdin_ends: bool) -> Result<Exit, String> {
    let mut stop = StopSignals::listen(until_stdin_ends)?;
    let http_listen = settings.http_listen.expect("checked settings have it");
    let http = listen("http_listen", http_listen)?;
    let peers = listen("peer_listen", settings.replica.peer_listen)?;
    let http = tls::Listeners {
        plain: Some(tokio::net::TcpListener::from_std(http).map_err(|error| format!("http_listen: {error}"))?),
        secure: secure("http_tls_listen", settings.http_tls_listen, &settings)?,
    };
    let zookeeper = tls::Listeners {
        plain: settings.zookeeper_listen.map(|addr| async_listener("zookeeper_listen", addr)).transpose()?,
        secure: secure("zookeeper_tls_listen", settings.zookeeper_tls_listen, &settings)?,
    };
    let zookeeper = Some(zookeeper).filter(|listeners| listeners.plain.is_some() || listeners.secure.is_some());
    let node_id = settings.replica.node_id;
    let cluster_id = settings.replica.cluster_id.clone();
    let replica = tokio::select! {
        started = Replica::start_on(settings.replica, peers) => started.map_err(|error| error.to_string())?,
        reason = stop.next() => {
            info!(reason, "stopped while starting");
            return Ok(Exit::Clean);
        }
    };
    let failed = replica.failed();
    let (stop_doors, doors_stop) = watch::channel(false);
    let door = tokio::spawn(rest::serve(http, replica.clone(), settings.rest, told(doors_stop.clone())));
    if zookeeper.is_none() {
        let replica = replica.clone();
        tokio::spawn(async move { wire::announce_no_door(&replica).await });
    }
    let zookeeper =
        zookeeper.map(|listener| tokio::spawn(wire::serve(listener, replica.clone(), settings.wire, told(doors_stop))));
    let also = |what: &str, addr: Option<SocketAddr>| addr.map(|addr| format!("{what}{addr}")).unwrap_or_default();
    let and_zookeeper = [
        also(", https://", settings.http_tls_listen),
        also(" and for ZooKeeper clients on ", settings.zookeeper_listen),
        also(" and for ZooKeeper clients with TLS on ", settings.zookeeper_tls_listen),
    ]
    .concat();
    say(&format!("zlock node {node_id} of cluster {cluster_id} serves on http://{http_listen}{and_zookeeper}"));

    tokio::select! {
        reason = failed => {
            // At once: a node that cannot trust its disk has nothing to tell anyone, and others wait to take over.
            error!(%reason, "this node cannot go on");
            return Ok(match reason {
                Failure::Broken(_) => Exit::Failed,
                Failure::Contradiction(_) => Exit::Contradiction,
            });
        }
        reason = stop.next() => info!(reason, "stopping"),
    }
    let stopped = async {
        // The doors first: that of HTTP takes those who wait here out of their queues, for which it needs a node that still
        // writes.
        let _ = stop_doors.send(true);
        let _ = door.await;
        if let Some(zookeeper) = zookeeper {
            let _ = zookeeper.await;
        }
        replica.shutdown().await;
    };
    let in_time = tokio::time::timeout(Duration::from_millis(settings.stop_timeout_ms), stopped).await.is_ok();
    if in_time {
        return Ok(Exit::Clean);
    }
    warn!(stop_timeout_ms = settings.stop_timeout_ms, "the clean stop took too long and was cut short");
    Ok(Exit::Failed)
}

/// Resolves when the doors are to close.
async fn told(mut stop: watch::Receiver<bool>) {
    // The sender is dropped only when this node is done for.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// An address with TLS, when it is given.
fn secure(
    key: &str,
    addr: Option<SocketAddr>,
    settings: &Settings,
) -> Result<Option<(tokio::net::TcpListener, tls::Acceptor)>, String> {
    let Some(addr) = addr else { return Ok(None) };
    let acceptor = settings.tls.acceptor(&settings.exempt_addresses).map_err(|error| error.to_string())?;
    Ok(Some((async_listener(key, addr)?, acceptor)))
}

fn async_listener(key: &str, addr: SocketAddr) -> Result<tokio::net::TcpListener, String> {
    tokio::net::TcpListener::from_std(listen(key, addr)?).map_err(|error| format!("{key}: {error}"))
}

fn listen(key: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(addr).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| format!("{key}: cannot listen on {addr}: {error}"))
}
