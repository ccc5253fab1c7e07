//! One lock with more and more waiters: how soon the next holder is told, and what the queue costs
//! other clients.
//!
//! A waiter is a ticket (a lock node) that its client left in the queue (`keep=true`), and not a
//! connection. So the queue is measured and not the sockets of a machine. 64 sessions own the
//! tickets. A client waits only for the next ticket in the queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{Figure, Scale, growth};
use crate::client::Rest;
use crate::error::Error;
use crate::figures::Ranks;
use crate::system::{Cluster, Kind};

const LOCK: &str = "growth";
/// Number of sessions. With 64, each session's share of 100,000 tickets stays far below
/// `limits.ephemerals_max`.
const SESSIONS: usize = 64;
/// Timeout of the sessions, longer than the scenario, so that they need no heartbeats.
const SESSION_TIMEOUT_MS: u64 = 300_000;
const LENGTH: Duration = Duration::from_secs(3);

pub(super) async fn run(cluster: &Cluster, kind: Kind, scale: Scale, figures: &mut Vec<Figure>) -> Result<(), Error> {
    let mut queue = Queue::open(cluster.addrs(kind.door())).await?;
    queue.join(1).await?;
    for waiters in scale.steps(1, 100_000) {
        let more = waiters + 1 - queue.tickets.len();
        let began = Instant::now();
        queue.join(more).await?;
        let joined = more as f64 / began.elapsed().as_secs_f64();
        figures.push(Figure::at(waiters, "waiters joined, 64 at a time", "1/s", joined));
        let HandOffs { hand_offs, joins, elapsed } = queue.hand_over().await?;
        figures.extend([
            Figure::at(waiters, "hand-offs", "1/s", hand_offs.count() as f64 / elapsed.as_secs_f64()),
            Figure::at(waiters, "hand-off p50", "us", hand_offs.at_us(0.5)),
            Figure::at(waiters, "hand-off p99", "us", hand_offs.at_us(0.99)),
            Figure::at(waiters, "hand-off max", "us", hand_offs.at_us(1.0)),
            Figure::at(waiters, "joining p50", "us", joins.at_us(0.5)),
            Figure::at(waiters, "joining p99", "us", joins.at_us(0.99)),
        ]);
        growth::writes(cluster, kind, waiters, figures).await?;
    }
    Ok(())
}

/// The lock's queue, and the clients whose tickets are in it.
struct Queue {
    /// Clients with one session each.
    owners: Vec<Rest>,
    addrs: Vec<String>,
    /// Tickets in the order of the queue; the first one holds the lock.
    tickets: VecDeque<Place>,
    /// Number of tickets that were ever queued.
    taken: usize,
}

struct Place {
    ticket: String,
    owner: usize,
}

/// Latencies of hand-offs of the lock and of joins of its queue, with one number of waiters.
struct HandOffs {
    hand_offs: Ranks,
    joins: Ranks,
    elapsed: Duration,
}

impl Queue {
    async fn open(addrs: Vec<String>) -> Result<Queue, Error> {
        let mut owners = Vec::with_capacity(SESSIONS);
        for number in 0..SESSIONS {
            let mut owner = Rest::open(&addrs[number % addrs.len()]).await?;
            owner.open_session(SESSION_TIMEOUT_MS).await?;
            owners.push(owner);
        }
        Ok(Queue { owners, addrs, tickets: VecDeque::new(), taken: 0 })
    }

    /// Queues `count` more tickets. All sessions work at the same time, each with one request after
    /// the other.
    async fn join(&mut self, count: usize) -> Result<(), Error> {
        let joining = self.owners.iter_mut().enumerate().map(|(owner, client)| async move {
            let share = count / SESSIONS + usize::from(owner < count % SESSIONS);
            let mut places = Vec::with_capacity(share);
            for _ in 0..share {
                places.push(Place { ticket: client.join(LOCK).await?, owner });
            }
            Ok::<Vec<Place>, Error>(places)
        });
        let places: Vec<Vec<Place>> = joining.collect::<FuturesUnordered<_>>().try_collect().await?;
        self.tickets.extend(places.into_iter().flatten());
        self.taken += count;
        // New tickets stand behind the earlier tickets. The numbers at the end of the names give
        // the order among the new ones.
        self.tickets.make_contiguous().sort_by(|a, b| number(&a.ticket).cmp(number(&b.ticket)));
        Ok(())
    }

    /// Releases the lock again and again for [`LENGTH`], and queues a new ticket before each
    /// release.
    async fn hand_over(&mut self) -> Result<HandOffs, Error> {
        let (mut hand_offs, mut joins) = (Vec::new(), Vec::new());
        // One client at each node waits for tickets. The clients are new, because a node closes a
        // connection that has been idle for 30 s, and 100,000 tickets may take longer than that to
        // join.
        let mut clients = Vec::with_capacity(self.addrs.len());
        for addr in &self.addrs {
            clients.push(Rest::open(addr).await?);
        }
        let began = Instant::now();
        while began.elapsed() < LENGTH {
            let holder = self.tickets.pop_front().ok_or_else(|| Error::Answer("the lock has no holder".into()))?;
            let next = self.tickets.front().ok_or_else(|| Error::Answer("the lock has no waiter".into()))?;
            let place = self.taken % clients.len();
            let waiting = &mut clients[place];
            waiting.await_ticket(&next.ticket).await?;
            // The poll above arrives at its node while the cluster logs this join.
            let joining = Instant::now();
            let owner = self.taken % SESSIONS;
            let ticket = self.owners[owner].join(LOCK).await?;
            joins.push(joining.elapsed());
            self.taken += 1;
            let released = Instant::now();
            let release = self.owners[holder.owner].unlock(&holder.ticket);
            let told = async {
                waiting.told_ticket().await?;
                Ok::<Duration, Error>(released.elapsed())
            };
            let (handed, ()) = tokio::try_join!(told, release)?;
            hand_offs.push(handed);
            self.tickets.push_back(Place { ticket, owner });
        }
        let elapsed = began.elapsed();
        Ok(HandOffs { hand_offs: Ranks::of(hand_offs.into_iter()), joins: Ranks::of(joins.into_iter()), elapsed })
    }
}

/// Returns the ten digits at the end of a lock node's name.
fn number(ticket: &str) -> &str {
    ticket.get(ticket.len().saturating_sub(10)..).unwrap_or_default()
}
