//! Reception of clients' connections at one of the node's two servers.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use accept::{Admission, AdmissionConfig, Full, Place, Seldom};
use storage::{descriptors_wanted, want_descriptors};
use tokio::time::Instant;
use tracing::warn;

use crate::{Entrance, OpenConnection, Replica, TurnedAway};

/// Pause after an error of accept, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Bounds on the connections of one server. Counts and logs those that are turned away.
pub struct Reception {
    entrance: Entrance,
    replica: Replica,
    places: Arc<Admission>,
    refused: Seldom,
    ousted: Seldom,
    given: Seldom,
    unaccepted: Seldom,
}

impl Reception {
    /// Creates the reception of a server without connections.
    pub fn new(entrance: Entrance, replica: Replica, bounds: &AdmissionConfig) -> Reception {
        let [refused, ousted, given, unaccepted] = [(); 4].map(|()| Seldom::default());
        Reception { entrance, replica, places: Admission::new(bounds), refused, ousted, given, unaccepted }
    }

    /// Admits a connection from `addr`. Another connection may have to end for it.
    ///
    /// # Errors
    /// The bound that leaves no room for the connection.
    pub fn enter(&self, addr: IpAddr) -> Result<(Place, OpenConnection), Full> {
        let door = self.entrance.as_str();
        let full = match self.places.enter(addr) {
            Ok(place) => {
                if let Some(addr) = place.ousted()
                    && let Some(times) = self.count(TurnedAway::GaveWay, &self.ousted)
                {
                    let bound = format!("{door}.connections_max");
                    warn!(door, %addr, bound, times, "a connection of the address that has most gave way to another address");
                }
                return Ok((place, self.replica.connected(self.entrance)));
            }
            Err(full) => full,
        };
        let (cause, bound) = match full {
            Full::Door => (TurnedAway::DoorFull, "connections_max"),
            Full::Address => (TurnedAway::AddressFull, "connections_per_address_max"),
        };
        if let Some(times) = self.count(cause, &self.refused) {
            let bound = format!("{door}.{bound}");
            warn!(door, %addr, bound, times, "a connection is refused: there are too many");
        }
        Err(full)
    }

    /// Accepts connections until `end` resolves, and gives them to `take`.
    pub async fn accept_until<T, A: Future<Output = io::Result<T>>>(
        &self,
        end: impl Future<Output = ()>,
        accept: impl Fn() -> A,
        take: impl Fn(T),
    ) {
        let mut end = std::pin::pin!(end);
        loop {
            let accepted = tokio::select! {
                () = &mut end => return,
                accepted = accept() => accepted,
            };
            match accepted {
                Ok(connection) => {
                    // Connections accepted before are served even if many more come.
                    tokio::task::yield_now().await;
                    take(connection);
                }
                Err(error) => self.cannot_accept(error).await,
            }
        }
    }

    /// Logs an error of accept, and pauses. If file descriptors are used up, asks the servers of
    /// this process to close other connections.
    pub async fn cannot_accept(&self, error: io::Error) {
        want_descriptors(&error);
        if let Some(times) = self.unaccepted.note(Instant::now()) {
            warn!(%error, times, "cannot accept a connection");
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Closes one connection each time that a listener of this process gets no file descriptor for
    /// a new connection. Never returns.
    pub async fn give_back(&self) {
        loop {
            descriptors_wanted().await;
            let Some(source) = self.places.give_one() else { continue };
            if let Some(times) = self.count(TurnedAway::GaveWay, &self.given) {
                let (door, addr, bound) = (self.entrance.as_str(), source.map(|addr| addr.to_string()), "open_files");
                warn!(door, addr, bound, times, "a connection gave way: no file descriptor is left");
            }
        }
    }

    /// Waits until no connection is open.
    pub async fn emptied(&self) {
        self.places.emptied().await;
    }

    /// Counts a connection that was turned away. Returns what [`Seldom::note`] returns.
    fn count(&self, cause: TurnedAway, told: &Seldom) -> Option<u64> {
        self.replica.count_turned_away(self.entrance, cause);
        told.note(Instant::now())
    }
}
