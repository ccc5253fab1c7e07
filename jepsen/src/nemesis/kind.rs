//! Interface of a fault ([`Kind`]), and the cluster and nemesis state that a fault may use
//! ([`Scene`]).

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;
use testkit::LinkRule;

use crate::cluster::Cluster;

/// Rules of directed links, by (sender, receiver).
pub(super) type Rules = BTreeMap<(u64, u64), LinkRule>;

/// One fault, from its beginning to its end. After its end the nemesis undoes the effects on links,
/// disks, clocks and processes. An error of a call says why the fault could not be made.
pub(super) trait Kind: Send {
    /// Begins the fault. Returns its description for the history.
    fn begin(&mut self, scene: Scene<'_>) -> impl Future<Output = Result<Value, String>> + Send;

    /// Continues the fault, such as by the next restart of several. Returns the time until the next
    /// call; `None` for no further call.
    fn go_on(&mut self, _scene: Scene<'_>) -> impl Future<Output = Result<Option<Duration>, String>> + Send {
        ready(Ok(None))
    }

    /// Returns the outcome of the fault. Called just before the nemesis mends everything.
    fn end(&mut self, _scene: Scene<'_>) -> impl Future<Output = Result<Outcome, String>> + Send {
        ready(Ok(Outcome::default()))
    }

    /// Returns the shortest time in which the fault can have an effect.
    fn least(&self) -> Duration {
        Duration::ZERO
    }
}

/// Future of one call of a [`Kind`].
type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Any [`Kind`] of fault, behind a pointer. The calls are those of `Kind`.
pub(super) trait AnyKind: Send {
    fn begin<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Value>;
    fn go_on<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Option<Duration>>;
    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome>;
    fn least(&self) -> Duration;
}

impl<K: Kind> AnyKind for K {
    fn begin<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Value> {
        Box::pin(Kind::begin(self, scene))
    }

    fn go_on<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Option<Duration>> {
        Box::pin(Kind::go_on(self, scene))
    }

    fn end<'a>(&'a mut self, scene: Scene<'a>) -> Doing<'a, Outcome> {
        Box::pin(Kind::end(self, scene))
    }

    fn least(&self) -> Duration {
        Kind::least(self)
    }
}

/// Outcome of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// False when the fault had no effect and is not counted.
    pub(super) made: bool,
    /// Value of the entry `end-<fault>` in the history; null for no entry.
    pub(super) told: Value,
    /// Counts for the report, by name; the nemesis sums them over all faults of the run.
    pub(super) figures: Vec<(&'static str, u64)>,
    /// Description of a promise that the cluster broke under the fault; `None` without one.
    pub(super) wrong: Option<String>,
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome { made: true, told: Value::Null, figures: Vec::new(), wrong: None }
    }
}

/// Choice of the nodes that a fault acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    One,
    Leader,
    Majority,
    All,
}

/// Cluster that a fault acts on, with the parts of the nemesis's state that the fault needs.
pub(super) struct Scene<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) rng: &'a mut fastrand::Rng,
    /// Rules of links that the present faults have set, by name of the fault.
    pub(super) links: &'a mut BTreeMap<&'static str, Rules>,
    /// The fault's name.
    pub(super) name: &'static str,
    /// True when no other fault is under way.
    pub(super) alone: bool,
}

impl Scene<'_> {
    /// The ids of all members.
    pub(super) fn all(&self) -> Vec<u64> {
        self.cluster.endpoints.members()
    }

    /// Returns the ids of all members except `than`.
    pub(super) fn others(&self, than: u64) -> Vec<u64> {
        self.all().into_iter().filter(|id| *id != than).collect()
    }

    /// Returns the id of a random member.
    pub(super) fn one(&mut self) -> u64 {
        self.rng.choice(self.all()).unwrap_or(1)
    }

    /// Returns the id of the leader; of a random member when no leader is known.
    pub(super) async fn leader(&mut self) -> u64 {
        let one = self.one();
        self.cluster.leader().await.unwrap_or(one)
    }

    /// Returns the ids of the nodes that `whom` stands for.
    pub(super) async fn choose(&mut self, whom: Whom) -> Vec<u64> {
        match whom {
            Whom::One => vec![self.one()],
            Whom::Leader => vec![self.leader().await],
            Whom::All => self.all(),
            Whom::Majority => {
                let mut some = self.all();
                self.rng.shuffle(&mut some);
                some.truncate(some.len() / 2 + 1);
                some
            }
        }
    }

    /// Returns the directed links, as (sender, receiver), that the function accepts.
    pub(super) fn links(&self, which: impl Fn(u64, u64) -> bool) -> Vec<(u64, u64)> {
        let all = self.all();
        let pairs = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
        pairs.filter(|(a, b)| a != b && which(*a, *b)).collect()
    }

    /// Returns the directed links from and to a node.
    pub(super) fn links_of(&self, node: u64) -> Vec<(u64, u64)> {
        self.links(|a, b| a == node || b == node)
    }

    /// Sets the rules of this fault for links, in place of its earlier rules. The rules of other
    /// faults stay in force.
    pub(super) fn set_links(&mut self, rules: Rules) -> Result<(), String> {
        self.links.insert(self.name, rules);
        self.cluster.network.set(together(self.links)).map_err(|error| error.to_string())
    }
}

/// Combines the rules of all faults: a link gets the effects of all its rules.
fn together(links: &BTreeMap<&'static str, Rules>) -> Rules {
    let mut all = Rules::new();
    for (link, rule) in links.values().flatten() {
        let sum = all.entry(*link).or_default();
        *sum = sum.and(*rule);
    }
    all
}

/// Returns rules that give all these links one rule.
pub(super) fn rules(links: impl IntoIterator<Item = (u64, u64)>, rule: LinkRule) -> Rules {
    links.into_iter().map(|link| (link, rule)).collect()
}

/// Returns a random time between two bounds, both included.
pub(super) fn between(rng: &mut fastrand::Rng, low_ms: u64, high_ms: u64) -> Duration {
    Duration::from_millis(rng.u64(low_ms..=high_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_what_all_faults_do_to_it() {
        let slow = LinkRule { delay: Duration::from_millis(9), ..LinkRule::PASS };
        let links = BTreeMap::from([("a", rules([(1, 2)], LinkRule::CUT)), ("b", rules([(1, 2), (2, 1)], slow))]);
        let all = together(&links);
        assert_eq!((all[&(1, 2)].cut, all[&(1, 2)].delay), (true, slow.delay));
        assert_eq!((all[&(2, 1)].cut, all[&(2, 1)].delay), (false, slow.delay));
    }
}
