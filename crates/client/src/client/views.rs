//! Calls about the whole cluster: reads of its nodes, members, sessions and locks; changes of
//! members and of locks' settings; requests to release a lock; releases in the session of another
//! program.

use std::time::Duration;

use crate::api::{
    Cluster, LockHistory, LockList, LockQueue, LockSettings, LockSettingsInfo, LockSummary, Members, Millis, Release,
    Revocation, SessionInfo, SessionKey, SessionList, Transfer, Upgrade,
};
use hyper::Method;
use hyper::header::HeaderValue;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Prefer, Target};

/// A node that is to become a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMember {
    /// The node id of the new member.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP listener.
    pub http_addr: String,
    /// Whether the member serves clients and never becomes a voter.
    pub observer: bool,
    /// Whether the member becomes a voter only by [`Client::promote_member`], instead of
    /// automatically once it has caught up.
    pub manual: bool,
    /// The zone of the member, as free text for people; `None` for no zone.
    pub zone: Option<String>,
    /// Id of the voter that the member is to replace; `None` for no replacement.
    pub replaces: Option<u64>,
}

/// Route of the settings of locks.
const SETTINGS: &str = "/v1/settings";
/// First character of an encrypted cursor of a list. Only the node that returned such a cursor can
/// decrypt it.
const SEALED: char = '~';
/// Number of encrypted cursors that may be lost during the reading of one list, because their node
/// fails or has lost its key. The reading then goes on at another node. One more loss is an error.
const CURSORS_LOST_MAX: u32 = 3;
/// Timeout of the search for the leader, which sends one request to every endpoint.
const LEADER_MET_MAX: Duration = Duration::from_secs(1);

impl Client {
    /// Returns the state of the cluster as each endpoint knows it, in the order in which the
    /// endpoints were given. Each endpoint is asked once.
    pub async fn status(&self) -> Vec<(String, Result<Cluster, Error>)> {
        let transport = &self.inner.transport;
        let asked = transport.addrs().enumerate().map(|(index, addr)| async move {
            let answer = transport.send_to(index, &Call::get("/v1/cluster".into())).await;
            (addr.to_owned(), answer.and_then(|answer| answer.json()))
        });
        futures_util::future::join_all(asked).await
    }

    /// Returns the first page of a lock's queue, holders first. A lock without contenders has an
    /// empty queue.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn lock_queue(&self, path: &str) -> Result<LockQueue, Error> {
        Ok(self.read(Target::path("/v1/locks", path)?).await?.0)
    }

    /// Returns a lock's whole queue, which may take several requests. A contender that moves up
    /// meanwhile may be missing.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn whole_lock_queue(&self, path: &str) -> Result<LockQueue, Error> {
        let mut queue = self.lock_queue(path).await?;
        while let Some(after) = queue.cursor {
            let page: LockQueue = self.read(Target::path("/v1/locks", path)?.with("after", after)).await?.0;
            queue.holders.extend(page.holders);
            queue.lingering.extend(page.lingering);
            queue.waiters.extend(page.waiters);
            queue.cursor = page.cursor;
        }
        Ok(queue)
    }

    /// Returns the locks at and below a path that have contenders, each with the first contender in
    /// its queue.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn locks(&self, prefix: &str) -> Result<Vec<LockSummary>, Error> {
        self.list_locks(prefix, None).await
    }

    /// Returns the locks of [`Client::locks`], each with the first page of its queue. If the leader
    /// answers, each contender has the time since the last heartbeat of its session. A page of
    /// locks takes one request.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn locks_with_queues(&self, prefix: &str) -> Result<Vec<LockSummary>, Error> {
        self.list_locks(prefix, Some(true)).await
    }

    async fn list_locks(&self, prefix: &str, queues: Option<bool>) -> Result<Vec<LockSummary>, Error> {
        let (mut locks, mut after, mut again) = (Vec::<LockSummary>::new(), None::<String>, CURSORS_LOST_MAX);
        let (transport, mut endpoint) = (&self.inner.transport, 0);
        if queues.is_some() {
            self.meet_leader().await;
        }
        loop {
            let target = Target::route("/v1/locks").with("prefix", prefix).with_some("after", after.as_deref());
            let call = Call::get(target.with_some("queues", queues).finish());
            // Only the leader knows the times of the sessions' heartbeats.
            let call = if queues.is_some() { call.prefer(Prefer::Leader) } else { call };
            let answer = if after.as_ref().is_some_and(|after| after.starts_with(SEALED)) {
                match transport.send_to(endpoint, &call).await {
                    // The node does not answer, or was restarted and lost the cursor. Any other
                    // node continues after the last lock of the list.
                    Err(_) if again > 0 => {
                        again -= 1;
                        after = locks.last().map(|last| last.path.clone());
                        continue;
                    }
                    answered => answered?,
                }
            } else {
                let (answer, from) = transport.send_in_turn(&call, self.deadline()).await?;
                endpoint = from;
                answer
            };
            let page: LockList = answer.json()?;
            locks.extend(page.locks);
            match page.cursor {
                Some(cursor) => after = Some(cursor),
                None => return Ok(locks),
            }
        }
    }

    /// Sends one request to every endpoint, so that later calls can prefer the leader, which alone
    /// knows the sessions' heartbeats. Does nothing if the leader's endpoint is already known.
    async fn meet_leader(&self) {
        let transport = &self.inner.transport;
        if !transport.knows_leader() {
            let call = Call::get("/livez".into());
            let asked = transport.addrs().enumerate().map(|(index, _)| transport.send_to(index, &call));
            // The leader may be a node that does not answer in time. The list is then read from any
            // node.
            let _ = tokio::time::timeout(LEADER_MET_MAX, futures_util::future::join_all(asked)).await;
        }
    }

    /// Returns the history of a lock: the tickets that ended last, the newest end first.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn lock_history(&self, path: &str) -> Result<LockHistory, Error> {
        Ok(self.read(Target::path("/v1/history", path)?).await?.0)
    }

    /// Returns the settings of a lock.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn settings(&self, path: &str) -> Result<LockSettingsInfo, Error> {
        Ok(self.read(Target::path(SETTINGS, path)?).await?.0)
    }

    /// Sets the settings of a lock: `managed` (only acquires enter its queue), the largest number
    /// of waiters, and the total permits of a semaphore. A setting that is left out gets its
    /// default.
    ///
    /// # Errors
    /// `Refused` with `NotEmpty` when the queue has contenders and the change would switch
    /// `managed`, or would make the lock a semaphore or no longer one. The permits of a semaphore
    /// and the number of waiters can be changed at any time.
    pub async fn set_settings(&self, path: &str, settings: LockSettings) -> Result<LockSettingsInfo, Error> {
        let target = Target::path(SETTINGS, path)?;
        self.write(Call::write(Method::PUT, target.finish()).json(&settings)).await
    }

    /// Gives all settings of a lock their defaults.
    ///
    /// # Errors
    /// As [`Client::set_settings`].
    pub async fn reset_settings(&self, path: &str) -> Result<LockSettingsInfo, Error> {
        let target = Target::path(SETTINGS, path)?;
        self.write(Call::write(Method::DELETE, target.finish())).await
    }

    /// Asks the holders of a lock to release it. `path` is the lock, for all its holders, or one
    /// ticket. After the time `deadline`, if given, the lock is taken away from them; zero takes it
    /// away at once.
    ///
    /// # Errors
    /// As any write: see [`Error`].
    pub async fn revoke(&self, path: &str, deadline: Option<Duration>) -> Result<Revocation, Error> {
        let target = Target::path("/v1/revocations", path)?.with_some("deadline", deadline.map(Millis::from));
        self.write(Call::write(Method::POST, target.finish())).await
    }

    /// Releases one hold (one unreleased acquire) of a lock in the session with this key, which
    /// another program keeps alive.
    ///
    /// # Errors
    /// `Refused` with `NotHolder` when the session does not hold the lock, with `SeveralHeld` when
    /// it holds the lock with several tickets.
    pub async fn release_held(&self, key: &SessionKey, lock: &str) -> Result<Release, Error> {
        self.release_in(key, Target::path("/v1/locks", lock)?).await
    }

    /// Releases one hold (one unreleased acquire) of a ticket, or withdraws a waiting ticket, in
    /// the session with this key.
    ///
    /// # Errors
    /// `Refused` with `TicketGone`, or with `NotOwner` when the ticket is another session's.
    pub async fn release_ticket(&self, key: &SessionKey, ticket: &str) -> Result<Release, Error> {
        self.release_in(key, Target::path("/v1/tickets", ticket)?).await
    }

    async fn release_in(&self, key: &SessionKey, target: Target) -> Result<Release, Error> {
        let mut session = HeaderValue::from_str(&key.to_string()).expect("digits and a dot");
        session.set_sensitive(true);
        let call = Call::write(Method::DELETE, target.finish()).session(&session).key(uuid::Uuid::new_v4());
        self.inner.transport.send(&call, self.deadline()).await?.json()
    }

    /// Returns the cluster's level (version number) of the log's format, and the versions of its
    /// members' programs. For operators.
    ///
    /// # Errors
    /// As any read; `Refused` with `OperatorOnly`.
    pub async fn upgrade(&self) -> Result<Upgrade, Error> {
        Ok(self.read(Target::route("/v1/admin/upgrade")).await?.0)
    }

    /// Raises the cluster's level (version number) of the log's format for good: to `level`, or for
    /// `None` to the highest level that at least one member's program knows. For operators.
    ///
    /// # Errors
    /// As any write; `Refused` with `MembersNotReady` when a member does not know that level.
    pub async fn finalize_upgrade(&self, level: Option<u16>) -> Result<Upgrade, Error> {
        let target = Target::route("/v1/admin/upgrade").with_some("level", level);
        self.write(Call::write(Method::PUT, target.finish())).await
    }

    /// Returns the members as the leader knows them. For operators.
    ///
    /// # Errors
    /// As any read; `Refused` with `OperatorOnly`.
    pub async fn members(&self) -> Result<Members, Error> {
        Ok(self.read(Target::route("/v1/admin/members")).await?.0)
    }

    /// Adds a member. Its node must be running already and wait to join (`node.joining`). For
    /// operators.
    ///
    /// # Errors
    /// As any write; `Refused` with the kind of obstacle, for example `ChangeInProgress`.
    pub async fn add_member(&self, member: &NewMember) -> Result<Members, Error> {
        let NewMember { id, peer_addr, http_addr, observer, manual, zone, replaces } = member;
        let target = Target::route("/v1/admin/members").with("id", id).with("peer_addr", peer_addr);
        let target = target.with("http_addr", http_addr).with("observer", observer).with("manual", manual);
        let target = target.with_some("zone", zone.as_deref()).with_some("replaces", *replaces);
        self.write(Call::write(Method::POST, target.finish())).await
    }

    /// Makes a learner a voter. For operators.
    ///
    /// # Errors
    /// As any write; `Refused` with the kind of obstacle, for example `LearnerLagging`.
    pub async fn promote_member(&self, id: u64) -> Result<Members, Error> {
        let target = Target::route(&format!("/v1/admin/members/{id}/promote"));
        self.write(Call::write(Method::POST, target.finish())).await
    }

    /// Removes a member for good; with `force` even if that loses the quorum. For operators.
    ///
    /// # Errors
    /// As any write; `Refused` with the kind of obstacle, for example `WouldLoseQuorum`.
    pub async fn remove_member(&self, id: u64, force: bool) -> Result<Members, Error> {
        let target = Target::route(&format!("/v1/admin/members/{id}")).with("force", force);
        self.write(Call::write(Method::DELETE, target.finish())).await
    }

    /// Changes the addresses or the zone of a member; `None` keeps the present value. For
    /// operators.
    ///
    /// # Errors
    /// As any write; `Refused` with the kind of obstacle, for example `AnotherNodeAnswers`.
    pub async fn update_member(
        &self,
        id: u64,
        peer_addr: Option<&str>,
        http_addr: Option<&str>,
        zone: Option<&str>,
    ) -> Result<Members, Error> {
        let target = Target::route(&format!("/v1/admin/members/{id}")).with_some("peer_addr", peer_addr);
        let target = target.with_some("http_addr", http_addr).with_some("zone", zone);
        self.write(Call::write(Method::PUT, target.finish())).await
    }

    /// Makes another voter the leader: `to`, or the voter whose log is the most complete. For
    /// operators.
    ///
    /// # Errors
    /// As any write; `Refused` with `TransferFailed`.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<Transfer, Error> {
        let target = Target::route("/v1/admin/leader").with_some("to", to);
        self.write(Call::write(Method::PUT, target.finish())).await
    }

    /// Returns the open sessions, sorted by id.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        let target = |after: Option<u64>| Ok(Target::route("/v1/sessions").with_some("after", after));
        self.pages(target, |page: SessionList| (page.sessions, page.cursor)).await
    }

    /// Returns one session, with the first page of its ephemeral znodes.
    ///
    /// # Errors
    /// `Refused` with `NoSession` when the session is not open.
    pub async fn session_info(&self, id: u64) -> Result<SessionInfo, Error> {
        Ok(self.read(Target::route(&format!("/v1/sessions/{id}"))).await?.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::ProblemType;
    use crate::client::fake_node::fake_node;

    #[tokio::test]
    async fn a_node_that_does_not_answer_is_waited_for_no_longer_than_an_operation_may_take() {
        let (addr, _requests) = fake_node(async |_| std::future::pending().await).await;
        let client = Client::builder([addr]).operation_timeout(Duration::from_millis(50));
        let client = client.attempt_timeout(Duration::from_secs(86_400)).build().unwrap();
        assert!(client.status().await[0].1.is_err());
    }

    #[tokio::test]
    async fn queues_come_with_their_page_of_locks() {
        let first = r#"{"ticket":"/l/x-0000000000","position":0,"mode":"exclusive","enqueued_at_ms":1,"fencing_token":1,"holds":1}"#;
        let (addr, mut requests) = fake_node(move |request: String| {
            let (lock, next) = if request.contains("after=") { ("/m", "") } else { ("/l", r#","cursor":"/l""#) };
            let queue = format!(r#"{{"path":"{lock}","contenders":1,"holders":[{first}],"waiters":[]}}"#);
            let lock = format!(r#"{{"path":"{lock}","contenders":1,"first":{first},"queue":{queue}}}"#);
            async move { format!(r#"{{"locks":[{lock}]{next}}}"#) }
        })
        .await;
        let client = Client::builder([addr]).build().unwrap();
        let locks = client.locks_with_queues("/").await.unwrap();
        let names: Vec<&str> = locks.iter().map(|lock| &*lock.queue.as_ref().unwrap().path).collect();
        assert_eq!(names, ["/l", "/m"]);
        assert_eq!(requests.recv().await.unwrap(), "GET /livez", "the leader is looked for");
        let asked = [requests.recv().await.unwrap(), requests.recv().await.unwrap()];
        let page = "GET /v1/locks?prefix=%2F";
        assert_eq!(asked, [format!("{page}&queues=true"), format!("{page}&after=%2Fl&queues=true")]);
        assert!(requests.try_recv().is_err(), "a page is one request");
    }

    #[tokio::test]
    async fn a_list_goes_on_at_the_node_whose_cursor_no_other_can_read() {
        let bad = ProblemType::BadRequest.uri();
        let node = |name: &'static str| {
            let bad = bad.clone();
            fake_node(move |request: String| {
                let page = request.split_once("after=%7E").map(|(_, cursor)| cursor.strip_prefix(name));
                let page = page.map_or(Some(0), |own| own.and_then(|page| page.parse().ok()));
                let answer = match page {
                    None => format!(
                        r#"{{"type":"{bad}","title":"T","status":400,"detail":"after: not a cursor of this node","outcome":"refused","zxid":1}}"#
                    ),
                    Some(9) => r#"{"locks":[]}"#.to_owned(),
                    Some(page) => format!(r#"{{"locks":[],"cursor":"~{name}{}"}}"#, page + 1),
                };
                async move { answer }
            })
        };
        let ((one, _one), (other, _other)) = (node("a").await, node("b").await);
        let client = Client::builder([one, other]).build().unwrap();
        assert_eq!(client.locks("/").await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_list_goes_on_elsewhere_behind_the_last_lock_when_its_cursor_is_lost() {
        let lock = r#"{"path":"/l","contenders":1,"first":{"ticket":"/l/x-0000000000","position":0,"mode":"exclusive","enqueued_at_ms":1,"fencing_token":1,"holds":1}}"#;
        let bad = ProblemType::BadRequest.uri();
        let (addr, mut requests) = fake_node(move |request: String| {
            // The node was restarted in between.
            let answer = match request.split_once("after=").map(|(_, after)| after) {
                None => format!(r#"{{"locks":[{lock}],"cursor":"/l"}}"#),
                Some("%2Fl") => r#"{"locks":[],"cursor":"~old"}"#.to_owned(),
                Some(_) => format!(
                    r#"{{"type":"{bad}","title":"T","status":400,"detail":"after: not a cursor of this node","outcome":"refused","zxid":1}}"#
                ),
            };
            async move { answer }
        })
        .await;
        let client = Client::builder([addr]).build().unwrap();
        let error = client.locks("/").await.unwrap_err();
        assert_eq!(error.code(), Some(ProblemType::BadRequest), "it does not go on for ever");
        let mut asked = Vec::new();
        while let Ok(request) = requests.try_recv() {
            asked.push(request.split_once("after=").map_or("-".to_owned(), |(_, after)| after.to_owned()));
        }
        let round = ["%2Fl", "%7Eold"];
        assert_eq!(asked, [&["-"][..], &round.repeat(4)].concat());
    }
}
