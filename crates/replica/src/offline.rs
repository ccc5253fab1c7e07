//! Work on the data of nodes that do not run: restoring a cluster, and recovering one that has lost
//! its quorum. Never a part of a start.

mod beginning;
mod error;
mod survivor;

pub use beginning::{Beginning, begin};
pub use error::Error;
pub use survivor::{Position, Survivor};
