//! Invariants: conditions that must always be true. The comment of each names the source of the
//! condition.
//!
//! An invariant sees each committed entry once and in order, each change of a node's visible state,
//! and the observations of clients. The first violation ends the run.

mod leaders;
mod locks;
pub(crate) mod nodes;
mod requests;
mod sessions;
mod znodes;

use std::cell::RefCell;
use std::rc::Rc;

use znode::Zxid;

use crate::history::{Commit, History};
use crate::hub::Hub;
use crate::log_disk::LogDisk;
use crate::machine::Clock;
use crate::network::MachineId;
use crate::observation::{NodeView, Observation, Standing};

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
    /// The time at which the last removed node ended; 0 before. A removal may end in the calm.
    pub removed_ms: u64,
    /// Number of grants in the calm that waiting clients were told of in time.
    pub grants: u64,
}

/// A condition that must always be true. The simulation calls the methods during a run, and each
/// call can report a violation.
pub trait Invariant {
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
    /// Each invariant with its name for the report.
    all: Vec<(&'static str, Box<dyn Invariant>)>,
    calm: Rc<RefCell<Calm>>,
    acknowledged: u64,
}

impl Invariants {
    /// Returns all invariants, at the beginning of a run.
    pub fn new(world: World, hub: Hub) -> Invariants {
        let calm = Rc::<RefCell<Calm>>::default();
        Invariants {
            all: vec![
                ("levels are known", Box::new(nodes::LevelsAreKnown)),
                ("replicas agree", Box::new(nodes::ReplicasAgree)),
                ("applied never regresses", Box::new(nodes::AppliedRises::default())),
                ("one leader in a term", Box::new(leaders::OneLeader::default())),
                ("one sure leader", Box::new(leaders::OneSureLeader::default())),
                ("one quorum", Box::new(leaders::OneQuorum::new(hub))),
                ("ids once", Box::new(leaders::IdsOnce::default())),
                ("nodes can apply", Box::new(nodes::NodesCanApply)),
                ("restarts go on", Box::new(nodes::RestartsGoOn::default())),
                ("parents exist", Box::new(znodes::ParentsExist)),
                ("ephemerals have live owners", Box::new(znodes::EphemeralsHaveOwners)),
                ("one holder", Box::new(locks::OneHolder::new(world))),
                ("tokens rise", Box::new(locks::TokensRise::default())),
                ("no early expiry", Box::new(sessions::NoEarlyExpiry::new(world))),
                ("sessions end in time", Box::new(sessions::SessionsEndInTime::new(Rc::clone(&calm)))),
                ("strangers count for nothing", Box::new(sessions::StrangersCountForNothing)),
                ("delays last", Box::new(locks::DelaysLast::default())),
                ("acknowledged writes survive", Box::new(requests::AcknowledgedSurvive)),
                ("exactly once", Box::new(requests::ExactlyOnce::default())),
                ("reads are fresh", Box::new(requests::ReadsAreFresh)),
                ("watches fire once", Box::new(requests::WatchesFireOnce)),
                ("grants are told", Box::new(locks::GrantsAreTold::new(Rc::clone(&calm)))),
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

    /// Notes that a removed node has ended at this time.
    pub fn node_removed(&mut self, ms: u64) {
        self.calm.borrow_mut().removed_ms = ms;
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

    /// Shows an observation of a client to all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn client(&mut self, history: &History, seen: &Observation, now_ms: u64) -> Result<(), String> {
        self.acknowledged += u64::from(matches!(seen, Observation::Acknowledged { .. }));
        self.ask(|invariant| invariant.client(seen, history, now_ms))
    }

    /// Calls a method of all invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn ask(&mut self, mut ask: impl FnMut(&mut dyn Invariant) -> Result<(), String>) -> Result<(), String> {
        for (name, invariant) in &mut self.all {
            ask(&mut **invariant).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }
}
