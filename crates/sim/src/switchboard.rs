//! Calls of clients that wait for an answer, and the delivery of the answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::oneshot;

use crate::call::{Call, CallId, Reply};
use crate::hub::{Event, Hub};
use crate::network::MachineId;

/// Calls that wait for an answer. Clones share them.
#[derive(Clone, Default)]
pub struct Switchboard(Rc<RefCell<Waiting>>);

#[derive(Default)]
struct Waiting {
    last: CallId,
    answers: BTreeMap<CallId, oneshot::Sender<Reply>>,
}

impl Switchboard {
    /// Sends a call. The answer may never come.
    pub fn call(&self, hub: &Hub, client: MachineId, node: MachineId, call: Call) -> oneshot::Receiver<Reply> {
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.0.borrow_mut();
        waiting.answers.retain(|_, sender| !sender.is_closed());
        waiting.last += 1;
        let id = waiting.last;
        waiting.answers.insert(id, sender);
        let mut shared = hub.lock();
        shared.event(&[10, client, node, id], || format!("client {client} asks node {node}: {call:?}"));
        let delay_ms = shared.latency_ms(client, node);
        shared.schedule(delay_ms, Event::Call { from: client, to: node, id, call });
        answer
    }

    /// Delivers an answer to the call that waits for it.
    pub fn answer(&self, id: CallId, reply: Reply) {
        if let Some(sender) = self.0.borrow_mut().answers.remove(&id) {
            let _ = sender.send(reply);
        }
    }
}
