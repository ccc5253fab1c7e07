//! Every recipe over HTTP against three processes, with a fault in its middle: the leader is killed
//! or paused, and the recipe ends at the other nodes as docs/recipes.md promises. `scene` has the
//! cluster, the fault, and a client that retries as docs/http-api.md tells clients to.

mod groups;
mod histories;
mod managed;
mod mutexes;
mod one_of_many;
mod read_write;
mod revocation;
pub(crate) mod scene;
mod several;
