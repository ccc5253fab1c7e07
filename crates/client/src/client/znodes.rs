//! Znodes: creation, reads, changes and deletion.

use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    AclEntry, AclInfo, ChangedZnode, Children, CreatedZnode, Deletion, Millis, Mode, NamedStat, ProblemType, Stat,
    ZnodeInfo, headers,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::client::call::{Call, Target, ZNODES};
use crate::client::fate::Fate;
use crate::{Error, Guard};

/// A znode as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// The path of the znode.
    pub path: String,
    /// The data.
    pub data: Bytes,
    /// The stat of the znode.
    pub stat: Stat,
    /// The zxid of the state that was read, from which a watch can continue.
    pub zxid: u64,
}

impl Client {
    /// Returns a znode's data and stat.
    ///
    /// # Errors
    /// `Refused` with `NoNode` when there is no such znode; see [`Error`].
    pub async fn get(&self, path: &str) -> Result<Znode, Error> {
        let (info, answer) = self.read::<ZnodeInfo>(Target::path(ZNODES, path)?).await?;
        let data = match (info.data, info.data_base64) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| Error::unknown(format!("data that is no base64: {error}")))?
                .into(),
            (None, None) => Bytes::new(),
        };
        Ok(Znode { path: info.path, data, stat: info.stat, zxid: answer.zxid })
    }

    /// Returns a znode's stat; `None` when there is no such znode.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, Error> {
        Ok(self.look(path).await?.map(|(page, _)| page.stat))
    }

    /// Returns a znode's stat with the name of its first child, and the zxid of the read; `None`
    /// when there is no such znode.
    pub(crate) async fn look(&self, path: &str) -> Result<Option<(Children, u64)>, Error> {
        // A page of one child is the smallest answer with the stat.
        match self.read(Target::path(ZNODES, path)?.with("children", true).with("page_size", 1)).await {
            Ok((page, answer)) => Ok(Some((page, answer.zxid))),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the names of a znode's children, sorted. They are read page by page, so a long list
    /// may mix several states.
    ///
    /// # Errors
    /// `Refused` with `NoNode` when there is no such znode.
    pub async fn children(&self, path: &str) -> Result<Vec<String>, Error> {
        self.pages(children(path, "true"), |page: Children| (page.children, page.cursor)).await
    }

    /// Returns the children with their stats, sorted by name; read as [`Client::children`].
    ///
    /// # Errors
    /// As [`Client::children`].
    pub async fn children_with_stats(&self, path: &str) -> Result<Vec<NamedStat>, Error> {
        self.pages(children(path, "stat"), |page: Children| (page.stats.unwrap_or_default(), page.cursor)).await
    }

    /// Returns a znode's ACL.
    ///
    /// # Errors
    /// `Refused` with `NoNode` when there is no such znode.
    pub async fn acl(&self, path: &str) -> Result<AclInfo, Error> {
        Ok(self.read(Target::path(ZNODES, path)?.with("acl", true)).await?.0)
    }

    /// Replaces a znode's ACL.
    ///
    /// # Errors
    /// `Refused` with `InvalidAcl`, `NoNode` or `NoAuth`; see [`Error`].
    pub async fn set_acl(&self, path: &str, acl: &[AclEntry]) -> Result<ChangedZnode, Error> {
        let target = Target::path(ZNODES, path)?.with("acl", true);
        self.write(Call::write(Method::PUT, target.finish()).json(&acl)).await
    }

    /// Prepares the creation of a znode. Add options and await it: `client.create("/a",
    /// "x").ephemeral().await`.
    pub fn create(&self, path: impl Into<String>, data: impl Into<Bytes>) -> CreateRequest {
        CreateRequest {
            client: self.clone(),
            path: path.into(),
            data: data.into(),
            mode: Mode::Persistent,
            ttl: None,
            acl: None,
            guard: None,
        }
    }

    /// Prepares a change of a znode's data. Await it to send it.
    pub fn set(&self, path: impl Into<String>, data: impl Into<Bytes>) -> SetDataRequest {
        SetDataRequest { client: self.clone(), path: path.into(), data: data.into(), version: None, guard: None }
    }

    /// Prepares the deletion of a znode without children. Await it to send it.
    pub fn delete(&self, path: impl Into<String>) -> DeleteRequest {
        DeleteRequest { client: self.clone(), path: path.into(), version: None, guard: None }
    }
}

/// Returns a function that makes the request for the page of children after a name. `word` is the
/// value of the parameter `children`: `true` or `stat`.
fn children(path: &str, word: &str) -> impl Fn(Option<String>) -> Result<Target, Error> {
    move |after| Ok(Target::path(ZNODES, path)?.with("children", word).with_some("after", after))
}

/// The header `If-Lock` of a write. The write is refused with `LockNotHeld` unless a holder of the
/// lock has the token when the write is applied.
#[derive(Clone, Debug)]
pub(crate) struct LockCheck {
    value: String,
    lock: String,
    /// Record of the loss of the guard's lock, in which a refused write notes the loss. `None` for
    /// a guard of another client, as a refusal may then mean that this client may not read the
    /// lock.
    fate: Option<Arc<Fate>>,
}

impl LockCheck {
    pub(crate) fn of(guard: &Guard, client: &Client) -> LockCheck {
        let value = format!("{};{}", crate::api::encode_path(guard.lock()), guard.fencing_token());
        let is_own = Arc::ptr_eq(&guard.claim.client.inner, &client.inner);
        let fate = is_own.then(|| Arc::clone(&guard.claim.fate));
        LockCheck { value, lock: guard.lock().to_owned(), fate }
    }

    /// Sends a write, with the header `If-Lock` if `this` has a check. If the cluster answers that
    /// the lock is no longer held, notes the loss for the guard.
    pub(crate) async fn write<T: DeserializeOwned>(
        this: Option<&LockCheck>,
        client: &Client,
        call: Call,
    ) -> Result<T, Error> {
        let Some(LockCheck { value, lock, fate }) = this else { return client.write(call).await };
        let answer = client.write(call.header(headers::IF_LOCK, value)?).await;
        if let (Some(fate), Err(Error::Refused { code, problem, .. })) = (fate, &answer)
            && *code == Some(ProblemType::LockNotHeld)
            && problem.path.as_ref() == Some(lock)
        {
            fate.tell_gone();
        }
        answer
    }
}

fn if_match(call: Call, version: Option<i32>) -> Result<Call, Error> {
    match version {
        Some(version) => call.header("if-match", &format!("\"{version}\"")),
        None => Ok(call),
    }
}

/// The creation of a znode, from [`Client::create`]. Sent when it is awaited.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct CreateRequest {
    client: Client,
    path: String,
    data: Bytes,
    mode: Mode,
    ttl: Option<Duration>,
    acl: Option<String>,
    guard: Option<LockCheck>,
}

impl CreateRequest {
    /// Sets one of ZooKeeper's create modes.
    pub fn mode(mut self, mode: Mode) -> CreateRequest {
        self.mode = mode;
        self
    }

    /// Makes the znode ephemeral: it is deleted with the session.
    pub fn ephemeral(self) -> CreateRequest {
        self.mode(Mode::Ephemeral)
    }

    /// Gives a persistent znode a TTL: the znode is deleted when it has had no children and no
    /// change of its data for that time. With an ephemeral mode or a container the create is
    /// refused with `BadRequest`.
    pub fn ttl(mut self, ttl: Duration) -> CreateRequest {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the ACL. Without it the znode is open to all.
    pub fn acl(mut self, acl: &[AclEntry]) -> CreateRequest {
        self.acl = Some(acl_words(acl));
        self
    }

    /// Requires that the guard's lock is still held when the write is applied; otherwise the write
    /// is refused with `LockNotHeld`.
    pub fn if_lock(mut self, guard: &Guard) -> CreateRequest {
        self.guard = Some(LockCheck::of(guard, &self.client));
        self
    }

    async fn send(self) -> Result<CreatedZnode, Error> {
        let mode = match (self.mode, self.ttl) {
            (mode, None) => mode,
            (Mode::Persistent | Mode::PersistentTtl, Some(_)) => Mode::PersistentTtl,
            (Mode::PersistentSequential | Mode::PersistentSequentialTtl, Some(_)) => Mode::PersistentSequentialTtl,
            (Mode::Ephemeral | Mode::EphemeralSequential | Mode::Container, Some(_)) => {
                let detail = "ttl: only a persistent znode has one, and neither an ephemeral one nor a container";
                return Err(Error::refused_here(ProblemType::BadRequest, detail));
            }
        };
        let mode = serde_json::to_value(mode).expect("a mode is a word");
        let target = Target::path(ZNODES, &self.path)?.with_some("mode", mode.as_str());
        let target = target.with_some("ttl", self.ttl.map(Millis::from)).with_some("acl", self.acl);
        let call = Call::write(Method::POST, target.finish());
        LockCheck::write(self.guard.as_ref(), &self.client, call.body(self.data)).await
    }
}

/// Returns an ACL in the form for the request's query: as short text, or as JSON if an id has a
/// comma.
fn acl_words(acl: &[AclEntry]) -> String {
    if acl.iter().any(|entry| entry.id.contains(',')) {
        return serde_json::to_string(acl).expect("the protocol's types are JSON");
    }
    let entry = |entry: &AclEntry| format!("{}:{}:{}", entry.scheme, entry.id, entry.perms);
    acl.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// A change of a znode's data, from [`Client::set`]. Sent when it is awaited.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct SetDataRequest {
    client: Client,
    path: String,
    data: Bytes,
    version: Option<i32>,
    guard: Option<LockCheck>,
}

impl SetDataRequest {
    /// Requires that the znode's data has this version when the write is applied; otherwise the
    /// write is refused with `BadVersion`.
    pub fn version(mut self, version: i32) -> SetDataRequest {
        self.version = Some(version);
        self
    }

    /// Requires that the guard's lock is still held when the write is applied; otherwise the write
    /// is refused with `LockNotHeld`.
    pub fn if_lock(mut self, guard: &Guard) -> SetDataRequest {
        self.guard = Some(LockCheck::of(guard, &self.client));
        self
    }

    async fn send(self) -> Result<ChangedZnode, Error> {
        let call = Call::write(Method::PUT, Target::path(ZNODES, &self.path)?.finish()).body(self.data);
        LockCheck::write(self.guard.as_ref(), &self.client, if_match(call, self.version)?).await
    }
}

/// The deletion of a znode, from [`Client::delete`]. Sent when it is awaited.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct DeleteRequest {
    client: Client,
    path: String,
    version: Option<i32>,
    guard: Option<LockCheck>,
}

impl DeleteRequest {
    /// Requires that the znode's data has this version when the write is applied; otherwise the
    /// write is refused with `BadVersion`.
    pub fn version(mut self, version: i32) -> DeleteRequest {
        self.version = Some(version);
        self
    }

    /// Requires that the guard's lock is still held when the write is applied; otherwise the write
    /// is refused with `LockNotHeld`.
    pub fn if_lock(mut self, guard: &Guard) -> DeleteRequest {
        self.guard = Some(LockCheck::of(guard, &self.client));
        self
    }

    async fn send(self) -> Result<Deletion, Error> {
        let call = Call::write(Method::DELETE, Target::path(ZNODES, &self.path)?.finish());
        LockCheck::write(self.guard.as_ref(), &self.client, if_match(call, self.version)?).await
    }
}

macro_rules! awaited {
    ($($request:ident => $answer:ty),*) => {$(
        impl IntoFuture for $request {
            type Output = Result<$answer, Error>;
            type IntoFuture = BoxFuture<'static, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.send())
            }
        }
    )*};
}

awaited!(CreateRequest => CreatedZnode, SetDataRequest => ChangedZnode, DeleteRequest => Deletion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_goes_as_text_unless_an_id_has_a_comma() {
        let words =
            |scheme: &str, id: &str| acl_words(&[AclEntry { perms: "r".into(), scheme: scheme.into(), id: id.into() }]);
        assert_eq!(words("digest", "bob:aGFzaA=="), "digest:bob:aGFzaA==:r");
        let json = r#"[{"perms":"r","scheme":"x509","id":"CN=alice,O=Example"}]"#;
        assert_eq!(words("x509", "CN=alice,O=Example"), json);
    }

    #[tokio::test]
    async fn a_ttl_beside_a_mode_that_has_none_is_refused_in_words() {
        let client = Client::builder(["127.0.0.1:1"]).build().unwrap();
        let ttl = Duration::from_secs(5);
        for create in [
            client.create("/a", "").ephemeral().ttl(ttl),
            client.create("/a", "").ttl(ttl).ephemeral(),
            client.create("/a", "").mode(Mode::EphemeralSequential).ttl(ttl),
            client.create("/a", "").mode(Mode::Container).ttl(ttl),
        ] {
            let error = create.await.unwrap_err();
            assert_eq!(error.code(), Some(ProblemType::BadRequest), "{error:?}");
            assert!(error.to_string().contains("ttl: "), "{error}");
        }
    }
}
