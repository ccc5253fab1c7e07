//! Telling the leader that a client's session is alive.

use std::sync::atomic::Ordering;

use jute::{Record, ReplyHeader, framed, xid};
use replica::Error;
use tokio::time::{Instant, timeout_at};

use crate::client::end::End;
use crate::session::connection::Connection;

impl Connection {
    /// Tells the leader when packets of the client have arrived, and answers pings once the leader
    /// has confirmed that the session is alive.
    ///
    /// So the answer to a ping means that the session was alive a moment ago. If the leader does
    /// not confirm in time, the connection is closed, well before the session can expire.
    pub(crate) async fn keep_alive(&self) -> End {
        let (client, liveness) = (&self.client, &self.client.liveness);
        loop {
            while !liveness.has_news() {
                let silence = timeout_at(liveness.last() + client.arrival.timeout, liveness.beats()).await;
                if silence.is_err() && liveness.last().elapsed() >= client.arrival.timeout {
                    return End::Cut("the client said nothing for its whole timeout");
                }
            }
            let pings = liveness.take();
            let began = Instant::now();
            match self.door.replica.touch(client.arrival.credential, self.door.propose_deadline()).await {
                Ok(_) => liveness.passed(),
                Err(Error::Refused(_)) => return End::Cut("the session is gone"),
                Err(_) => return End::Cut("the leader does not hear of the session"),
            }
            if !self.is_attached() {
                return End::Cut("the session is gone, or at another connection");
            }
            for _ in 0..pings {
                let pong = ReplyHeader { xid: xid::PING, zxid: self.told.load(Ordering::Relaxed), error: 0 };
                client.outbox.push(framed(|out| pong.write(out)));
            }
            client.outbox.send_now();
            // The leader is told of requests at most 12 times per session timeout, because they are
            // many, and of pings at once.
            let next = began + client.arrival.timeout / 12;
            while !liveness.is_pinged() && timeout_at(next, liveness.beats()).await.is_ok() {}
        }
    }

    fn is_attached(&self) -> bool {
        let state = self.door.replica.state();
        state.session(self.client.session()).is_some_and(|session| session.connection == self.client.arrival.connection)
    }
}
