//! Reading from a connection's socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use jute::Frames;
use tokio::io::{AsyncRead, ReadBuf};

/// Largest number of bytes of one read.
const READ_BYTES: usize = 16 << 10;

thread_local! {
    /// Buffer for all connections of a thread. It stays in the processor's cache, and idle
    /// connections need no memory for a buffer.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Waits for bytes from the socket, and pushes them into `frames`. Returns their number; 0 at the
/// end of the connection.
///
/// # Errors
/// Errors of the connection.
pub(crate) async fn read_into(socket: &mut (impl AsyncRead + Unpin), frames: &mut Frames) -> io::Result<usize> {
    let read = poll_fn(|cx| {
        BUFFER.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *socket).poll_read(cx, &mut read))?;
            frames.push(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    });
    read.await
}
