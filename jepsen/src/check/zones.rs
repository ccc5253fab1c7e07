//! Linearizability of one register whose written values are all different, decided in O(n log n).
//!
//! Every read and every successful compare-and-set shows which write it saw. So the operations fall
//! into clusters, one for each value: its write and its readers. A compare-and-set from u to v puts
//! the cluster of v right behind that of u; clusters joined in this way are a block. Blocks must
//! follow each other without overlap. The zone of a block goes from its first completion to its
//! last invocation. Two blocks cannot be ordered exactly when each has an operation that completed
//! before an operation of the other block was invoked (Gibbons and Korach, Testing Shared Memories,
//! 1997). Any longer cycle of blocks contains such a pair.
//!
//! A write of unknown outcome may be left out if no operation saw its value: an order with the
//! write is still an order without it. If its value was seen, the write took effect before the
//! first reader returned.

use std::collections::BTreeMap;

use crate::models::RegisterOp;
use crate::wgl::Call;

/// Result of [`decide`] for the operations on one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneVerdict {
    /// Some order of the operations explains every answer.
    Linearizable,
    /// No order of the operations explains every answer.
    NotLinearizable {
        /// Kind of the contradiction, such as `stale-read`.
        kind: &'static str,
        /// Positions, in the argument of [`decide`], of the operations that contradict each other.
        part: Vec<usize>,
    },
    /// A value was written twice, so another checker must decide.
    NotApplicable,
}

/// A time of [`Call`], or -1 for the time before the first operation.
type Time = i128;

/// Operations on one value of the register (a cluster): the write of the value and its readers.
#[derive(Clone, Debug, Default)]
struct Cluster {
    writer: Option<usize>,
    readers: Vec<usize>,
    /// Value that a compare-and-set wrote in place of this cluster's value; `None` without one.
    next: Option<i64>,
}

/// Zone of a block: its first completion and its last invocation, with their operations. A block is
/// the operations on a chain of values, each written by a compare-and-set from the value before.
#[derive(Clone, Copy, Debug)]
struct Zone {
    first_complete: (Time, Option<usize>),
    last_call: (Time, Option<usize>),
    writer: Option<usize>,
}

impl Zone {
    fn empty() -> Zone {
        Zone { first_complete: (Time::MAX, None), last_call: (Time::MIN, None), writer: None }
    }

    fn cover(&mut self, other: &Zone) {
        self.first_complete = self.first_complete.min(other.first_complete);
        self.last_call = self.last_call.max(other.last_call);
        self.writer = self.writer.or(other.writer);
    }

    fn part(&self) -> impl Iterator<Item = usize> {
        [self.writer, self.first_complete.1, self.last_call.1].into_iter().flatten()
    }
}

/// Decides whether the operations on one register are linearizable. `calls` must not contain failed
/// operations or reads of unknown outcome.
pub fn decide(calls: &[Call<RegisterOp>]) -> ZoneVerdict {
    let Some(completes) = resolve(calls) else { return ZoneVerdict::NotApplicable };
    let clusters = match clusters(calls, &completes) {
        Ok(clusters) => clusters,
        Err(verdict) => return verdict,
    };
    let zones = match blocks(calls, &completes, &clusters) {
        Ok(zones) => zones,
        Err(verdict) => return verdict,
    };
    conflict(zones).map_or(ZoneVerdict::Linearizable, |(a, b)| {
        let stale = b.last_call.max(a.last_call).1.is_some_and(|op| matches!(calls[op].op, RegisterOp::Read(_)));
        contradiction(if stale { "stale-read" } else { "no-order" }, a.part().chain(b.part()))
    })
}

fn contradiction(kind: &'static str, part: impl IntoIterator<Item = usize>) -> ZoneVerdict {
    let mut part: Vec<usize> = part.into_iter().collect();
    part.sort_unstable();
    part.dedup();
    ZoneVerdict::NotLinearizable { kind, part }
}

fn written(op: &RegisterOp) -> Option<i64> {
    match op {
        RegisterOp::Read(_) => None,
        RegisterOp::Write(value) | RegisterOp::Cas(_, value) => Some(*value),
    }
}

fn seen(op: &RegisterOp) -> Option<Option<i64>> {
    match op {
        RegisterOp::Read(value) => Some(*value),
        RegisterOp::Cas(old, _) => Some(Some(*old)),
        RegisterOp::Write(_) => None,
    }
}

/// Returns the time before which each operation must have taken effect; the time is `None` for a
/// write of unknown outcome that no operation saw. The whole result is `None` when a value was
/// written twice.
fn resolve(calls: &[Call<RegisterOp>]) -> Option<Vec<Option<Time>>> {
    let mut writers = BTreeMap::new();
    for (i, call) in calls.iter().enumerate() {
        if let Some(value) = written(&call.op)
            && writers.insert(value, i).is_some()
        {
            return None;
        }
    }
    let mut completes: Vec<Option<Time>> = calls.iter().map(|call| call.complete.map(Time::from)).collect();
    let mut to_visit: Vec<usize> = (0..calls.len()).filter(|i| completes[*i].is_some()).collect();
    while let Some(reader) = to_visit.pop() {
        let writer = seen(&calls[reader].op).flatten().and_then(|value| writers.get(&value).copied());
        let Some(writer) = writer.filter(|writer| calls[*writer].complete.is_none()) else { continue };
        if completes[writer].is_none_or(|known| completes[reader].is_some_and(|complete| complete < known)) {
            completes[writer] = completes[reader];
            to_visit.push(writer);
        }
    }
    Some(completes)
}

fn clusters(
    calls: &[Call<RegisterOp>],
    completes: &[Option<Time>],
) -> Result<BTreeMap<Option<i64>, Cluster>, ZoneVerdict> {
    let mut clusters: BTreeMap<Option<i64>, Cluster> = BTreeMap::from([(None, Cluster::default())]);
    let needed = || calls.iter().enumerate().filter(|(i, _)| completes[*i].is_some());
    for (i, call) in needed() {
        if let Some(value) = written(&call.op) {
            clusters.entry(Some(value)).or_default().writer = Some(i);
        }
    }
    for (i, call) in needed() {
        let Some(value) = seen(&call.op) else { continue };
        let cluster = clusters.get_mut(&value).ok_or_else(|| contradiction("value-from-nowhere", [i]))?;
        if let Some(writer) = cluster.writer
            && completes[i].is_some_and(|complete| complete < Time::from(calls[writer].call))
        {
            return Err(contradiction("value-from-the-future", [writer, i]));
        }
        match call.op {
            RegisterOp::Cas(old, new) => {
                if let Some(other) = cluster.next.replace(new) {
                    let writer = cluster.writer;
                    let other = clusters.get(&Some(other)).and_then(|cluster| cluster.writer);
                    let kind = if old == new { "no-order" } else { "two-sets-of-one-value" };
                    return Err(contradiction(kind, [Some(i), other, writer].into_iter().flatten()));
                }
            }
            _ => cluster.readers.push(i),
        }
    }
    Ok(clusters)
}

/// Joins clusters that compare-and-sets chain into blocks, and returns the zone of each block (from
/// its first completion to its last invocation).
fn blocks(
    calls: &[Call<RegisterOp>],
    completes: &[Option<Time>],
    clusters: &BTreeMap<Option<i64>, Cluster>,
) -> Result<Vec<Zone>, ZoneVerdict> {
    let is_cas = |cluster: &Cluster| cluster.writer.is_some_and(|i| matches!(calls[i].op, RegisterOp::Cas(..)));
    let mut zones = Vec::new();
    let mut visited = 0;
    for (value, head) in clusters.iter().filter(|(_, cluster)| !is_cas(cluster)) {
        let mut chain = vec![zone(calls, completes, value.is_none(), head)];
        let mut next = head.next;
        while let Some(cluster) = next.and_then(|value| clusters.get(&Some(value))) {
            chain.push(zone(calls, completes, false, cluster));
            next = cluster.next;
        }
        visited += chain.len();
        zones.push(join(&chain)?);
    }
    if visited < clusters.len() {
        // These compare-and-sets form a cycle, so none of them can be the first.
        let part = clusters.values().filter(|cluster| is_cas(cluster)).filter_map(|cluster| cluster.writer);
        return Err(contradiction("cycle-of-sets", part));
    }
    Ok(zones)
}

fn zone(calls: &[Call<RegisterOp>], completes: &[Option<Time>], initial: bool, cluster: &Cluster) -> Zone {
    let mut zone = Zone { writer: cluster.writer, ..Zone::empty() };
    if initial {
        zone.first_complete = (-1, None);
        zone.last_call = (-1, None);
    }
    for i in cluster.readers.iter().copied().chain(cluster.writer) {
        let complete = completes[i].expect("only needed operations are in clusters");
        zone.first_complete = zone.first_complete.min((complete, Some(i)));
        zone.last_call = zone.last_call.max((Time::from(calls[i].call), Some(i)));
    }
    zone
}

/// Returns the zone of the block that a chain of clusters forms. The error is the contradiction if
/// the clusters cannot follow each other in this order.
fn join(chain: &[Zone]) -> Result<Zone, ZoneVerdict> {
    let mut later = vec![Zone::empty(); chain.len()];
    for k in (0..chain.len().saturating_sub(1)).rev() {
        later[k] = later[k + 1];
        later[k].cover(&chain[k + 1]);
    }
    let mut block = Zone::empty();
    for (zone, later) in chain.iter().zip(&later) {
        block.cover(zone);
        if later.first_complete.0 < block.last_call.0 {
            let part = [block.last_call.1, later.first_complete.1, zone.writer].into_iter().flatten();
            return Err(contradiction("stale-read", part));
        }
    }
    Ok(block)
}

/// Finds two blocks (given by their zones) that would each have to come before the other.
fn conflict(zones: Vec<Zone>) -> Option<(Zone, Zone)> {
    let (mut forward, backward): (Vec<Zone>, Vec<Zone>) =
        zones.into_iter().partition(|zone| zone.first_complete.0 <= zone.last_call.0);
    forward.sort_by_key(|zone| zone.first_complete);
    for pair in forward.windows(2) {
        if pair[1].first_complete.0 < pair[0].last_call.0 {
            return Some((pair[0], pair[1]));
        }
    }
    backward.into_iter().find_map(|inner| {
        let before = forward.partition_point(|zone| zone.first_complete.0 < inner.last_call.0);
        let outer = forward[..before].last()?;
        (inner.first_complete.0 < outer.last_call.0).then_some((*outer, inner))
    })
}
