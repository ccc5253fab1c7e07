//! Messages between the supervisor (the `zlock lock` process that holds the session) and the
//! watchdog (the process that starts and ends the command). Each message is a line of JSON, over a
//! socket that is the watchdog's stdin.
//!
//! The first message carries a file descriptor, which becomes the command's stdin.

use std::io::{IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, send, sendmsg,
};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The clock that goes on while the machine sleeps, as in `zlock-client`.
const CLOCK: ClockId = cfg_select! { target_os = "linux" => ClockId::Boottime, _ => ClockId::Monotonic };

/// Message from the supervisor (the `zlock lock` process that holds the session) to the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The time before which the lock cannot be lost, as a time since the machine was started.
    Until(Duration),
    /// The number of a signal that the watchdog must pass on to the command.
    Signal(i32),
    /// The lock is lost.
    Lost,
}

/// Message from the watchdog to the supervisor (the `zlock lock` process that holds the session).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The command was suspended, as by SIGSTOP or Ctrl-Z. The value is its process id.
    Stopped(u32),
    /// The end of the command, which is the watchdog's last message.
    Ended(Ended),
}

/// End of a command, as the watchdog reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    /// Exit code as in a shell: that of the command, or 128 plus the number of the signal that
    /// ended it.
    pub(super) code: u8,
    /// Whether the watchdog ended the command because the lock could have been lost.
    pub(super) lost: bool,
}

/// Parses a line as a message; `None` for any other line.
pub(super) fn understood<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

fn line(said: &impl Serialize) -> String {
    serde_json::to_string(said).expect("it has neither maps nor foreign types") + "\n"
}

/// Sends a message to the watchdog without waiting. If the socket's buffer is full, the message is
/// dropped: the watchdog is suspended then, and keeps its earlier deadline.
pub(super) fn send_order(socket: impl AsFd, order: Order) {
    // Sent without tokio, which does not write to a socket before it has polled it. A closed socket
    // causes no signal, as programs of Rust ignore SIGPIPE.
    let _ = send(socket, line(&order).as_bytes(), SendFlags::DONTWAIT);
}

/// Sends the file descriptor of this process's stdin to the watchdog, for the command.
pub(super) fn send_stdin(socket: &UnixStream) -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let fds = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(std::io::Error::other("no room for a file descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives the file descriptor of the command's stdin, through the socket that is the watchdog's
/// own stdin.
pub(super) fn receive_stdin() -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let socket = std::io::stdin();
    let mut bytes = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(&socket, &mut bytes, &mut control, RecvFlags::empty()))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            // A flag of `recvmsg` would do the same, but only on Linux.
            fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            return Ok(fd);
        }
    }
    Err(std::io::Error::other("the first message has no file descriptor"))
}

/// Sends a message to the supervisor (the `zlock lock` process that holds the session), through the
/// socket that is the watchdog's stdin. If the supervisor has ended, the message is dropped.
pub(super) fn report(report: Report) {
    if let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() {
        send_report(&UnixStream::from(socket), report);
    }
}

fn send_report(mut socket: &UnixStream, report: Report) {
    match report {
        // Dropped if the supervisor is suspended and the socket's buffer is full: the watchdog must
        // not wait while the command runs.
        Report::Stopped(_) => drop(send(socket, line(&report).as_bytes(), SendFlags::DONTWAIT)),
        Report::Ended(_) => drop(socket.write_all(line(&report).as_bytes())),
    }
}

/// Returns the time since the machine was started, including the time for which it slept. All
/// processes of the machine share this clock.
pub(super) fn now() -> Duration {
    let time = clock_gettime(CLOCK);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    // Tests the send before tokio has polled the socket.
    #[tokio::test]
    async fn the_first_order_is_sent_too() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = tokio::net::UnixStream::from_std(ours).unwrap();
        send_order(&ours, Order::Signal(15));
        drop(ours);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"Signal\":15}\n");
    }

    #[test]
    fn what_is_said_is_understood() {
        for order in [Order::Until(Duration::from_micros(1_234_567)), Order::Signal(15), Order::Lost] {
            assert_eq!(understood(line(&order).trim_end().as_bytes()), Some(order));
        }
        assert_eq!(understood::<Order>(b"{\"Until\":\"soon\"}"), None);
        for report in [Report::Stopped(71), Report::Ended(Ended { code: 143, lost: true })] {
            assert_eq!(understood(line(&report).trim_end().as_bytes()), Some(report));
        }
    }

    #[test]
    fn the_report_of_a_stop_never_waits_for_its_reader() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4_096]).is_ok() {}
        while (&ours).write(&[0]).is_ok() {}
        ours.set_nonblocking(false).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            send_report(&ours, Report::Stopped(71));
            tell.send(()).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_secs(60)).is_ok());
    }
}
