//! Running clusters, which all workloads and some scenarios share. A cluster is started at its
//! first use, and replaced after a failure.

use std::time::Duration;

use crate::error::Error;
use crate::system::{Cluster, Kind, Program};
use crate::workload::{self, Load, Workload};

const WARM_UP_CLIENTS: usize = 64;

/// Running clusters, at most one for each server program.
pub(crate) struct Clusters {
    /// Systems that are measured.
    systems: Vec<Kind>,
    /// Length of the load that each system gets before it is measured.
    warm_up: Duration,
    running: Vec<Cluster>,
    /// Server programs that did not start, each with the reason. They are not started again.
    given_up: Vec<(Program, String)>,
}

impl Clusters {
    /// Returns an empty set of clusters.
    pub(crate) fn new(systems: &[Kind], warm_up: Duration) -> Clusters {
        Clusters { systems: systems.to_vec(), warm_up, running: Vec::new(), given_up: Vec::new() }
    }

    /// Returns the cluster that serves a system, started and warmed up.
    ///
    /// # Errors
    /// When the cluster does not start. Later calls fail for the same reason.
    pub(crate) async fn get(&mut self, kind: Kind) -> Result<&mut Cluster, Error> {
        let program = kind.program();
        if let Some((_, reason)) = self.given_up.iter().find(|(given_up, _)| *given_up == program) {
            return Err(Error::Absent(reason.clone()));
        }
        if !self.running.iter().any(|cluster| cluster.program == program) {
            match self.start(program).await {
                Ok(cluster) => self.running.push(cluster),
                Err(error) => {
                    self.given_up.push((program, error.to_string()));
                    return Err(error);
                }
            }
        }
        let running = self.running.iter_mut().find(|cluster| cluster.program == program);
        Ok(running.expect("it was started above, if not before"))
    }

    async fn start(&self, program: Program) -> Result<Cluster, Error> {
        eprintln!("starting {program:?}");
        let nodes = if program == Program::Redis { 1 } else { 3 };
        let cluster = Cluster::start(program, nodes, false).await?;
        for &kind in self.systems.iter().filter(|kind| kind.program() == program) {
            for workload in [Workload::Write, Workload::LocalGet, Workload::LockCycle] {
                let load = Load { workload, clients: WARM_UP_CLIENTS, length: self.warm_up / 3, first_node: 0 };
                workload::round(&cluster, kind, load).await?;
            }
        }
        Ok(cluster)
    }

    /// Ends the cluster of a system after a failure, because the cluster's state is not known.
    pub(crate) fn discard(&mut self, kind: Kind) {
        self.running.retain(|cluster| cluster.program != kind.program());
    }

    /// Ends all clusters.
    pub(crate) fn clear(&mut self) {
        self.running.clear();
    }
}
