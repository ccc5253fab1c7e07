//! Choice of the endpoint, and so of the node, for the next try of a call.

use std::time::Duration;

use crate::client::call::Prefer;
use crate::client::clock::Moment;

/// Time for which other endpoints are preferred after an endpoint's first failure. Each further
/// failure doubles the time, up to `COOL_MAX`.
const COOL_FIRST: Duration = Duration::from_millis(100);
const COOL_MAX: Duration = Duration::from_secs(5);

/// The endpoints of a client, the leader if known, and the pauses of endpoints after failures.
#[derive(Debug)]
pub(crate) struct Endpoints {
    list: Vec<Endpoint>,
    /// Id of the leader that the last answer named; `None` when it named none.
    leader: Option<u64>,
}

#[derive(Debug)]
struct Endpoint {
    /// Id of the node that answered at the endpoint; `None` before its first answer.
    node: Option<u64>,
    failures: u32,
    /// Time until which other endpoints are asked first.
    cool_until: Option<Moment>,
}

impl Endpoints {
    pub(crate) fn new(count: usize) -> Endpoints {
        assert!(count > 0, "the builder refuses an empty list");
        let list = (0..count).map(|_| Endpoint { node: None, failures: 0, cool_until: None }).collect();
        Endpoints { list, leader: None }
    }

    /// Chooses the endpoint for the next try, by its index. `failed` is the endpoint of the last
    /// failed try of this call. `pick` draws a random number below its argument.
    pub(crate) fn choose(
        &self,
        prefer: Prefer,
        failed: Option<usize>,
        now: Moment,
        pick: impl FnOnce(usize) -> usize,
    ) -> usize {
        let warm = |index: &usize| self.list[*index].cool_until.is_none_or(|until| until <= now);
        let leader = self.leader();
        if prefer == Prefer::Leader
            && let Some(leader) = leader.filter(|leader| warm(leader) && Some(*leader) != failed)
        {
            return leader;
        }
        let usable: Vec<usize> = (0..self.list.len()).filter(|index| warm(index) && Some(*index) != failed).collect();
        if !usable.is_empty() {
            return usable[pick(usable.len())];
        }
        // All endpoints are paused after failures: choose the endpoint whose pause ends first, but
        // not the endpoint of the last failed try if there are others.
        let others = (0..self.list.len()).filter(|index| self.list.len() == 1 || Some(*index) != failed);
        others.min_by_key(|index| self.list[*index].cool_until).expect("there is an endpoint")
    }

    /// Returns the endpoint of the leader that the last answer named; `None` if no endpoint is
    /// known to be that node.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.leader.and_then(|leader| self.list.iter().position(|one| one.node == Some(leader)))
    }

    /// Returns an endpoint whose last try succeeded; `None` if there is none.
    pub(crate) fn live(&self) -> Option<usize> {
        self.list.iter().position(|one| one.node.is_some() && one.cool_until.is_none())
    }

    /// Tells whether an endpoint other than `failed` may be asked at once.
    pub(crate) fn has_other(&self, failed: usize, now: Moment) -> bool {
        let others = self.list.iter().enumerate().filter(|(index, _)| *index != failed);
        others.into_iter().any(|(_, one)| one.cool_until.is_none_or(|until| until <= now))
    }

    /// Notes the ids of the node and of the leader that the answer of an endpoint named.
    pub(crate) fn answered(&mut self, index: usize, node: Option<u64>, leader: Option<u64>) {
        let endpoint = &mut self.list[index];
        endpoint.node = node.or(endpoint.node);
        self.leader = leader;
    }

    /// Notes that an endpoint carried out the request or refused it.
    pub(crate) fn succeeded(&mut self, index: usize) {
        self.list[index].failures = 0;
        self.list[index].cool_until = None;
    }

    /// Notes that an endpoint did not answer, or could not serve the request.
    pub(crate) fn failed(&mut self, index: usize, now: Moment) {
        let endpoint = &mut self.list[index];
        let rest = COOL_FIRST.saturating_mul(1 << endpoint.failures.min(16)).min(COOL_MAX);
        endpoint.failures += 1;
        endpoint.cool_until = Some(now.after(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Endpoints {
        /// Tells whether the last try at an endpoint failed.
        pub(crate) fn rests(&self, index: usize) -> bool {
            self.list[index].cool_until.is_some()
        }
    }

    const NOW: Moment = Moment::ZERO;

    fn three() -> Endpoints {
        let mut endpoints = Endpoints::new(3);
        for (index, node) in [(0, 11), (1, 12), (2, 13)] {
            endpoints.answered(index, Some(node), None);
        }
        endpoints
    }

    #[test]
    fn writes_go_to_the_leader_that_the_last_answer_named() {
        let mut endpoints = three();
        endpoints.answered(0, Some(11), Some(13));
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |_| 0), 2);
        endpoints.answered(2, Some(13), Some(12));
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |_| 0), 1);
        assert_eq!(endpoints.choose(Prefer::Any, None, NOW, |_| 0), 0);
    }

    #[test]
    fn a_leader_that_nobody_knows_or_that_is_not_listed_is_no_preference() {
        let mut endpoints = three();
        endpoints.answered(0, Some(11), Some(99));
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |count| count - 1), 2);
        endpoints.answered(0, Some(11), None);
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |count| count - 1), 2);
    }

    #[test]
    fn a_failed_endpoint_is_passed_over_until_it_has_rested() {
        let mut endpoints = three();
        endpoints.answered(0, Some(11), Some(11));
        endpoints.failed(0, NOW);
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |count| count - 1), 2);
        let rested = NOW.after(COOL_FIRST);
        assert_eq!(endpoints.choose(Prefer::Leader, None, rested, |_| 1), 0);
        endpoints.failed(0, NOW);
        assert_eq!(endpoints.choose(Prefer::Leader, None, rested, |_| 0), 1, "the second rest is longer");
        endpoints.succeeded(0);
        assert_eq!(endpoints.choose(Prefer::Leader, None, NOW, |_| 1), 0);
    }

    #[test]
    fn when_all_rest_the_one_that_is_due_first_is_asked_and_not_the_same_again() {
        let mut endpoints = three();
        endpoints.failed(2, NOW);
        endpoints.failed(0, NOW.after(Duration::from_millis(10)));
        endpoints.failed(1, NOW.after(Duration::from_millis(20)));
        assert_eq!(endpoints.choose(Prefer::Any, None, NOW, |_| 0), 2);
        assert_eq!(endpoints.choose(Prefer::Any, Some(2), NOW, |_| 0), 0);
        assert!(!endpoints.has_other(2, NOW));
    }

    #[test]
    fn an_endpoint_that_answered_last_is_live() {
        let mut endpoints = Endpoints::new(2);
        assert_eq!(endpoints.live(), None);
        endpoints.answered(1, Some(12), None);
        assert_eq!(endpoints.live(), Some(1));
        endpoints.failed(1, NOW);
        assert_eq!(endpoints.live(), None);
    }

    #[test]
    fn a_single_endpoint_is_asked_again() {
        let mut endpoints = Endpoints::new(1);
        endpoints.failed(0, NOW);
        assert_eq!(endpoints.choose(Prefer::Leader, Some(0), NOW, |_| 0), 0);
    }

    #[test]
    fn rests_are_bounded() {
        let mut endpoints = three();
        for _ in 0..100 {
            endpoints.failed(0, NOW);
        }
        assert_eq!(endpoints.list[0].cool_until, Some(NOW.after(COOL_MAX)));
    }
}
