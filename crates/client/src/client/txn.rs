//! Transactions of several writes.

use crate::api::{Mode, Txn, TxnAnswer, TxnOp};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;

use crate::client::Client;
use crate::client::call::Call;
use crate::client::znodes::LockCheck;
use crate::{Error, Guard};

/// Value of `version` that matches any version of the znode.
const ANY: i32 = -1;

impl Client {
    /// Returns an empty transaction. Its operations are applied all together or not at all.
    pub fn txn(&self) -> Transaction {
        Transaction { client: self.clone(), ops: Vec::new(), guard: None }
    }
}

/// Operations that are applied together, in order, made by [`Client::txn`].
#[derive(Clone, Debug)]
#[must_use = "nothing is sent until it is committed"]
pub struct Transaction {
    client: Client,
    ops: Vec<TxnOp>,
    guard: Option<LockCheck>,
}

impl Transaction {
    /// Adds the creation of a persistent znode.
    pub fn create(self, path: impl Into<String>, data: impl AsRef<[u8]>) -> Transaction {
        self.create_with(path, data, Mode::Persistent)
    }

    /// Adds the creation of a znode in a mode without a TTL.
    pub fn create_with(self, path: impl Into<String>, data: impl AsRef<[u8]>, mode: Mode) -> Transaction {
        let (data, data_base64) = words(data.as_ref());
        self.op(TxnOp::Create { path: path.into(), data, data_base64, mode, ttl: None, acl: None })
    }

    /// Adds a change of a znode's data, which requires this version; `None` matches any version.
    pub fn set(self, path: impl Into<String>, data: impl AsRef<[u8]>, version: Option<i32>) -> Transaction {
        let (data, data_base64) = words(data.as_ref());
        self.op(TxnOp::Set { path: path.into(), data, data_base64, version: version.unwrap_or(ANY) })
    }

    /// Adds the deletion of a znode, which requires this version; `None` matches any version.
    pub fn delete(self, path: impl Into<String>, version: Option<i32>) -> Transaction {
        self.op(TxnOp::Delete { path: path.into(), version: version.unwrap_or(ANY) })
    }

    /// Adds a check that the znode exists with this version; `None` matches any version.
    pub fn check(self, path: impl Into<String>, version: Option<i32>) -> Transaction {
        self.op(TxnOp::Check { path: path.into(), version: version.unwrap_or(ANY) })
    }

    /// Adds any operation of the HTTP API.
    pub fn op(mut self, op: TxnOp) -> Transaction {
        self.ops.push(op);
        self
    }

    /// Requires that the guard's lock is still held when the transaction is applied; otherwise the
    /// transaction is refused with `LockNotHeld`.
    pub fn if_lock(mut self, guard: &Guard) -> Transaction {
        self.guard = Some(LockCheck::of(guard, &self.client));
        self
    }

    /// Sends the transaction.
    ///
    /// # Errors
    /// `Refused` for the reason of the first operation that fails; `op_index` in the problem is its
    /// index.
    pub async fn commit(self) -> Result<TxnAnswer, Error> {
        let call = Call::write(Method::POST, "/v1/txn".into()).json(&Txn { ops: self.ops });
        LockCheck::write(self.guard.as_ref(), &self.client, call).await
    }
}

/// Returns data for the JSON fields `data` and `data_base64`: as text when it is UTF-8, else as
/// base64.
fn words(data: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(data) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(data))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_no_text_goes_as_base64() {
        assert_eq!(words(b"plain"), (Some("plain".into()), None));
        assert_eq!(words(&[0xff, 0x00]), (None, Some("/wA=".into())));
    }
}
