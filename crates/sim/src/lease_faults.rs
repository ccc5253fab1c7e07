//! Faults that aim at the leader's lease: each takes a few steps in the right order, which chance
//! alone hardly ever makes.

use crate::hub::{CLIENTS_MAX, FIRST_CLIENT, Hub, MachineId};
use crate::machine::Node;

/// What is under way.
#[derive(Clone, Debug)]
enum Plot {
    /// The answers of its followers to a leader are held back. When it has sent a little more, it
    /// is cut off altogether, and deposed; then it gets the answers, and is still not heard.
    HeldAnswers { leader: MachineId, stage: usize, next_ms: u64 },
    /// A leader and one other do not hear each other; when that one stands for election, those that
    /// follow the leader are killed and started again at once, and do not hear it any more either.
    RestartInLease { leader: MachineId, candidate: MachineId, followers: Vec<MachineId>, stage: usize, next_ms: u64 },
    /// A leader hands over because it stops, and what the others tell it comes late.
    SlowHandOver { next_ms: u64 },
}

/// What such a fault asks its owner to do.
pub(crate) enum Deed {
    /// Kill this node, and start it again in so many milliseconds.
    Restart(MachineId, u64),
    /// Shut this node down in good order.
    ShutDown(MachineId),
    /// All is as before.
    Over,
}

/// See the file. One at a time.
pub(crate) struct LeaseFaults {
    hub: Hub,
    random: fastrand::Rng,
    plot: Option<Plot>,
}

impl LeaseFaults {
    pub(crate) fn new(hub: Hub, random: fastrand::Rng) -> LeaseFaults {
        LeaseFaults { hub, random, plot: None }
    }

    /// Begins one, if a node leads and all run. What it asks for, or `None`.
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
                // Nothing is written meanwhile, or the others would not vote for one that has not
                // heard of it.
                let clients = FIRST_CLIENT..FIRST_CLIENT + CLIENTS_MAX;
                self.cut(clients.flat_map(|client| nodes.iter().map(move |node| (client, node.id))));
                // As many as the candidate needs beside itself.
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
        self.hub.lock().event(&[22, leader], || format!("{:?}", self.plot));
        Some(deeds)
    }

    /// Does what is due.
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
                    // Just after they have answered the leader, and some time after the other one
                    // has asked for votes: it asks again soon.
                    0 => {
                        let since_ms = |from, to| now_ms - shared.network.sent_ms(from, to);
                        let asked_ms = since_ms(*candidate, followers[0]);
                        let answered = followers.iter().all(|follower| since_ms(*follower, leader) <= 5);
                        if !((30..=120).contains(&asked_ms) && answered) && now_ms < *next_ms + 1_000 {
                            return Vec::new();
                        }
                        (*stage, *next_ms) = (1, now_ms + 12);
                        followers.iter().for_each(|follower| shared.network.cut(leader, *follower));
                        // It must lead still, or there is no lease.
                        let leads = nodes.iter().any(|node| node.id == leader && node.leads());
                        let followers = followers.into_iter().filter(|_| leads);
                        followers.map(|follower| Deed::Restart(follower, self.random.u64(1..10))).collect()
                    }
                    // Those answers have come by now. What they ask for now is not heard.
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

    /// Whether one is under way, which other faults would spoil.
    pub(crate) fn is_under_way(&self) -> bool {
        self.plot.is_some()
    }

    /// Ends what is under way.
    pub(crate) fn end(&mut self) {
        self.plot = None;
    }

    fn cut(&self, links: impl Iterator<Item = (MachineId, MachineId)>) {
        let mut shared = self.hub.lock();
        links.for_each(|(from, to)| shared.network.cut(from, to));
    }
}
