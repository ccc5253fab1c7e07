//! Health of the cluster, and the number of voters that it can still lose, as far as this node
//! knows.
//!
//! A leader knows of every member; any other node knows of itself and of its leader.

use std::time::Duration;

use tokio::time::Instant;

use crate::operate::status::Status;

znode::named! {
    /// Role of a member in the cluster.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part {
        /// The member leads.
        Leader = "leader",
        /// The member has a vote.
        Voter = "voter",
        /// The member gets entries, and has no vote.
        Learner = "learner",
    }
}

/// A member, as a node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberHealth {
    /// The member's id.
    pub id: u64,
    /// Role of the member.
    pub part: Part,
    /// True if this node was in contact with the member lately; `None` if this node cannot know.
    pub reachable: Option<bool>,
    /// Time since this node's last contact with the member; `None` if there was none, or if this
    /// node cannot know.
    pub last_contact: Option<Duration>,
    /// Number of committed entries that the member lacks; `None` if not known.
    pub lag: Option<u64>,
}

/// The cluster, as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Id of the leader; `None` if none is heard.
    pub leader: Option<u64>,
    /// True if there is a leader with a quorum, and nothing wrong is known of any member.
    pub healthy: bool,
    /// Number of voters that may fail from now on while the other voters are still a quorum. `None`
    /// if this node does not lead.
    pub failure_tolerance: Option<u64>,
    /// Number of members with a vote.
    pub voters: u64,
    /// Number of members without a vote.
    pub learners: u64,
    /// All members.
    pub members: Vec<MemberHealth>,
}

/// Facts that a node knows of one member.
#[derive(Clone, Copy, Debug)]
struct MemberSight {
    id: u64,
    votes: bool,
    /// Time since this node's last contact with the member; `None` if there was none, or if this
    /// node cannot know.
    contact: Option<Duration>,
    lag: Option<u64>,
}

/// Facts about this node and the cluster, from which health is derived.
#[derive(Clone, Copy, Debug)]
struct Frame {
    own: u64,
    leader: Option<u64>,
    /// True if a quorum follows this node as the leader; `None` if this node does not lead.
    leads: Option<bool>,
    /// Time without contact after which a member counts as disconnected.
    disconnected_after: Duration,
    /// Largest number of entries by which a member may be behind while it counts as healthy.
    lag_max: u64,
}

/// See [`crate::Replica::health`].
pub(crate) fn health(status: &Status) -> Health {
    let consensus = &status.consensus;
    let leads = consensus.leading_term();
    let frame = Frame {
        own: consensus.node_id,
        leader: consensus.heard_leader(),
        leads: leads.map(|(_, followed)| followed),
        disconnected_after: consensus.disconnected_after(),
        lag_max: status.config.ready_lag_max,
    };
    judge(&frame, &sights(status, leads.map(|(term, _)| term)))
}

/// Facts that this node knows of each member. `leads_in` is the term in which this node leads;
/// `None` if it does not lead.
fn sights(status: &Status, leads_in: Option<u64>) -> Vec<MemberSight> {
    let consensus = &status.consensus;
    let metrics = consensus.metrics();
    let committed = consensus.committed(&metrics);
    let own_lag = committed.0.saturating_sub(status.proposer.view.applied().0);
    let leader = consensus.leader();
    // While a change is half done, the voters after the change.
    let voters = consensus.voters();
    let age = |since: Instant| since.elapsed();
    let sight = |id: u64| {
        let (contact, lag) = if id == consensus.node_id {
            (Some(Duration::ZERO), Some(own_lag))
        } else if let Some(term) = leads_in {
            let has = metrics.replication.as_ref().and_then(|all| all.get(&id)?.as_ref().map(|last| last.index));
            let lag = has.map(|index| committed.0.saturating_sub(consensus.zxid(index).0));
            (consensus.peers.get(id).and_then(|peer| peer.following.since(term)).map(age), lag)
        } else if leader == Some(id) {
            // The leader has all committed entries.
            (consensus.leader_watch.signs().heard.map(age), Some(0))
        } else {
            (None, None)
        };
        MemberSight { id, votes: voters.contains(&id), contact, lag }
    };
    consensus.members().into_iter().map(|member| sight(member.id)).collect()
}

/// Derives the health of the cluster. While a change of the voters is half done,
/// [`MemberSight::votes`] is true for the voters after the change.
fn judge(frame: &Frame, sights: &[MemberSight]) -> Health {
    let leads = frame.leads.is_some();
    let member = |sight: &MemberSight| {
        let is_known = leads || sight.id == frame.own || frame.leader == Some(sight.id);
        let in_contact = sight.contact.is_some_and(|contact| contact < frame.disconnected_after);
        let part = match sight.votes {
            _ if frame.leader == Some(sight.id) => Part::Leader,
            true => Part::Voter,
            false => Part::Learner,
        };
        let reachable = is_known.then_some(in_contact);
        MemberHealth { id: sight.id, part, reachable, last_contact: sight.contact, lag: sight.lag }
    };
    let members: Vec<MemberHealth> = sights.iter().map(member).collect();
    let is_well =
        |member: &MemberHealth| member.reachable == Some(true) && member.lag.is_some_and(|lag| lag <= frame.lag_max);
    let voters = sights.iter().filter(|sight| sight.votes).count();
    let well = members.iter().zip(sights).filter(|(member, sight)| sight.votes && is_well(member)).count();
    let has_quorum = frame.leader.is_some() && frame.leads != Some(false);
    let quorum = voters / 2 + 1;
    Health {
        leader: frame.leader,
        healthy: has_quorum && members.iter().filter(|member| member.reachable.is_some()).all(is_well),
        failure_tolerance: leads.then(|| if has_quorum { well.saturating_sub(quorum) as u64 } else { 0 }),
        voters: voters as u64,
        learners: (sights.len() - voters) as u64,
        members,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: Frame =
        Frame { own: 1, leader: Some(1), leads: Some(true), disconnected_after: Duration::from_secs(2), lag_max: 100 };

    fn sight(id: u64, contact_ms: Option<u64>, lag: Option<u64>) -> MemberSight {
        MemberSight { id, votes: true, contact: contact_ms.map(Duration::from_millis), lag }
    }

    fn well(id: u64) -> MemberSight {
        sight(id, Some(50), Some(3))
    }

    /// Checks whether the cluster is healthy, and how many more voters may fail.
    #[track_caller]
    fn check(frame: Frame, sights: &[MemberSight], healthy: bool, tolerance: Option<u64>) -> Health {
        let health = judge(&frame, sights);
        assert_eq!((health.healthy, health.failure_tolerance), (healthy, tolerance), "{health:?}");
        health
    }

    #[test]
    fn a_cluster_tolerates_the_loss_of_those_that_are_well_beyond_a_quorum() {
        check(LEADER, &[well(1)], true, Some(0));
        check(LEADER, &[well(1), well(2)], true, Some(0));
        check(LEADER, &[well(1), well(2), well(3)], true, Some(1));
        check(LEADER, &[well(1), well(2), well(3), well(4), well(5)], true, Some(2));
        for bad in [
            sight(3, None, None),
            sight(3, Some(2_000), Some(0)),
            sight(3, Some(1), Some(101)),
            sight(3, Some(1), None),
        ] {
            check(LEADER, &[well(1), well(2), bad], false, Some(0));
            check(LEADER, &[well(1), well(2), bad, well(4), well(5)], false, Some(1));
        }
        check(LEADER, &[well(1), sight(2, None, None), sight(3, None, None)], false, Some(0));
        check(Frame { leads: Some(false), ..LEADER }, &[well(1), well(2), well(3)], false, Some(0));
    }

    #[test]
    fn a_learner_counts_for_no_quorum_and_is_to_be_well() {
        let learner = |sight| MemberSight { votes: false, ..sight };
        let health = check(LEADER, &[well(1), well(2), learner(well(3))], true, Some(0));
        assert_eq!((health.voters, health.learners, health.members[2].part), (2, 1, Part::Learner));
        check(LEADER, &[well(1), well(2), well(3), learner(sight(4, None, None))], false, Some(1));
    }

    #[test]
    fn a_follower_speaks_of_itself_and_its_leader() {
        let follower = Frame { own: 2, leads: None, ..LEADER };
        let others = [sight(1, Some(30), Some(0)), well(2), sight(3, None, None)];
        let health = check(follower, &others, true, None);
        let reachable: Vec<_> = health.members.iter().map(|member| member.reachable).collect();
        assert_eq!(reachable, [Some(true), Some(true), None]);
        assert_eq!((health.members[0].part, health.members[1].part), (Part::Leader, Part::Voter));
        check(follower, &[others[0], sight(2, Some(0), Some(101)), others[2]], false, None);
        check(Frame { leader: None, ..follower }, &others, false, None);
    }
}
