//! Time at which a follower stands for election.
//!
//! A follower waits for a silent leader for the whole election timeout, part of which is random,
//! because the leader's machine may only be busy. A leader whose connection has ended is most
//! likely dead. Then a follower waits only until the end of the lease. During the lease, a node
//! that heard the leader does not vote for another node. The end of a connection is only a hint,
//! because a firewall may have cut it. So it only makes the follower ask for pre-votes sooner: a
//! node that still hears the leader refuses, and no term changes. The lease on which leaders rely
//! stays whole.
//!
//! ```text
//! heard last      connection ends         lease over, asks, and again ...   leader silent: asks
//! |-------------------|------------------------|----|-------|-------|------- ... -----------|
//! |<------------------ lease ----------------->|<-->| margin and turn                       |
//! |<---------------------------- between election_timeout_min and _max ------------------->|
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::{Instant, sleep_until};

use crate::Config;
use crate::local::leader_watch::LeaderSigns;
use crate::local::vote_gate::VoteGate;
use crate::raft::consensus::Consensus;

/// Time for which a follower waits after the end of its own lease. The other followers heard the
/// leader a little later, so their leases end later.
const MARGIN: Duration = Duration::from_millis(5);
/// Time between the pre-vote requests of two followers, which ask one after the other so that they
/// do not split the votes. About the duration of one election.
const TURN: Duration = Duration::from_millis(12);
/// Time after a vote for another candidate in which this node asks for no pre-votes, so that the
/// candidate can be elected.
const PRECEDENCE: Duration = Duration::from_millis(50);

/// Values that decide when a follower of one leader asks for pre-votes.
#[derive(Clone, Copy, Debug)]
struct Timing {
    leader: u64,
    lease: Duration,
    /// Time without a message from the leader after which the follower asks for pre-votes although
    /// no connection has ended.
    patience: Duration,
    /// Number of followers whose turn to ask for pre-votes is before this one's, by id.
    before: u32,
    followers: u32,
}

impl Timing {
    /// End of the election timeout of a follower that heard the leader last at `heard`.
    fn patient_until(&self, heard: Instant) -> Instant {
        heard + self.patience
    }

    /// Time at which to ask for pre-votes because the leader's connection has ended; `None` if it
    /// has not ended, or if the election timeout is over sooner. `asked` is the time at which this
    /// node last asked for pre-votes because of an ended connection.
    fn ask_at(&self, signs: &LeaderSigns, asked: Option<Instant>) -> Option<Instant> {
        let heard = signs.heard?;
        // A connection that ended before the leader's last message does not count: the leader has
        // another connection.
        let (_, ended) = signs.ended.filter(|(leader, ended)| *leader == self.leader && *ended >= heard)?;
        let first = (heard + self.lease).max(ended) + MARGIN + TURN * self.before;
        let again = asked.map_or(first, |asked| first.max(asked + TURN * self.followers));
        let at = signs.granted.map_or(again, |granted| again.max(granted + PRECEDENCE));
        (at < self.patient_until(heard)).then_some(at)
    }
}

/// Runs until the node stops: tells Raft when it may stand for election by itself, and when it must
/// ask for pre-votes at once.
pub(crate) async fn stand(config: Arc<Config>, consensus: Arc<Consensus>, gate: Arc<VoteGate>) {
    let mut changes = consensus.role_changes();
    let mut state = State::default();
    // Until then, this node must keep a lease that it may have given before its restart.
    gate.unbound().await;
    loop {
        let next = state.look(&config, &consensus, &gate).await;
        tokio::select! {
            biased;
            changed = changes.changed() => if changed.is_err() { return },
            () = consensus.leader_watch.changed() => {}
            () = sleep_until(next) => {}
        }
    }
}

#[derive(Default)]
struct State {
    /// Time at which the leader was heard last, and the random election timeout that counts from
    /// this time.
    patience: Option<(Instant, Duration)>,
    /// Time at which this node last asked for pre-votes because the leader's connection had ended.
    asked: Option<Instant>,
}

impl State {
    /// Allows or forbids Raft to stand for election, and asks for pre-votes if it is time. Returns
    /// the time at which to call this again. The caller calls it sooner when the leader's
    /// connection ends, or when Raft has a new role or leader.
    async fn look(&mut self, config: &Config, consensus: &Consensus, gate: &VoteGate) -> Instant {
        let now = Instant::now();
        let seldom = now + consensus.election_timeout_max;
        if !gate.joined() {
            return seldom;
        }
        if consensus.disk_watch.stalls() {
            // Without its disk this node cannot even vote for itself. The end of a stall wakes this
            // task.
            consensus.raft.runtime_config().elect(false);
            return seldom;
        }
        let signs = consensus.leader_watch.signs();
        let leader = consensus.leader().filter(|leader| *leader != consensus.node_id);
        let (Some(leader), Some(heard)) = (leader, signs.heard) else {
            // Without a leader to wait for, Raft itself decides when to stand for election.
            consensus.raft.runtime_config().elect(true);
            return seldom;
        };
        let voters: BTreeSet<u64> = consensus.membership().voter_ids().collect();
        let patience = self.patience(config, heard);
        let timing = Timing { patience, ..timing(config, &voters, leader) };
        let silent = now >= timing.patient_until(heard);
        consensus.raft.runtime_config().elect(silent);
        if silent {
            // Raft may stand for election until the leader is heard again.
            return now + Duration::from_millis(config.heartbeat_ms);
        }
        if timing.ask_at(&signs, self.asked).is_some_and(|at| at <= now) {
            tracing::debug!(leader, silent_ms = (now - heard).as_millis(), "the leader's connection has ended: asking");
            self.asked = Some(now);
            // Raft itself grants no vote while the lease lasts.
            let _ = consensus.raft.trigger().elect(true).await;
        }
        let again = timing.ask_at(&signs, self.asked);
        again.map_or(timing.patient_until(heard), |at| at.min(timing.patient_until(heard)))
    }

    fn patience(&mut self, config: &Config, heard: Instant) -> Duration {
        match self.patience {
            Some((at, patience)) if at == heard => patience,
            _ => {
                let patience = random_patience(config);
                self.patience = Some((heard, patience));
                patience
            }
        }
    }
}

fn timing(config: &Config, voters: &BTreeSet<u64>, leader: u64) -> Timing {
    let followers = || voters.iter().copied().filter(|id| *id != leader);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Timing {
        leader,
        lease: Duration::from_millis(config.lease_ms()),
        patience: Duration::from_millis(config.election_timeout_max_ms),
        before: count(followers().filter(|id| *id < config.node_id).count()),
        followers: count(followers().count()),
    }
}

/// A random timeout between the shortest and the longest election timeout, drawn by openraft.
fn random_patience(config: &Config) -> Duration {
    let (min, max) = (config.election_timeout_min_ms, config.election_timeout_max_ms);
    let range =
        openraft::Config { election_timeout_min: min, election_timeout_max: max.max(min + 1), ..Default::default() };
    Duration::from_millis(range.new_rand_election_timeout::<storage::Runtime>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LEASE: Duration = Duration::from_millis(250);
    const PATIENCE: Duration = Duration::from_millis(600);

    /// Timing of the follower that asks first, of the two followers of node 1.
    const FIRST: Timing = Timing { leader: 1, lease: LEASE, patience: PATIENCE, before: 0, followers: 2 };
    const SECOND: Timing = Timing { before: 1, ..FIRST };

    /// Signs of a leader that was heard last at `heard`. `ended` is the leader's id and the end of
    /// its connection, `granted` the follower's last vote for another node. Times are in
    /// milliseconds after `start`.
    fn signs(start: Instant, heard: u32, ended: Option<(u64, u32)>, granted: Option<u32>) -> LeaderSigns {
        let at = |ms: u32| start + MS * ms;
        LeaderSigns {
            heard: Some(at(heard)),
            ended: ended.map(|(leader, ms)| (leader, at(ms))),
            granted: granted.map(at),
            outgrown: None,
        }
    }

    #[track_caller]
    fn check(timing: Timing, signs: impl Fn(Instant) -> LeaderSigns, asked: Option<u32>, expected: Option<u32>) {
        let start = Instant::now();
        let at = timing.ask_at(&signs(start), asked.map(|ms| start + MS * ms));
        assert_eq!(at.map(|at| at - start), expected.map(|ms| MS * ms));
    }

    #[test]
    fn a_follower_asks_behind_its_lease_when_the_leaders_connection_has_ended_and_one_follower_after_the_other() {
        check(FIRST, |start| signs(start, 100, Some((1, 130)), None), None, Some(355));
        check(SECOND, |start| signs(start, 100, Some((1, 130)), None), None, Some(367));
        // The follower notices late that the connection has ended.
        check(SECOND, |start| signs(start, 100, Some((1, 400)), None), None, Some(417));
    }

    #[test]
    fn it_asks_again_in_turn_with_the_others_until_the_ordinary_timeout() {
        let cut = |start| signs(start, 100, Some((1, 130)), None);
        check(FIRST, cut, Some(355), Some(379));
        check(SECOND, cut, Some(367), Some(391));
        check(FIRST, cut, Some(675), Some(699));
        check(FIRST, cut, Some(676), None);
        // Pre-votes for which the node asked before the leader's last message do not count.
        check(FIRST, cut, Some(10), Some(355));
    }

    #[test]
    fn a_silent_leader_and_one_that_is_heard_again_and_the_end_of_another_change_nothing() {
        check(FIRST, |start| signs(start, 100, None, None), None, None);
        check(FIRST, |start| signs(start, 131, Some((1, 130)), None), None, None);
        check(FIRST, |start| signs(start, 100, Some((2, 130)), None), None, None);
        check(FIRST, |_| LeaderSigns::default(), None, None);
    }

    #[test]
    fn another_that_would_be_elected_goes_first() {
        check(SECOND, |start| signs(start, 100, Some((1, 130)), Some(356)), None, Some(406));
        check(SECOND, |start| signs(start, 100, Some((1, 130)), Some(140)), None, Some(367));
    }

    #[test]
    fn the_lease_is_well_above_what_a_leader_takes_for_granted_and_that_above_three_heartbeats() {
        let check = |heartbeat_ms, election_timeout_min_ms| {
            let config = Config { heartbeat_ms, election_timeout_min_ms, ..Config::default() };
            let (lease, sure) = (config.lease_ms(), config.sure_ms());
            assert!(sure >= 3 * heartbeat_ms && lease * 3 / 4 >= sure, "{heartbeat_ms} {lease} {sure}");
            assert!(config.pause_ms() > heartbeat_ms, "Raft takes nothing else");
        };
        check(60, 500);
        check(60, 10);
        check(1, 3_000);
        assert_eq!((Config::default().lease_ms(), Config::default().sure_ms()), (250, 187));
    }
}
