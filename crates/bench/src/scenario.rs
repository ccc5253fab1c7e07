//! What is no steady load: nodes that fail, many watchers, many idle sessions, many znodes.

mod failover;
mod fan_out;
mod growth;
mod idle;
mod million;

use std::path::Path;

use clap::ValueEnum;

use crate::error::Error;
use crate::system::{Cluster, Kind};

/// The scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// One write on a znode that 1,000 clients watch, until the last of them is told.
    FanOut,
    /// The leader is killed.
    LeaderKilled,
    /// The leader is stopped as a whole (SIGSTOP) and continues later, while sessions of 10 s are kept alive.
    LeaderHung,
    /// 10,000 sessions that do nothing but live, on a fresh cluster.
    IdleSessions,
    /// A million znodes or keys of 100 bytes, on a fresh cluster.
    Million,
    /// Writes to zlock among 1,000 to a million znodes, and on 1 to 7 nodes.
    Growth,
}

/// One figure of one round.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Figure {
    fn new(name: &'static str, unit: &'static str, value: f64) -> Figure {
        Figure { name, unit, value }
    }
}

impl Scenario {
    /// The name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scenario::FanOut => "fan-out",
            Scenario::LeaderKilled => "leader-killed",
            Scenario::LeaderHung => "leader-hung",
            Scenario::IdleSessions => "idle-sessions",
            Scenario::Million => "million",
            Scenario::Growth => "growth",
        }
    }

    /// Whether a system has it.
    pub(crate) fn runs_on(self, kind: Kind) -> bool {
        match self {
            // Where a session of zlock or a znode of it came from makes no difference to it.
            Scenario::Million => matches!(kind, Kind::ZlockZk | Kind::Zookeeper | Kind::Etcd),
            Scenario::Growth => kind == Kind::ZlockZk,
            _ => kind != Kind::Redis,
        }
    }

    /// Whether it wants a cluster of its own, alone on the machine.
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Scenario::IdleSessions | Scenario::Million | Scenario::Growth)
    }

    /// One round on a cluster that is shared with other workloads.
    pub(crate) async fn run(self, cluster: &mut Cluster, kind: Kind) -> Result<Vec<Figure>, Error> {
        match self {
            Scenario::FanOut => fan_out::run(cluster, kind).await,
            Scenario::LeaderKilled => failover::killed(cluster, kind).await,
            Scenario::LeaderHung => failover::hung(cluster, kind).await,
            Scenario::IdleSessions | Scenario::Million | Scenario::Growth => {
                Err(Error::Absent("it wants a cluster of its own".into()))
            }
        }
    }

    /// One round on a cluster of its own, whose data go below `data`.
    pub(crate) async fn run_alone(self, kind: Kind, data: &Path, size: Size) -> Result<Vec<Figure>, Error> {
        if self == Scenario::Growth {
            return growth::run(kind, data, size.znodes).await;
        }
        let mut cluster = Cluster::start(kind.program(), 3, data).await?;
        match self {
            Scenario::IdleSessions => idle::run(&cluster, kind, size.sessions).await,
            _ => million::run(&mut cluster, kind, size.znodes).await,
        }
    }
}

/// How large the large scenarios are.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) sessions: usize,
    pub(crate) znodes: usize,
}
