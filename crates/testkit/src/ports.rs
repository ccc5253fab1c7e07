//! Ports that stay reserved for a test while its nodes are down.
//!
//! The ports are below the range for outgoing connections, which could otherwise take the port of a
//! node that is down. A process claims a block of ports by a UDP socket on the block's first port.
//! All processes that use this crate respect these claims.

use std::io;
use std::net::{TcpListener, UdpSocket};

const BLOCK: u16 = 16;
const FIRST: u16 = 10_000;
const BLOCKS: u16 = 1_300;

/// Consecutive TCP ports on 127.0.0.1, claimed until the drop.
pub struct Ports {
    first: u16,
    count: u16,
    _claims: Vec<UdpSocket>,
}

impl Ports {
    /// Claims `count` consecutive free ports.
    ///
    /// # Errors
    /// An error when there are no `count` consecutive free ports.
    pub fn claim(count: u16) -> io::Result<Ports> {
        let blocks = count.div_ceil(BLOCK);
        // The process id spreads concurrent processes over different blocks.
        let start = u16::try_from(std::process::id() % u32::from(BLOCKS)).expect("it is below BLOCKS");
        (0..BLOCKS)
            .map(|step| (start + step) % BLOCKS)
            .filter(|block| block + blocks <= BLOCKS)
            .find_map(|block| {
                let first = FIRST + block * BLOCK;
                let claim = |block: u16| UdpSocket::bind(("127.0.0.1", first + block * BLOCK)).ok();
                let claims = (0..blocks).map(claim).collect::<Option<Vec<_>>>()?;
                let free = (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
                free.then_some(Ports { first, count, _claims: claims })
            })
            .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} ports in a row are free")))
    }

    /// The address `host:port` of the n-th claimed port, counted from 0.
    ///
    /// # Panics
    /// When fewer ports were claimed.
    pub fn addr(&self, n: u16) -> String {
        format!("127.0.0.1:{}", self.port(n))
    }

    /// The n-th claimed port, counted from 0.
    ///
    /// # Panics
    /// When fewer ports were claimed.
    pub fn port(&self, n: u16) -> u16 {
        assert!(n < self.count, "{} ports were claimed", self.count);
        self.first + n
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Binds a port, with retries. A child process of another test has copies of all sockets
    /// between its fork and its exec, so a port that was just closed may still be in use.
    fn bind(port: u16) -> TcpListener {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match TcpListener::bind(("127.0.0.1", port)) {
                Ok(listener) => return listener,
                Err(error) => assert!(Instant::now() < deadline, "port {port}: {error}"),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn ports_are_free_and_nobody_elses_and_out_of_the_way_of_outgoing_connections() {
        let claim = || Ports::claim(27).expect("as many are free");
        let (one, two) = (claim(), claim());
        let range = |ports: &Ports| ports.first..ports.first + ports.count;
        let held: Vec<_> = range(&one).map(bind).collect();
        assert_eq!(held.len(), 27);
        assert!(range(&one).chain(range(&two)).all(|port| (FIRST..FIRST + BLOCKS * BLOCK).contains(&port)));
        assert!(range(&one).all(|port| !range(&two).contains(&port)), "{} {}", one.first, two.first);
        // A new claim skips ports that are in use without a claim.
        let first = one.first;
        drop(one);
        assert_ne!(claim().first, first);
    }
}
