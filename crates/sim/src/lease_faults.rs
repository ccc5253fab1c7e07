//! Faults that aim at the leader's lease. Each takes several steps in the right order, which chance
//! alone rarely produces.

use crate::hub::Hub;
use crate::machine::Node;
use crate::network::{CLIENTS_MAX, FIRST_CLIENT, MachineId};

/// A fault against the leader's lease that is under way.
#[derive(Clone, Debug)]
enum Plot {
    /// A leader gets answers late that it could mistake for a new lease. First the followers'
    /// packets to the leader are held back. A little later the leader's packets are held back as
    /// well, so that another leader is elected. Then the old leader gets the held answers, while
    /// its own packets still do not pass.
    HeldAnswers { leader: MachineId, stage: usize, next_ms: u64 },
    /// The links between a leader and one other node are cut. When the other node stands for
    /// election, the leader's followers are killed and restarted at once, and their links with the
    /// leader are cut as well.
    RestartInLease { leader: MachineId, candidate: MachineId, followers: Vec<MachineId>, stage: usize, next_ms: u64 },
    /// A leader shuts down and so hands leadership over, while the packets of all other nodes to
    /// this leader come late.
    SlowHandOver { next_ms: u64 },
}

/// Action that a fault against the leader's lease asks [`crate::faults::Faults`] to carry out.
pub(crate) enum Deed {
    /// Kill this node, and start it again after this number of milliseconds.
    Restart(MachineId, u64),
    /// Shut this node down.
    ShutDown(MachineId),
    /// The fault is over, and all links can be healed.
    Over,
}

/// The faults of a run against the leader's lease, one at a time.
pub(crate) struct LeaseFaults {
    hub: Hub,
    random: fastrand::Rng,
    plot: Option<Plot>,
}

impl LeaseFaults {
    pub(crate) fn new(hub: Hub, random: fastrand::Rng) -> LeaseFaults {
        LeaseFaults { hub, random, plot: None }
    }

    /// Begins a random fault against the lease, and returns its first actions; `None` unless a node
    /// leads, all nodes run and no fault against the lease is under way.
    pub(crate) fn begin(&mut self, nodes: &[Node]) -> Option<Vec<Deed>> {
        let leader = nodes.iter().find(|node| node.leads()).map(|node| node.id)?;
        if self.plot.is_some() || !nodes.iter().all(Node::runs) {
            return None;
        }
        let mut deeds = Vec::new();
        let now_ms = self.hub.now_ms();
        let mut others: Vec<MachineId> = nodes.iter().map(|node| node.id).filter(|id| *id != leader).collect();
        match self.random.u8(..3) {
            0 => {
                self.cut(others.iter().map(|other| (*other, leader)));
                let next_ms = now_ms + 40 + self.random.u64(..100);
                self.plot = Some(Plot::HeldAnswers { leader, stage: 0, next_ms });
            }
            1 => {
                let candidate = others.swap_remove(self.random.usize(..others.len()));
                self.cut([(leader, candidate), (candidate, leader)].into_iter());
                // Clients are cut off, so that no entry is written meanwhile. A candidate without
                // that entry would get no votes.
                let clients = FIRST_CLIENT..FIRST_CLIENT + CLIENTS_MAX;
                self.cut(clients.flat_map(|client| nodes.iter().map(move |node| (client, node.id))));
                // As many followers as the candidate needs besides its own vote.
                others.truncate(nodes.len() / 2);
                let next_ms = now_ms + 1_200 + self.random.u64(..1_000);
                self.plot = Some(Plot::RestartInLease { leader, candidate, followers: others, stage: 0, next_ms });
            }
            _ => {
                let by_ms = 100 + self.random.u64(..500);
                let mut shared = self.hub.lock();
                others.iter().for_each(|other| shared.network.slow_down(*other, leader, by_ms));
                drop(shared);
                deeds.push(Deed::ShutDown(leader));
                self.plot = Some(Plot::SlowHandOver { next_ms: now_ms + 1_500 });
            }
        }
        self.hub.lock().event(&[23, leader], || format!("{:?}", self.plot));
        Some(deeds)
    }

    /// Carries out the steps of the fault that are due. Returns the actions that the caller must
    /// carry out.
    pub(crate) fn follow(&mut self, nodes: &[Node]) -> Vec<Deed> {
        let now_ms = self.hub.now_ms();
        match &mut self.plot {
            Some(Plot::HeldAnswers { leader, stage, next_ms }) if *next_ms <= now_ms => {
                *stage += 1;
                let (leader, stage) = (*leader, *stage);
                *next_ms =
                    now_ms + if stage == 1 { 500 + self.random.u64(..1_500) } else { 100 + self.random.u64(..600) };
                let others: Vec<MachineId> = nodes.iter().map(|node| node.id).filter(|id| *id != leader).collect();
                match stage {
                    1 => self.cut(others.iter().map(|other| (leader, *other))),
                    2 => others.iter().for_each(|other| self.hub.lock().heal_link(*other, leader)),
                    _ => {
                        self.plot = None;
                        return vec![Deed::Over];
                    }
                }
                Vec::new()
            }
            Some(Plot::RestartInLease { leader, candidate, followers, stage, next_ms }) if *next_ms <= now_ms => {
                let (leader, followers) = (*leader, followers.clone());
                let mut shared = self.hub.lock();
                match stage {
                    // The right moment: the followers have just answered the leader, and the
                    // candidate's last request for votes is so long ago that the next one comes
                    // soon.
                    0 => {
                        let since_ms = |from, to| now_ms - shared.network.sent_ms(from, to);
                        let asked_ms = since_ms(*candidate, followers[0]);
                        let answered = followers.iter().all(|follower| since_ms(*follower, leader) <= 5);
                        if !((30..=120).contains(&asked_ms) && answered) && now_ms < *next_ms + 1_000 {
                            return Vec::new();
                        }
                        (*stage, *next_ms) = (1, now_ms + 12);
                        followers.iter().for_each(|follower| shared.network.cut(leader, *follower));
                        // Only a leader has a lease, so nothing is restarted unless the node still
                        // leads.
                        let leads = nodes.iter().any(|node| node.id == leader && node.leads());
                        let followers = followers.into_iter().filter(|_| leads);
                        followers.map(|follower| Deed::Restart(follower, self.random.u64(1..10))).collect()
                    }
                    // The answers of the first stage have arrived by now. From now on the leader
                    // receives no packets of the followers.
                    1 => {
                        (*stage, *next_ms) = (2, now_ms + 1_000 + self.random.u64(..1_000));
                        followers.iter().for_each(|follower| shared.network.cut(*follower, leader));
                        Vec::new()
                    }
                    _ => {
                        drop(shared);
                        self.plot = None;
                        vec![Deed::Over]
                    }
                }
            }
            Some(Plot::SlowHandOver { next_ms }) if *next_ms <= now_ms => {
                self.plot = None;
                vec![Deed::Over]
            }
            _ => Vec::new(),
        }
    }

    /// Tells whether a fault is under way, which other faults would spoil.
    pub(crate) fn is_under_way(&self) -> bool {
        self.plot.is_some()
    }

    /// Ends the fault that is under way.
    pub(crate) fn end(&mut self) {
        self.plot = None;
    }

    fn cut(&self, links: impl Iterator<Item = (MachineId, MachineId)>) {
        let mut shared = self.hub.lock();
        links.for_each(|(from, to)| shared.network.cut(from, to));
    }
}
