//! One end of a simulated connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::hub::Hub;
use crate::network::{IN_FLIGHT_MAX, Pipe};

/// One end of a simulated connection.
pub struct SimStream {
    hub: Hub,
    /// The direction into which this end writes.
    pipe: Pipe,
}

impl SimStream {
    pub(crate) fn new(hub: Hub, pipe: Pipe) -> SimStream {
        SimStream { hub, pipe }
    }
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.hub.lock();
        let Some(flow) = shared.flow(Pipe { side: 1 - self.pipe.side, ..self.pipe }) else {
            return Poll::Ready(Err(broken()));
        };
        if !flow.readable.is_empty() {
            let (front, _) = flow.readable.as_slices();
            let count = front.len().min(into.remaining());
            into.put_slice(&front[..count]);
            flow.readable.drain(..count);
            return Poll::Ready(Ok(()));
        }
        if flow.broken {
            return Poll::Ready(Err(broken()));
        }
        if flow.ended {
            return Poll::Ready(Ok(()));
        }
        flow.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.hub.lock();
        let Some(flow) = shared.flow(self.pipe) else {
            return Poll::Ready(Err(broken()));
        };
        if flow.broken {
            return Poll::Ready(Err(broken()));
        }
        let room = IN_FLIGHT_MAX.saturating_sub(flow.in_flight);
        if room == 0 {
            flow.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(bytes.len());
        shared.send(self.pipe, &bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hub.lock().close(self.pipe);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.hub.lock().close(self.pipe);
    }
}
