//! Log lines for an operator about what a node sees: its leader, its quorum, its readiness and its
//! peers. Each change has one line; a failed try that changes nothing has none.
//!
//! docs/operating.md lists the messages and what to do about each; they stay the same between
//! releases. These facts are checked every [`LOOK`], and changes of roles at once. A fact that
//! changes often must last for a while before it is logged ([`ChangeReporter`]).
//!
//! A node without connections would not know which peers it could reach. So each peer is pinged
//! every [`PROBE`], on the connection for votes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::operate::change_reporter::ChangeReporter;
use crate::operate::status::Status;
use crate::raft::consensus::Consensus;
use crate::raft::reach::Contact;
use crate::raft::stored_progress::StoredProgress;
use crate::raft::transport::{Answer, Ask};
use crate::view::View;
use crate::{Config, Readiness};

/// Time between two checks of the facts whose changes are logged.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two pings to one peer.
const PROBE: Duration = Duration::from_secs(2);
/// Time for which a peer must be reachable, or unreachable, before that is logged.
const PEER_LASTS: Duration = Duration::from_millis(200);

/// The leader, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leading {
    NoLeader,
    Peer { leader: u64, term: u64 },
    ThisNode { term: u64 },
}

/// Facts about leader, quorum, readiness and peers at one moment. Their changes are logged.
#[derive(Clone, Debug)]
struct NodeSight {
    leading: Leading,
    quorum: bool,
    ready: Readiness,
    contacts: BTreeMap<u64, Contact>,
}

/// A fact that has changed, for a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StoryLine {
    /// The leader until now.
    Before(Leading),
    /// The leader from now on.
    Now(Leading),
    Quorum(bool),
    Ready(Readiness),
    Peer(u64, Contact),
}

/// The facts about leader, quorum, readiness and peers that were logged last. A change of them is
/// logged next.
struct Story {
    leading: ChangeReporter<Leading>,
    quorum: ChangeReporter<bool>,
    ready: ChangeReporter<Option<Readiness>>,
    contacts: BTreeMap<u64, ChangeReporter<Contact>>,
}

impl Story {
    fn new(config: &Config, now: Instant) -> Story {
        // A shorter loss is not logged: an ordinary change of leader takes no longer, and has its
        // own lines.
        let lasts = Duration::from_millis(config.election_timeout_min_ms);
        Story {
            leading: ChangeReporter::new(Leading::NoLeader, Duration::ZERO, now),
            quorum: ChangeReporter::new(false, lasts, now),
            ready: ChangeReporter::new(None, lasts, now),
            contacts: BTreeMap::new(),
        }
    }

    /// Compares the present facts with those that were logged. Returns the changes to log now.
    fn look(&mut self, sight: &NodeSight, now: Instant) -> Vec<StoryLine> {
        let mut lines = Vec::new();
        // Members come and go.
        self.contacts.retain(|id, _| sight.contacts.contains_key(id));
        for id in sight.contacts.keys() {
            self.contacts.entry(*id).or_insert_with(|| ChangeReporter::new(Contact::Untried, PEER_LASTS, now));
        }
        for (id, told) in &mut self.contacts {
            let contact = sight.contacts.get(id).copied().unwrap_or_default();
            if told.look(contact, now).is_some() {
                lines.push(StoryLine::Peer(*id, contact));
            }
        }
        if let Some(before) = self.leading.look(sight.leading, now) {
            lines.extend([StoryLine::Before(before), StoryLine::Now(sight.leading)]);
        }
        if self.quorum.look(sight.quorum, now).is_some() {
            lines.push(StoryLine::Quorum(sight.quorum));
        }
        if self.ready.look(Some(sight.ready), now).is_some() {
            lines.push(StoryLine::Ready(sight.ready));
        }
        lines
    }

    /// Ids of the peers that were logged as unreachable, with commas between them.
    fn unreachable(&self) -> String {
        let lost = self.contacts.iter().filter(|(_, told)| matches!(told.told(), Contact::Lost(_)));
        lost.map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Reads facts about leader, quorum, readiness and peers, and logs their changes.
pub(crate) struct Teller {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) view: Arc<View>,
    pub(crate) status: Arc<Status>,
}

impl Teller {
    fn sight(&self) -> NodeSight {
        let leading = self.leading();
        let quorum = match leading {
            Leading::NoLeader => false,
            // This node hears the leader that it follows, and a quorum elected that leader.
            Leading::Peer { .. } => true,
            Leading::ThisNode { .. } if self.consensus.votes_alone() => true,
            Leading::ThisNode { term } => {
                let patience = self.consensus.election_timeout_max;
                let followed = self.consensus.peers.followed_since(term, &self.consensus.membership());
                followed.is_some_and(|since| since.elapsed() < patience)
            }
        };
        let peers = self.consensus.peers.all();
        let contacts = peers.into_iter().map(|(id, peer)| (id, peer.reach.contact())).collect();
        NodeSight { leading, quorum, ready: self.status.is_ready(), contacts }
    }

    fn leading(&self) -> Leading {
        let own = self.consensus.node_id;
        let (known, term, leads) = {
            let changes = self.consensus.role_changes();
            let metrics = changes.borrow_watched();
            let vote = &metrics.vote;
            let leads = metrics.state == ServerState::Leader && vote.committed && vote.leader_id.voted_for == own;
            (metrics.current_leader, vote.leader_id.term, leads)
        };
        match self.consensus.disk_watch.noted_above(term) {
            Some((leader, term)) => Leading::Peer { leader, term },
            None if leads => Leading::ThisNode { term },
            None => match known.filter(|leader| *leader != own && self.consensus.hears_leader()) {
                Some(leader) => Leading::Peer { leader, term },
                None => Leading::NoLeader,
            },
        }
    }

    fn tell(&self, line: &StoryLine, story: &Story) {
        let (now, zxid) = (self.consensus.voted_term(), self.view.applied().0);
        let role = if matches!(story.leading.told(), Leading::ThisNode { .. }) { "leader" } else { "follower" };
        if let StoryLine::Now(Leading::ThisNode { .. } | Leading::Peer { .. }) = line {
            self.view.times.leader_changed();
        }
        match line {
            StoryLine::Now(Leading::ThisNode { term }) => tracing::info!(term, zxid, "this node leads"),
            StoryLine::Before(Leading::ThisNode { term }) => {
                tracing::warn!(term, term_now = now, zxid, "this node leads no more");
            }
            StoryLine::Now(Leading::Peer { leader, term }) => tracing::info!(leader, term, zxid, "following a leader"),
            StoryLine::Before(Leading::Peer { leader, term }) => {
                let heard = self.consensus.leader_watch.signs().heard;
                let silent_ms = heard.map_or(0, |heard| heard.elapsed().as_millis() as u64);
                tracing::warn!(leader, term, term_now = now, silent_ms, zxid, "the leader is lost");
            }
            StoryLine::Quorum(true) => tracing::info!(role, term = now, zxid, "a quorum is connected"),
            StoryLine::Quorum(false) => {
                let unreachable = story.unreachable();
                tracing::warn!(role, term = now, zxid, unreachable, "the quorum is lost");
            }
            StoryLine::Ready(Readiness::Ready) => tracing::info!(term = now, zxid, "ready"),
            StoryLine::Ready(why) => tracing::warn!(why = why.as_str(), term = now, zxid, "not ready"),
            StoryLine::Peer(peer, Contact::Reached) => {
                let addr = self.consensus.peers.get(*peer).map(|peer| peer.addr());
                tracing::info!(peer, addr = addr.as_deref(), "peer reachable");
            }
            StoryLine::Peer(peer, Contact::Lost(obstacle)) => {
                let known = self.consensus.peers.get(*peer);
                let (addr, error) = known.map(|peer| (peer.addr(), peer.reach.error())).unzip();
                let addr = addr.as_deref();
                tracing::warn!(peer, addr, reason = obstacle.as_str(), error, "peer unreachable");
            }
            // These have no lines.
            StoryLine::Before(Leading::NoLeader) | StoryLine::Now(Leading::NoLeader) => {}
            StoryLine::Peer(_, Contact::Untried) => {}
        }
    }

    /// Pings every peer. The code that opens connections notes the failures.
    async fn probe(&self) {
        // Longer than a connection may be silent, so that the connection notices a failure first.
        let deadline = Instant::now() + self.consensus.peer_timeout * 3;
        let asks = self.consensus.peers.all().into_iter().map(|(_, peer)| async move {
            let asked = Instant::now();
            if let Ok(Answer::Pong) = peer.control.ask(Ask::Ping, deadline).await {
                peer.round_trips.note(asked.elapsed());
                peer.reach.reached();
            }
        });
        join_all(asks).await;
    }
}

/// Logs that the node has started, and what it found on its disk.
pub(crate) fn start(config: &Config, progress: &StoredProgress) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node_id = config.node_id,
        cluster_id = config.cluster_id,
        data = if progress.is_new() { "new" } else { "found" },
        zxid = progress.last_log.0,
        committed_zxid = progress.committed.0,
        snapshot_zxid = progress.snapshot.0,
        term = progress.vote.map_or(0, |vote| vote.leader_id.term),
        "started"
    );
}

/// Logs changes of leader, quorum, readiness and peers until the node stops.
pub(crate) async fn tell(teller: Teller) {
    let mut changes = teller.consensus.role_changes();
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut story = Story::new(&teller.status.config, Instant::now());
    let mut probed: Option<Instant> = None;
    let mut probes: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = probes.next(), if !probes.is_empty() => continue,
            changed = changes.changed() => if changed.is_err() { return },
            _ = tick.tick() => {}
        }
        let now = Instant::now();
        for line in story.look(&teller.sight(), now) {
            teller.tell(&line, &story);
        }
        if probes.is_empty() && probed.is_none_or(|at| now - at >= PROBE) {
            probed = Some(now);
            probes.push(Box::pin(teller.probe()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use crate::raft::reach::Obstacle;

    const MS: Duration = Duration::from_millis(1);

    /// Facts of node 1 of three while all is well, and a [`Story`] that has not logged them yet.
    fn node() -> (Story, NodeSight, Instant) {
        let member = |id| Member { id, peer_addr: String::new(), http_addr: String::new() };
        let config = Config { members: [1, 2, 3].map(member).into(), ..Config::default() };
        let contacts = [2, 3].map(|id| (id, Contact::Reached)).into();
        let leading = Leading::Peer { leader: 2, term: 7 };
        let (now, sight) = (Instant::now(), NodeSight { leading, quorum: true, ready: Readiness::Ready, contacts });
        (Story::new(&config, now), sight, now)
    }

    #[test]
    fn each_change_has_a_line_and_a_try_has_none() {
        let (mut story, calm, start) = node();
        let mut at = 0;
        let mut lines = |sight: &NodeSight| {
            let looks = (0..50).flat_map(|_| {
                at += 100;
                story.look(sight, start + MS * at)
            });
            looks.collect::<Vec<_>>()
        };
        let reached = |peer| StoryLine::Peer(peer, Contact::Reached);
        let change = |before, now| [StoryLine::Before(before), StoryLine::Now(now)];
        let well = [reached(2), reached(3), StoryLine::Quorum(true), StoryLine::Ready(Readiness::Ready)];
        let follows = |leader, term| Leading::Peer { leader, term };
        assert_eq!(lines(&calm), [&change(Leading::NoLeader, follows(2, 7))[..], &well].concat());
        assert!(lines(&calm).is_empty());
        // The leader is killed, and a peer elected in less time than it takes to be not ready.
        let mut failover = NodeSight { leading: follows(3, 8), ..calm.clone() };
        failover.contacts.insert(2, Contact::Lost(Obstacle::Refused));
        let refused = StoryLine::Peer(2, Contact::Lost(Obstacle::Refused));
        assert_eq!(lines(&failover), [&change(follows(2, 7), follows(3, 8))[..], &[refused]].concat());
        // This node is cut off as well.
        let mut alone =
            NodeSight { leading: Leading::NoLeader, quorum: false, ready: Readiness::NoQuorum, ..failover.clone() };
        alone.contacts = [2, 3].map(|id| (id, Contact::Lost(Obstacle::TimedOut))).into();
        let timed_out = |peer| StoryLine::Peer(peer, Contact::Lost(Obstacle::TimedOut));
        let unwell = [StoryLine::Quorum(false), StoryLine::Ready(Readiness::NoQuorum)];
        let (cut, silent) = (change(follows(3, 8), Leading::NoLeader), [timed_out(2), timed_out(3)]);
        assert_eq!(lines(&alone), [&cut[..], &silent, &unwell].concat());
        let leads = NodeSight { leading: Leading::ThisNode { term: 9 }, ..calm.clone() };
        assert_eq!(lines(&leads), [&change(Leading::NoLeader, leads.leading)[..], &well].concat());
        assert_eq!(lines(&NodeSight { leading: follows(2, 10), ..calm }), change(leads.leading, follows(2, 10)));
        assert_eq!(lines(&alone).len(), 6);
        assert_eq!(story.unreachable(), "2,3");
    }

    #[test]
    fn a_peer_that_comes_and_goes_and_a_short_hiccup_fill_no_log() {
        let (mut story, calm, start) = node();
        let mut count = 0;
        for at in 0..6_000 {
            let mut sight = calm.clone();
            // Ten minutes of a peer that is reached every other second.
            let contact = if at / 10 % 2 == 0 { Contact::Reached } else { Contact::Lost(Obstacle::Refused) };
            sight.contacts.insert(3, contact);
            if at % 20 == 19 {
                sight = NodeSight { quorum: false, ready: Readiness::NoQuorum, ..sight };
            }
            count += story.look(&sight, start + MS * 100 * at).len();
        }
        assert!(count < 40, "{count} lines");
    }
}
