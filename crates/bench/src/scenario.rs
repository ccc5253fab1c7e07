//! Measurements other than steady load: nodes that fail, many watchers, many idle sessions, many
//! znodes, and growing numbers of znodes, nodes, waiters and sessions.

mod failover;
mod fan_out;
mod growth;
mod idle;
mod maintenance;
mod million;
mod sessions;
mod snapshot;
mod waiters;

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::system::{Cluster, Kind};

/// The scenarios, in the order in which the report shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scenario {
    /// One write on a znode that 1,000 clients watch, until the last client has the event.
    FanOut,
    /// The leader is killed.
    LeaderKilled,
    /// The leader is stopped as a whole (SIGSTOP) and continues later, while sessions of 10 s are
    /// kept alive.
    LeaderHung,
    /// 10,000 sessions that only send heartbeats, on a fresh cluster.
    IdleSessions,
    /// A million znodes or keys of 100 bytes, on a fresh cluster: loaded, read after a restart,
    /// written with snapshots taken.
    Million,
    /// Writes to zlock with a million znodes while a backup is saved, and while a member is added.
    Maintenance,
    /// Writes to zlock among 1,000 to a million znodes.
    GrowthZnodes,
    /// Writes to zlock on 1, 3, 5 and 7 nodes.
    GrowthNodes,
    /// Hand-offs of one lock of zlock, and writes, with 1 to 100,000 waiters in its queue.
    GrowthWaiters,
    /// Writes to zlock with 10 to 100,000 sessions that are kept alive.
    GrowthSessions,
}

/// A measured value of one round of a scenario.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// Size at which the figure was measured, for example a number of waiters; `None` in a scenario
    /// of one size.
    pub(crate) size: Option<usize>,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Figure {
    fn new(name: impl Into<String>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), size: None, unit, value }
    }

    fn at(size: usize, name: &str, unit: &'static str, value: f64) -> Figure {
        Figure { size: Some(size), ..Figure::new(name, unit, value) }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.size {
            write!(f, "{size}: ")?;
        }
        write!(f, "{}: {:.1} {}", self.name, self.value, self.unit)
    }
}

impl Scenario {
    /// Tells whether the scenario is run on a system.
    pub(crate) fn runs_on(self, kind: Kind) -> bool {
        match self {
            // Znodes created over HTTP and over ZooKeeper's protocol are alike, so one protocol is
            // enough.
            Scenario::Million => matches!(kind, Kind::ZlockZk | Kind::Zookeeper | Kind::Etcd),
            Scenario::Maintenance | Scenario::GrowthZnodes | Scenario::GrowthNodes => kind == Kind::ZlockZk,
            // Over HTTP neither a session nor a waiter needs its own connection.
            Scenario::GrowthWaiters | Scenario::GrowthSessions => kind == Kind::ZlockRest,
            // Redis has no sessions, no watches that outlive a connection, and here no other node.
            Scenario::FanOut | Scenario::LeaderKilled | Scenario::LeaderHung | Scenario::IdleSessions => {
                kind != Kind::Redis
            }
        }
    }

    /// Tells whether the scenario wants a cluster of its own, alone on the machine.
    pub(crate) fn is_alone(self) -> bool {
        !matches!(self, Scenario::FanOut | Scenario::LeaderKilled | Scenario::LeaderHung)
    }

    /// Longest time of one round on one system, after which the round has failed.
    pub(crate) fn time_limit(self) -> Duration {
        Duration::from_secs(if self.is_alone() { 300 } else { 120 })
    }

    /// Runs one round on a cluster that other workloads share. Each figure goes into `figures` at
    /// once, so that it survives a later failure.
    pub(crate) async fn run(
        self,
        cluster: &mut Cluster,
        kind: Kind,
        scale: Scale,
        figures: &mut Vec<Figure>,
    ) -> Result<(), Error> {
        match self {
            Scenario::FanOut => fan_out::run(cluster, kind, scale, figures).await,
            Scenario::LeaderKilled => failover::killed(cluster, kind, figures).await,
            Scenario::LeaderHung => failover::hung(cluster, kind, figures).await,
            _ => Err(Error::Absent("it wants a cluster of its own".into())),
        }
    }

    /// Runs one round on a new cluster.
    pub(crate) async fn run_alone(self, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
        if self == Scenario::GrowthNodes {
            return growth::nodes(kind, figures).await;
        }
        let mut cluster = Cluster::start(kind.program(), 3, false).await?;
        match self {
            Scenario::IdleSessions => idle::run(&cluster, kind, scale, figures).await,
            Scenario::Million => million::run(&mut cluster, kind, scale, figures).await,
            Scenario::Maintenance => maintenance::run(&cluster, kind, scale, figures).await,
            Scenario::GrowthZnodes => growth::znodes(&cluster, kind, scale, figures).await,
            Scenario::GrowthWaiters => waiters::run(&cluster, kind, scale, figures).await,
            Scenario::GrowthSessions => sessions::run(&cluster, kind, scale, figures).await,
            _ => Err(Error::Absent("it is run on a shared cluster".into())),
        }
    }
}

/// Factor of the scenarios' sizes: above 0, and 1 at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale(f64);

impl Scale {
    /// The factor of full sizes.
    pub(crate) const FULL: Scale = Scale(1.0);

    /// Reads the factor from the command line.
    pub(crate) fn parse(text: &str) -> Result<Scale, String> {
        let factor: f64 = text.parse().map_err(|_| "a number is wanted".to_owned())?;
        if factor > 0.0 && factor <= 1.0 { Ok(Scale(factor)) } else { Err("above 0 and at most 1".to_owned()) }
    }

    pub(crate) fn factor(self) -> f64 {
        self.0
    }

    /// Returns the scaled size, at least one.
    fn of(self, full: usize) -> usize {
        ((full as f64 * self.0) as usize).max(1)
    }

    /// Returns `first`, then ten times as much and so on, up to the scaled `full`.
    fn steps(self, first: usize, full: usize) -> impl Iterator<Item = usize> {
        let last = self.of(full).max(first);
        std::iter::successors(Some(first), |size| size.checked_mul(10)).take_while(move |size| *size <= last)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_powers_of_ten_up_to_the_scaled_one() {
        let steps = |scale: f64, first, full| Scale(scale).steps(first, full).collect::<Vec<_>>();
        assert_eq!(steps(1.0, 1, 100_000), [1, 10, 100, 1_000, 10_000, 100_000]);
        assert_eq!(steps(0.01, 1_000, 1_000_000), [1_000, 10_000]);
        assert_eq!(steps(0.0001, 1_000, 1_000_000), [1_000]);
        assert!(Scale::parse("0").is_err() && Scale::parse("2").is_err() && Scale::parse("x").is_err());
    }
}
