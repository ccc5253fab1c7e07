//! The hub: all connections of ZooKeeper clients to one node, and their watches. It learns of every
//! change before any reader can see the change.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use accept::{Mutex, StepTimes};
use jute::{Record, ReplyHeader, WatcherEvent, event, framed, xid};
use replica::{Bound, Observer, Observing};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;
use znode::{EventKind, EventRecord, SessionId, State, WriteTurn, ZPath};

use crate::client::Client;
use crate::client::codes::wire_zxid;
use crate::watch::audience::{Audience, Hearer, WatchKind};
use crate::watch::read_points::{ReadPoint, ReadPoints};
use crate::watch::watch_table::{TOGETHER, WatchLimits, WatchTable};

/// All connections of ZooKeeper clients to this node, with their watches.
///
/// One mutex guards applying log entries and setting watches. A client's read and the watch that it
/// sets are done under the mutex, so no change can come between them.
///
/// An event is in a client's outbox before any answer that shows the change. An event for many
/// clients is given to some at once and to the others in steps, so that applying entries does not
/// wait for all of them. Before each answer, a client is given all its events ([`Hub::catch_up`]).
pub(crate) struct Hub {
    inner: Mutex<HubState>,
    /// True while the task that applies entries waits for the mutex.
    is_awaited: AtomicBool,
    /// True while an event has not been given to all clients whose watches it fires.
    is_behind: AtomicBool,
    /// Wakes one of the tasks that give events to clients and send them.
    told: Notify,
    /// An empty state. It replaces `state` while the next state is being made, so that the hub
    /// holds no reference to the old state.
    no_state: Arc<State>,
}

struct HubState {
    /// State that was published last.
    state: Arc<State>,
    table: WatchTable,
    clients: HashMap<u64, Arc<Client>>,
    by_session: HashMap<SessionId, u64>,
    read_points: ReadPoints,
    /// Events that have not been given to all clients whose watches they fire, the oldest event
    /// first.
    untold: VecDeque<FanOut>,
    /// Clients with unsent events in their outboxes, each once.
    told: VecDeque<Arc<Client>>,
}

/// An event that is being given to the clients whose watches it fires.
struct FanOut {
    recorded: EventRecord,
    frame: Vec<u8>,
    audience: Audience,
}

/// Largest number of clients into whose outboxes a task puts events, and of clients to whose
/// sockets it sends them, before it yields.
const SENT_TOGETHER: usize = 32;
/// Largest number of events that wait to be put into outboxes. Beyond it, the oldest event is put
/// at once into the outboxes of all clients that it is for.
const UNTOLD_MAX: usize = 100;

/// Access of one client to the state and the watches while the hub is locked.
pub(crate) struct Look<'a> {
    inner: &'a mut HubState,
    client: &'a Client,
}

impl Hub {
    pub(crate) fn new(limits: WatchLimits) -> Hub {
        let no_state = Arc::new(State::default());
        let inner = HubState {
            state: Arc::clone(&no_state),
            table: WatchTable::new(limits),
            clients: HashMap::new(),
            by_session: HashMap::new(),
            read_points: ReadPoints::default(),
            untold: VecDeque::new(),
            told: VecDeque::new(),
        };
        let (is_awaited, is_behind) = (AtomicBool::new(false), AtomicBool::new(false));
        Hub { inner: Mutex::new(inner), is_awaited, is_behind, told: Notify::new(), no_state }
    }

    /// Adds a client that has opened or resumed a session. Closes the session's former connection
    /// to this node, or the new one if the session was attached to the former one after it.
    pub(crate) fn join(&self, client: &Arc<Client>) {
        let mut inner = self.inner.lock();
        inner.clients.insert(client.arrival.number, Arc::clone(client));
        let session = client.session();
        let former = inner.by_session.get(&session).and_then(|number| inner.clients.get(number));
        if let Some(former) = former {
            let attached = inner.state.session(session).map(|session| session.connection);
            if attached == Some(former.arrival.connection) {
                return client.close();
            }
            former.close();
        }
        inner.by_session.insert(session, client.arrival.number);
    }

    /// Removes a client whose connection has ended, and some of its watches. True if the caller
    /// must call this again, because the client may have more watches.
    pub(crate) fn leave(&self, client: &Client) -> bool {
        let mut inner = self.inner.lock();
        inner.catch_up(client.arrival.number);
        inner.read_points.leave(client.session(), client.arrival.connection);
        inner.clients.remove(&client.arrival.number);
        if inner.by_session.get(&client.session()) == Some(&client.arrival.number) {
            inner.by_session.remove(&client.session());
        }
        inner.table.remove_some(client.arrival.number, TOGETHER)
    }

    /// Waits while the task that applies entries waits for the mutex, which is not fair. Must be
    /// called between the steps of a task that locks the mutex many times.
    pub(crate) fn step_aside(&self) {
        while self.is_awaited.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Puts all events that are due for a client into its outbox. Called before each answer.
    pub(crate) fn catch_up(&self, client: &Client) {
        if self.is_behind.load(Ordering::Acquire) {
            self.inner.lock().catch_up(client.arrival.number);
        }
    }

    /// Gives events to clients and sends them. Runs until the future is dropped. A few such tasks
    /// work for all connections, because waking the task of each connection would cost more than
    /// sending the event.
    pub(crate) async fn send_events(&self) {
        loop {
            self.told.notified().await;
            loop {
                let began = Instant::now();
                let (some, is_behind) = {
                    let mut inner = self.inner.lock();
                    let is_behind = self.tell_some(&mut inner);
                    let told = &mut inner.told;
                    (told.drain(..told.len().min(SENT_TOGETHER)).collect::<Vec<_>>(), is_behind)
                };
                if some.is_empty() && !is_behind {
                    break;
                }
                // Another idle task continues with the next clients.
                self.told.notify_one();
                some.iter().for_each(|client| client.outbox.send_events());
                StepTimes::of_this_process().count(began.elapsed());
                yield_now().await;
            }
        }
    }

    /// Calls `look`, which reads the state and sets watches of the client, while the hub is locked.
    /// `look` must be short, because no entry is applied meanwhile.
    ///
    /// Later events are held back until the client's outbox is released with the answer.
    pub(crate) fn look<T>(&self, client: &Client, look: impl FnOnce(&mut Look<'_>) -> T) -> T {
        let mut inner = self.inner.lock();
        inner.catch_up(client.arrival.number);
        let result = look(&mut Look { inner: &mut inner, client });
        client.outbox.hold();
        result
    }

    /// Returns the receiver of the state for a read behind unanswered requests of its client. That
    /// state has all writes that the client has sent so far, and none that it sends later.
    pub(crate) fn read_point(&self, client: &Client) -> ReadPoint {
        let mut inner = self.inner.lock();
        let HubState { state, read_points, .. } = &mut *inner;
        read_points.ask(client.session(), client.arrival.connection, client.last_turn(), state)
    }

    /// Returns the number of watches that are set.
    pub(crate) fn watches(&self) -> usize {
        self.inner.lock().table.len()
    }

    /// Returns all clients, in the order in which their connections were opened.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        let mut clients: Vec<_> = self.inner.lock().clients.values().cloned().collect();
        clients.sort_unstable_by_key(|client| client.arrival.number);
        clients
    }

    /// Returns the paths that each session watches, sorted by session.
    pub(crate) fn watches_by_session(&self) -> Vec<(SessionId, Vec<ZPath>)> {
        let inner = self.inner.lock();
        let mut all = Vec::new();
        for (number, places) in inner.table.by_connection() {
            if let Some(client) = inner.clients.get(&number) {
                let mut paths: Vec<ZPath> = places.iter().map(|(_, path)| path.clone()).collect();
                paths.sort_unstable();
                paths.dedup();
                all.push((client.session(), paths));
            }
        }
        all.sort_unstable();
        all
    }

    /// Puts events into the outboxes of some clients. True if more clients must be given events.
    fn tell_some(&self, inner: &mut HubState) -> bool {
        inner.tell_some(SENT_TOGETHER);
        let is_behind = !inner.untold.is_empty();
        self.is_behind.store(is_behind, Ordering::Release);
        is_behind
    }

    /// Locks the hub for the task that applies entries. There is one such task.
    fn lock_to_apply(&self) -> MutexGuard<'_, HubState> {
        self.is_awaited.store(true, Ordering::Release);
        let inner = self.inner.lock();
        self.is_awaited.store(false, Ordering::Release);
        inner
    }
}

impl Look<'_> {
    /// Returns the state that was published last.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.inner.state
    }

    /// Sets a watch of the client. Returns the bound that the watch would exceed, if there is one.
    pub(crate) fn set(&mut self, kind: WatchKind, path: &ZPath) -> Result<(), Bound> {
        self.inner.table.set(self.client.arrival.number, self.client.outbox.source(), kind, path)
    }

    /// Removes a watch of the client. False if it is not set.
    pub(crate) fn remove(&mut self, kind: WatchKind, path: &ZPath) -> bool {
        self.inner.table.remove(self.client.arrival.number, kind, path)
    }

    /// Tells whether the client has this watch.
    pub(crate) fn has(&self, kind: WatchKind, path: &ZPath) -> bool {
        self.inner.table.has(self.client.arrival.number, kind, path)
    }

    /// Puts an event that the client missed into its outbox, if the client may read the znode. The
    /// event precedes events that are held back.
    pub(crate) fn tell(&self, kind: EventKind, path: &ZPath) {
        if !self.state().may_read(path, &self.client.identities()) {
            return;
        }
        if let Some(frame) = event_frame(NO_ZXID, kind, path) {
            self.client.outbox.push(frame);
        }
    }
}

impl Observer for Hub {
    fn watches(&self) -> usize {
        Hub::watches(self)
    }

    fn before_change(&self) -> Box<dyn Observing + '_> {
        let mut inner = self.lock_to_apply();
        inner.state = Arc::clone(&self.no_state);
        Box::new(HubChange { inner, hub: self })
    }

    fn replaced(&self, state: &Arc<State>) {
        let mut inner = self.lock_to_apply();
        inner.state = Arc::clone(state);
        inner.read_points.tell(state);
        inner.tell_some(usize::MAX);
        // A snapshot has replaced the state, and the changes in between are unknown. Clients with
        // watches must reconnect: they then name their watches and the last zxid that they have
        // seen, and are sent the events that they missed. Until then they must get no bytes, which
        // could raise that zxid beyond the missed events.
        for client in inner.clients.values().filter(|client| inner.table.has_any(client.arrival.number)) {
            client.outbox.abort();
            client.close();
        }
    }
}

/// Lock of the hub while the task that applies entries changes the state.
struct HubChange<'a> {
    inner: MutexGuard<'a, HubState>,
    hub: &'a Hub,
}

impl Observing for HubChange<'_> {
    fn wants(&self, session: SessionId, turn: &WriteTurn) -> bool {
        self.inner.read_points.wants(session, turn.connection, turn.number)
    }

    fn published(mut self: Box<Self>, state: &Arc<State>, events: &[EventRecord]) {
        self.inner.state = Arc::clone(state);
        self.inner.read_points.tell(state);
        if self.inner.table.len() == 0 {
            return;
        }
        let began = Instant::now();
        for recorded in events {
            self.inner.fire(recorded);
        }
        if self.hub.tell_some(&mut self.inner) || !self.inner.told.is_empty() {
            self.hub.told.notify_one();
        }
        StepTimes::of_this_process().count(began.elapsed());
    }
}

impl HubState {
    /// Finds the clients whose watches an event fires, and adds the event with these clients to
    /// `untold`.
    fn fire(&mut self, recorded: &EventRecord) {
        let event = &recorded.event;
        // ZooKeeper has no watches for the grant of a lock, so it must not fire others.
        if event.kind == EventKind::Granted {
            return;
        }
        let audience = self.table.fire(event.kind, &event.path);
        if audience.is_empty() {
            return;
        }
        let Some(frame) = event_frame(wire_zxid(event.zxid), event.kind, &event.path) else { return };
        self.untold.push_back(FanOut { recorded: recorded.clone(), frame, audience });
        while self.untold.len() > UNTOLD_MAX {
            self.tell_oldest(usize::MAX);
        }
    }

    /// Gives the events of `untold` to at most `clients_max` clients, the oldest event first.
    fn tell_some(&mut self, clients_max: usize) {
        let mut left = clients_max;
        while left > 0 && !self.untold.is_empty() {
            left -= self.tell_oldest(left);
        }
    }

    /// Gives the oldest event of `untold` to at most `clients_max` clients. Returns their number.
    fn tell_oldest(&mut self, clients_max: usize) -> usize {
        let Some(mut oldest) = self.untold.pop_front() else { return 0 };
        let mut count = 0;
        while count < clients_max
            && let Some(hearer) = oldest.audience.take_first()
        {
            self.tell(&oldest, &hearer);
            count += 1;
        }
        if !oldest.audience.is_empty() {
            self.untold.push_front(oldest);
        }
        count
    }

    /// Puts all events that are due for one client into its outbox.
    fn catch_up(&mut self, number: u64) {
        let mut untold = std::mem::take(&mut self.untold);
        for fan_out in &mut untold {
            if let Some(hearer) = fan_out.audience.take(number) {
                self.tell(fan_out, &hearer);
            }
        }
        self.untold = untold;
    }

    fn tell(&mut self, FanOut { recorded, frame, .. }: &FanOut, hearer: &Hearer) {
        for kind in &hearer.used_up {
            self.table.forget(hearer.connection, *kind, &recorded.event.path);
        }
        let Some(client) = self.clients.get(&hearer.connection) else { return };
        let open = recorded.acl.is_none() && recorded.parent_acl.is_none();
        // A client gets no event about a znode that it may not read, and learns no name from a
        // directory that it may not read.
        let may_hear = |who: &[znode::Identity]| {
            recorded.is_for(Some(who)) && (hearer.names_it || recorded.names_it_to(Some(who)))
        };
        let may_hear = open || may_hear(&client.identities());
        if may_hear && client.outbox.push_event(frame) {
            self.told.push_back(Arc::clone(client));
        }
    }
}

/// Zxid in the frame of an event that a client missed while it was disconnected. Several changes
/// may have caused the event, so it has no zxid of its own.
const NO_ZXID: i64 = -1;

/// Makes the frame of an event. Its header has the zxid of the change, as in ZooKeeper 3.9; older
/// clients ignore this zxid.
///
/// Returns `None` for the grant of a lock, which is no event of ZooKeeper's protocol.
fn event_frame(zxid: i64, kind: EventKind, path: &ZPath) -> Option<Vec<u8>> {
    let kind = match kind {
        EventKind::Created => event::NODE_CREATED,
        EventKind::Deleted => event::NODE_DELETED,
        EventKind::DataChanged => event::NODE_DATA_CHANGED,
        EventKind::ChildrenChanged => event::NODE_CHILDREN_CHANGED,
        EventKind::Granted => return None,
    };
    Some(framed(|out| {
        ReplyHeader { xid: xid::EVENT, zxid, error: 0 }.write(out);
        WatcherEvent { kind, state: event::SYNC_CONNECTED, path: path.as_str().into() }.write(out);
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jute::op;
    use tokio_util::sync::CancellationToken;
    use znode::{Credential, Event, LogPosition, Term, Zxid};

    use crate::client::Arrival;
    use crate::client::outbox::Outbox;
    use crate::client::shared_bytes::SharedBytes;
    use crate::request::watches::Comeback;

    use super::*;

    const LIMITS: WatchLimits = WatchLimits { all_max: 10, connection_max: 10, bytes_max: 1 << 20 };

    fn client(hub: &Hub, number: u64) -> Arc<Client> {
        let credential = Credential { session: SessionId(number), secret_hash: [0; 16] };
        let (addr, timeout) = (([127, 0, 0, 1], 1).into(), Duration::from_secs(1));
        let arrival = Arrival { number, addr, credential, connection: 0, timeout };
        let (closed, account) = (CancellationToken::new(), Arc::new(SharedBytes::new(1 << 20)).account(None));
        let outbox = Outbox::new(1 << 20, account, closed.clone());
        let client = Arc::new(Client::new(arrival, outbox, closed));
        hub.join(&client);
        client
    }

    fn state(zxid: u64) -> Arc<State> {
        let mut state = State::default();
        state.skip(LogPosition { term: Term(1), zxid: Zxid(zxid) });
        Arc::new(state)
    }

    fn publish(hub: &Hub, state: &Arc<State>, events: &[EventRecord]) {
        hub.before_change().published(state, events);
    }

    #[tokio::test]
    async fn an_event_waits_for_the_answer_that_sets_its_watch() {
        let hub = Hub::new(LIMITS);
        let (one, other) = (client(&hub, 1), client(&hub, 2));
        let root = ZPath::root();
        for client in [&one, &other] {
            hub.look(client, |look| look.set(WatchKind::Data, &root)).unwrap();
        }
        other.outbox.release(b"answer".to_vec());
        // The change comes while the answer of the first client is still being made.
        let event = Event { zxid: Zxid(1), kind: EventKind::DataChanged, path: root };
        publish(&hub, &state(1), &[event.clone().into()]);
        one.outbox.release(b"answer".to_vec());
        let expected = [b"answer".as_slice(), &event_frame(1, event.kind, &event.path).unwrap()].concat();
        assert_eq!(one.outbox.next().await.unwrap(), expected);
        assert_eq!(other.outbox.next().await.unwrap(), expected);
    }

    /// A znode may be created and deleted in one batch of log entries, so that no published state
    /// has it. Access to the event is checked with the ACL recorded in the event.
    #[tokio::test]
    async fn an_event_of_a_znode_that_nobody_may_read_any_more_is_told_to_nobody() {
        let hub = Hub::new(LIMITS);
        let one = client(&hub, 1);
        let path = ZPath::parse("/secret").unwrap();
        hub.look(&one, |look| look.set(WatchKind::Recursive, &ZPath::root())).unwrap();
        one.outbox.release(b"answer".to_vec());
        let bobs = znode::Acl { perms: znode::READ, scheme: "digest".into(), id: "bob:x".into() };
        let event = Event { zxid: Zxid(1), kind: EventKind::Created, path };
        publish(
            &hub,
            &state(1),
            &[EventRecord { event: event.clone(), acl: Some([bobs].into()), parent_acl: None }, event.clone().into()],
        );
        let once = [b"answer".as_slice(), &event_frame(1, event.kind, &event.path).unwrap()].concat();
        assert_eq!(one.outbox.next().await.unwrap(), once);
    }

    /// All clients may read the znode `/vault/ticket`, but only bob may list the children of
    /// `/vault`. A recursive watch at the root gets no event of the znode; a watch at the znode
    /// itself gets it.
    #[tokio::test]
    async fn a_recursive_watch_tells_no_names_that_may_not_be_listed() {
        let hub = Hub::new(LIMITS);
        let (above, at) = (client(&hub, 1), client(&hub, 2));
        let path = ZPath::parse("/vault/ticket").unwrap();
        hub.look(&above, |look| look.set(WatchKind::Recursive, &ZPath::root())).unwrap();
        hub.look(&at, |look| look.set(WatchKind::Recursive, &path)).unwrap();
        for client in [&above, &at] {
            client.outbox.release(b"answer".to_vec());
        }
        let bobs = znode::Acl { perms: znode::READ, scheme: "digest".into(), id: "bob:x".into() };
        let event = Event { zxid: Zxid(1), kind: EventKind::Created, path };
        let hidden = EventRecord { event: event.clone(), acl: None, parent_acl: Some([bobs].into()) };
        publish(&hub, &state(1), &[hidden, changed(1, "/open")]);
        let open = event_frame(1, EventKind::Created, &ZPath::parse("/open").unwrap()).unwrap();
        let named = event_frame(1, event.kind, &event.path).unwrap();
        assert_eq!(above.outbox.next().await.unwrap(), [b"answer".as_slice(), &open].concat());
        assert_eq!(at.outbox.next().await.unwrap(), [b"answer".as_slice(), &named].concat());
    }

    /// Appends an answer to a client's outbox. Returns the bytes that the client is sent, up to the
    /// end of that answer.
    async fn sent(client: &Client) -> Vec<u8> {
        client.outbox.release(b"answer".to_vec());
        client.outbox.next().await.unwrap()
    }

    /// Makes clients that watch all znodes. Their number is four times [`SENT_TOGETHER`].
    fn crowd(hub: &Hub) -> Vec<Arc<Client>> {
        let clients: Vec<_> = (1..=4 * SENT_TOGETHER as u64).map(|number| client(hub, number)).collect();
        for client in &clients {
            hub.look(client, |look| look.set(WatchKind::Recursive, &ZPath::root())).unwrap();
            client.outbox.release(Vec::new());
        }
        clients
    }

    #[tokio::test]
    async fn a_crowd_is_told_bit_by_bit_and_each_client_before_its_next_answer() {
        let hub = Hub::new(WatchLimits { all_max: 1_000, ..LIMITS });
        let clients = crowd(&hub);
        let (first, last) = (&clients[0], clients.last().unwrap());
        publish(&hub, &state(1), &[changed(1, "/a")]);
        publish(&hub, &state(2), &[changed(2, "/b")]);
        assert!(first.outbox.unread() > 0);
        assert_eq!(last.outbox.unread(), 0, "not yet");
        hub.catch_up(last);
        let event = |zxid, path: &str| event_frame(zxid, EventKind::Created, &ZPath::parse(path).unwrap()).unwrap();
        let expected = [event(1, "/a"), event(2, "/b"), b"answer".to_vec()].concat();
        assert_eq!(sent(last).await, expected);
        while hub.tell_some(&mut hub.inner.lock()) {}
        for client in &clients[..clients.len() - 1] {
            assert_eq!(sent(client).await, expected);
        }
        assert_eq!(sent(last).await, b"answer", "each event once");
        assert!(!hub.is_behind.load(Ordering::Relaxed));
    }

    /// A client sets a watch again after it has fired, but before its event is in the client's
    /// outbox.
    #[tokio::test]
    async fn a_client_that_watches_again_is_told_of_its_former_watch_first() {
        let hub = Hub::new(WatchLimits { all_max: 1_000, ..LIMITS });
        let clients = crowd(&hub);
        let last = clients.last().unwrap();
        let root = ZPath::root();
        hub.look(last, |look| look.set(WatchKind::Child, &root)).unwrap();
        last.outbox.release(Vec::new());
        let watches = hub.watches();
        let list = Event { zxid: Zxid(1), kind: EventKind::ChildrenChanged, path: root.clone() };
        publish(&hub, &state(1), &[changed(1, "/a"), list.clone().into()]);
        assert_eq!((last.outbox.unread(), hub.watches()), (0, watches), "not yet");
        hub.look(last, |look| look.set(WatchKind::Child, &root)).unwrap();
        let created = event_frame(1, EventKind::Created, &ZPath::parse("/a").unwrap()).unwrap();
        let listed = event_frame(1, list.kind, &root).unwrap();
        assert_eq!(sent(last).await, [created, listed.clone(), b"answer".to_vec()].concat());
        while hub.tell_some(&mut hub.inner.lock()) {}
        assert_eq!(hub.watches(), watches);
        publish(&hub, &state(2), &[list.into()]);
        assert_eq!(last.outbox.next().await.unwrap(), listed);
        assert_eq!(hub.watches(), watches - 1);
    }

    #[tokio::test]
    async fn what_leaves_before_it_is_told_leaves_nothing_behind() {
        let hub = Hub::new(WatchLimits { all_max: 1_000, ..LIMITS });
        let clients = crowd(&hub);
        for client in &clients {
            hub.look(client, |look| look.set(WatchKind::Data, &ZPath::parse("/a").unwrap())).unwrap();
        }
        for zxid in 1..=4 * UNTOLD_MAX as u64 {
            publish(&hub, &state(zxid), &[changed(zxid, "/a")]);
        }
        assert_eq!(hub.inner.lock().untold.len(), UNTOLD_MAX);
        for client in &clients {
            while hub.leave(client) {}
        }
        assert!(!hub.tell_some(&mut hub.inner.lock()));
        assert_eq!(hub.watches(), 0);
    }

    fn changed(zxid: u64, path: &str) -> EventRecord {
        Event { zxid: Zxid(zxid), kind: EventKind::Created, path: ZPath::parse(path).unwrap() }.into()
    }

    /// The client sets more watches again than one step takes. All are for the creation of missing
    /// znodes, except one that missed the deletion of its znode.
    #[tokio::test]
    async fn many_watches_come_back_in_parts_and_what_they_hear_meanwhile_is_told_behind_the_answer() {
        let limits = WatchLimits { all_max: 10_000, connection_max: 10_000, bytes_max: 1 << 30 };
        let hub = Hub::new(limits);
        let one = client(&hub, 1);
        let exist: Vec<String> = (0..=TOGETHER).map(|n| format!("/{n}")).collect();
        let child = vec!["/missed".to_owned()];
        let watches = jute::SetWatches2 { exist, child, ..jute::SetWatches2::default() };
        let mut comeback = Comeback::new(op::SET_WATCHES2, &watches.to_bytes()).unwrap();
        assert_eq!(comeback.step(&hub, &one), None);
        assert_eq!(hub.watches(), TOGETHER);
        publish(&hub, &state(1), &[changed(1, "/0")]);
        assert_eq!(comeback.step(&hub, &one), Some(Ok((Zxid(0), Ok(Vec::new())))));
        publish(&hub, &state(2), &[changed(2, &format!("/{TOGETHER}"))]);
        one.outbox.release(b"answer".to_vec());
        let event = |zxid, kind, path: &str| event_frame(zxid, kind, &ZPath::parse(path).unwrap()).unwrap();
        let expected = [
            event(NO_ZXID, EventKind::Deleted, "/missed"),
            b"answer".to_vec(),
            event(1, EventKind::Created, "/0"),
            event(2, EventKind::Created, &format!("/{TOGETHER}")),
        ];
        assert_eq!(one.outbox.next().await.unwrap(), expected.concat());
        while hub.leave(&one) {}
        assert_eq!(hub.watches(), 0);
    }

    #[tokio::test]
    async fn who_watches_is_sent_away_when_changes_are_not_known() {
        let hub = Hub::new(LIMITS);
        let (watching, other) = (client(&hub, 1), client(&hub, 2));
        hub.look(&watching, |look| look.set(WatchKind::Child, &ZPath::root())).unwrap();
        watching.outbox.release(b"answer".to_vec());
        hub.replaced(&state(9));
        watching.outbox.push(b"a zxid behind what it missed".to_vec());
        other.outbox.push(b"answer".to_vec());
        assert_eq!(watching.outbox.next().await, None);
        watching.closed().await;
        assert_eq!(other.outbox.next().await.unwrap(), b"answer");
    }
}
