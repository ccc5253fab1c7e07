//! `zlock serve`: runs one node from its settings to its exit code.

mod systemd;

use std::io::IsTerminal as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use accept::{CertificateFiles, Certificates};
use clap::{ArgMatches, Command};
use replica::{Failure, PeerTls, Replica};
use rest::RestConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::admin_socket::AdminSocket;
use crate::cli::flag;
use crate::config::{self, Settings, unknown_variables};
use crate::reload::{ReadSettings, Reload, reload_tls};
use crate::{Exit, descriptors, logging, print, refuse, say};

use self::systemd::Systemd;

/// Largest number of connections of one listener that wait to be accepted; the kernel limits it to
/// `net.core.somaxconn`. The kernel drops further connection attempts, and their clients retry
/// after a second.
const BACKLOG: i32 = 4_096;

pub(crate) fn command() -> Command {
    let until = "Stops cleanly when stdin ends: the node goes when the program that started it goes";
    config::flags(Command::new("serve").about("Runs one node of a cluster"))
        .arg(flag("print-config", "Prints every key with its value in effect, checks them, and exits"))
        .arg(flag("until-stdin-ends", until))
}

/// Runs a node as the flags say, or prints its configuration.
pub(crate) fn run(matches: &ArgMatches) -> Exit {
    match config::from_matches(matches) {
        Ok(settings) if matches.get_flag("print-config") => print(config::effective(&settings).trim_end()),
        Ok(settings) => {
            let (again, until_stdin_ends) = (matches.clone(), matches.get_flag("until-stdin-ends"));
            run_node(settings, Box::new(move || config::from_matches(&again)), until_stdin_ends)
        }
        Err(error) => refuse(&error.to_string()),
    }
}

/// Runs a node until a stop signal or a failure. `read` reads the settings again, for reloads. With
/// `until_stdin_ends`, the end of stdin stops the node too.
fn run_node(settings: Settings, read: ReadSettings, until_stdin_ends: bool) -> Exit {
    let logs = match logging::start(&settings) {
        Ok(logs) => logs,
        Err(reason) => return refuse(&reason),
    };
    if cfg!(feature = "next-level") {
        warn!(
            "this zlock knows a level of the format that is not released: for tests of upgrades, and for nothing else"
        );
    }
    for variable in unknown_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        warn!(variable, "a variable of the environment names no key of the configuration");
    }
    let runtime = match runtime(settings.threads) {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("cannot start threads: {error}")),
    };
    let has_file = !settings.log_file.as_os_str().is_empty();
    let reload = Reload::new(read, logs, settings.clone());
    let exit = match runtime.block_on(serve(settings, reload, until_stdin_ends)) {
        Ok(exit) => exit,
        Err(reason) => {
            if has_file {
                error!(reason, "not started");
            }
            refuse(&reason)
        }
    };
    // Does not wait for tasks that still run: the clean stop has waited for them.
    runtime.shutdown_background();
    exit
}

/// Creates the async runtime; `threads` of 0 means one thread for every two cores. A write is a
/// chain of short steps, from a client's packet to the log and back. With many threads, each step
/// wakes another thread for the next step, which costs more than the step itself. Half of the cores
/// stay free for the disk's threads.
fn runtime(threads: usize) -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { (cores / 2).max(1) } else { threads };
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).enable_all().build()
}

/// Events that stop this node: signals, and the end of stdin.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// SIGHUP, which stops the node if stdin is a terminal, as the terminal was closed. `None` if
    /// stdin is no terminal: SIGHUP then reloads the configuration.
    hangup: Option<Signal>,
    stdin_ended: Option<oneshot::Receiver<()>>,
    /// SIGXFSZ, the signal for a file beyond its size limit. It is caught so that the write fails
    /// with a disk error, and the signal does not end the process.
    _file_too_large: Signal,
}

impl StopSignals {
    /// Installs the signal handlers. SIGHUP stops the node if stdin is a terminal, and otherwise
    /// reloads the configuration.
    fn listen(until_stdin_ends: bool, reload: Reload) -> Result<StopSignals, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("cannot listen for signals: {error}"));
        let mut hangup = Some(listen(SignalKind::hangup())?);
        if let Some(hangup) = hangup.take_if(|_| !std::io::stdin().is_terminal()) {
            tokio::spawn(reload.on(hangup));
        }
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup,
            stdin_ended: until_stdin_ends.then(stdin_ended),
            _file_too_large: listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Returns another listener for SIGHUP; `None` if SIGHUP stops the node.
    fn second_hangup(&self) -> Result<Option<Signal>, String> {
        let reloads = self.hangup.is_none();
        let listen = || signal(SignalKind::hangup()).map_err(|error| format!("cannot listen for signals: {error}"));
        reloads.then(listen).transpose()
    }

    async fn next(&mut self) -> &'static str {
        // `None` leaves its branch out.
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            Some(_) = async { Some(self.hangup.as_mut()?.recv().await) } => "SIGHUP",
            Some(_) = async { Some(self.stdin_ended.as_mut()?.await) } => "end of stdin",
        }
    }
}

/// Returns a channel that completes at the end of stdin. A separate thread reads stdin, because a
/// blocking task of the runtime would delay the runtime's shutdown.
fn stdin_ended() -> oneshot::Receiver<()> {
    let (tx, rx) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tx.send(());
    });
    rx
}

/// Listeners of the servers for clients (which the project calls doors): HTTP, the admin socket and
/// ZooKeeper.
struct Doors {
    http: rest::Entrances,
    /// File of the admin socket, which the drop removes.
    admin: Option<AdminSocket>,
    zookeeper: Option<accept::Listeners>,
}

impl Doors {
    fn listen(settings: &Settings) -> Result<Doors, String> {
        let http_listen = settings.http_listen.expect("checked settings have it");
        let listeners = accept::Listeners {
            plain: Some(async_listener("http.listen", http_listen)?),
            secure: secure("http.tls_listen", settings.http_tls_listen, settings)?,
            proxies: accept::Proxies::at(settings.proxy_protocol_from.clone()),
        };
        let path = Some(&*settings.admin_socket).filter(|path| !path.as_os_str().is_empty());
        let (admin, admin_listener) = path.map(AdminSocket::listen).transpose()?.unzip();
        let http = rest::Entrances { listeners, admin: admin_listener };
        let zookeeper = accept::Listeners {
            plain: settings.zookeeper_listen.map(|addr| async_listener("zookeeper.listen", addr)).transpose()?,
            secure: secure("zookeeper.tls_listen", settings.zookeeper_tls_listen, settings)?,
            proxies: accept::Proxies::at(settings.proxy_protocol_from.clone()),
        };
        let zookeeper = Some(zookeeper).filter(|listeners| listeners.plain.is_some() || listeners.secure.is_some());
        Ok(Doors { http, admin, zookeeper })
    }

    /// Certificates of these listeners and of the listener for peers.
    fn certificates(&self, peers: Option<&PeerTls>) -> Certificates {
        let of_clients = |listeners: &accept::Listeners| {
            listeners.secure.as_ref().map(|(_, acceptor)| CertificateFiles::Clients(acceptor.clone()))
        };
        let ports = [
            ("http", of_clients(&self.http.listeners)),
            ("zookeeper", self.zookeeper.as_ref().and_then(of_clients)),
            ("peers", peers.map(|peers| CertificateFiles::Peers(peers.tls.clone()))),
        ];
        ports.into_iter().filter_map(|(port, files)| Some((port, files?))).collect()
    }
}

/// Lists the addresses of the listeners for clients, for the message on stdout.
fn addresses(settings: &Settings) -> String {
    let also = |what: &str, addr: Option<SocketAddr>| addr.map(|addr| format!("{what}{addr}")).unwrap_or_default();
    [
        also("http://", settings.http_listen),
        also(", https://", settings.http_tls_listen),
        also(" and for ZooKeeper clients on ", settings.zookeeper_listen),
        also(" and for ZooKeeper clients with TLS on ", settings.zookeeper_tls_listen),
    ]
    .concat()
}

/// Runs a node until it ends, and returns the reason of its end. `Err` is the message why the node
/// did not start.
async fn serve(mut settings: Settings, reload: Reload, until_stdin_ends: bool) -> Result<Exit, String> {
    let mut stop = StopSignals::listen(until_stdin_ends, reload)?;
    let systemd = Systemd::from_environment()?;
    descriptors::share(&mut settings)?;
    let doors = Doors::listen(&settings)?;
    let peers = listen("peers.listen", settings.replica.peer_listen)?;
    let (addresses, mut replica_config) = (addresses(&settings), settings.replica.clone());
    replica_config.peer_tls = settings.load_peer_tls().map_err(|error| format!("peers.tls: {error}"))?;
    let certificates = doors.certificates(replica_config.peer_tls.as_ref());
    settings.rest.certificates = certificates.clone();
    tokio::spawn(reload_tls(certificates, stop.second_hangup()?));
    // Kept until this function returns, as the drop removes the socket's file.
    let _admin = doors.admin;
    let (node_id, cluster_id) = (replica_config.node_id, replica_config.cluster_id.clone());
    let starting = systemd.extend_start();
    let replica = tokio::select! {
        started = Replica::start_on(replica_config, peers) => started.map_err(|error| error.to_string())?,
        reason = stop.next() => {
            info!(reason, "stopped while starting");
            return Ok(Exit::Clean);
        }
    };
    drop(starting);
    let mut failed = std::pin::pin!(replica.failed());
    let (stop_doors, doors_stop) = watch::channel(false);
    let http = tokio::spawn(rest::serve(doors.http, replica.clone(), rest_config(&settings), told(doors_stop.clone())));
    let zookeeper = serve_zookeeper(doors.zookeeper, replica.clone(), &settings, doors_stop);
    say(&format!("zlock node {node_id} of cluster {cluster_id} serves on {addresses}"));
    tokio::spawn(systemd.clone().report(replica.clone()));

    tokio::select! {
        // Without a clean stop: a node that cannot trust its disk must not write, and other nodes
        // can take over sooner.
        reason = &mut failed => return Ok(give_up(&replica, &reason)),
        reason = stop.next() => tell_that_it_stops(reason, &replica, &settings),
    }
    let began = Instant::now();
    let stopped = async {
        systemd.report_stop(settings.stop_time_max()).await;
        // The servers for clients stop first. The HTTP server removes waiting clients from the
        // queues of locks, for which the replica must still accept writes.
        let _ = stop_doors.send(true);
        let _ = http.await;
        if let Some(zookeeper) = zookeeper {
            let _ = zookeeper.await;
        }
        replica.shutdown().await;
    };
    let stopped = tokio::select! {
        biased;
        // A failure ends the clean stop, too, as the disk cannot be trusted.
        reason = &mut failed => return Ok(give_up(&replica, &reason)),
        stopped = tokio::time::timeout(settings.stop_time_max(), stopped) => stopped,
    };
    let took_ms = began.elapsed().as_millis() as u64;
    if stopped.is_err() {
        let (drain_delay_ms, drain_time_ms) = (settings.rest.drain_delay_ms, settings.rest.drain_time_ms);
        let stop_timeout_ms = settings.stop_timeout_ms;
        warn!(
            took_ms,
            drain_delay_ms, drain_time_ms, stop_timeout_ms, "the clean stop took too long and was cut short"
        );
        return Ok(Exit::Failed);
    }
    let (_, term, zxid) = standing(&replica);
    info!(took_ms, term, zxid, "stopped");
    Ok(Exit::Clean)
}

/// Starts the ZooKeeper server, if it has listeners. Returns its task.
fn serve_zookeeper(
    listeners: Option<accept::Listeners>,
    replica: Replica,
    settings: &Settings,
    doors_stop: watch::Receiver<bool>,
) -> Option<JoinHandle<std::io::Result<()>>> {
    let Some(listeners) = listeners else {
        let mut stop = doors_stop;
        tokio::spawn(async move {
            tokio::select! {
                () = wire::announce_no_door(&replica) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
        return None;
    };
    let drained = drained(doors_stop, settings.rest.drain_delay_ms.saturating_add(settings.rest.drain_time_ms));
    Some(tokio::spawn(wire::serve(listeners, replica, settings.wire.clone(), drained)))
}

fn tell_that_it_stops(reason: &str, replica: &Replica, settings: &Settings) {
    let (role, term, zxid) = standing(replica);
    let (drain_delay_ms, drain_time_ms) = (settings.rest.drain_delay_ms, settings.rest.drain_time_ms);
    let stop_timeout_ms = settings.stop_timeout_ms;
    info!(reason, role, term, zxid, drain_delay_ms, drain_time_ms, stop_timeout_ms, "stopping");
}

fn give_up(replica: &Replica, reason: &Failure) -> Exit {
    let exit = match reason {
        Failure::Broken(_) => Exit::Failed,
        Failure::Contradiction(_) => Exit::Contradiction,
        Failure::Removed { .. } => Exit::Removed,
        // Another start of this program would fail in the same way.
        Failure::Level(_) => Exit::Refused,
    };
    let (role, term, zxid) = standing(replica);
    error!(%reason, exit_code = exit.code(), role, term, zxid, "this node cannot go on");
    exit
}

/// Returns the node's role, its term and the last zxid that it has applied.
fn standing(replica: &Replica) -> (&'static str, u64, u64) {
    let status = replica.status();
    (status.role.as_str(), status.term.0, status.applied.0)
}

/// Waits until `stop` is true, the signal for the servers for clients to stop.
async fn told(mut stop: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which happens only when the node ends.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits until the ZooKeeper server must stop: `drains_ms` milliseconds after the HTTP server
/// begins to drain. In this time a balancer learns from `/readyz` to send ZooKeeper clients to
/// other nodes. A client that is disconnected earlier could be sent to this node again.
async fn drained(stop: watch::Receiver<bool>, drains_ms: u64) {
    told(stop).await;
    if drains_ms > 0 {
        tokio::time::sleep(Duration::from_millis(drains_ms)).await;
    }
}

/// Listens with TLS on `addr`; `None` when no address is given. `key` is the configuration key of
/// the address, for error messages.
fn secure(
    key: &str,
    addr: Option<SocketAddr>,
    settings: &Settings,
) -> Result<Option<(tokio::net::TcpListener, accept::Acceptor)>, String> {
    let Some(addr) = addr else { return Ok(None) };
    let acceptor = accept::Acceptor::load(&settings.tls).map_err(|error| error.to_string())?;
    Ok(Some((async_listener(key, addr)?, acceptor)))
}

fn async_listener(key: &str, addr: SocketAddr) -> Result<tokio::net::TcpListener, String> {
    tokio::net::TcpListener::from_std(listen(key, addr)?).map_err(|error| format!("{key}: {error}"))
}

fn listen(key: &str, addr: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(addr).and_then(|listener| {
        // Calls listen(2) again, for a longer queue than that of the standard library.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| format!("{key}: cannot listen on {addr}: {error}"))
}

/// Configuration of the HTTP server, with the bounds of this node that `/metrics` shows. Bounds of
/// the cluster's state are not among them, because the state has them.
fn rest_config(settings: &Settings) -> RestConfig {
    let Settings { replica, rest, wire, .. } = settings;
    let bounds = [
        ("disk.free_bytes_min", replica.free_disk_min_bytes),
        ("node.watches_max", replica.watches_max as u64),
        ("node.proposals_max", replica.proposals_max as u64),
        ("http.connections_max", rest.connections_max as u64),
        ("http.waits_max", rest.waits_max as u64),
        ("zookeeper.connections_max", wire.connections_max as u64),
        ("zookeeper.watches_max", wire.watches_max as u64),
    ];
    let limits_shown = bounds.to_vec();
    RestConfig { limits_shown, ..rest.clone() }
}
