//! Thread for long work: lists of locks, znodes, sessions and group members, and the parsing of
//! long bodies.
//!
//! A list of 1,000 entries takes milliseconds, which would block the thread of Raft and of the
//! connections. Jobs wait in one queue for each address, and the queues take turns. A waiting job
//! has no reference to a state: a list shows the state at the moment when the list is made.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use replica::Bound;
use replica::background::leave_the_processor;
use tokio::sync::oneshot;

use crate::problem::Problem;

/// Largest number of waiting jobs. Beyond, the last job of the longest queue is refused.
const WAITING_MAX: usize = 1_024;

/// Queues of long jobs of requests, such as making a long list, and the thread that does them.
#[derive(Default)]
pub(crate) struct LongWork(Arc<Monitor>);

#[derive(Default)]
struct Monitor {
    queues: Mutex<WorkQueues>,
    changed: Condvar,
}

#[derive(Default)]
struct WorkQueues {
    /// Queues of the addresses, in the order in which they are served next. Each has at least one
    /// job.
    lines: VecDeque<Line>,
    waiting: usize,
    has_thread: bool,
    is_closed: bool,
}

/// Queue of the jobs of one address, or of all exempt addresses together.
struct Line {
    source: Option<IpAddr>,
    jobs: VecDeque<Job>,
}

/// A job: does the work, and sends the result to the task of the request.
type Job = Box<dyn FnOnce() + Send>;

impl LongWork {
    /// Does `work` on the thread for long work, in the queue of the address `source`.
    ///
    /// # Errors
    /// 429 when too many jobs wait and this one is dropped; else the errors of the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        source: Option<IpAddr>,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (done, ended) = oneshot::channel();
        let job = move || {
            // The client may have hung up meanwhile.
            if !done.is_closed() {
                let result = catch_unwind(AssertUnwindSafe(work));
                let _ = done.send(result.unwrap_or_else(|_| Err(Problem::internal("long work ended in a panic"))));
            }
        };
        self.enqueue(source, Box::new(job))?;
        ended.await.unwrap_or_else(|_| Err(Problem::too_many(Bound::LongWork, "requests for long work")))
    }

    fn enqueue(&self, source: Option<IpAddr>, job: Job) -> Result<(), Problem> {
        let mut queues = self.0.lock();
        if !queues.has_thread {
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("http-long-work".into()).spawn(move || shared.serve());
            started.map_err(|error| Problem::unavailable(format!("no thread for long work: {error}"), 1_000))?;
            queues.has_thread = true;
        }
        let gave_way = queues.push(source, job);
        drop(queues);
        self.0.changed.notify_one();
        // Dropping the refused job answers its client. It is done outside the lock.
        drop(gave_way);
        Ok(())
    }
}

impl Drop for LongWork {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl Monitor {
    fn lock(&self) -> MutexGuard<'_, WorkQueues> {
        self.queues.lock().expect("nothing panics under this guard")
    }

    /// Works on the queues until [`LongWork`] is dropped.
    fn serve(&self) {
        leave_the_processor();
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queues = self.lock();
        loop {
            if queues.is_closed {
                return None;
            }
            if let Some(job) = queues.pop() {
                return Some(job);
            }
            queues = self.changed.wait(queues).expect("nothing panics under this guard");
        }
    }
}

impl WorkQueues {
    /// Puts a job into the queue of its address. Returns a job to refuse when there are too many:
    /// the last job of the longest queue.
    fn push(&mut self, source: Option<IpAddr>, job: Job) -> Option<Job> {
        match self.lines.iter_mut().find(|line| line.source == source) {
            Some(line) => line.jobs.push_back(job),
            None => self.lines.push_back(Line { source, jobs: [job].into() }),
        }
        self.waiting += 1;
        if self.waiting <= WAITING_MAX {
            return None;
        }
        self.waiting -= 1;
        let longest = (0..self.lines.len()).max_by_key(|&at| self.lines[at].jobs.len())?;
        let refused = self.lines[longest].jobs.pop_back();
        if self.lines[longest].jobs.is_empty() {
            self.lines.remove(longest);
        }
        refused
    }

    /// Takes the first job of the queue that is served next. The queues are served in
    /// rotation.
    fn pop(&mut self) -> Option<Job> {
        let mut line = self.lines.pop_front()?;
        let job = line.jobs.pop_front();
        if !line.jobs.is_empty() {
            self.lines.push_back(line);
        }
        self.waiting -= 1;
        job
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_job_of_one_more_address_than_places_leaves_no_queue() {
        let source = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        let mut queues = WorkQueues::default();
        for number in 0..WAITING_MAX as u32 {
            assert!(queues.push(source(number), Box::new(|| ())).is_none());
        }
        let _ = queues.push(source(9_000), Box::new(|| ())).expect("all places are taken");
        assert_eq!(std::iter::from_fn(|| queues.pop()).count(), WAITING_MAX);
        assert_eq!((queues.waiting, queues.lines.len()), (0, 0));
    }

    #[test]
    fn addresses_take_turns_and_the_one_with_most_gives_way() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let job = |name: u32| -> Job {
            let done = Arc::clone(&done);
            Box::new(move || done.lock().unwrap().push(name))
        };
        let source = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let mut queues = WorkQueues::default();
        for number in 0..WAITING_MAX as u32 {
            assert!(queues.push(source(1), job(number)).is_none());
        }
        let gave_way = queues.push(source(1), job(9_000)).expect("all places are taken");
        gave_way();
        assert_eq!(*done.lock().unwrap(), [9_000], "the last one of the address itself");
        queues.push(source(2), job(9_001)).expect("all places are taken")();
        assert_eq!(done.lock().unwrap()[1], WAITING_MAX as u32 - 1, "the last one of the other address");
        (0..3).for_each(|_| queues.pop().expect("many wait")());
        assert_eq!(done.lock().unwrap()[2..], [0, 9_001, 1]);
        assert_eq!(queues.waiting, WAITING_MAX - 3);
    }

    #[tokio::test]
    async fn work_that_panics_is_refused_and_the_next_is_done() {
        let work = LongWork::default();
        let failed = work.run(None, || -> Result<(), Problem> { panic!("on purpose") }).await;
        assert!(failed.unwrap_err().to_json(znode::Zxid(0)).contains("panic"));
        assert_eq!(work.run(None, || Ok(7)).await.ok(), Some(7));
    }
}
