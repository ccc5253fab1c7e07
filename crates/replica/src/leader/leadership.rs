//! Work of a leader by itself (its duties): it notes the heartbeats of sessions and expires
//! sessions without them, deletes znodes whose time is over, and puts its configured limits in
//! force. A leader proposes these changes only to its own Raft and never forwards them, because
//! another leader decides for itself.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use znode::{
    ClusterUuid, Credential, Founding, Identity, KEEPER, Op, RESTORING, Request, SUPER, SessionId, State, Term, ZPath,
    ZXID_BASE_MAX, ZnodeOp,
};

use crate::leader::mixed_log::MixedLog;
use crate::leader::quota_log::QuotaLog;
use crate::leader::scrub_pace::pause;
use crate::local::session_tracker::{HeartbeatOutcome, SessionTracker, Silence};
use crate::raft::consensus::Consensus;
use crate::raft::transport::TouchAnswer;
use crate::write::closings::ENDING_PART;
use crate::write::propose::Proposer;

/// Longest wait for the outcome of a duty (a change that the leader proposes by itself). The change
/// may still be applied later; the next tick proposes it again. The wait for an expiry of sessions
/// has no bound.
const DUTY_MAX: Duration = Duration::from_secs(10);
/// Number of ticks (`tick_ms`) between two removals of closed sessions from the session tracker.
const SWEEP_TICKS: u64 = 50;
/// Largest number of entries that one tick may propose to expire sessions.
const EXPIRIES_AT_ONCE: usize = 8;
/// Largest number of entries that the leader proposes in one run of [`Duty::Reap`], one after the
/// other, to delete znodes that are due.
const REAPS_AT_ONCE: usize = 32;

/// A change that a leader proposes by itself, without a client's request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Duty {
    /// Expiry of sessions without heartbeats in `term`. The entry changes nothing if it is applied
    /// in another term.
    Expire {
        sessions: Vec<SessionId>,
        term: Term,
    },
    Reap,
    Scrub,
    SetLimits,
    Found,
    /// Writes a text (the note) into the state once the cluster's format level is 2. Exists only in
    /// builds that test upgrades.
    #[cfg(feature = "next-level")]
    Note,
    EndGrace,
}

/// Bound on the total cost (in znodes to remove) of the sessions whose expiries are under way.
/// `left` is the cost of further sessions that may be expired now. A session that costs more than
/// the whole bound is expired while no other expiry is under way (`alone`).
struct Room {
    left: u64,
    alone: bool,
}

impl Room {
    fn beside(busy: &HashSet<Duty>, state: &State) -> Room {
        let expiring = busy.iter().flat_map(|duty| match duty {
            Duty::Expire { sessions, .. } => &**sessions,
            _ => &[],
        });
        let under_way: u64 = expiring.map(|session| state.cost_of_ending(*session)).sum();
        let max = state.limits().entry_cost_max / ENDING_PART;
        Room { left: u64::from(max).saturating_sub(under_way), alone: under_way == 0 }
    }

    fn take(&mut self, session: SessionId, state: &State) -> bool {
        let cost = state.cost_of_ending(session);
        if cost > self.left && !self.alone {
            return false;
        }
        *self = Room { left: self.left.saturating_sub(cost), alone: false };
        true
    }
}

/// Future that does one duty, and returns that duty when it is done.
type DutyFuture = Pin<Box<dyn Future<Output = Duty> + Send>>;

/// The duties of a leader (changes that it proposes by itself), and the times of the sessions'
/// heartbeats.
pub(crate) struct Leadership {
    consensus: Arc<Consensus>,
    proposer: Arc<Proposer>,
}

impl Leadership {
    pub(crate) fn new(proposer: Arc<Proposer>) -> Leadership {
        let consensus = Arc::clone(&proposer.consensus);
        Leadership { consensus, proposer }
    }

    /// Term in which this node leads and no other node can have been elected, so that it may
    /// acknowledge heartbeats. `Err` is the reason why there is none.
    fn sure_term(&self) -> Result<u64, &'static str> {
        let (term, followed) = self.consensus.leading_term().ok_or("this node does not lead")?;
        if !followed {
            return Err("the leader has no quorum");
        }
        self.hands_over_not(term)?;
        Ok(term)
    }

    /// Fails while this leader hands leadership over: the successor may lead at any moment, even if
    /// a quorum has just followed this node.
    fn hands_over_not(&self, term: u64) -> Result<(), &'static str> {
        if self.consensus.hands_over_in(term) { Err("leadership is changing hands") } else { Ok(()) }
    }

    /// See [`crate::Replica::sure_to_lead`].
    pub(crate) fn sure_to_lead(&self) -> Option<Term> {
        self.sure_term().ok().map(Term)
    }

    /// See [`crate::Replica::silences`].
    pub(crate) fn silences(&self, of: &[SessionId]) -> Option<Vec<Option<Silence>>> {
        let term = self.sure_term().ok()?;
        let sessions = self.consensus.sessions.lock();
        let current = sessions.current.as_ref().filter(|current| current.term == Term(term))?;
        let now = Instant::now();
        Some(of.iter().map(|session| current.tracker.silence(*session, now)).collect())
    }

    /// Notes heartbeats of sessions, if no other node can have been elected.
    pub(crate) fn touch_here(&self, credentials: &[Credential]) -> Result<Vec<TouchAnswer>, String> {
        let term = self.sure_term()?;
        let mut sessions = self.consensus.sessions.lock();
        let current = sessions.current.as_mut().filter(|current| current.term == Term(term));
        let current = current.ok_or("the leader is new and not ready yet")?;
        // Under the guard: a session that the tracker has forgotten as expired is not in this state
        // any more.
        let state = self.proposer.view.state();
        // Checked again under the lock, so that no heartbeat is noted after the sessions' ages
        // (times without a heartbeat) were sent to the successor.
        self.hands_over_not(term)?;
        let now = Instant::now();
        Ok(credentials.iter().map(|credential| touch(&state, &mut current.tracker, credential, now)).collect())
    }

    /// Advances the clock by which sessions expire. Returns the duties to begin now; `busy` has the
    /// duties that are under way already. Returns none if this node does not lead.
    fn tick_as_leader(&self, state: &State, busy: &HashSet<Duty>) -> Vec<Duty> {
        // A leader that hands its leadership over refuses heartbeats, so it expires no session.
        let listens = |term, followed| followed && !self.consensus.hands_over_in(term);
        let current = self.consensus.leading_term().map(|(term, followed)| (Term(term), listens(term, followed)));
        let now = Instant::now();
        let mut sessions = self.consensus.sessions.lock();
        // Until the first entry of its own term is applied, a leader may not know of all sessions
        // that were opened.
        let Some((term, listening)) = current.filter(|(term, _)| state.last_term() == *term) else {
            sessions.current = None;
            sessions.forget_ages_before(self.consensus.voted_term());
            return Vec::new();
        };
        if sessions.current.as_ref().is_none_or(|current| current.term != term) {
            let (aged, count) = (sessions.begin(term, state, now, self.tick()), state.session_count());
            if aged == 0 {
                tracing::info!(term = term.0, sessions = count, "leading; every session has its whole timeout");
            } else {
                tracing::info!(term = term.0, sessions = count, aged, "leading; sessions go on with their age");
            }
        }
        let current = sessions.current.as_mut().expect("set just above");
        current.tracker.tick(now, listening);
        current.watch_new(state, now);
        current.ticks += 1;
        if current.ticks.is_multiple_of(SWEEP_TICKS) {
            current.tracker.retain(|session| state.session(session).is_some());
        }
        if !listening {
            return Vec::new();
        }
        // Founding the cluster comes before all other duties.
        if state.cluster().is_none() {
            return if busy.contains(&Duty::Found) { Vec::new() } else { vec![Duty::Found] };
        }
        let mut duties = Vec::new();
        let mut room = Room::beside(busy, state);
        while duties.len() < EXPIRIES_AT_ONCE {
            let sessions =
                current.tracker.expire(self.proposer.config.reap_batch_max, |session| room.take(session, state));
            if sessions.is_empty() {
                break;
            }
            duties.push(Duty::Expire { sessions, term });
        }
        let reapable = || state.is_unsettled() || !state.reap_candidates(self.reap_time(state), 1).is_empty();
        if !busy.contains(&Duty::Reap) && reapable() {
            duties.push(Duty::Reap);
        }
        let scrub_pause = pause(Duration::from_millis(self.proposer.config.scrub_round_ms), state.state_bytes());
        if !busy.contains(&Duty::Scrub) && self.proposer.view.scrub.is_due(now, scrub_pause) {
            duties.push(Duty::Scrub);
        }
        if !busy.contains(&Duty::SetLimits) && *state.limits() != self.proposer.config.limits {
            duties.push(Duty::SetLimits);
        }
        #[cfg(feature = "next-level")]
        if state.level() >= 2 && state.cluster().is_some_and(|it| it.note().is_none()) && !busy.contains(&Duty::Note) {
            duties.push(Duty::Note);
        }
        // Each leader waits the whole time again, because it cannot know how long the last leader
        // has waited.
        let waited = |ms| now.saturating_duration_since(current.began) >= Duration::from_millis(ms);
        if !busy.contains(&Duty::EndGrace) && state.grace_ms().is_some_and(waited) {
            duties.push(Duty::EndGrace);
        }
        duties
    }

    /// Present time of the clock that stamps log entries (`EntryClock`), in milliseconds since
    /// 1970. The leader searches for the znodes that must be deleted by this time, such as expired
    /// TTL znodes. The entry that deletes them carries this time or a later one.
    fn reap_time(&self, state: &State) -> u64 {
        self.proposer.entry_clock.now_ms(state.time_ms())
    }

    fn tick(&self) -> Duration {
        Duration::from_millis(self.proposer.config.tick_ms)
    }

    /// Proposes a duty's changes to this node's own Raft, and waits until they are applied or lost.
    async fn fulfil(self: Arc<Self>, duty: Duty) -> Duty {
        match &duty {
            Duty::Expire { sessions, term } => {
                let ids: Vec<u64> = sessions.iter().map(|session| session.0).collect();
                tracing::info!(sessions = ?ids, term = term.0, "sessions were silent for their whole timeout");
                let sessions = sessions.clone();
                // Waits without a bound: until the log has decided, the expiry may be applied, and
                // no client may be told that the session lives.
                let (command, _) = self.proposer.command(Request::new(Op::ExpireSessions { sessions, term: *term }));
                note(&self.consensus.raft.client_write(command).await);
            }
            Duty::Reap => {
                for _ in 0..REAPS_AT_ONCE {
                    let (candidates, unsettled) = {
                        let state = self.proposer.view.state();
                        let candidates =
                            state.reap_candidates(self.reap_time(&state), self.proposer.config.reap_batch_max);
                        (candidates, state.is_unsettled())
                    };
                    // An entry without znodes to delete still grants locks that earlier entries
                    // could not, for lack of budget.
                    if candidates.is_empty() && !unsettled || !self.propose_as_duty(Op::Reap { candidates }).await {
                        break;
                    }
                }
            }
            Duty::Scrub => {
                self.propose_as_duty(self.proposer.view.scrub.next()).await;
            }
            Duty::Found => {
                let zxid_base =
                    self.proposer.config.zxid_base.unwrap_or_else(|| zxid_base_at(self.proposer.entry_clock.now_ms(0)));
                let founding = Founding { uuid: ClusterUuid(storage::random_uuid()), zxid_base, group: 0 };
                self.propose_as_duty(Op::Found(founding)).await;
                // The founding of an earlier leader may have been applied first.
                if let Some(&Founding { uuid, zxid_base, .. }) = self.consensus.cluster.founding() {
                    tracing::info!(uuid = uuid.to_string(), zxid_base, "the cluster has its uuid");
                }
            }
            #[cfg(feature = "next-level")]
            Duty::Note => {
                self.propose_as_duty(Op::SetNote { text: "the level was raised".into() }).await;
            }
            Duty::EndGrace => {
                if self.propose_request(end_of_grace()).await {
                    tracing::info!("the grace period of the restored cluster is over: locks are granted from here on");
                }
            }
            Duty::SetLimits => {
                self.propose_as_duty(Op::SetLimits(self.proposer.config.limits.clone())).await;
            }
        }
        duty
    }

    /// Proposes `op`. Returns true if it was applied, as far as this node knows.
    async fn propose_as_duty(&self, op: Op) -> bool {
        self.propose_request(Request::new(op)).await
    }

    async fn propose_request(&self, request: Request) -> bool {
        let (command, _) = self.proposer.command(request);
        let written = timeout(DUTY_MAX, self.consensus.raft.client_write(command)).await;
        written.is_ok_and(|written| note(&written))
    }

    fn end_duty(&self, duty: &Duty) {
        if let Duty::Expire { sessions: expired, term } = duty {
            let state = self.proposer.view.state();
            // The tracker of another term decides by itself about these sessions. The expiries that
            // it began go on.
            if let Some(current) =
                self.consensus.sessions.lock().current.as_mut().filter(|current| current.term == *term)
            {
                current.tracker.expiry_ended(expired, |session| state.session(session).is_some());
            }
        }
    }
}

/// Zxid base (the number added to an index to make a zxid) of a cluster that is founded at
/// `now_ms`. It is at most `ZXID_BASE_MAX`, which only a clock that is a century ahead reaches; the
/// cluster is founded with that base then.
fn zxid_base_at(now_ms: u64) -> u64 {
    now_ms.saturating_mul(1 << 10).min(ZXID_BASE_MAX)
}

/// Request that deletes the znode [`RESTORING`], by which a restored cluster grants no locks for a
/// while. Only the leader may delete it.
fn end_of_grace() -> Request {
    let path = ZPath::parse(RESTORING).expect("a constant");
    let keeper = [SUPER, KEEPER].map(|scheme| Identity { scheme: scheme.into(), id: "zlock".into() });
    let delete = Op::Znode(ZnodeOp::Delete { path, version: -1 });
    Request { identities: keeper.into(), ..Request::new(delete) }
}

/// Returns true if a proposal of the leader itself was applied, and otherwise logs Raft's error.
fn note<T, E: std::fmt::Display>(written: &Result<T, E>) -> bool {
    if let Err(error) = written {
        tracing::debug!(%error, "a leader's own proposal was not taken");
    }
    written.is_ok()
}

/// Does the duties of a leader until the node stops. Runs on every node, and does nothing while
/// another node leads.
pub(crate) async fn lead(leadership: Arc<Leadership>) {
    let mut tick = interval(leadership.tick());
    // After a pause of the process, ticks go on from here; the tracker itself leaves the pause out.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way: FuturesUnordered<DutyFuture> = FuturesUnordered::new();
    let mut busy = HashSet::new();
    let (mut quotas, mut mixed) = (QuotaLog::default(), MixedLog::default());
    loop {
        tokio::select! {
            biased;
            Some(duty) = under_way.next(), if !under_way.is_empty() => {
                leadership.end_duty(&duty);
                busy.remove(&duty);
            }
            _ = tick.tick() => {
                let state = leadership.proposer.view.state();
                let duties = leadership.tick_as_leader(&state, &busy);
                if leadership.consensus.sessions.lock().current.is_some() {
                    quotas.look(&state);
                    mixed.look(&state, Instant::now());
                } else {
                    quotas.forget();
                }
                for duty in duties {
                    busy.insert(duty.clone());
                    under_way.push(Box::pin(Arc::clone(&leadership).fulfil(duty)));
                }
            }
        }
    }
}

fn touch(state: &State, tracker: &mut SessionTracker, credential: &Credential, now: Instant) -> TouchAnswer {
    match state.authenticate(credential) {
        Err(error) => TouchAnswer::Refused(error),
        Ok(session) => match tracker.heard(session.id, session.timeout_ms, now) {
            HeartbeatOutcome::Alive => TouchAnswer::Alive { timeout_ms: session.timeout_ms },
            HeartbeatOutcome::Expiring => TouchAnswer::Expiring,
        },
    }
}

#[cfg(test)]
mod tests {
    use znode::{Create, CreateMode, Limits, LogPosition, Txn, Zxid};

    use super::*;
    use crate::write::propose::tests::{leader, soon};

    /// State with one session for each number in `counts`, which is the number of ephemerals of
    /// that session. `entry_cost_max` bounds the znodes that one entry may change.
    fn with_ephemerals<const N: usize>(counts: [u32; N], entry_cost_max: u32) -> (State, [SessionId; N]) {
        let mut state = State::new(Limits { entry_cost_max, ..Limits::default() });
        let mut apply = |request: Request| {
            let zxid = Zxid(state.last_zxid().0 + 1);
            let reply =
                state.apply(LogPosition { term: Term(1), zxid }, Txn { proven: false, time_ms: 1, request }).reply;
            assert!(reply.is_ok(), "{reply:?}");
            SessionId(zxid.0)
        };
        let sessions = counts.map(|count| {
            let secret_hash = [0; 16];
            let open = Op::OpenSession {
                secret_hash,
                timeout_ms: 10_000,
                label: String::new(),
                address: None,
                client: znode::ClientInfo::default(),
            };
            let session = apply(Request::new(open));
            for number in 0..count {
                let new = Create::new(ZPath::root(), format!("{session}-{number}"));
                let create = Create { mode: CreateMode::Ephemeral, ..new };
                let credential = Some(Credential { session, secret_hash });
                apply(Request { credential, ..Request::new(Op::Znode(ZnodeOp::Create(create))) });
            }
            session
        });
        (state, sessions)
    }

    #[test]
    fn expiries_under_way_remove_together_no_more_than_a_part_of_what_an_entry_may() {
        let (state, [a, b, c, small, large]) = with_ephemerals([39, 39, 39, 9, 150], 100 * ENDING_PART);
        let mut busy = HashSet::new();
        let mut room = Room::beside(&busy, &state);
        assert_eq!([a, b, c, small].map(|session| room.take(session, &state)), [true, true, false, true]);
        busy.insert(Duty::Expire { sessions: vec![a, b], term: Term(1) });
        let mut room = Room::beside(&busy, &state);
        assert_eq!([large, c, small].map(|session| room.take(session, &state)), [false, false, true]);
        // A session that costs more than the whole bound is expired all the same, alone.
        let mut room = Room::beside(&HashSet::new(), &state);
        assert_eq!([large, small].map(|session| room.take(session, &state)), [true, false]);
    }

    #[test]
    fn a_cluster_is_founded_whatever_the_clock_says() {
        assert_eq!(zxid_base_at(1_795_400_000_000), 1_838_489_600_000_000);
        assert_eq!([0, 1 << 50, u64::MAX].map(zxid_base_at), [0, ZXID_BASE_MAX, ZXID_BASE_MAX]);
    }

    /// Time that the test waits after it has started a thread that notes a heartbeat. The thread
    /// then surely waits for the mutex of the sessions, which the test has locked.
    const MEANWHILE: Duration = Duration::from_millis(300);

    #[test]
    fn a_heartbeat_that_meets_the_end_of_an_expiry_is_told_of_it() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let data_dir = tempfile::TempDir::new().unwrap();
        let node = runtime.block_on(leader(&data_dir));
        let leadership = &node.heartbeats.leadership;
        let (secret_hash, label) = ([7; 16], String::new());
        let open = Request::new(Op::OpenSession {
            secret_hash,
            timeout_ms: 60_000,
            label,
            address: None,
            client: znode::ClientInfo::default(),
        });
        let session = SessionId(runtime.block_on(node.proposer.propose(open, soon())).unwrap().zxid.0);
        let credential = Credential { session, secret_hash };
        while leadership.touch_here(&[credential]).is_err() {
            std::thread::yield_now();
        }
        let mut sessions = leadership.consensus.sessions.lock();
        let (toucher, begun) = (Arc::clone(leadership), Instant::now());
        let touching = std::thread::spawn(move || toucher.touch_here(&[credential]));
        while begun.elapsed() < MEANWHILE {
            std::thread::yield_now();
        }
        // The session is expired, and the tracker drops it, as at the end of an expiry.
        let expiry = Op::ExpireSessions { sessions: vec![session], term: node.view.state().last_term() };
        let (command, _) = node.proposer.command(Request::new(expiry));
        runtime.block_on(node.consensus.raft.client_write(command)).unwrap();
        assert!(node.view.state().session(session).is_none());
        sessions.current.as_mut().unwrap().tracker.expiry_ended(&[session], |_| false);
        drop(sessions);
        let touched = touching.join().unwrap();
        assert_eq!(touched, Ok(vec![TouchAnswer::Refused(znode::Error::SessionExpired)]));
        runtime.block_on(node.shutdown());
    }
}
