//! What must always be true: one file each, with where the demand comes from.
//!
//! An invariant sees each committed entry once and in order, each change of what a node shows, and
//! what clients saw. The first that does not hold ends the run.

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

/// What invariants know of the simulated world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The rate of the fastest clock.
    pub fastest_rate: u64,
}

impl World {
    /// How long `ms` of the fastest node's time take in true time.
    pub fn at_least_ms(&self, ms: u64) -> u64 {
        ms * Clock::TRUE_RATE / self.fastest_rate.max(1)
    }
}

/// The time in which nothing goes wrong any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// When it began.
    pub from_ms: Option<u64>,
    /// Grants that clients waited for in it, and were told of in time.
    pub grants: u64,
}

/// Something that must always be true. Each hook may find that it is not, and says why.
pub trait Invariant {
    /// Its name, for the report.
    fn name(&self) -> &'static str;

    /// One more entry is committed.
    ///
    /// # Errors
    /// Why it does not hold.
    fn committed(&mut self, _commit: &Commit<'_>, _history: &History) -> Result<(), String> {
        Ok(())
    }

    /// A step is over: what the nodes that ran in it take themselves for.
    ///
    /// # Errors
    /// Why it does not hold.
    fn step(&mut self, _standings: &[Standing], _now_ms: u64) -> Result<(), String> {
        Ok(())
    }

    /// A node shows something new.
    ///
    /// # Errors
    /// Why it does not hold.
    fn node(&mut self, _view: &NodeView, _log: &LogDisk, _history: &mut History) -> Result<(), String> {
        Ok(())
    }

    /// A node has ended by itself, and says why.
    ///
    /// # Errors
    /// Why it does not hold.
    fn ended(&mut self, _node: MachineId, _why: &str, _history: &History) -> Result<(), String> {
        Ok(())
    }

    /// A client saw something.
    ///
    /// # Errors
    /// Why it does not hold.
    fn client(&mut self, _seen: &Observation, _history: &History, _now_ms: u64) -> Result<(), String> {
        Ok(())
    }

    /// The run is over, and everything has healed.
    ///
    /// # Errors
    /// Why it does not hold.
    fn end(&mut self, _history: &mut History) -> Result<(), String> {
        Ok(())
    }
}

/// All of them.
pub struct Invariants {
    all: Vec<Box<dyn Invariant>>,
    calm: Rc<RefCell<Calm>>,
    acknowledged: u64,
}

impl Invariants {
    /// All of them, at the beginning.
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

    /// How many acknowledged writes were seen.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// From then on nothing goes wrong.
    pub fn calm_from(&mut self, ms: u64) {
        self.calm.borrow_mut().from_ms = Some(ms);
    }

    /// How many grants were waited for when nothing went wrong any more.
    pub fn grants(&self) -> u64 {
        self.calm.borrow().grants
    }

    /// Shows all of them a committed entry.
    ///
    /// # Errors
    /// The first that does not hold, and why.
    pub fn committed(&mut self, history: &History, zxid: Zxid, now_ms: u64) -> Result<(), String> {
        let Some(commit) = history.commit(zxid, now_ms) else { return Ok(()) };
        self.ask(|invariant| invariant.committed(&commit, history))
    }

    /// Tells all of them that a step is over.
    ///
    /// # Errors
    /// The first that does not hold, and why.
    pub fn step(&mut self, standings: &[Standing], now_ms: u64) -> Result<(), String> {
        self.ask(|invariant| invariant.step(standings, now_ms))
    }

    /// Shows all of them what a node shows.
    ///
    /// # Errors
    /// The first that does not hold, and why.
    pub fn node(&mut self, history: &mut History, log: &LogDisk, view: &NodeView) -> Result<(), String> {
        self.ask(|invariant| invariant.node(view, log, history))
    }

    /// Tells all of them that a node has ended by itself.
    ///
    /// # Errors
    /// The first that does not hold, and why.
    pub fn ended(&mut self, history: &History, node: MachineId, why: &str) -> Result<(), String> {
        self.ask(|invariant| invariant.ended(node, why, history))
    }

    /// Shows all of them what a client saw.
    ///
    /// # Errors
    /// The first that does not hold, and why.
    pub fn client(&mut self, history: &History, seen: &Observation, now_ms: u64) -> Result<(), String> {
        self.acknowledged += u64::from(matches!(seen, Observation::Acknowledged { .. }));
        self.ask(|invariant| invariant.client(seen, history, now_ms))
    }

    /// Tells all of them that the run is over.
    ///
    /// # Errors
    /// The first that does not hold, and why.
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
