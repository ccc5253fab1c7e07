//! Reading from a connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

use jute::Frames;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

thread_local! {
    /// A buffer for all connections of a thread: it is in the processor's cache, and a connection
    /// that waits keeps no memory for it.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Waits until there is something to read, and takes it. How many bytes it was; none at the end of
/// the connection.
///
/// # Errors
/// Those of the connection.
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
