//! Token buckets that bound how often each address may make a request, such as opening a session.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;
use crate::networks::source;

/// Capacity of a bucket, as the time in which an empty bucket becomes full. After a pause, an
/// address may take all tokens of its bucket at once.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// Largest number of addresses with a bucket. Further addresses are not limited by this module,
/// only by bounds that apply to all addresses together.
const ADDRESSES_MAX: usize = 1 << 16;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A token bucket for each address. A full bucket has the tokens that it gains in ten seconds.
#[derive(Debug)]
pub struct Rates {
    /// Time in which a bucket gains one token; zero for no bound.
    interval: Duration,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// Time at which an address's bucket is full again, by address.
    full_at: HashMap<IpAddr, Instant>,
    /// Time of the last removal of full buckets. A removal checks all buckets, so it is not done
    /// for each request.
    looked_at: Option<Instant>,
}

impl Rates {
    /// Creates buckets that gain `per_second_max` tokens a second; 0 stands for no bound.
    pub fn new(per_second_max: u32) -> Rates {
        let interval = if per_second_max == 0 { Duration::ZERO } else { Duration::from_secs(1) / per_second_max };
        Rates { interval, buckets: Mutex::default() }
    }

    /// Takes a token from an address's bucket. Returns false when the bucket is empty.
    pub fn take(&self, addr: IpAddr) -> bool {
        if self.interval.is_zero() {
            return true;
        }
        let (source, now) = (source(addr), Instant::now());
        let mut buckets = self.buckets.lock();
        let Buckets { full_at, looked_at } = &mut *buckets;
        if full_at.len() >= ADDRESSES_MAX && !full_at.contains_key(&source) {
            if looked_at.is_none_or(|looked_at| looked_at + LOOK_EVERY <= now) {
                *looked_at = Some(now);
                full_at.retain(|_, full_at| *full_at > now);
            }
            if full_at.len() >= ADDRESSES_MAX {
                return true;
            }
        }
        let full_at = full_at.entry(source).or_insert(now);
        let then = (*full_at).max(now) + self.interval;
        if then > now + AHEAD_MAX {
            return false;
        }
        *full_at = then;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_has_ten_seconds_worth_at_once_and_then_its_rate() {
        let rates = Rates::new(5);
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let taken = |addr| (0..1_000).take_while(|_| rates.take(addr)).count();
        assert_eq!((taken(one), taken(one)), (50, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((taken(one), taken(other)), (5, 50));
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(taken(one), 50);
        assert!((0..1_000).all(|_| Rates::new(0).take(one)));
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_take_a_bounded_table() {
        let rates = Rates::new(1);
        for n in 0..2 * ADDRESSES_MAX as u32 {
            assert!(rates.take(std::net::Ipv4Addr::from(n).into()));
        }
        assert_eq!(rates.buckets.lock().full_at.len(), ADDRESSES_MAX);
        tokio::time::advance(AHEAD_MAX).await;
        assert!(rates.take([203, 0, 113, 1].into()));
        assert_eq!(rates.buckets.lock().full_at.len(), 1);
    }
}
