//! Handshakes that failed: a line of the log for each address now and then, with how many there were.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::networks::source;

/// Between two lines about one address.
const PAUSE: Duration = Duration::from_secs(10);
/// Addresses that are remembered, each for [`PAUSE`]. Failures of others are counted together.
const ADDRESSES_MAX: usize = 1_024;

/// What was told of failed handshakes.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    addresses: HashMap<IpAddr, Address>,
    /// Of addresses that there was no room for, since the last line.
    others: u64,
}

#[derive(Debug)]
struct Address {
    at: Instant,
    /// Since the last line about it.
    times: u64,
}

/// How many failures a line stands for.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    times: u64,
    others: u64,
}

impl Failures {
    /// Tells why the handshake of a client failed, unless that was told just now of its address.
    pub(crate) fn note(&self, addr: SocketAddr, error: &io::Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Line { times, others }) = told.note(source(addr.ip()), Instant::now()) {
            drop(told);
            // A text, so that it is quoted: some of it is what the client said.
            let reason = error.to_string();
            tracing::info!(%addr, reason, times, others, "a TLS handshake failed");
        }
    }
}

impl Told {
    fn note(&mut self, source: IpAddr, now: Instant) -> Option<Line> {
        if let Some(address) = self.addresses.get_mut(&source) {
            address.times += 1;
            if now < address.at + PAUSE {
                return None;
            }
            let times = std::mem::take(&mut address.times);
            address.at = now;
            return Some(Line { times, others: std::mem::take(&mut self.others) });
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            let mut forgotten = 0;
            self.addresses.retain(|_, address| {
                let stays = now < address.at + PAUSE;
                forgotten += if stays { 0 } else { address.times };
                stays
            });
            self.others += forgotten;
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            self.others += 1;
            return None;
        }
        self.addresses.insert(source, Address { at: now, times: 0 });
        Some(Line { times: 1, others: std::mem::take(&mut self.others) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn line(times: u64, others: u64) -> Option<Line> {
        Some(Line { times, others })
    }

    #[test]
    fn each_address_has_a_line_now_and_then_with_a_count() {
        let (mut told, now) = (Told::default(), Instant::now());
        assert_eq!([1, 1, 2, 1].map(|n| told.note(addr(n), now)), [line(1, 0), None, line(1, 0), None]);
        assert_eq!([1, 2].map(|n| told.note(addr(n), now + PAUSE)), [line(3, 0), line(1, 0)]);
    }

    #[test]
    fn addresses_without_number_are_counted_together() {
        let (mut told, now) = (Told::default(), Instant::now());
        let max = ADDRESSES_MAX as u32;
        assert!((0..max).all(|n| told.note(addr(n), now) == line(1, 0)));
        assert!((max..max + 500).all(|n| told.note(addr(n), now).is_none()));
        assert_eq!(told.addresses.len(), ADDRESSES_MAX);
        assert_eq!(told.note(addr(0), now), None);
        assert_eq!(told.note(addr(max), now + PAUSE), line(1, 501));
        assert_eq!(told.addresses.len(), 1);
    }
}
