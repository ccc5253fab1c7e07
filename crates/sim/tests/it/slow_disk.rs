//! A single node whose disk stalls for longer than any caller waits.

use replica::{Config, Consistency, Role};
use sim::call::{Call, Reply};
use sim::hub::{Event, Hub};
use sim::machine::{Clock, Node, Stepped};
use sim::network::FIRST_CLIENT;
use sim::trace::Detail;
use znode::{Credential, Limits, Op, Request};

const TIMEOUT_MS: u32 = 1_000;

struct Machine {
    hub: Hub,
    node: Node,
    /// Flushes that wait for the end of the stall, each by the number of the node's start in which
    /// it began; `None` while the disk does not stall.
    stalled: Option<Vec<u64>>,
    replies: Vec<Reply>,
}

impl Machine {
    fn start() -> Machine {
        storage::seed_random(Some(1));
        let hub = Hub::new(1, Detail::Last);
        let limits = Limits { session_timeout_min_ms: TIMEOUT_MS, ..Limits::default() };
        // An odd interval between the leader's checks of sessions, so that a check does not
        // coincide with the end of a wait of ten seconds or of another round time.
        let config = Config { members: Node::members(1), limits, tick_ms: 99, ..Config::default() };
        let clock = Clock { rate: Clock::TRUE_RATE, ahead_ms: 0 };
        let mut node = Node::new(hub.clone(), 1, config, clock, 1);
        node.start().unwrap();
        let mut machine = Machine { hub, node, stalled: None, replies: Vec::new() };
        while !machine.is_set_up() {
            machine.step();
        }
        machine
    }

    /// Tells whether the node leads and the limits of its configuration are in the replicated
    /// state.
    fn is_set_up(&self) -> bool {
        let leads = self.node.status.as_ref().is_some_and(|status| status.role == Role::Leader);
        leads && self.node.replica().is_some_and(|node| node.state().limits().session_timeout_min_ms == TIMEOUT_MS)
    }

    fn step(&mut self) {
        self.hub.pass_step();
        loop {
            let due = self.hub.lock().due();
            match due {
                None => break,
                Some(Event::Flush { boot, .. }) => match &mut self.stalled {
                    Some(stalled) => stalled.push(boot),
                    None => self.node.log.flushed(boot),
                },
                Some(Event::Reply { reply, .. }) => self.replies.push(reply),
                Some(_) => panic!("a node alone talks to nobody"),
            }
        }
        assert_eq!(self.node.step(), Stepped::Ran);
    }

    fn run(&mut self, ms: u64) {
        let end = self.hub.now_ms() + ms;
        while self.hub.now_ms() < end {
            self.step();
        }
    }

    fn stall(&mut self) {
        self.stalled = Some(Vec::new());
    }

    fn recover(&mut self) {
        let stalled = self.stalled.take().unwrap();
        stalled.into_iter().for_each(|boot| self.node.log.flushed(boot));
    }

    fn ask(&mut self, call: Call) -> Reply {
        let door = self.hub.lock().network.presence[&1].door.clone().unwrap();
        door.calls.try_send((FIRST_CLIENT, 1, call)).ok().unwrap();
        while self.replies.is_empty() {
            self.step();
        }
        self.replies.remove(0)
    }
}

#[test]
fn a_session_whose_expiry_is_on_its_way_is_not_told_that_it_lives() {
    assert_eq!(silent_while_the_disk_stalls(), (false, 0));
}

/// Returns whether the session lives in the end, and how many of its heartbeats were acknowledged
/// while the disk stalled.
fn silent_while_the_disk_stalls() -> (bool, u32) {
    let mut machine = Machine::start();
    let secret_hash = [7; 16];
    let open = Op::OpenSession {
        secret_hash,
        timeout_ms: TIMEOUT_MS,
        label: String::new(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let Reply::Applied(Ok(opened)) = machine.ask(Call::Propose(Request::new(open))) else { panic!("it is open") };
    let session = Credential { session: znode::SessionId(opened.zxid.0), secret_hash };
    machine.stall();
    // The session is silent for its timeout. Then its expiry waits for the disk, for longer than
    // the leader waits for the expiry.
    machine.run(2 * u64::from(TIMEOUT_MS));
    let end = machine.hub.now_ms() + 15_000;
    let mut told_alive = 0;
    while machine.hub.now_ms() < end {
        let Reply::Touched(touched) = machine.ask(Call::Touch(session)) else { panic!("a touch is answered as one") };
        told_alive += u32::from(touched.is_ok());
    }
    machine.recover();
    machine.run(1_000);
    let read = machine.ask(Call::Read(Consistency::Linearizable));
    let Reply::State(Ok(state)) = read else { panic!("{read:?}") };
    let lives = state.session(session.session).is_some();
    (lives, told_alive)
}
