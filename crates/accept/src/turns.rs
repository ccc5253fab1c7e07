//! Scheduler for the tasks of a server's client connections, on the runtime threads that they share
//! with Raft. (The server is a node's HTTP or ZooKeeper server.)
//!
//! Tasks of connections are not queued in the runtime, where a thousand of them would run before
//! Raft's task runs again. They are queued in this module, in one queue (a *line*) for each
//! address, and a task of the runtime (a *runner*) polls them. One poll of a connection's task is
//! its *turn*. After [`SLICE`] the runner yields to all other ready tasks of the runtime, which
//! then also polls its sockets and timers. The runner always takes a task of the address that has
//! used the least time. So an address with 2,000 busy connections gets no more time than one with
//! two.
//!
//! ```text
//! accept ── spawn(group, connection) ──> lines, one for each address
//!                                             │ the line with the least time
//!                                             ▼
//! runtime's line: [ Raft, log, peers, timers .. | runner: up to 200 us ] ── and again
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_task::Runnable;
use tokio::runtime::Handle;
use tokio::task::coop::has_budget_remaining;

use crate::backlog::Backlog;
use crate::mutex::Mutex;
use crate::step_times::StepTimes;

/// Time for which a [`Runner`] polls connections' tasks before it yields to the runtime's other
/// tasks.
const SLICE: Duration = Duration::from_micros(200);

/// Group of connections that share one queue, and so one share of the runtime's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// Connections of an address, or of a network that counts as one address.
    Address(IpAddr),
    /// A single connection of an exempt address (one that stands for many clients), by its number.
    Connection(u64),
    /// Connections of one session from an address that is exempt from the bounds for one address.
    /// The number identifies the session; only its client knows it.
    Session(u64),
}

/// Group (set of connections with a common queue) that one connection's task belongs to. The group
/// can change.
#[derive(Debug)]
pub(crate) struct Seat(Mutex<Group>);

impl Seat {
    pub(crate) fn new(group: Group) -> Arc<Seat> {
        Arc::new(Seat(Mutex::new(group)))
    }

    fn group(&self) -> Group {
        *self.0.lock()
    }
}

/// Queues of a server's tasks, one for each group. The drop ends all tasks.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Lines>);

#[derive(Debug)]
struct Lines(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: BTreeMap<Group, Line>,
    /// Groups with a ready task, each with the running time that it had used when it was inserted.
    /// [`Inner::next`] inserts a group again if the group has used more time since then.
    wanting: BTreeSet<(Duration, Group)>,
    /// Running time that the last polled group had used before its poll. A new group starts with
    /// this value, and a group that had no ready task is raised to it. So a group gets no extra
    /// time for a past in which it did not run.
    least: Duration,
    /// Waker of each [`Runner`], by the runner's number; `None` unless it waits for a ready task.
    sleeping: Vec<Option<Waker>>,
    is_closed: bool,
}

/// Queue of one group's ready tasks, with the number of all its tasks.
#[derive(Debug, Default)]
struct Line {
    /// Running time that the group's tasks have used. A new group starts with [`Inner::least`].
    had: Duration,
    tasks: usize,
    ready: VecDeque<Runnable>,
}

impl Turns {
    /// Creates empty queues, and starts a runner for each thread of the current runtime.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(crate) fn start() -> Turns {
        let runtime = Handle::current();
        let runners = runtime.metrics().num_workers();
        let lines = Arc::new(Lines(Mutex::default()));
        lines.lock().sleeping.resize(runners, None);
        for number in 0..runners {
            runtime.spawn(Runner::new(&lines, number, true).run());
        }
        Turns(lines)
    }

    /// Creates empty queues, and starts a runner on a thread of its own. Its tasks use the sockets
    /// and timers of the current runtime.
    ///
    /// # Errors
    /// An error when no thread can be started.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(crate) fn start_thread(name: &str) -> io::Result<Turns> {
        let runtime = Handle::current();
        let lines = Arc::new(Lines(Mutex::default()));
        lines.lock().sleeping.resize(1, None);
        let runner = Runner::new(&lines, 0, false);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(runner.run()))?;
        Ok(Turns(lines))
    }

    /// Starts a task in the group that `seat` contains. A panic of the task ends only that task.
    pub(crate) fn spawn(&self, seat: &Arc<Seat>, task: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().lines.entry(seat.group()).or_default().tasks += 1;
        let counted = Counted { lines: Arc::downgrade(&self.0), seat: Arc::clone(seat) };
        let task = async move {
            let _counted = counted;
            task.await;
        };
        let (lines, seat) = (Arc::downgrade(&self.0), Arc::clone(seat));
        let schedule = move |runnable| Lines::push(&lines, seat.group(), runnable);
        let (runnable, task) = async_task::Builder::new().propagate_panic(true).spawn(|()| task, schedule);
        task.detach();
        runnable.schedule();
    }

    /// Moves the task of `seat` to another group, from its next poll on. Must be called by the task
    /// itself: a running task is in no queue, so it need not be removed from its old group's queue.
    pub(crate) fn sit(&self, seat: &Seat, group: Group) {
        let mut inner = self.0.lock();
        let before = std::mem::replace(&mut *seat.0.lock(), group);
        if before == group || inner.is_closed {
            return;
        }
        inner.lines.entry(group).or_default().tasks += 1;
        inner.leave(before);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Guard that a task owns; its drop removes the task from the count of its group.
struct Counted {
    lines: Weak<Lines>,
    seat: Arc<Seat>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(lines) = self.lines.upgrade() else { return };
        lines.lock().leave(self.seat.group());
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Appends a ready task to the queue of its group, and wakes a runner.
    fn push(lines: &Weak<Lines>, group: Group, runnable: Runnable) {
        // Drops the task if the queues were dropped.
        let Some(lines) = lines.upgrade() else { return };
        let mut inner = lines.lock();
        if inner.is_closed {
            drop(inner);
            return;
        }
        let least = inner.least;
        let line = inner.lines.entry(group).or_default();
        line.ready.push_back(runnable);
        if line.ready.len() == 1 {
            line.had = line.had.max(least);
            let wants = (line.had, group);
            inner.wanting.insert(wants);
        }
        let sleeper = inner.sleeping.iter_mut().find_map(Option::take);
        drop(inner);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Ends all tasks: ready tasks now, other tasks when they next become ready.
    fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.wanting.clear();
        let lines = std::mem::take(&mut inner.lines);
        let sleeping = std::mem::take(&mut inner.sleeping);
        drop(inner);
        drop(lines);
        sleeping.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Inner {
    /// Removes a task from the count of its group, and removes a group without tasks from the map.
    fn leave(&mut self, group: Group) {
        let Some(line) = self.lines.get_mut(&group) else { return };
        line.tasks -= 1;
        if line.tasks == 0 && line.ready.is_empty() {
            self.lines.remove(&group);
        }
    }

    /// Takes the first ready task of the group that has used the least time; `None` when no task is
    /// ready.
    fn next(&mut self) -> Option<(Group, Runnable)> {
        loop {
            let (sorted_by, group) = *self.wanting.first()?;
            let is_alone = self.wanting.len() == 1;
            let line = self.lines.get_mut(&group)?;
            if line.had > sorted_by && !is_alone {
                self.wanting.pop_first();
                self.wanting.insert((line.had, group));
                continue;
            }
            self.least = line.had;
            let runnable = line.ready.pop_front()?;
            if line.ready.is_empty() {
                self.wanting.pop_first();
            }
            return Some((group, runnable));
        }
    }

    /// Adds the time of a task's poll to the running time that its group has used.
    fn charge(&mut self, group: Group, time: Duration) {
        let Some(line) = self.lines.get_mut(&group) else { return };
        line.had += time;
        if line.tasks == 0 && line.ready.is_empty() {
            self.lines.remove(&group);
        }
    }
}

/// Runner: a task of the runtime that runs tasks from the queues.
struct Runner {
    lines: Arc<Lines>,
    number: usize,
    /// True if the runner shares its thread with Raft, so that [`StepTimes`] counts its steps and
    /// [`Backlog`] the runner.
    is_beside_raft: bool,
    backlog: Backlog,
}

impl Runner {
    fn new(lines: &Arc<Lines>, number: usize, is_beside_raft: bool) -> Runner {
        Runner { lines: Arc::clone(lines), number, is_beside_raft, backlog: Backlog::default() }
    }

    async fn run(mut self) {
        while poll_fn(|cx| self.slice(cx)).await {
            // The runtime runs all other ready tasks, and polls its sockets, before this task goes
            // on.
            tokio::task::yield_now().await;
        }
    }

    /// Polls tasks from the queues for up to [`SLICE`]. Returns pending when no task is ready,
    /// false when the queues are closed, and true otherwise.
    fn slice(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let began = Instant::now();
        let mut now = began;
        let mut turn: Option<(Group, Duration)> = None;
        // All tasks of a slice share tokio's cooperative budget of this poll. When it is used up,
        // their reads would return pending, so the slice ends.
        while now - began < SLICE && has_budget_remaining() {
            let mut inner = self.lines.lock();
            if inner.is_closed {
                return Poll::Ready(false);
            }
            if let Some((group, time)) = turn.take() {
                inner.charge(group, time);
            }
            let Some((group, runnable)) = inner.next() else {
                let number = self.number;
                inner.sleeping[number] = Some(cx.waker().clone());
                self.backlog.set(false);
                return Poll::Pending;
            };
            drop(inner);
            runnable.run();
            let then = std::mem::replace(&mut now, Instant::now());
            if self.is_beside_raft {
                StepTimes::of_this_process().count(now - then);
            }
            turn = Some((group, now - then));
        }
        let mut inner = self.lines.lock();
        if let Some((group, time)) = turn {
            inner.charge(group, time);
        }
        self.backlog.set(self.is_beside_raft && !inner.wanting.is_empty());
        Poll::Ready(true)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // A runner is dropped when the runtime ends, so no runner is left to run the queued tasks.
        self.lines.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;
    use crate::backlog::{WAIT_MAX, caught_up};

    /// Time for which a busy task runs before it yields.
    const STEP: Duration = Duration::from_micros(50);

    fn address(last: u8) -> Arc<Seat> {
        Seat::new(Group::Address([192, 0, 2, last].into()))
    }

    /// Busy task that counts its yields and never ends.
    async fn work(steps: Arc<AtomicU64>) {
        loop {
            let began = Instant::now();
            while began.elapsed() < STEP {}
            steps.fetch_add(1, Ordering::Relaxed);
            again().await;
        }
    }

    /// Yields and is ready again at once. `yield_now` would be ready only after the runtime's next
    /// poll of its sockets.
    async fn again() {
        let mut is_first = true;
        poll_fn(|cx| {
            if std::mem::take(&mut is_first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Measures the steps of two groups, and checks that neither makes twice as many as the other.
    /// Measures up to five times, because a group is charged for the pauses of the whole thread.
    async fn check_shares(measure: impl AsyncFn() -> [u64; 2]) {
        let mut unequal = Vec::new();
        while unequal.len() < 5 {
            let [one, other] = measure().await;
            if one < 2 * other && other < 2 * one {
                return;
            }
            unequal.push([one, other]);
        }
        panic!("steps of the two: {unequal:?}");
    }

    #[tokio::test]
    async fn an_address_with_many_connections_gets_no_more_than_one_with_few() {
        check_shares(async || {
            let turns = Turns::start();
            let [many, two]: [Arc<AtomicU64>; 2] = Default::default();
            (0..200).for_each(|_| turns.spawn(&address(1), work(Arc::clone(&many))));
            (0..2).for_each(|_| turns.spawn(&address(2), work(Arc::clone(&two))));
            while many.load(Ordering::Relaxed) + two.load(Ordering::Relaxed) < 4_000 {
                yield_now().await;
            }
            [many, two].map(|steps| steps.load(Ordering::Relaxed))
        })
        .await;
    }

    #[tokio::test]
    async fn connections_of_one_session_have_one_line() {
        check_shares(async || {
            let turns = Arc::new(Turns::start());
            let [many, two]: [Arc<AtomicU64>; 2] = Default::default();
            let spawn = |number: u64, session: u64, steps: &Arc<AtomicU64>| {
                let seat = Seat::new(Group::Connection(number));
                let (lines, steps, own) = (Arc::downgrade(&turns), Arc::clone(steps), Arc::clone(&seat));
                turns.spawn(&seat, async move {
                    lines.upgrade().unwrap().sit(&own, Group::Session(session));
                    again().await;
                    work(steps).await;
                });
            };
            (0..200).for_each(|number| spawn(number, 1, &many));
            (200..202).for_each(|number| spawn(number, 2, &two));
            while many.load(Ordering::Relaxed) + two.load(Ordering::Relaxed) < 4_000 {
                yield_now().await;
            }
            let groups: Vec<Group> = turns.0.lock().lines.keys().copied().collect();
            assert!(groups.iter().all(|group| matches!(group, Group::Session(_))), "{groups:?}");
            [many, two].map(|steps| steps.load(Ordering::Relaxed))
        })
        .await;
    }

    #[tokio::test]
    async fn all_else_goes_first_after_a_slice() {
        let turns = Turns::start();
        let steps = Arc::<AtomicU64>::default();
        (0..200).for_each(|_| turns.spawn(&address(1), work(Arc::clone(&steps))));
        let most_per_slice = u64::try_from(SLICE.as_micros() / STEP.as_micros()).unwrap() + 1;
        for _ in 0..1_000 {
            let before = steps.load(Ordering::Relaxed);
            // The test is another task of the runtime, like those of Raft.
            yield_now().await;
            let between = steps.load(Ordering::Relaxed) - before;
            assert!(between <= most_per_slice, "{between} steps before another task of the runtime");
        }
    }

    #[tokio::test]
    async fn a_batch_waits_for_connections_that_are_ready() {
        let turns = Turns::start();
        // A pause of the thread can be longer than a batch waits.
        for _ in 0..100 {
            let steps = Arc::<AtomicU64>::default();
            for _ in 0..10 {
                let steps = Arc::clone(&steps);
                turns.spawn(&address(1), async move {
                    steps.fetch_add(1, Ordering::Relaxed);
                    let began = Instant::now();
                    while began.elapsed() < STEP {}
                });
            }
            // The first slice.
            yield_now().await;
            let began = Instant::now();
            caught_up().await;
            if began.elapsed() < WAIT_MAX {
                return assert_eq!(steps.load(Ordering::Relaxed), 10);
            }
            while steps.load(Ordering::Relaxed) < 10 {
                yield_now().await;
            }
        }
        panic!("a batch waits longer than for the connections that are ready");
    }

    #[tokio::test]
    async fn a_batch_waits_only_for_a_time() {
        let turns = Turns::start();
        turns.spawn(&address(1), work(Arc::default()));
        yield_now().await;
        let began = Instant::now();
        caught_up().await;
        assert!(began.elapsed() >= WAIT_MAX, "a task is ready all the time");
    }

    #[tokio::test]
    async fn an_address_that_was_away_does_not_catch_up() {
        check_shares(async || {
            let turns = Turns::start();
            let [steady, late]: [Arc<AtomicU64>; 2] = Default::default();
            turns.spawn(&address(1), work(Arc::clone(&steady)));
            while steady.load(Ordering::Relaxed) < 1_000 {
                yield_now().await;
            }
            let away = steady.load(Ordering::Relaxed);
            turns.spawn(&address(2), work(Arc::clone(&late)));
            while late.load(Ordering::Relaxed) < 1_000 {
                yield_now().await;
            }
            [steady.load(Ordering::Relaxed) - away, late.load(Ordering::Relaxed)]
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_ends_its_task_alone_and_the_end_of_the_lines_all() {
        let turns = Turns::start();
        turns.spawn(&address(1), async { panic!("on purpose") });
        let (done, is_done) = oneshot::channel();
        turns.spawn(&address(1), async move { done.send(()).unwrap() });
        is_done.await.expect("the next one runs");
        let (kept, ended) = oneshot::channel::<()>();
        turns.spawn(&address(2), async move {
            let _kept = kept;
            work(Arc::default()).await;
        });
        drop(turns);
        ended.await.expect_err("a task that is ready is dropped");
    }
}
