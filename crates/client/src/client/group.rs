//! Groups: who is there.

use crate::api::{Deleted, Group as GroupView, GroupMember};
use bytes::Bytes;
use hyper::Method;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};

const GROUPS: &str = "/v1/groups";

impl Client {
    /// A group: who is there.
    pub fn group(&self, path: impl Into<String>) -> Group {
        Group { client: self.clone(), path: path.into() }
    }
}

/// A group. Made by [`Client::group`].
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: String,
}

impl Group {
    /// Joins for as long as the session lives, or until [`Group::leave`]. `data` is what the member
    /// says of itself.
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
        self.left(member).await.map(drop)
    }

    /// Leaves, and says where in history that was.
    pub(crate) async fn left(&self, member: &str) -> Result<Deleted, Error> {
        let target = Target::path(GROUPS, &self.path)?.with("member", member);
        self.client.write(Call::write(Method::DELETE, target.finish())).await
    }

    /// Who is there: all members by name, and the zxid to continue from. Of a group of several
    /// pages it is that of the first, so that nothing which happened while they were read is
    /// missed.
    ///
    /// # Errors
    /// As any read.
    pub async fn members(&self) -> Result<(Vec<GroupMember>, u64), Error> {
        let mut changed = None;
        let target = |after: Option<String>| Ok(Target::path(GROUPS, &self.path)?.with_some("after", after));
        let parts = |page: GroupView| {
            changed.get_or_insert(page.changed);
            (page.members, page.next)
        };
        let members = self.client.pages(target, parts).await?;
        Ok((members, changed.unwrap_or_default()))
    }

    /// Waits until a member has joined or left since the answer that ended with `since`, then says
    /// who is there.
    ///
    /// # Errors
    /// As any read; ask again.
    pub async fn changed(&self, since: u64) -> Result<(Vec<GroupMember>, u64), Error> {
        loop {
            let target = Target::path(GROUPS, &self.path)?.with("since", since).with("limit", 1);
            let view: GroupView = self.client.poll(target, self.client.inner.transport.timeouts.poll).await?;
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
