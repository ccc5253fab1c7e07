//! Barriers and groups.

use crate::api::{Barrier as BarrierView, BarrierState, DoubleBarrier as DoubleView, Group as GroupView, GroupMember};
use crate::api::{MemberState, Millis};
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};

const BARRIERS: &str = "/v1/barriers";
const DOUBLE_BARRIERS: &str = "/v1/double-barriers";
const GROUPS: &str = "/v1/groups";

impl Client {
    /// A barrier: who asks to pass waits while it is closed.
    pub fn barrier(&self, path: impl Into<String>) -> Barrier {
        Barrier { client: self.clone(), path: path.into() }
    }

    /// A double barrier for so many members: all begin together, and all end together.
    pub fn double_barrier(&self, path: impl Into<String>, count: u32) -> DoubleBarrier {
        let member = uuid::Uuid::new_v4().to_string();
        DoubleBarrier { client: self.clone(), path: path.into(), count, member }
    }

    /// A group: who is there.
    pub fn group(&self, path: impl Into<String>) -> Group {
        Group { client: self.clone(), path: path.into() }
    }

    /// One long-poll, in a session where it belongs to one. Asking again is the same question, so it needs no key.
    async fn poll<T: DeserializeOwned>(&self, call: Call, target: Target, in_session: bool) -> Result<T, Error> {
        let wait = self.inner.transport.timeouts.poll;
        let wait_ms = Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let mut call = Call { target: target.with("wait", wait_ms).finish(), ..call }.waiting(wait);
        let session = if in_session { Some(self.session().await?) } else { None };
        if let Some(session) = &session {
            call = call.session(session.key());
        }
        let answer = self.inner.transport.send(&call, self.deadline().after(wait)).await;
        if let (Some(session), Err(error)) = (&session, &answer) {
            session.notice(error);
        }
        answer?.json()
    }
}

/// A barrier. Made by [`Client::barrier`].
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: String,
}

impl Barrier {
    /// Waits until the barrier is open.
    ///
    /// # Errors
    /// As any read; ask again.
    pub async fn pass(&self) -> Result<(), Error> {
        loop {
            let call = Call::get(String::new());
            let view: BarrierView = self.client.poll(call, Target::path(BARRIERS, &self.path)?, false).await?;
            if view.state == BarrierState::Open {
                return Ok(());
            }
        }
    }

    /// Closes it. That it was closed already is no error.
    ///
    /// # Errors
    /// As any write.
    pub async fn close(&self) -> Result<(), Error> {
        let call = Call::write(Method::PUT, Target::path(BARRIERS, &self.path)?.finish());
        self.client.write::<BarrierView>(call).await.map(drop)
    }

    /// Opens it: all who wait pass.
    ///
    /// # Errors
    /// As any write.
    pub async fn open(&self) -> Result<(), Error> {
        let call = Call::write(Method::DELETE, Target::path(BARRIERS, &self.path)?.finish());
        self.client.write::<BarrierView>(call).await.map(drop)
    }
}

/// A member of a double barrier. Made by [`Client::double_barrier`]; a clone is the same member.
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    client: Client,
    path: String,
    count: u32,
    member: String,
}

impl DoubleBarrier {
    /// Enters, and waits until all have. A member that goes on waiting after a dropped future enters again; one that does not
    /// should [`DoubleBarrier::leave`].
    ///
    /// # Errors
    /// As any write; ask again. `Refused` with `TicketGone` when the member was removed, with its session for example.
    pub async fn enter(&self) -> Result<(), Error> {
        loop {
            let target = Target::path(DOUBLE_BARRIERS, &self.path)?.with("member", &self.member);
            let target = target.with("count", self.count).with("keep", true);
            let call = Call::write(Method::POST, String::new()).repeatable();
            let view: DoubleView = self.client.poll(call, target, true).await?;
            if view.state == MemberState::Entered {
                return Ok(());
            }
        }
    }

    /// Leaves, and waits until all have.
    ///
    /// # Errors
    /// As any write; ask again.
    pub async fn leave(&self) -> Result<(), Error> {
        loop {
            let target = Target::path(DOUBLE_BARRIERS, &self.path)?.with("member", &self.member);
            let call = Call::write(Method::DELETE, String::new()).repeatable();
            let view: DoubleView = self.client.poll(call, target, true).await?;
            if view.state == MemberState::Left {
                return Ok(());
            }
        }
    }
}

/// A group. Made by [`Client::group`].
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: String,
}

impl Group {
    /// Joins for as long as the session lives, or until [`Group::leave`]. `data` is what the member says of itself.
    ///
    /// # Errors
    /// `Refused` with `NodeExists` when another session has that name.
    pub async fn join(&self, member: &str, data: impl Into<Bytes>) -> Result<GroupMember, Error> {
        let target = Target::path(GROUPS, &self.path)?.with("member", member);
        self.client.write(Call::write(Method::POST, target.finish()).body(data.into())).await
    }

    /// Leaves.
    ///
    /// # Errors
    /// `Refused` with `LockNotHeld` when the name is another session's.
    pub async fn leave(&self, member: &str) -> Result<(), Error> {
        let target = Target::path(GROUPS, &self.path)?.with("member", member);
        self.client.write::<crate::api::Deleted>(Call::write(Method::DELETE, target.finish())).await.map(drop)
    }

    /// Who is there: all members by name, and the zxid to continue from. Of a group of several pages it is that of the
    /// first, so that nothing which happened while they were read is missed.
    ///
    /// # Errors
    /// As any read.
    pub async fn members(&self) -> Result<(Vec<GroupMember>, u64), Error> {
        let (first, _) = self.client.read::<GroupView>(Target::path(GROUPS, &self.path)?).await?;
        let (mut members, mut after) = (first.members, first.next);
        while let Some(next) = after {
            let target = Target::path(GROUPS, &self.path)?.with("after", next);
            let (page, _) = self.client.read::<GroupView>(target).await?;
            members.extend(page.members);
            after = page.next;
        }
        Ok((members, first.changed))
    }

    /// Waits until somebody has joined or left since the answer that ended with `since`, then says who is there.
    ///
    /// # Errors
    /// As any read; ask again.
    pub async fn changed(&self, since: u64) -> Result<(Vec<GroupMember>, u64), Error> {
        loop {
            let target = Target::path(GROUPS, &self.path)?.with("since", since).with("limit", 1);
            let view: GroupView = self.client.poll(Call::get(String::new()), target, false).await?;
            if view.changed != since {
                return self.members().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake_node::fake_node;

    // Continued from the last page's zxid, what changed between the pages would be missed.
    #[tokio::test]
    async fn what_changes_between_two_pages_is_not_missed() {
        let (addr, _requests) = fake_node(async |request: String| {
            let (member, changed, next) = match request.contains("after=") {
                false => ("a", 10, r#","next":"a""#),
                true => ("b", 12, ""),
            };
            format!(r#"{{"group":"/g","count":2,"members":[{{"member":"{member}","since_ms":1}}],"changed":{changed}{next}}}"#)
        })
        .await;
        let (members, changed) = Client::builder([addr]).build().unwrap().group("/g").members().await.unwrap();
        let names: Vec<_> = members.iter().map(|member| member.member.as_str()).collect();
        assert_eq!((names, changed), (vec!["a", "b"], 10));
    }
}
