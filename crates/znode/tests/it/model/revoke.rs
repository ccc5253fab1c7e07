//! The model's revocations: requests to release tickets.

use znode::lock::{LockStatus, Moment, Revocation};
use znode::{ADMIN, Actor, DELETE, Error, Reply};

use super::{Answer, Model, Stay, name_of, number, parent_of, refused, zpath};

impl Model {
    pub(super) fn revoke(&mut self, path: &str, deadline_ms: Option<u32>) -> Answer {
        let Some(node) = self.nodes.get(path) else {
            return refused(Error::NoNode, path);
        };
        let lock = if matches!(node.stay, Stay::Session(_)) { parent_of(path).unwrap() } else { path };
        if !self.may(lock, DELETE | ADMIN) {
            return refused(Error::NoAuth, lock);
        }
        let tickets = match node.stay {
            Stay::Session(_) if !self.is_alive(path) => return refused(Error::NoNode, path),
            Stay::Session(_) => vec![path.to_string()],
            _ => {
                let mut holders = self.contenders(path);
                holders.retain(|ticket| {
                    self.is_alive(ticket) && matches!(self.status(ticket), Ok(LockStatus::Held { .. }))
                });
                holders
            }
        };
        let before = self.clone();
        for ticket in &tickets {
            if let Err(refusal) = self.ask_for(ticket, deadline_ms) {
                *self = before;
                return Err(refusal);
            }
        }
        Ok(Reply::Revoking { tickets: tickets.iter().map(|ticket| zpath(ticket)).collect() })
    }

    fn ask_for(&mut self, ticket: &str, deadline_ms: Option<u32>) -> Answer {
        if deadline_ms == Some(0) {
            self.take_out(ticket);
            return Ok(Reply::Done);
        }
        let name = name_of(ticket);
        let family = &name[..name.len() - 10];
        let curator = family.starts_with("_c_") && name.len() > 50 && family[3..40].matches('-').count() == 5;
        let node = &self.nodes[ticket];
        let data = if node.lock.is_some() {
            node.data.clone()
        } else if curator && family.as_bytes()[39] == b'-' && family.ends_with("-lock-") {
            b"__REVOKE__".to_vec()
        } else if family.ends_with("lock-") || family.ends_with("read-") || family.ends_with("write-") {
            b"unlock".to_vec()
        } else {
            node.data.clone()
        };
        let answer = self.replace_data(ticket, data)?;
        let due_ms = deadline_ms.map(|deadline_ms| self.time_ms + u64::from(deadline_ms));
        let (at, by) = (self.moment(), self.actor());
        let kept = self.revocations.entry(ticket.into()).or_insert(Revocation { at, by: by.clone(), due_ms });
        if due_ms.is_some_and(|due_ms| kept.due_ms.is_none_or(|old| due_ms < old)) {
            (kept.due_ms, kept.by) = (due_ms, by);
        }
        Ok(answer)
    }

    /// The request to release a ticket; `None` if no client asked for it.
    pub(crate) fn revocation(&self, ticket: &str) -> Option<Revocation> {
        let node = &self.nodes[ticket];
        let told = [&b"__REVOKE__"[..], b"unlock"].contains(&&*node.data) && node.version != 0 && self.is_alive(ticket);
        let at = Moment { zxid: node.set.0, time_ms: node.set.1 };
        let by_data = Revocation { at, by: Actor::default(), due_ms: None };
        self.revocations.get(ticket).cloned().or(told.then_some(by_data))
    }

    /// Tells whether a node is a lock node of an open session.
    fn is_alive(&self, path: &str) -> bool {
        let node = &self.nodes[path];
        let lingers = node.lock.as_ref().is_some_and(|lock| lock.lingers_until_ms.is_some());
        matches!(node.stay, Stay::Session(_)) && number(path).is_some() && !lingers
    }
}
