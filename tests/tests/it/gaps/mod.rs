//! Longest time from a release of a lock to the next grant (the gap), while the first waiter in the
//! queue uses a faulty node. The test prints the table of docs/sessions-and-time.md.

mod contender;

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zlock_client::api::LockQueue;

use crate::harness::{Call, Cluster, Options, kill, until};
use contender::{Contender, Marks, TIMEOUT, longest_write};

/// Time by which a gap (from a lock's release to the next grant) may exceed the waiter's session
/// timeout, if the machine is fast enough for an election in this time.
const BOUND: Duration = Duration::from_secs(2);
/// Allowance for slower machines: if this time plus the longest time of a write is above [`BOUND`],
/// the sum is the limit in place of [`BOUND`].
const SLACK: Duration = Duration::from_secs(1);
/// Number of clusters that are tested at the same time.
const AT_ONCE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGSTOP of the node.
    Hung,
    /// A disk whose syncs never return.
    DiskHangs,
    /// A node that is cut off from its peers, but not from clients.
    CutOff,
    /// SIGTERM of the node.
    Stopped,
    /// SIGKILL of the node.
    Killed,
}

const FAULTS: [Fault; 5] = [Fault::Hung, Fault::DiskHangs, Fault::CutOff, Fault::Stopped, Fault::Killed];

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Hung => "hangs (SIGSTOP)",
            Fault::DiskHangs => "has a disk that hangs",
            Fault::CutOff => "is cut off from its peers",
            Fault::Stopped => "is stopped (SIGTERM)",
            Fault::Killed => "is killed (SIGKILL)",
        }
    }

    /// Longest wait that an HTTP client requests of a node. It is short for a hung node, which
    /// never answers. With other faults the node answers that it cannot serve.
    fn wait(self) -> Duration {
        match self {
            Fault::Hung => TIMEOUT / 3,
            _ => Duration::from_secs(60),
        }
    }

    fn begins(self, cluster: &mut Cluster, id: u64) {
        match self {
            Fault::Hung => cluster.pause(id),
            Fault::DiskHangs => cluster.hang_disk(id),
            Fault::CutOff => cluster.isolate(id),
            Fault::Stopped => kill(cluster.pid(id).as_raw_nonzero().get().unsigned_abs(), Signal::TERM),
            Fault::Killed => cluster.kill(id),
        }
    }
}

/// Kind of the waiter at the faulty node: a client that goes on at other nodes, over HTTP or over
/// ZooKeeper's protocol, or a client that dies together with the node.
#[derive(Clone, Copy)]
enum Kind {
    Http,
    ZooKeeper,
    Dies,
}

impl Kind {
    fn lock(self) -> &'static str {
        match self {
            Kind::Http => "/gap-http",
            Kind::ZooKeeper => "/gap-zookeeper",
            Kind::Dies => "/gap-dies",
        }
    }
}

/// A lock with three clients in its queue: the holder, a waiter at the faulty node, and a waiter at
/// another node.
struct Queue {
    marks: Marks,
    /// Task of the waiter at the faulty node, if that waiter is to die with the node; otherwise
    /// `None`.
    dying: Option<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    fault_has_begun: watch::Sender<bool>,
}

impl Queue {
    /// Queues the three clients. `sick` is the faulty node: the first waiter tries it before the
    /// other nodes, and the other clients do not use it. `wait` is the longest wait of an HTTP
    /// request.
    async fn form(cluster: &Cluster, kind: Kind, sick: u64, wait: Duration) -> Queue {
        let well: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != sick).collect();
        let (fault_has_begun, begun) = watch::channel(false);
        let mut queue = Queue { marks: Marks::default(), dying: None, others: Vec::new(), fault_has_begun };
        for (number, first) in [(0, well[0]), (1, sick), (2, well[1])] {
            let mut ids = vec![first];
            ids.extend(well.iter().copied().filter(|id| *id != first));
            let doors = |door: fn(&Cluster, u64) -> String| ids.iter().map(|id| door(cluster, *id)).collect();
            let http: Vec<String> = doors(|cluster, id| cluster.endpoint(id).to_owned());
            let (marks, may_release) = (queue.marks.clone(), begun.clone());
            let mut contender = Contender { doors: http, marks, wait, may_release };
            let task = if matches!(kind, Kind::ZooKeeper) {
                contender.doors = doors(|cluster, id| cluster.zookeeper_endpoint(id).to_owned());
                tokio::spawn(contender.over_zookeeper(kind.lock()))
            } else {
                let timeout_ms = u64::try_from(TIMEOUT.as_millis()).unwrap();
                let session = cluster.client(well[0]).open_session(timeout_ms).await;
                tokio::spawn(contender.over_http(kind.lock(), session))
            };
            match kind {
                Kind::Dies if number == 1 => queue.dying = Some(task),
                _ => queue.others.push(task),
            }
            contenders(cluster, kind, well[0], number + 1).await;
        }
        queue
    }
}

/// Waits until this many clients contend for the lock.
async fn contenders(cluster: &Cluster, kind: Kind, node: u64, count: u32) {
    let mut client = cluster.client(node);
    until("they queue", async || {
        let answer = client.send(Call::get(format!("/v1/locks{}", kind.lock()))).await.ok()?;
        (answer.status == 200 && answer.json::<LockQueue>().contenders == count).then_some(())
    })
    .await;
}

/// Lets one node fail: the leader if `leads`, otherwise a follower. Returns the longest gap (time
/// from a release to the next grant) of the locks whose waiter is [`Kind::Http`],
/// [`Kind::ZooKeeper`] and [`Kind::Dies`], and the longest time of a write meanwhile.
async fn gaps(fault: Fault, leads: bool) -> ([Duration; 3], Duration) {
    let options = Options { proxied: true, zookeeper: true, disk_may_hang: true, ..Options::default() };
    let mut cluster = Cluster::start_with(options).await;
    let leader = cluster.leader().await;
    let sick = cluster.ids().into_iter().find(|id| (*id == leader) == leads).unwrap();
    let form = |kind| Queue::form(&cluster, kind, sick, fault.wait());
    let queues = join_all([Kind::Http, Kind::ZooKeeper, Kind::Dies].map(form)).await;
    for queue in &queues {
        // The client ends without a release or a close of its session: only its socket closes.
        queue.dying.iter().for_each(JoinHandle::abort);
    }
    let well = cluster.ids().into_iter().filter(|id| *id != sick);
    let doors: Vec<String> = well.map(|id| cluster.endpoint(id).to_owned()).collect();
    let (are_over, over) = watch::channel(false);
    let writer = tokio::spawn(longest_write(doors, over));
    fault.begins(&mut cluster, sick);
    for queue in &queues {
        queue.fault_has_begun.send_replace(true);
    }
    let mut longest = Vec::new();
    for queue in queues {
        for client in queue.others {
            client.await.unwrap();
        }
        longest.push(queue.marks.longest());
    }
    if fault == Fault::DiskHangs {
        assert!(!cluster.client(sick).is_ready().await, "its disk does not hang");
    }
    are_over.send_replace(true);
    (longest.try_into().unwrap(), writer.await.unwrap())
}

#[tokio::test]
async fn a_lock_whose_first_waiter_is_at_a_sick_node_stands_still_no_longer_than_its_session() {
    let cases = FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]);
    let play = |(fault, leads): (Fault, bool)| async move {
        let (gaps, pause) = gaps(fault, leads).await;
        (fault, leads, gaps, pause)
    };
    let rows: Vec<_> = stream::iter(cases).map(play).buffered(AT_ONCE).collect().await;
    println!(
        "| the waiter's node | and is | HTTP client | ZooKeeper client | client that dies with it | \
        any write |"
    );
    println!("|---|---|---|---|---|---|");
    for (fault, leads, gaps, pause) in &rows {
        let [http, zookeeper, dies] = gaps.map(|gap| gap.as_millis());
        let role = if *leads { "the leader" } else { "a follower" };
        println!("| {} | {role} | {http} ms | {zookeeper} ms | {dies} ms | {} ms |", fault.name(), pause.as_millis());
    }
    for (fault, leads, gaps, pause) in rows {
        let bound = TIMEOUT + BOUND.max(pause + SLACK);
        assert!(gaps.iter().all(|gap| *gap < bound), "{fault:?}, leader: {leads}: {gaps:?}");
    }
}
