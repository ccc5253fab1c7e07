//! Ports that stay ours while nodes are down.
//!
//! They lie below the range that the kernel gives to outgoing connections, which could otherwise take the port of a node
//! that is down. A UDP socket on the first port of a block claims the block among processes that run these tests.

use std::net::{TcpListener, UdpSocket};

const BLOCK: u16 = 16;
const FIRST: u16 = 10_000;
const BLOCKS: u16 = 1_300;

/// A block of ports on 127.0.0.1, claimed until it is dropped.
pub(crate) struct Ports {
    first: u16,
    _claim: UdpSocket,
}

impl Ports {
    /// Claims a block in which every port is free.
    pub(crate) fn claim() -> Ports {
        let start = std::process::id() % u32::from(BLOCKS);
        let start = u16::try_from(start).expect("it is below BLOCKS");
        (0..BLOCKS)
            .map(|step| FIRST + (start + step) % BLOCKS * BLOCK)
            .find_map(|first| {
                let claim = UdpSocket::bind(("127.0.0.1", first)).ok()?;
                let free = (first..first + BLOCK).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
                free.then_some(Ports { first, _claim: claim })
            })
            .expect("some block is free")
    }

    /// The n-th address of the block.
    pub(crate) fn addr(&self, n: u16) -> String {
        assert!(n < BLOCK, "a block has {BLOCK} ports");
        format!("127.0.0.1:{}", self.first + n)
    }

    /// The first port of the block.
    pub(crate) fn first(&self) -> u16 {
        self.first
    }
}
