//! Changes of the members that an operator orders. An order writes at most one entry to the log;
//! the leader at that time, whichever it is, does the later steps (`member_steps.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, Precondition};
use storage::{Member, Membership, Payload, StoredMembership, TypeConfig};
use tokio::time::timeout;
use znode::{Op, Request};

use crate::leader::member_steps::{LeaderSight, has_quorum, is_observer, mark, replaces};
use crate::leader::orders::{MemberReport, MembersReport, NewMember, OrderError, RefusedOrder};
use crate::raft::consensus::{Consensus, LAG_ENTRIES_MAX};
use crate::raft::transport::{MEMBERS_MAX, Standing};
use crate::write::propose::Proposer;

/// Time after which the outcome of a change of the members counts as unknown.
const CHANGE_MAX: Duration = Duration::from_secs(10);
/// Largest number of learners that are to become voters at the same time, because each costs the
/// leader work.
const LEARNERS_MAX: usize = 2;
/// Largest number of observers.
const OBSERVERS_MAX: usize = 8;
/// Largest size in bytes of an address, and of the name of a zone.
const TEXT_BYTES_MAX: usize = 255;

/// Access to the membership, for reports on the members and for changes that an operator orders.
pub(crate) struct Members {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) proposer: Arc<Proposer>,
}

impl Members {
    /// See [`crate::leader::orders::Order::Members`].
    pub(crate) fn report(&self) -> MembersReport {
        let metrics = self.consensus.metrics();
        let membership = self.consensus.membership();
        let term = self.consensus.leader_term(&metrics);
        let state = self.proposer.view.state();
        let members = membership.nodes().map(|(id, member)| MemberReport {
            id: *id,
            peer_addr: member.peer_addr.clone(),
            http_addr: member.http_addr.clone(),
            role: self.role(*id, member, &membership).to_owned(),
            zone: member.extra.get(mark::ZONE).map(|zone| String::from_utf8_lossy(zone).into_owned()),
            removing: member.extra.contains_key(mark::REMOVING),
            replaces: replaces(member),
            lag_entries: term.and_then(|_| self.lag(*id)),
            last_contact_ms: term.and_then(|term| self.last_contact(*id, term)),
        });
        let in_contact = |id: u64| term.is_some_and(|term| self.in_contact(id, term));
        let tolerance = |set: &BTreeSet<u64>| {
            let own = self.consensus.node_id;
            let there = set.iter().filter(|id| **id == own || in_contact(**id)).count();
            there.saturating_sub(set.len() / 2 + 1)
        };
        MembersReport {
            index: membership.log_id().as_ref().map_or(0, |id| id.index),
            committed: metrics.committed_membership_config.log_id() == membership.log_id(),
            joint: membership.get_joint_config().len() > 1,
            reported_by: self.consensus.node_id,
            leader: self.consensus.leader(),
            failure_tolerance: membership.get_joint_config().iter().map(tolerance).min().unwrap_or(0) as u64,
            members: members.collect(),
            removed: state
                .cluster()
                .map_or_else(Vec::new, |cluster| cluster.removed().map(|(id, zxid)| (id, zxid.0)).collect()),
        }
    }

    fn role(&self, id: u64, member: &Member, membership: &StoredMembership) -> &'static str {
        match membership.voter_ids().any(|voter| voter == id) {
            true => "voter",
            false if is_observer(member) => "observer",
            false => "learner",
        }
    }

    /// Number of this leader's entries that a member lacks, by the member's last answer; `None` if
    /// not known.
    pub(crate) fn lag(&self, id: u64) -> Option<u64> {
        if id == self.consensus.node_id { Some(0) } else { self.consensus.lag(id) }
    }

    /// Milliseconds since this leader of `term` sent the newest append or heartbeat that the member
    /// has accepted; `None` if it has accepted none.
    fn last_contact(&self, id: u64, term: u64) -> Option<u64> {
        if id == self.consensus.node_id {
            return Some(0);
        }
        let since = self.consensus.peers.get(id)?.following.since(term)?;
        Some(since.elapsed().as_millis() as u64)
    }

    /// Tells whether a member follows this leader of `term` now.
    pub(crate) fn in_contact(&self, id: u64, term: u64) -> bool {
        self.consensus.is_in_contact(id, term)
    }

    /// Calls `look` with the facts that the leader of `term` knows of the members. `in_step` tells
    /// whether a learner has been nearly up to date for a while.
    pub(crate) fn with_sight<T>(
        &self,
        term: u64,
        in_step: &dyn Fn(u64) -> bool,
        look: impl FnOnce(&LeaderSight<'_>) -> T,
    ) -> T {
        let state = self.proposer.view.state();
        let removed = |id| state.cluster().is_some_and(|cluster| cluster.removed().any(|(other, _)| other == id));
        let in_contact = |id| self.in_contact(id, term);
        look(&LeaderSight { own: self.consensus.node_id, removed: &removed, in_contact: &in_contact, in_step })
    }

    /// Adds a new member to the membership. `standing` is the progress that the new node reported.
    pub(crate) async fn add(&self, new: NewMember, standing: Standing) -> Result<(), OrderError> {
        let membership = self.consensus.membership();
        self.may_add(&new, &membership)?;
        if standing.joined && !standing.fresh {
            let why = format!("node {} has a vote already: its data directory is not new", new.id);
            return Err(OrderError::refused(RefusedOrder::MemberHasOtherData, why));
        }
        let mut extra = BTreeMap::new();
        let mut put = |name: &str, value: &[u8]| extra.insert(name.to_owned(), value.to_vec());
        if new.observer {
            put(mark::ROLE, mark::OBSERVER);
        }
        if new.manual {
            put(mark::PROMOTE, mark::MANUAL);
        }
        if let Some(zone) = &new.zone {
            put(mark::ZONE, zone.as_bytes());
        }
        if let Some(old) = new.replaces {
            put(mark::REPLACES, old.to_string().as_bytes());
        }
        let NewMember { id, peer_addr, http_addr, .. } = new;
        let member = Member { peer_addr: peer_addr.clone(), http_addr: http_addr.clone(), extra };
        self.change(ChangeMembers::AddNodes(BTreeMap::from([(id, member)])), &membership).await?;
        tracing::info!(id, peer_addr, http_addr, replaces = new.replaces, "a member is added");
        Ok(())
    }

    /// Checks whether a member may be added, as far as this leader knows without asking that
    /// member.
    pub(crate) fn may_add(&self, new: &NewMember, membership: &StoredMembership) -> Result<(), OrderError> {
        let refused = |kind, why: String| Err(OrderError::refused(kind, why));
        let texts = [&new.peer_addr, &new.http_addr, new.zone.as_ref().unwrap_or(&new.peer_addr)];
        let is_fine = |text: &&String| !text.is_empty() && text.len() <= TEXT_BYTES_MAX;
        if new.id == 0 || !texts.iter().all(is_fine) {
            let why = "a member has an id that is not 0, and addresses and a zone of 1 to 255 bytes";
            return refused(RefusedOrder::BadOrder, why.into());
        }
        if new.replaces.is_some() && (new.observer || new.manual) {
            let why = "a member that replaces a voter becomes a voter by itself: it is neither an observer nor manual";
            return refused(RefusedOrder::BadOrder, why.into());
        }
        let state = self.proposer.view.state();
        let removed = state.cluster().and_then(|cluster| cluster.removed().find(|(id, _)| *id == new.id));
        if let Some((id, zxid)) = removed {
            let why = format!("node {id} was removed at zxid {}: an id is never used again", zxid.0);
            return refused(RefusedOrder::IdUsedBefore, why);
        }
        if membership.get_node(&new.id).is_some() {
            return refused(RefusedOrder::AlreadyMember, format!("node {} is a member already", new.id));
        }
        let is_voter = |id| membership.voter_ids().any(|voter| voter == id);
        if let Some(old) = new.replaces.filter(|old| !is_voter(*old)) {
            return refused(RefusedOrder::NoMember, format!("node {old} is no voter that could be replaced"));
        }
        let replacing = |member: &Member| new.replaces.is_some() && replaces(member) == new.replaces;
        if let Some((id, _)) = membership.nodes().find(|(_, member)| replacing(member)) {
            let why =
                format!("node {id} is to replace the same node already: it goes on by itself, or remove it first");
            return refused(RefusedOrder::ChangeInProgress, why);
        }
        let others = membership.nodes().filter(|(id, member)| !is_voter(**id) && is_observer(member) == new.observer);
        let (max, what) = match new.observer {
            true => (OBSERVERS_MAX, "observers"),
            false => (LEARNERS_MAX, "learners that are no voters yet"),
        };
        for (count, max, what) in [(others.count(), max, what), (membership.nodes().count(), MEMBERS_MAX, "members")] {
            if count >= max {
                return refused(RefusedOrder::TooManyLearners, format!("there are {max} {what} already"));
            }
        }
        Ok(())
    }

    /// Makes a learner a voter, if it follows this leader and lacks few entries. `standing` is the
    /// progress that the learner reported; `None` if it did not answer.
    pub(crate) async fn promote(&self, id: u64, standing: Option<Standing>, term: u64) -> Result<(), OrderError> {
        let membership = self.consensus.membership();
        let refused = |kind, why: String| Err(OrderError::refused(kind, why));
        let Some(member) = membership.get_node(&id) else { return no_member(id) };
        let [voters] = membership.get_joint_config().as_slice() else { return in_progress() };
        if voters.contains(&id) {
            return Ok(());
        }
        if member.extra.contains_key(mark::REMOVING) || is_observer(member) {
            let why = format!("node {id} is an observer, or is being removed: it gets no vote");
            return refused(RefusedOrder::BadOrder, why);
        }
        let Some(contact) = self.last_contact(id, term).filter(|_| self.in_contact(id, term)) else {
            let why =
                format!("node {id} does not follow this leader: last heard {:?} ms ago", self.last_contact(id, term));
            return refused(RefusedOrder::LearnerSilent, why);
        };
        let lag = self.lag(id);
        let joined = standing.is_some_and(|standing| standing.joined);
        if !joined || lag.is_none_or(|lag| lag > LAG_ENTRIES_MAX) {
            let lacks = lag.map_or_else(|| "an unknown number of".into(), |lag| lag.to_string());
            let why = format!(
                "node {id} lacks {lacks} entries, and may lack {LAG_ENTRIES_MAX}; it was heard {contact} ms ago and {}: try \
                 again in a second",
                if joined { "has caught up once" } else { "has not caught up yet" }
            );
            return refused(RefusedOrder::LearnerLagging, why);
        }
        self.append(&membership, |voters| voters.insert(id)).await
    }

    /// Marks a member for removal. The leader then takes its vote and removes it
    /// (`member_steps.rs`).
    pub(crate) async fn remove(&self, id: u64, force: bool, term: u64) -> Result<(), OrderError> {
        let membership = self.consensus.membership();
        let Some(member) = membership.get_node(&id) else { return no_member(id) };
        let [voters] = membership.get_joint_config().as_slice() else { return in_progress() };
        if voters.contains(&id) {
            let leaves = |voter: &u64| {
                *voter == id || membership.get_node(voter).is_some_and(|node| node.extra.contains_key(mark::REMOVING))
            };
            let left: BTreeSet<u64> = voters.iter().copied().filter(|voter| !leaves(voter)).collect();
            if left.is_empty() {
                return Err(OrderError::refused(
                    RefusedOrder::LastVoter,
                    format!("node {id} is the last voter that stays"),
                ));
            }
            let quorum = self.with_sight(term, &|_| false, |sight| {
                // If this leader is the member to be removed, another voter must be in contact to
                // lead.
                let sight = LeaderSight { own: if id == sight.own { 0 } else { sight.own }, ..*sight };
                has_quorum(&left, &sight)
            });
            if !quorum && !force {
                let there = left.iter().filter(|left| self.in_contact(**left, term)).count();
                let why = format!(
                    "without node {id} there are {} voters, and of these only {there} are in contact: no quorum. `force` does \
                     it all the same",
                    left.len()
                );
                return Err(OrderError::refused(RefusedOrder::WouldLoseQuorum, why));
            }
        }
        let mut member = member.clone();
        let how = if force { mark::FORCED } else { mark::SAFE };
        member.extra.insert(mark::REMOVING.to_owned(), how.to_vec());
        tracing::info!(id, force, "a member is to be removed");
        self.change(ChangeMembers::SetNodes(BTreeMap::from([(id, member)])), &membership).await
    }

    /// Changes the addresses or the zone of a member.
    pub(crate) async fn update(&self, id: u64, with: impl FnOnce(&mut Member)) -> Result<(), OrderError> {
        let membership = self.consensus.membership();
        let Some(member) = membership.get_node(&id) else { return no_member(id) };
        let mut member = member.clone();
        with(&mut member);
        let zone = member.extra.get(mark::ZONE).map_or(0, Vec::len);
        if [member.peer_addr.len(), member.http_addr.len()].iter().any(|len| *len == 0 || *len > TEXT_BYTES_MAX)
            || zone > TEXT_BYTES_MAX
        {
            let why = "addresses have 1 to 255 bytes, and a zone no more than 255";
            return Err(OrderError::refused(RefusedOrder::BadOrder, why));
        }
        self.change(ChangeMembers::SetNodes(BTreeMap::from([(id, member)])), &membership).await
    }

    /// Writes an entry with a changed membership, if `membership` is still the last one in the log.
    pub(crate) async fn change(
        &self,
        changes: ChangeMembers<u64, Member>,
        membership: &StoredMembership,
    ) -> Result<(), OrderError> {
        let changed = self.consensus.raft.change_membership_if(changes, true, [unchanged(membership)]);
        outcome(timeout(CHANGE_MAX, changed).await.ok().map(|result| result.map(drop)))
    }

    /// Adds or removes one voter by a single entry, without a joint membership.
    pub(crate) async fn append(
        &self,
        membership: &StoredMembership,
        change: impl FnOnce(&mut BTreeSet<u64>) -> bool,
    ) -> Result<(), OrderError> {
        let [voters] = membership.get_joint_config().as_slice() else { return in_progress() };
        let mut voters = voters.clone();
        change(&mut voters);
        let nodes: BTreeMap<u64, Member> = membership.nodes().map(|(id, member)| (*id, member.clone())).collect();
        let then = Membership::new(vec![voters], nodes)
            .map_err(|error| OrderError::refused(RefusedOrder::BadOrder, error.to_string()))?;
        let appended = self.consensus.raft.append_membership(then, Payload::Blank, [unchanged(membership)]);
        outcome(timeout(CHANGE_MAX, appended).await.ok().map(|result| result.map(drop)))
    }

    /// Writes into the state that the member with this id was removed, so that no new member gets
    /// the id.
    pub(crate) async fn note_removed(&self, id: u64) -> Result<(), OrderError> {
        let (command, _) = self.proposer.command(Request::new(Op::NoteRemoved { node_id: id }));
        outcome(timeout(CHANGE_MAX, self.consensus.raft.client_write(command)).await.ok().map(|done| done.map(drop)))
    }
}

fn unchanged(membership: &StoredMembership) -> Precondition<TypeConfig> {
    Precondition::LastMembershipLogId { last_membership_log_id: *membership.log_id() }
}

fn no_member<T>(id: u64) -> Result<T, OrderError> {
    Err(OrderError::refused(RefusedOrder::NoMember, format!("node {id} is no member")))
}

fn in_progress<T>() -> Result<T, OrderError> {
    let why = "a change of the voters is half done, and goes on by itself: try again";
    Err(OrderError::refused(RefusedOrder::ChangeInProgress, why))
}

/// Converts Raft's result of a change of the membership; `None` stands for no result in time.
fn outcome(done: Option<Result<(), RaftError<TypeConfig, ClientWriteError<TypeConfig>>>>) -> Result<(), OrderError> {
    let Some(done) = done else {
        return Err(OrderError::Unknown("the change was not committed in time".into()));
    };
    let error = match done {
        Ok(()) => return Ok(()),
        Err(RaftError::APIError(error)) => error,
        Err(RaftError::Fatal(fatal)) => return Err(OrderError::Unknown(fatal.to_string())),
    };
    let in_progress = |why: String| Err(OrderError::refused(RefusedOrder::ChangeInProgress, why));
    match error {
        ClientWriteError::ForwardToLeader(_) => Err(OrderError::Unavailable("this node does not lead any more".into())),
        ClientWriteError::ChangeMembershipError(
            error @ (ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_)),
        ) => in_progress(error.to_string()),
        error @ ClientWriteError::PreconditionFailed(_) => in_progress(error.to_string()),
        error @ ClientWriteError::ChangeMembershipError(_) => {
            Err(OrderError::refused(RefusedOrder::BadOrder, error.to_string()))
        }
        error => Err(OrderError::Unknown(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;
    use crate::Config;
    use crate::node::Node;
    use crate::write::propose::tests::{create, leader, leader_with, soon};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_learner_that_lacks_many_entries_gets_no_vote() {
        let data_dir = tempfile::TempDir::new().unwrap();
        // A member counts as in contact for ten minutes after its last answer.
        let node = leader_with(&data_dir, |config| config.election_timeout_max_ms = 600_000).await;
        let (members, (term, _)) = (&node.operators.members, node.consensus.leading_term().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let joining = Config {
            node_id: 2,
            cluster_id: "test".into(),
            join: true,
            members: node.consensus.members(),
            data_dir: data_dir.path().join("learner"),
            free_disk_min_bytes: 0,
            ..Config::default()
        };
        let learner = Node::start(joining, listener).await.unwrap();
        let new = NewMember { id: 2, peer_addr: addr.clone(), http_addr: addr, manual: true, ..NewMember::default() };
        let standing =
            Standing { fresh: true, joined: false, term: 0, leads: false, last_log: 0, steady: true, drained: false };
        members.add(new, standing).await.unwrap();
        while members.lag(2) != Some(0) || !members.in_contact(2, term) {
            tokio::task::yield_now().await;
        }
        let why = async |joined| match members.promote(2, Some(Standing { joined, ..standing }), term).await {
            Err(OrderError::Refused { kind: RefusedOrder::LearnerLagging, why }) => why,
            done => panic!("{done:?}"),
        };
        let fresh = why(false).await;
        assert!(fresh.contains("lacks 0 entries") && fresh.contains("has not caught up yet"), "{fresh}");
        learner.shutdown().await;
        for chunk in 0..3 {
            let names = (0..=LAG_ENTRIES_MAX / 3).map(|at| format!("{chunk}-{at}"));
            let writes = names.map(|name| node.proposer.propose(create(&name), soon()));
            let writes = join_all(writes).await;
            assert!(writes.iter().all(Result::is_ok), "{:?}", writes.iter().find(|done| done.is_err()));
        }
        let behind = why(true).await;
        assert!(behind.contains("and may lack 5000") && behind.contains("has caught up once"), "{behind}");
        node.shutdown().await;
    }

    #[tokio::test]
    async fn what_has_no_room_for_a_member_is_named() {
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = leader(&data_dir).await;
        let membership = |voters: u64, others: u64, observe: bool| {
            let role = |id| (id > voters && observe).then(|| (mark::ROLE.to_owned(), mark::OBSERVER.to_vec()));
            let member = |id| Member { extra: role(id).into_iter().collect(), ..Member::default() };
            let nodes: BTreeMap<_, _> = (1..=voters + others).map(|id| (id, member(id))).collect();
            StoredMembership::new(None, Membership::new(vec![(1..=voters).collect()], nodes).unwrap())
        };
        let addr = || "localhost:1".to_owned();
        let new =
            |observer| NewMember { id: 99, peer_addr: addr(), http_addr: addr(), observer, ..NewMember::default() };
        let why = |observer, membership| match node.operators.members.may_add(&new(observer), &membership) {
            Err(OrderError::Refused { kind: RefusedOrder::TooManyLearners, why }) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(why(false, membership(3, 2, false)), "there are 2 learners that are no voters yet already");
        assert_eq!(why(true, membership(3, 8, true)), "there are 8 observers already");
        assert_eq!(why(true, membership(MEMBERS_MAX as u64, 0, false)), "there are 32 members already");
        assert_eq!(why(false, membership(MEMBERS_MAX as u64 - 1, 0, false)), "Ok(())");
        for unfit in [NewMember { manual: true, ..new(false) }, new(true)] {
            let replacing = NewMember { replaces: Some(1), ..unfit };
            let done = node.operators.members.may_add(&replacing, &membership(3, 0, false));
            assert!(matches!(done, Err(OrderError::Refused { kind: RefusedOrder::BadOrder, .. })), "{done:?}");
        }
        node.shutdown().await;
    }
}
