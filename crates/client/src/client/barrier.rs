//! Barriers, compatible with Curator's DistributedBarrier: a barrier is one znode, and is closed
//! while the znode exists.

use crate::api::{AclEntry, Mode, ProblemType};
use crate::client::Client;
use crate::{Error, WatchKind};

impl Client {
    /// Returns the barrier at `path`. Clients that call [`DistributedBarrier::pass`] wait while it
    /// is closed.
    pub fn barrier(&self, path: impl Into<String>) -> DistributedBarrier {
        DistributedBarrier { client: self.clone(), path: path.into(), acl: Vec::new() }
    }
}

/// A barrier, made by [`Client::barrier`]. Curator clients use the same barrier through Curator's
/// `DistributedBarrier` at the same path.
#[derive(Clone, Debug)]
pub struct DistributedBarrier {
    client: Client,
    path: String,
    acl: Vec<AclEntry>,
}

impl DistributedBarrier {
    /// Sets the ACL of the znodes that [`DistributedBarrier::close`] creates. Without an ACL they
    /// are open to all.
    pub fn acl(mut self, acl: &[AclEntry]) -> DistributedBarrier {
        self.acl = acl.to_vec();
        self
    }

    /// Waits until the barrier is open.
    ///
    /// # Errors
    /// As any read. The call may be repeated.
    #[doc(alias = "waitOnBarrier")]
    pub async fn pass(&self) -> Result<(), Error> {
        while let Some((_, zxid)) = self.client.look(&self.path).await? {
            self.client.changed_since(&self.path, WatchKind::Exists, zxid).await?;
        }
        Ok(())
    }

    /// Closes the barrier: creates its znode, and missing parents as containers. A barrier that is
    /// closed already is no error.
    ///
    /// # Errors
    /// As any write: see [`Error`].
    #[doc(alias = "setBarrier")]
    pub async fn close(&self) -> Result<(), Error> {
        loop {
            match self.make(&self.path, Mode::Persistent).await {
                Err(error) if error.is_no_node() => self.make_directories().await?,
                answer => return answer,
            }
        }
    }

    /// Opens the barrier: deletes its znode, so that all waiting clients pass. A barrier that is
    /// open already is no error.
    ///
    /// # Errors
    /// As any write: see [`Error`].
    #[doc(alias = "removeBarrier")]
    pub async fn open(&self) -> Result<(), Error> {
        match self.client.delete(&self.path).await {
            Err(error) if !error.is_no_node() => Err(error),
            _ => Ok(()),
        }
    }

    async fn make_directories(&self) -> Result<(), Error> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).filter(|end| *end > 0);
        let mut missing = Vec::new();
        // The deepest parent is tried first, as this client may lack the permission to create
        // children of the znodes above it.
        for end in ends.rev() {
            match self.make(&self.path[..end], Mode::Container).await {
                Err(error) if error.is_no_node() => missing.push(end),
                answer => {
                    answer?;
                    break;
                }
            }
        }
        for end in missing.into_iter().rev() {
            self.make(&self.path[..end], Mode::Container).await?;
        }
        Ok(())
    }

    /// Creates a znode, if it does not exist.
    async fn make(&self, path: &str, mode: Mode) -> Result<(), Error> {
        let create = self.client.create(path, "").mode(mode);
        let create = if self.acl.is_empty() { create } else { create.acl(&self.acl) };
        match create.await {
            Err(error) if error.code() != Some(ProblemType::NodeExists) => Err(error),
            _ => Ok(()),
        }
    }
}
