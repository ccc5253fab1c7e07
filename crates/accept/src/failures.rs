//! Log lines about failed handshakes, and about clients' certificates without a usable subject. The
//! number of log lines is limited for each address, for each site (a /24 network of IPv4 or a /48
//! network of IPv6) and in total. Each log line has the number of failures since the last line that
//! were not logged.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;
use crate::networks::{site, source};

/// Shortest time between two log lines about one address, and the period for which the other limits
/// count log lines.
const PAUSE: Duration = Duration::from_secs(10);
/// Largest number of log lines in one [`PAUSE`] about one site (a /24 network of IPv4 or a /48
/// network of IPv6). An IPv6 site counts as 65,536 addresses, one for each /64 network.
const SITE_LINES_MAX: usize = 5;
/// Largest number of log lines in one [`PAUSE`], for all addresses together.
const LINES_MAX: usize = 20;
/// Largest number of addresses that are remembered. The addresses with a log line in the last
/// [`PAUSE`], at most [`LINES_MAX`], are always among them.
const ADDRESSES_MAX: usize = 256;

/// Limiter of two kinds of log lines: those about failed handshakes, and those about certificates
/// without a usable subject.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    failed: Mutex<Told>,
    nobodies: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Addresses that had a log line, each with the time of its last line and the failures since
    /// then.
    addresses: HashMap<IpAddr, Address>,
    /// Time and site of each log line in the last [`PAUSE`].
    lines: VecDeque<(Instant, IpAddr)>,
    /// Failures of addresses that are not in `addresses`, since the last log line.
    others: u64,
    /// Connections that were reset before their first byte, since the last log line.
    resets: u64,
}

#[derive(Debug)]
struct Address {
    at: Instant,
    /// Failures of this address since the last log line about it.
    times: u64,
}

/// Counts in one log line: failures of the line's address, failures of addresses that are not
/// remembered, and resets.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    times: u64,
    others: u64,
    resets: u64,
}

impl Failures {
    /// Logs the reason of a failed handshake, unless the limit of log lines is reached.
    pub(crate) fn note(&self, addr: SocketAddr, error: &io::Error) {
        let line = self.failed.lock().note(addr.ip(), Instant::now());
        if let Some(Line { times, others, resets }) = line {
            // Logged as a string, so that it is quoted, as part of it comes from the client.
            let reason = error.to_string();
            tracing::info!(%addr, reason, times, others, resets, "a TLS handshake failed");
        }
    }

    /// Logs why a client's certificate gives no identity, unless the limit of log lines is reached.
    /// The client is accepted like one without a certificate.
    pub(crate) fn note_nobody(&self, addr: SocketAddr, reason: &str) {
        if let Some(Line { times, others, .. }) = self.nobodies.lock().note(addr.ip(), Instant::now()) {
            tracing::warn!(%addr, reason, times, others, "a client's certificate has no usable subject");
        }
    }

    /// Counts a connection that was reset before its first byte. Some load balancers check a port
    /// in this way, so a reset causes no log line. The next log line has the number of resets.
    pub(crate) fn note_reset(&self) {
        self.failed.lock().resets += 1;
    }
}

impl Told {
    fn note(&mut self, addr: IpAddr, now: Instant) -> Option<Line> {
        let (source, site) = (source(addr), site(addr));
        let told_just_now = self.addresses.get(&source).is_some_and(|address| now < address.at + PAUSE);
        if told_just_now || !self.has_room(site, now) {
            // Addresses without a line are not remembered, because their number is unlimited.
            *self.addresses.get_mut(&source).map_or(&mut self.others, |address| &mut address.times) += 1;
            return None;
        }
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&source) {
            self.forget(now);
        }
        self.lines.push_back((now, site));
        let before = self.addresses.insert(source, Address { at: now, times: 0 });
        let times = before.map_or(0, |address| address.times) + 1;
        Some(Line { times, others: mem::take(&mut self.others), resets: mem::take(&mut self.resets) })
    }

    /// Tells whether the limits allow one more log line about an address of this `site` (a /24
    /// network of IPv4 or a /48 network of IPv6).
    fn has_room(&mut self, site: IpAddr, now: Instant) -> bool {
        while self.lines.front().is_some_and(|(at, _)| now >= *at + PAUSE) {
            self.lines.pop_front();
        }
        let of_site = self.lines.iter().filter(|(_, about)| *about == site).count();
        of_site < SITE_LINES_MAX && self.lines.len() < LINES_MAX
    }

    /// Removes the addresses without a log line in the last [`PAUSE`], and adds their failures to
    /// `others`.
    fn forget(&mut self, now: Instant) {
        self.addresses.retain(|_, address| {
            let stays = now < address.at + PAUSE;
            self.others += if stays { 0 } else { address.times };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Returns the address with this number in the site with this number.
    fn addr(site: u32, number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + (site << 8) + number).into()
    }

    fn line(times: u64, others: u64) -> Option<Line> {
        Some(Line { times, others, resets: 0 })
    }

    #[test]
    fn each_address_has_a_line_now_and_then_with_a_count() {
        let (mut told, now) = (Told::default(), Instant::now());
        assert_eq!([1, 1, 2, 1].map(|n| told.note(addr(0, n), now)), [line(1, 0), None, line(1, 0), None]);
        assert_eq!([1, 2].map(|n| told.note(addr(0, n), now + PAUSE)), [line(3, 0), line(1, 0)]);
    }

    #[test]
    fn a_site_has_few_lines_however_many_addresses_it_has_and_leaves_room_for_others() {
        let (mut told, now) = (Told::default(), Instant::now());
        // One /48 of IPv6 has 65,536 networks, and each of them counts as an address.
        let of_site = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 7, n, 0, 0, 0, 1));
        let lines = (0..=u16::MAX).filter(|n| told.note(of_site(*n), now).is_some()).count();
        assert_eq!((lines, told.addresses.len()), (SITE_LINES_MAX, SITE_LINES_MAX));
        let suppressed = (1 << 16) - SITE_LINES_MAX as u64;
        assert_eq!(told.note(addr(0, 1), now), line(1, suppressed), "all are counted");
        // An address that has had a line keeps its own count while its site is at its limit.
        assert_eq!([of_site(0), of_site(0)].map(|one| told.note(one, now)), [None, None]);
        let rest = (100..).map(of_site).take(SITE_LINES_MAX);
        assert!(rest.map(|one| told.note(one, now + PAUSE)).all(|told| told.is_some()));
        assert_eq!(told.note(of_site(0), now + PAUSE), None);
        assert_eq!(told.note(of_site(0), now + PAUSE * 2), line(4, 0));
    }

    #[test]
    fn there_are_few_lines_in_all_and_little_is_remembered() {
        let (mut told, start) = (Told::default(), Instant::now());
        for turn in 0..100 {
            let now = start + PAUSE * turn;
            let lines: Vec<Line> = (0..1_000).filter_map(|site| told.note(addr(1_000 * turn + site, 1), now)).collect();
            assert_eq!(lines.len(), LINES_MAX);
            let others = if turn == 0 { 0 } else { 1_000 - LINES_MAX as u64 };
            assert_eq!(lines[0], line(1, others).unwrap());
            assert!(told.addresses.len() <= ADDRESSES_MAX && told.lines.len() == LINES_MAX);
        }
    }

    #[test]
    fn counts_of_an_address_that_is_forgotten_are_counted_with_the_others() {
        let (mut told, start) = (Told::default(), Instant::now());
        assert_eq!([1, 1, 1].map(|n| told.note(addr(0, n), start)), [line(1, 0), None, None]);
        let mut others = 0;
        for site in 1..=ADDRESSES_MAX as u32 {
            others += told.note(addr(site, 1), start + PAUSE * site).unwrap().others;
        }
        assert_eq!((others, told.addresses.len()), (2, 1));
    }

    #[test]
    fn resets_are_told_with_the_next_line() {
        let (failures, now) = (Failures::default(), Instant::now());
        (0..3).for_each(|_| failures.note_reset());
        let told = [1, 2].map(|n| failures.failed.lock().note(addr(0, n), now));
        assert_eq!(told, [Some(Line { times: 1, others: 0, resets: 3 }), line(1, 0)]);
    }
}
