//! Messages of a node to systemd, for a unit with `Type=notify`: sd_notify(3) has their format.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use replica::Replica;
use tracing::warn;

/// Time between two messages of the same kind. systemd recommends at most half of `WatchdogSec`.
const PERIOD: Duration = Duration::from_secs(1);

/// Extension that each message during the start requests from systemd, counted from the message.
const START_EXTENSION: Duration = Duration::from_secs(30);

/// Time that a stopping node requests from systemd for the exit of its process, in addition to the
/// longest time of a clean stop.
const END_TIME: Duration = Duration::from_secs(5);

/// Sender of messages to systemd; without an address, the process was started by another program
/// and sends nothing.
#[derive(Clone)]
pub(super) struct Systemd(Option<SocketAddr>);

impl Systemd {
    /// Reads the address of systemd's socket from the environment variable `NOTIFY_SOCKET`.
    pub(super) fn from_environment() -> Result<Systemd, String> {
        std::env::var_os("NOTIFY_SOCKET").map_or(Ok(Systemd(None)), |name| Systemd::at(&name))
    }

    /// Parses the address of systemd's socket: a path, or `@` and an abstract name.
    fn at(name: &OsStr) -> Result<Systemd, String> {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let address = address.map_err(|error| format!("NOTIFY_SOCKET: {} is no address: {error}", name.display()))?;
        Ok(Systemd(Some(address)))
    }

    /// Extends systemd's timeout of the start again and again, until the returned sender is
    /// dropped. A separate thread sends the messages, because reading a large snapshot may block
    /// the runtime.
    pub(super) fn extend_start(&self) -> Sender<()> {
        let (starting, started) = channel();
        let systemd = self.clone();
        if self.0.is_some() {
            std::thread::spawn(move || {
                while started.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    // The next message makes up for a lost one.
                    let _ = systemd.send(&extension(START_EXTENSION));
                }
            });
        }
        starting
    }

    /// Reports once that the node has started. Then reports the node's status every second, which
    /// resets systemd's watchdog as long as the runtime works. The reports never wait for the disk,
    /// so a slow disk does not make systemd kill the node.
    pub(super) async fn report(self, replica: Replica) {
        if self.0.is_none() {
            return;
        }
        self.deliver("READY=1").await;
        loop {
            let _ = self.send(&format!("WATCHDOG=1\nSTATUS={}", status(&replica)));
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Reports that the node stops, and asks systemd to wait for the longest time of a clean stop
    /// (`time_max`) and [`END_TIME`].
    pub(super) async fn report_stop(&self, time_max: Duration) {
        self.deliver(&format!("STOPPING=1\n{}", extension(time_max.saturating_add(END_TIME)))).await;
    }

    /// Sends a message that must not be lost: waits while the socket's queue is full.
    async fn deliver(&self, message: &str) {
        while let Err(error) = self.send(message) {
            if error.kind() != io::ErrorKind::WouldBlock {
                warn!(%error, message, "systemd did not get a message");
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a message if the socket's queue has room for it.
    fn send(&self, message: &str) -> io::Result<()> {
        let Some(address) = &self.0 else { return Ok(()) };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(message.as_bytes(), address).map(drop)
    }
}

fn extension(time: Duration) -> String {
    format!("EXTEND_TIMEOUT_USEC={}", time.as_micros())
}

/// Returns one line about the node, for `systemctl status`.
fn status(replica: &Replica) -> String {
    let status = replica.status();
    let leader = status.leader.map_or_else(|| "none known".to_owned(), |id| format!("node {id}"));
    let lag = status.committed.0.saturating_sub(status.applied.0);
    format!("{}, {}; leader: {leader}; {lag} entries behind", status.role.as_str(), status.ready.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, name) = (dir.path().join("notify"), format!("zlock-test-{}", std::process::id()));
        let sockets = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path)),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap())),
        ];
        for (address, socket) in sockets {
            let (socket, mut bytes) = (socket.unwrap(), [0; 64]);
            Systemd::at(&address).unwrap().send("READY=1").unwrap();
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
    }

    #[test]
    fn an_address_that_is_too_long_is_refused() {
        let refused = Systemd::at(OsStr::new(&"/x".repeat(100))).err().unwrap();
        assert!(refused.starts_with("NOTIFY_SOCKET: /x/x") && refused.contains(" is no address: "), "{refused}");
    }
}
