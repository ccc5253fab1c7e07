//! Groups: sets of members that are present while their sessions live.

use crate::api::{Deletion, Group as GroupView, GroupMember};
use bytes::Bytes;
use hyper::Method;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};

const GROUPS: &str = "/v1/groups";

impl Client {
    /// Returns the group at `path`.
    pub fn group(&self, path: impl Into<String>) -> Group {
        Group { client: self.clone(), path: path.into() }
    }
}

/// A group of members that are present, made by [`Client::group`].
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: String,
}

impl Group {
    /// Joins the group for as long as the session lives, or until [`Group::leave`]. `data` is
    /// published with the member.
    ///
    /// # Errors
    /// `Refused` with `NodeExists` when another session has a member with that name.
    pub async fn join(&self, member: &str, data: impl Into<Bytes>) -> Result<GroupMember, Error> {
        let target = Target::path(GROUPS, &self.path)?.with("member", member);
        self.client.write(Call::write(Method::POST, target.finish()).body(data.into())).await
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// `Refused` with `LockNotHeld` when the member belongs to another session.
    pub async fn leave(&self, member: &str) -> Result<(), Error> {
        self.left(member).await.map(drop)
    }

    /// Leaves the group, and returns the zxid of the transaction.
    pub(crate) async fn left(&self, member: &str) -> Result<Deletion, Error> {
        let target = Target::path(GROUPS, &self.path)?.with("member", member);
        self.client.write(Call::write(Method::DELETE, target.finish())).await
    }

    /// Returns all members, sorted by name, and the zxid for [`Group::changed`]. If the group has
    /// several pages, the zxid is that of the first page, so that no change during the reading is
    /// missed.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn members(&self) -> Result<(Vec<GroupMember>, u64), Error> {
        let mut changed = None;
        let target = |after: Option<String>| Ok(Target::path(GROUPS, &self.path)?.with_some("after", after));
        let parts = |page: GroupView| {
            changed.get_or_insert(page.upto);
            (page.members, page.cursor)
        };
        let members = self.client.pages(target, parts).await?;
        Ok((members, changed.unwrap_or_default()))
    }

    /// Waits until a member has joined or left after the zxid `since` of an earlier answer. Returns
    /// the members and the zxid as [`Group::members`].
    ///
    /// # Errors
    /// As any read. The call may be repeated.
    pub async fn changed(&self, since: u64) -> Result<(Vec<GroupMember>, u64), Error> {
        loop {
            let target = Target::path(GROUPS, &self.path)?.with("since", since).with("page_size", 1);
            let view: GroupView = self.client.poll(target, self.client.inner.transport.timeouts.poll).await?;
            if view.upto != since {
                return self.members().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake_node::fake_node;

    // The zxid of the first page counts: with that of the last page, changes between them would be
    // missed.
    #[tokio::test]
    async fn what_changes_between_two_pages_is_not_missed() {
        let (addr, _requests) = fake_node(async |request: String| {
            let (member, changed, next) = match request.contains("after=") {
                false => ("a", 10, r#","cursor":"a""#),
                true => ("b", 12, ""),
            };
            format!(r#"{{"path":"/g","count":2,"members":[{{"member":"{member}","joined_at_ms":1}}],"upto":{changed}{next}}}"#)
        })
        .await;
        let (members, changed) = Client::builder([addr]).build().unwrap().group("/g").members().await.unwrap();
        let names: Vec<_> = members.iter().map(|member| member.member.as_str()).collect();
        assert_eq!((names, changed), (vec!["a", "b"], 10));
    }
}
