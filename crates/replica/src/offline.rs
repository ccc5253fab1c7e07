//! Work on the data of stopped nodes: restoring a cluster from a backup, and recovering a cluster
//! that has lost its quorum. A node that starts does none of it.

mod beginning;
mod error;
mod survivor;

pub use beginning::{Beginning, begin};
pub use error::Error;
pub use survivor::{Position, Survivor};
