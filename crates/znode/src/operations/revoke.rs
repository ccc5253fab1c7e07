//! Revocation: asking a holder to release, and taking the lock away at the deadline.

use crate::edits::effects::Effects;
use crate::edits::permissions::REVOKE;
use crate::edits::permissions::{check_client_path, permit};
use crate::edits::positions::is_ticket;
use crate::queue::revocations;
use crate::queue::revocations::Revocation;
use crate::queue::revocations::word_for;
use crate::{Error, Refusal, Reply, State, ZPath};

impl State {
    /// Asks the holder of a ticket, or all holders of a lock, to release. With a deadline of 0
    /// their tickets are deleted at once. If one ticket cannot be revoked, none is.
    pub(crate) fn revoke(
        &mut self,
        path: &ZPath,
        deadline_ms: Option<u32>,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        check_client_path(path)?;
        let node = self.existing(path)?;
        let lock = if node.owner().is_none() { path.clone() } else { path.parent().ok_or(Error::NoNode)? };
        permit(&self.tree()[&lock].acl, REVOKE, &effects.context).map_err(|error| Refusal::at(error, &lock))?;
        let tickets = match node.owner() {
            None => self.holders(path).map_err(refuse)?,
            Some(_) if is_ticket(path, node) => vec![path.clone()],
            // The session of the ticket has expired, or the znode is not a ticket.
            Some(_) => return Err(refuse(Error::NoNode)),
        };
        let cost = |ticket| self.cost_of_removing(ticket);
        if deadline_ms == Some(0) && tickets.iter().map(cost).sum::<u64>() > self.steps_left(effects) {
            return Err(Error::TooManyOps.into());
        }
        let before = self.clone();
        for ticket in &tickets {
            let asked = self.ask_for(ticket, deadline_ms, effects);
            if let Err(refusal) = asked.and_then(|()| self.check_steps(effects)) {
                *self = before;
                effects.clear();
                return Err(refusal);
            }
        }
        Ok(Reply::Revoking { tickets })
    }

    fn ask_for(&mut self, ticket: &ZPath, deadline_ms: Option<u32>, effects: &mut Effects) -> Result<(), Refusal> {
        let node = &self.tree()[ticket];
        if deadline_ms == Some(0) {
            self.remove(ticket, effects);
            return Ok(());
        }
        let due_ms = deadline_ms.map(|deadline_ms| effects.context.time_ms.saturating_add(deadline_ms.into()));
        let by = self.actor(effects);
        let revocation = match self.locks().revocations.get(ticket) {
            // The earlier deadline stays in force.
            Some(old) if due_ms.is_none_or(|due_ms| old.due_ms.is_some_and(|old_ms| old_ms <= due_ms)) => old.clone(),
            // The history will name the client with the earliest deadline, because its request
            // takes the lock away.
            Some(old) => Revocation { at: old.at, by, due_ms },
            None => Revocation { at: effects.context.moment(), by, due_ms },
        };
        let kept = self.locks().revocations.get(ticket).map_or(0, |old| revocations::weight(ticket, &old.by));
        let more = revocations::weight(ticket, &revocation.by).saturating_sub(kept);
        if more > 0 {
            self.check_bytes(more).map_err(|error| Refusal::at(error, ticket))?;
        }
        // A client that made its lock node by a plain create watches the data of this node. A
        // ticket of an acquire keeps its label as data, and its client learns from the event.
        let word = if node.contender().is_none() { word_for(ticket.name()) } else { None };
        let data = word.map_or_else(|| node.data.to_vec(), |word| word.as_bytes().to_vec());
        self.replace_data(ticket, data, effects)?;
        self.put_revocation(ticket, revocation);
        Ok(())
    }
}
