//! Durations of requests, by operation of the protocol.

use std::sync::Arc;

use jute::op;
use replica::{Durations, Entrance, Replica};
use tokio::time::Duration;

use crate::request::operations::word;

/// Durations of answered requests, by the code of the operation in ascending order. Operations with
/// one name in [`word`] share a histogram.
pub(crate) struct OperationTimes(Vec<(i32, Arc<Durations>)>);

impl OperationTimes {
    pub(crate) fn new(replica: &Replica) -> OperationTimes {
        let row = |op: &i32| (*op, replica.times().of_requests(Entrance::ZooKeeper, word(*op)));
        let mut times: Vec<_> = op::ALL.iter().map(row).collect();
        times.sort_unstable_by_key(|(op, _)| *op);
        OperationTimes(times)
    }

    /// Counts an answered request. A request whose operation the protocol does not have is not
    /// counted.
    pub(crate) fn note(&self, op: i32, time: Duration) {
        if let Ok(at) = self.0.binary_search_by_key(&op, |(op, _)| *op) {
            self.0[at].1.note(time);
        }
    }
}
