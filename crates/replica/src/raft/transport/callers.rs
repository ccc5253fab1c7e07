//! Connections to this node's peer port, and limits on their number and memory.
//!
//! A caller (the node that opened a connection) is a stranger until it has sent a member's hello.
//! All strangers together may have [`STRANGERS_MAX`] connections. At this limit a new stranger
//! replaces another one: the oldest from the address with the most strangers. So strangers keep no
//! member waiting. A member has a separate limit for each lane (purpose of a connection); a
//! connection beyond it replaces that member's oldest connection on the lane. Peers are not
//! authenticated: a stranger that knows the cluster's name and ids counts as a member.
//!
//! Of two processes with one id, for example on a copied machine, the first to connect is served.
//! The other one is refused until the first is silent: the two have different data directories.
//!
//! Incomplete frames are kept until they are complete. All of them together have a limit. Beyond
//! it, the connection that holds the most bytes is ended.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use accept::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::messages::Lane;

/// Largest number of connections whose caller has not sent a hello yet.
const STRANGERS_MAX: usize = 64;
/// Largest size in bytes of the incomplete frames of all connections together: more than three
/// frames of the greatest length.
const BEGUN_BYTES_MAX: usize = 64 << 20;

/// Time after its last message in which a member keeps out another process with its id. A member
/// asks each other one four times a second.
const HEARD: Duration = Duration::from_secs(2);

/// All nodes that have a connection to this node's peer port.
#[derive(Debug)]
pub(crate) struct Callers {
    began: Instant,
    table: Mutex<CallerTable>,
}

impl Default for Callers {
    fn default() -> Callers {
        Callers { began: Instant::now(), table: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct CallerTable {
    next: u64,
    /// Callers by the number of their connection. Connections are numbered in order of arrival.
    callers: BTreeMap<u64, Caller>,
    begun_bytes: usize,
}

#[derive(Debug)]
struct Caller {
    addr: Option<IpAddr>,
    /// The caller as a member; `None` before the caller's hello.
    member: Option<Member>,
    /// Time of the caller's last message after the hello, in milliseconds since the table was
    /// made; 0 before that message.
    heard_ms: Arc<AtomicU64>,
    begun_bytes: usize,
    /// Sender that tells the connection to end.
    end: oneshot::Sender<()>,
}

/// Caller whose hello is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: u64,
    /// Incarnation (random number) of the caller's data directory.
    pub(crate) incarnation: u64,
    /// Purpose of the connection.
    pub(crate) lane: Lane,
}

impl Member {
    /// Tells whether two callers are processes with one id and different data directories.
    fn is_twin_of(self, other: Member) -> bool {
        self.id == other.id && self.incarnation != other.incarnation
    }
}

/// Entry of one connection in the table of callers, removed by its drop.
#[derive(Debug)]
pub(crate) struct CallerPlace {
    callers: Arc<Callers>,
    number: u64,
    heard_ms: Arc<AtomicU64>,
}

/// Refusal of a member, because another process with its id is connected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IdInUse;

/// Receiver of the notice that another connection has replaced this one. It gets no notice when the
/// connection itself drops its [`CallerPlace`].
pub(crate) type ReplacementNotice = oneshot::Receiver<()>;

impl Lane {
    /// Largest number of connections of one member for the purpose `self`. A leader has two for
    /// appends, and a member that has lost its connections may connect again before this node
    /// notices that.
    fn places(self) -> usize {
        match self {
            Lane::Append => 4,
            Lane::Control | Lane::Snapshot | Lane::Forward => 2,
        }
    }
}

impl Callers {
    /// Adds a connection as that of a stranger (a caller without a hello). Replaces the connection
    /// of another stranger if there are too many.
    pub(crate) fn enter(self: &Arc<Self>, addr: Option<IpAddr>) -> (CallerPlace, ReplacementNotice) {
        let addr = addr.map(accept::source);
        let (end, replaced) = oneshot::channel();
        let mut table = self.table.lock();
        while table.strangers().count() >= STRANGERS_MAX {
            let addr = table.most_frequent_address();
            table.remove_one_of(addr);
        }
        let number = table.next;
        table.next += 1;
        let heard_ms = Arc::<AtomicU64>::default();
        table
            .callers
            .insert(number, Caller { addr, member: None, heard_ms: Arc::clone(&heard_ms), begun_bytes: 0, end });
        drop(table);
        (CallerPlace { callers: Arc::clone(self), number, heard_ms }, replaced)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Bytes of the incomplete frames of all connections.
    #[cfg(test)]
    pub(crate) fn begun_bytes(&self) -> usize {
        self.table.lock().begun_bytes
    }
}

impl CallerTable {
    fn strangers(&self) -> impl Iterator<Item = (u64, Option<IpAddr>)> {
        self.callers.iter().filter(|(_, caller)| caller.member.is_none()).map(|(number, caller)| (*number, caller.addr))
    }

    /// Address from which the most strangers (callers without a hello) have connections.
    fn most_frequent_address(&self) -> Option<IpAddr> {
        let mut counts = BTreeMap::<Option<IpAddr>, usize>::new();
        self.strangers().for_each(|(_, addr)| *counts.entry(addr).or_default() += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).and_then(|(addr, _)| addr)
    }

    /// Ends the oldest connection of a stranger (caller without a hello) from this address.
    fn remove_one_of(&mut self, addr: Option<IpAddr>) {
        let oldest = self.strangers().find(|(_, other)| *other == addr).map(|(number, _)| number);
        if let Some(number) = oldest {
            self.end(number);
        }
    }

    /// Ends a connection, because another one replaces it, or because it holds too much memory.
    fn end(&mut self, number: u64) {
        if let Some(caller) = self.remove(number) {
            // A connection that has ended does not need the notice.
            let _ = caller.end.send(());
        }
    }

    fn remove(&mut self, number: u64) -> Option<Caller> {
        let caller = self.callers.remove(&number)?;
        self.begun_bytes -= caller.begun_bytes;
        Some(caller)
    }

    fn greediest(&self) -> Option<u64> {
        self.callers.iter().max_by_key(|(_, caller)| caller.begun_bytes).map(|(number, _)| *number)
    }
}

impl CallerPlace {
    /// Turns the connection of a stranger into that of a member, after its hello. Replaces the
    /// member's oldest connection on this lane (for this purpose) if there are too many, and all
    /// connections of an earlier process with another data directory.
    ///
    /// # Errors
    /// When that process has sent a message in the last two seconds.
    pub(crate) fn admit(&self, member: Member) -> Result<(), IdInUse> {
        let Member { id, lane, .. } = member;
        let mut table = self.callers.table.lock();
        let is_twin = |caller: &Caller| caller.member.is_some_and(|other| other.is_twin_of(member));
        let twins: Vec<u64> =
            table.callers.iter().filter(|(_, caller)| is_twin(caller)).map(|(number, _)| *number).collect();
        let since = self.callers.now_ms().saturating_sub(HEARD.as_millis() as u64).max(1);
        if twins.iter().any(|twin| table.callers[twin].heard_ms.load(Ordering::Relaxed) >= since) {
            return Err(IdInUse);
        }
        twins.into_iter().for_each(|twin| table.end(twin));
        let of_lane = |caller: &Caller| caller.member == Some(member);
        let taken = table.callers.values().filter(|caller| of_lane(caller)).count();
        let oldest = table.callers.iter().find(|(_, caller)| of_lane(caller)).map(|(number, _)| *number);
        if let Some(oldest) = oldest.filter(|_| taken >= lane.places()) {
            tracing::debug!(id, ?lane, "a new connection takes the place of the oldest");
            table.end(oldest);
        }
        // A stranger that was replaced meanwhile is about to end.
        if let Some(caller) = table.callers.get_mut(&self.number) {
            caller.member = Some(member);
        }
        Ok(())
    }

    /// Notes that the caller has sent a message after its hello.
    pub(crate) fn heard(&self) {
        self.heard_ms.store(self.callers.now_ms().max(1), Ordering::Relaxed);
    }

    /// Notes that this connection keeps `bytes` of an incomplete frame.
    ///
    /// # Errors
    /// When all connections together hold too much and this one holds the most.
    pub(crate) fn keep(&self, bytes: usize) -> io::Result<()> {
        let mut table = self.callers.table.lock();
        let refused = || io::Error::new(io::ErrorKind::OutOfMemory, "frames that have begun take up too much memory");
        let caller = table.callers.get_mut(&self.number).ok_or_else(refused)?;
        let before = std::mem::replace(&mut caller.begun_bytes, bytes);
        table.begun_bytes = table.begun_bytes - before + bytes;
        while table.begun_bytes > BEGUN_BYTES_MAX {
            let greediest = table.greediest().unwrap_or(self.number);
            if greediest == self.number {
                table.remove(greediest);
                return Err(refused());
            }
            table.end(greediest);
        }
        Ok(())
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        self.callers.table.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn addr(last: u8) -> Option<IpAddr> {
        Some([10, 0, 0, last].into())
    }

    fn lives(replaced: &mut ReplacementNotice) -> bool {
        replaced.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    fn living(callers: &mut [(CallerPlace, ReplacementNotice)]) -> usize {
        callers.iter_mut().map(|(_, replaced)| usize::from(lives(replaced))).sum()
    }

    #[test]
    fn a_flood_from_one_address_takes_no_strangers_place_of_another() {
        let callers = Arc::<Callers>::default();
        let (_quiet, mut quiet) = callers.enter(addr(1));
        let mut flood: Vec<_> = (0..1_000).map(|_| callers.enter(addr(2))).collect();
        assert!(lives(&mut quiet));
        assert_eq!(
            flood.iter_mut().filter_map(|(_, replaced)| lives(replaced).then_some(())).count(),
            STRANGERS_MAX - 1
        );
        // The newest are left.
        assert!(lives(&mut flood.last_mut().unwrap().1) && !lives(&mut flood[0].1));
        drop(flood);
        assert_eq!(callers.table.lock().callers.len(), 1);
        // The addresses of one /64 network are those of one machine.
        let of_network = |last: u16| Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into());
        let _flood: Vec<_> = (1..1_000).map(|last| callers.enter(of_network(last))).collect();
        assert!(lives(&mut quiet));
    }

    #[test]
    fn a_member_always_has_a_place_and_only_replaces_its_own() {
        let callers = Arc::<Callers>::default();
        let enter = |id, lane| {
            let (place, replaced) = callers.enter(addr(1));
            place.admit(Member { id, incarnation: 1, lane }).unwrap();
            (place, replaced)
        };
        let mut others = [enter(2, Lane::Forward), enter(3, Lane::Append)];
        let mut own: Vec<_> = (0..100).map(|_| enter(2, Lane::Append)).collect();
        assert!(others.iter_mut().all(|(_, replaced)| lives(replaced)));
        let living: Vec<usize> = (0..100).filter(|at| lives(&mut own[*at].1)).collect();
        assert_eq!(living, [96, 97, 98, 99]);
        assert_eq!(callers.table.lock().callers.len(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_processes_with_one_id_the_first_is_served() {
        let callers = Arc::<Callers>::default();
        let enter = |id, incarnation| {
            let (place, replaced) = callers.enter(addr(1));
            (place.admit(Member { id, incarnation, lane: Lane::Control }), place, replaced)
        };
        // A caller that sends nothing after its hello keeps nobody out.
        let (_, _idle, mut idle) = enter(2, 1);
        let (admitted, first, mut first_lives) = enter(2, 2);
        assert!(admitted.is_ok() && !lives(&mut idle));
        first.heard();
        advance(HEARD).await;
        assert_eq!(enter(2, 3).0, Err(IdInUse));
        assert!(enter(2, 2).0.is_ok() && enter(3, 3).0.is_ok() && lives(&mut first_lives));
        advance(Duration::from_millis(2)).await;
        assert!(enter(2, 3).0.is_ok() && !lives(&mut first_lives));
    }

    #[test]
    fn of_frames_that_have_begun_the_greediest_ends_at_the_bound() {
        let callers = Arc::<Callers>::default();
        let (modest, mut modest_lives) = callers.enter(addr(1));
        modest.keep(1 << 20).unwrap();
        let mut greedy: Vec<_> = (0..40).map(|_| callers.enter(addr(1))).collect();
        greedy.iter().for_each(|(place, _)| drop(place.keep(15 << 20)));
        assert!(callers.begun_bytes() <= BEGUN_BYTES_MAX && lives(&mut modest_lives));
        assert!(living(&mut greedy) >= 3);
        modest.keep(2 << 20).unwrap();
        drop((greedy, modest));
        assert_eq!(callers.begun_bytes(), 0);
    }
}
