//! Bound on the number of requests at work, for the node and for each address.
//!
//! A request is at work from the end of its head to its answer, except while it waits as a long
//! poll. Waiting requests have a bound of their own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use accept::Mutex;
use replica::Bound;

use crate::problem::Problem;

/// Largest number of requests that the node works on at once; waiting long polls do not count.
/// [`LAST_PLACES`] more are admitted from addresses that have no other request at work.
const AT_WORK_MAX: usize = 4_096;
/// One address may have at most `AT_WORK_MAX / SHARED_PART` requests at work while other addresses
/// have requests at work, too.
const SHARED_PART: usize = 4;
/// Number of requests beyond [`AT_WORK_MAX`] that are admitted from addresses without another
/// request at work.
const LAST_PLACES: usize = 64;

/// Number of requests at work, for the node and for each address. Clones share the numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWork(Arc<Mutex<RequestCounts>>);

#[derive(Debug, Default)]
struct RequestCounts {
    all: usize,
    /// Number of requests at work from each address, except from exempt addresses, which stand for
    /// many clients.
    of: HashMap<IpAddr, usize>,
}

/// Permit of a request at work. Dropping it ends the counting of the request.
#[derive(Debug)]
pub(crate) struct Pass {
    at_work: AtWork,
    source: Option<IpAddr>,
}

/// Guard of a waiting request, which does not count as at work. Dropping the guard counts the
/// request again.
pub(crate) struct Pause(Arc<Pass>);

impl AtWork {
    /// Counts a request of this address as at work; `None` stands for an exempt address.
    ///
    /// # Errors
    /// 429 beyond the address's share of requests at work, 503 beyond the node's bound.
    pub(crate) fn enter(&self, source: Option<IpAddr>) -> Result<Arc<Pass>, Problem> {
        let mut counts = self.0.lock();
        let own = source.map_or(0, |source| counts.of.get(&source).copied().unwrap_or(0));
        let has_last_place = source.is_some() && own == 0 && counts.all < AT_WORK_MAX + LAST_PLACES;
        if own >= AT_WORK_MAX / SHARED_PART && counts.all > own {
            return Err(Problem::too_many(Bound::RequestsOfAddress, "requests at work from your address"));
        }
        if counts.all >= AT_WORK_MAX && !has_last_place {
            return Err(Problem::full(Bound::Requests, "too many requests at work on this node: go to another one"));
        }
        counts.add(source);
        drop(counts);
        Ok(Arc::new(Pass { at_work: self.clone(), source }))
    }
}

impl RequestCounts {
    fn add(&mut self, source: Option<IpAddr>) {
        self.all += 1;
        if let Some(source) = source {
            *self.of.entry(source).or_default() += 1;
        }
    }

    fn take(&mut self, source: Option<IpAddr>) {
        self.all -= 1;
        let Some(source) = source else { return };
        let Some(own) = self.of.get_mut(&source) else { return };
        *own -= 1;
        if *own == 0 {
            self.of.remove(&source);
        }
    }
}

impl Pass {
    /// Stops counting the request as at work, for as long as the returned [`Pause`] lives.
    pub(crate) fn pause(self: &Arc<Pass>) -> Pause {
        self.at_work.0.lock().take(self.source);
        Pause(Arc::clone(self))
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let Pass { at_work, source } = &*self.0;
        at_work.0.lock().add(*source);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.at_work.0.lock().take(self.source);
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use znode::Zxid;

    use super::*;

    fn addr(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    #[track_caller]
    fn refused(at_work: &AtWork, source: Option<IpAddr>) -> StatusCode {
        at_work.enter(source).expect_err("there is no place").render(Zxid(0)).status()
    }

    #[test]
    fn an_address_has_all_places_alone_and_a_quarter_beside_others() {
        let at_work = AtWork::default();
        let mut large: Vec<Arc<Pass>> = (0..AT_WORK_MAX).map(|_| at_work.enter(addr(1)).unwrap()).collect();
        assert_eq!(refused(&at_work, addr(1)), StatusCode::SERVICE_UNAVAILABLE);
        let small = at_work.enter(addr(2)).expect("an address without any has a place");
        assert_eq!(refused(&at_work, addr(2)), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused(&at_work, None), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused(&at_work, addr(1)), StatusCode::TOO_MANY_REQUESTS);
        large.truncate(AT_WORK_MAX / SHARED_PART);
        assert_eq!(refused(&at_work, addr(1)), StatusCode::TOO_MANY_REQUESTS, "beside another one");
        let exempt: Vec<Arc<Pass>> = (0..AT_WORK_MAX / 2).map(|_| at_work.enter(None).unwrap()).collect();
        drop((small, exempt));
        drop(at_work.enter(addr(1)).expect("it is alone again"));
    }

    #[test]
    fn a_request_that_waits_is_not_at_work() {
        let at_work = AtWork::default();
        let waiting: Vec<Pause> = (0..AT_WORK_MAX + 1).map(|_| at_work.enter(addr(1)).unwrap().pause()).collect();
        assert_eq!(at_work.0.lock().all, 0);
        drop(waiting);
        let counts = at_work.0.lock();
        assert!(counts.all == 0 && counts.of.is_empty());
    }
}
