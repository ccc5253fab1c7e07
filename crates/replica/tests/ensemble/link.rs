//! A link (proxy) between two nodes that can be frozen: while it is frozen, no byte arrives and
//! none is lost.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy that passes connections on to one node. It ends with the test's runtime.
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    there: watch::Sender<bool>,
    back: watch::Sender<bool>,
}

impl Link {
    pub(crate) async fn to(target: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (there, back) = (watch::Sender::new(false), watch::Sender::new(false));
        let frozen = [there.subscribe(), back.subscribe()];
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                tokio::spawn(pass(from, target, frozen.clone()));
            }
        });
        Link { addr, there, back }
    }

    pub(crate) fn freeze(&self, frozen: bool) {
        self.there.send_replace(frozen);
        self.freeze_back(frozen);
    }

    /// Freezes or thaws only the direction in which the node answers.
    pub(crate) fn freeze_back(&self, frozen: bool) {
        self.back.send_replace(frozen);
    }
}

async fn pass(from: TcpStream, target: SocketAddr, [mut there, back]: [watch::Receiver<bool>; 2]) {
    // A new connection waits for a frozen link, too.
    let _ = there.wait_for(|frozen| !frozen).await;
    let Ok(to) = TcpStream::connect(target).await else {
        return;
    };
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::select! {
        () = copy(from_read, to_write, there) => {}
        () = copy(to_read, from_write, back) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut frozen: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    // A frozen link also holds back the end of a connection.
    let _ = frozen.wait_for(|frozen| !frozen).await;
}
