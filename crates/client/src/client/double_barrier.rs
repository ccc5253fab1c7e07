//! Double barriers, on the znodes that Curator's DistributedDoubleBarrier makes.
//!
//! ```text
//! /start           a container
//! /start/<uuid>    a member: an ephemeral znode of its session
//! /start/ready     all have entered; a persistent znode
//! ```
//!
//! To enter, a client creates its member. When `count` members exist, it creates `ready`; otherwise
//! it waits for more members or for `ready`. The transaction that creates `ready` checks the
//! client's own member. So a slow client cannot create `ready` after the other members have left:
//! they finish leaving only when the slow client's member is gone, and then the check fails.
//!
//! To leave, a client deletes its member, and waits until all members that existed at the zxid of
//! this deletion are gone. It deletes `ready` when no member is left. The same members can enter
//! again after they have left, with the same names. Therefore members are compared by czxid.

use crate::api::{AclEntry, Mode, ProblemType, TxnOp};
use crate::client::Client;
use crate::{Error, WatchKind};

/// Name of the child of the barrier's znode that exists once all members have entered.
const READY: &str = "ready";

impl Client {
    /// Returns a member of a double barrier for `count` members, which begin together and end
    /// together.
    pub fn double_barrier(&self, path: impl Into<String>, count: u32) -> DistributedDoubleBarrier {
        let member = uuid::Uuid::new_v4().to_string();
        DistributedDoubleBarrier { client: self.clone(), path: path.into(), count, member, acl: None }
    }
}

/// A member of a double barrier, made by [`Client::double_barrier`]. A clone stands for the same
/// member. Curator clients take part through Curator's `DistributedDoubleBarrier` at the same path.
#[derive(Clone, Debug)]
pub struct DistributedDoubleBarrier {
    client: Client,
    path: String,
    count: u32,
    member: String,
    acl: Option<Vec<AclEntry>>,
}

impl DistributedDoubleBarrier {
    /// Sets the ACL of the znode `ready`. Without it `ready` is open to all. The znodes of members
    /// have the ACL of their parent, the barrier's znode.
    pub fn acl(mut self, acl: &[AclEntry]) -> DistributedDoubleBarrier {
        self.acl = Some(acl.to_vec());
        self
    }

    /// Enters the barrier, and waits until all members have entered. If the future is dropped, the
    /// client stays a member: it should call `enter` again, or [`DistributedDoubleBarrier::leave`].
    ///
    /// # Errors
    /// As any write; the call may be repeated. `Refused` with `TicketGone` when the member was
    /// removed, for example with its session.
    pub async fn enter(&self) -> Result<(), Error> {
        if self.count == 0 {
            return Err(Error::refused_here(ProblemType::BadRequest, "count: how many members, at least 1"));
        }
        // One entry of the log creates the member with its directories. A repeated call finds the
        // same member.
        self.client.group(&self.path).join(&self.member, "").await?;
        loop {
            let Some((before, zxid)) = self.client.look(&self.path).await? else { return Err(self.gone()) };
            if self.client.exists(&self.ready()).await?.is_some() {
                // This member may have been removed, and others may have entered in its place.
                return if self.client.exists(&self.own()).await?.is_some() { Ok(()) } else { Err(self.gone()) };
            }
            // The count may have included a znode `ready` that was deleted since. By now `ready`
            // does not exist, or all members have entered, so the children are counted again.
            if before.stat.num_children >= self.count && self.has_all().await? {
                return self.make_ready().await;
            }
            if self.client.exists(&self.own()).await?.is_none() {
                return Err(self.gone());
            }
            self.client.changed_since(&self.path, WatchKind::Children, zxid).await?;
        }
    }

    /// Leaves the barrier, and waits until all other members have left, too. Members that enter
    /// after the deletion of this member's znode do not count.
    ///
    /// # Errors
    /// As any write; the call may be repeated.
    pub async fn leave(&self) -> Result<(), Error> {
        let left = self.client.group(&self.path).left(&self.member).await?;
        let others = match self.client.children_with_stats(&self.path).await {
            Err(error) if error.is_no_node() => return Ok(()),
            others => others?,
        };
        // Members that were created after the deletion have entered the barrier anew.
        for other in others.iter().filter(|other| other.name != READY && other.stat.czxid < left.zxid) {
            self.until_gone(&self.child(&other.name), other.stat.czxid).await?;
        }
        match self.client.look(&self.path).await? {
            Some((page, _)) if page.stat.num_children == 1 && page.children == [READY] => self.delete_ready().await,
            _ => Ok(()),
        }
    }

    async fn has_all(&self) -> Result<bool, Error> {
        Ok(self.client.look(&self.path).await?.is_some_and(|(page, _)| page.stat.num_children >= self.count))
    }

    async fn make_ready(&self) -> Result<(), Error> {
        let (path, mode, acl) = (self.ready(), Mode::Persistent, self.acl.clone());
        let ready = TxnOp::Create { path, data: None, data_base64: None, mode, ttl: None, acl };
        match self.client.txn().check(self.own(), None).op(ready).commit().await {
            Err(error) if error.code() == Some(ProblemType::NodeExists) => Ok(()),
            Err(error) if error.is_no_node() => Err(self.gone()),
            answer => answer.map(drop),
        }
    }

    async fn delete_ready(&self) -> Result<(), Error> {
        match self.client.delete(self.ready()).await {
            Err(error) if !error.is_no_node() => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until a znode is gone: it does not exist, or has another czxid because it was created
    /// again.
    async fn until_gone(&self, path: &str, czxid: u64) -> Result<(), Error> {
        while let Some((page, zxid)) = self.client.look(path).await? {
            if page.stat.czxid != czxid {
                return Ok(());
            }
            self.client.changed_since(path, WatchKind::Exists, zxid).await?;
        }
        Ok(())
    }

    fn gone(&self) -> Error {
        let detail = format!("the member {} was removed, or its session has ended", self.own());
        Error::refused_here(ProblemType::TicketGone, detail)
    }

    fn own(&self) -> String {
        self.child(&self.member)
    }

    fn ready(&self) -> String {
        self.child(READY)
    }

    fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake_node::fake_node;

    fn facts(children: u32) -> String {
        let stat = r#""czxid":1,"mzxid":1,"ctime":1,"mtime":1,"version":0,"cversion":0,"aversion":0,"#;
        let rest = r#""ephemeral_owner":0,"data_length":0,"pzxid":1"#;
        format!(r#"{{"path":"/start","children":["a"],"stat":{{{stat}{rest},"num_children":{children}}}}}"#)
    }

    fn no_node(path: &str) -> String {
        let kind = ProblemType::NoNode;
        format!(
            r#"{{"type":"{}","title":"{}","status":404,"detail":"none","outcome":"refused","path":"{path}","zxid":9}}"#,
            kind.uri(),
            kind.title()
        )
    }

    // The other members may have entered and left while this client was slow. The transaction then
    // finds that the client's own member is missing.
    #[tokio::test]
    async fn who_is_no_member_any_more_does_not_say_that_all_have_entered() {
        let (addr, mut requests) = fake_node(async |request: String| match request.split_once(' ').unwrap() {
            ("POST", "/v1/sessions") => {
                r#"{"session":5,"session_key":"5.00000000000000000000000000000000","timeout_ms":30000,"safe_for_ms":29000}"#.into()
            }
            ("POST", target) if target.starts_with("/v1/groups/start") => r#"{"member":"a","joined_at_ms":1}"#.into(),
            ("GET", target) if target.starts_with("/v1/znodes/start/ready") => no_node("/start/ready"),
            ("GET", target) if target.starts_with("/v1/znodes/start?") => facts(2),
            ("POST", "/v1/txn") => no_node("/start/a"),
            _ => "{}".into(),
        })
        .await;
        let client = Client::builder([addr]).build().unwrap();
        let error = client.double_barrier("/start", 2).enter().await.unwrap_err();
        assert_eq!(error.code(), Some(ProblemType::TicketGone), "{error}");
        let mut asked = Vec::new();
        while let Ok(request) = requests.try_recv() {
            asked.push(request);
        }
        assert_eq!(asked.iter().filter(|request| *request == "POST /v1/txn").count(), 1, "{asked:?}");
        assert!(!asked.iter().any(|request| request.starts_with("POST /v1/znodes")), "{asked:?}");
    }
}
