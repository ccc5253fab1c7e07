//! Invariants: conditions that must always be true. Each has a file, which names the source of the
//! condition.
//!
//! An invariant sees each committed entry once and in order, each change of a node's visible state,
//! and the observations of clients. The first violation ends the run.

mod acknowledged_survive;
mod applied_rises;
mod delays_last;
mod ephemerals_have_owners;
mod exactly_once;
mod grants_are_told;
mod ids_once;
mod levels_are_known;
mod no_early_expiry;
pub(crate) mod nodes_can_apply;
mod one_holder;
mod one_leader;
mod one_quorum;
mod one_sure_leader;
mod parents_exist;
mod reads_are_fresh;
mod replicas_agree;
mod restarts_go_on;
mod sessions_end_in_time;
mod strangers_count_for_nothing;
mod tokens_rise;
mod watches_fire_once;

use std::cell::RefCell;
use std::rc::Rc;

use znode::Zxid;

use crate::history::History;
use crate::hub::{Hub, MachineId};
use crate::log_disk::LogDisk;
use crate::machine::Clock;
use crate::observation::{Commit, NodeView, Observation, Standing};

/// Facts of the simulated world for invariants.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The rate of the fastest clock, in seconds per ten thousand true seconds.
    pub fastest_rate: u64,
}

impl World {
    /// The true time in milliseconds in which the fastest node's clock advances by `ms`.
    pub fn at_least_ms(&self, ms: u64) -> u64 {
        ms * Clock::TRUE_RATE / self.fastest_rate.max(1)
    }
}

/// The calm: the time after all faults are repaired.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// The time at which the calm began; `None` before it.
    pub from_ms: Option<u64>,
    /// Number of grants in the calm that waiting clients were told of in time.
    pub grants: u64,
}

/// A condition that must always be true. The simulation calls the methods during a run, and each
/// call can report a violation.
pub trait Invariant {
    /// The name for the report.
    fn name(&self) -> &'static str;

    /// Checks one more committed entry.
    ///
    /// # Errors
    /// A description of the violation.
    fn committed(&mut self, _commit: &Commit<'_>, _history: &History) -> Result<(), String> {
        Ok(())
    }

    /// Checks the roles and states of running nodes after a step of the simulated time. A
    /// [`Standing`] is the role and state of one node by its own view.
    ///
    /// # Errors
    /// A description of the violation.
    fn step(&mut self, _standings: &[Standing], _now_ms: u64) -> Result<(), String> {
        Ok(())
    }

    /// Checks a change of a node's visible state.
    ///
    /// # Errors
    /// A description of the violation.
    fn node(&mut self, _view: &NodeView, _log: &LogDisk, _history: &mut History) -> Result<(), String> {
        Ok(())
    }

    /// Checks the end of a node that ended by itself for the reason `why`.
    ///
    /// # Errors
    /// A description of the violation.
    fn ended(&mut self, _node: MachineId, _why: &str, _history: &History) -> Result<(), String> {
        Ok(())
    }

    /// Checks an observation of a client.
    ///
    /// # Errors
    /// A description of the violation.
    fn client(&mut self, _seen: &Observation, _history: &History, _now_ms: u64) -> Result<(), String> {
        Ok(())
    }

    /// Checks the end of the run, after all faults are repaired.
    ///
    /// # Errors
    /// A description of the violation.
    fn end(&mut self, _history: &mut History) -> Result<(), String> {
        Ok(())
    }
}

/// All invariants of a run.
pub struct Invariants {
    all: Vec<Box<dyn Invariant>>,
    calm: Rc<RefCell<Calm>>,
    acknowledged: u64,
}

impl Invariants {
    /// Returns all invariants, at the beginning of a run.
    pub fn new(world: World, hub: Hub) -> Invariants {
        let calm = Rc::<RefCell<Calm>>::default();
        Invariants {
            all: vec![
                Box::new(levels_are_known::LevelsAreKnown),
                Box::new(replicas_agree::ReplicasAgree),
                Box::new(applied_rises::AppliedRises::default()),
                Box::new(one_leader::OneLeader::default()),
                Box::new(one_sure_leader::OneSureLeader::default()),
                Box::new(one_quorum::OneQuorum::new(hub)),
                Box::new(ids_once::IdsOnce::default()),
                Box::new(nodes_can_apply::NodesCanApply),
                Box::new(restarts_go_on::RestartsGoOn::default()),
                Box::new(parents_exist::ParentsExist),
                Box::new(ephemerals_have_owners::EphemeralsHaveOwners),
                Box::new(one_holder::OneHolder::new(world)),
                Box::new(tokens_rise::TokensRise::default()),
                Box::new(no_early_expiry::NoEarlyExpiry::new(world)),
                Box::new(sessions_end_in_time::SessionsEndInTime::new(Rc::clone(&calm))),
                Box::new(strangers_count_for_nothing::StrangersCountForNothing),
                Box::new(delays_last::DelaysLast::default()),
                Box::new(acknowledged_survive::AcknowledgedSurvive::default()),
                Box::new(exactly_once::ExactlyOnce::default()),
                Box::new(reads_are_fresh::ReadsAreFresh),
                Box::new(watches_fire_once::WatchesFireOnce),
                Box::new(grants_are_told::GrantsAreTold::new(Rc::clone(&calm))),
            ],
            calm,
            acknowledged: 0,
        }
    }

    /// Number of acknowledged writes that clients have reported to the invariants.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Sets the time from which on there are no faults.
    pub fn calm_from(&mut self, ms: u64) {
        self.calm.borrow_mut().from_ms = Some(ms);
    }

    /// Number of grants in the calm that clients waited for.
    pub fn grants(&self) -> u64 {
        self.calm.borrow().grants
    }

    /// Shows a committed entry to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn committed(&mut self, history: &History, zxid: Zxid, now_ms: u64) -> Result<(), String> {
        let Some(commit) = history.commit(zxid, now_ms) else { return Ok(()) };
        self.ask(|invariant| invariant.committed(&commit, history))
    }

    /// Shows the roles and states of running nodes after a step of the simulated time to all
    /// invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn step(&mut self, standings: &[Standing], now_ms: u64) -> Result<(), String> {
        self.ask(|invariant| invariant.step(standings, now_ms))
    }

    /// Shows a node's visible state to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn node(&mut self, history: &mut History, log: &LogDisk, view: &NodeView) -> Result<(), String> {
        self.ask(|invariant| invariant.node(view, log, history))
    }

    /// Shows the end of a node that ended by itself to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn ended(&mut self, history: &History, node: MachineId, why: &str) -> Result<(), String> {
        self.ask(|invariant| invariant.ended(node, why, history))
    }

    /// Shows an observation of a client to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn client(&mut self, history: &History, seen: &Observation, now_ms: u64) -> Result<(), String> {
        self.acknowledged += u64::from(matches!(seen, Observation::Acknowledged { .. }));
        self.ask(|invariant| invariant.client(seen, history, now_ms))
    }

    /// Shows the end of the run to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn end(&mut self, history: &mut History) -> Result<(), String> {
        self.ask(|invariant| invariant.end(history))
    }

    fn ask(&mut self, mut ask: impl FnMut(&mut dyn Invariant) -> Result<(), String>) -> Result<(), String> {
        for invariant in &mut self.all {
            ask(&mut **invariant).map_err(|why| format!("{}: {why}", invariant.name()))?;
        }
        Ok(())
    }
}
