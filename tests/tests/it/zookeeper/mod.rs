//! A foreign client, the crate `zookeeper-client`, against three processes: sessions, watches,
//! multis, locks that HTTP clients want too, and reconnects. The crate shares no code with zlock.
//! `scene` has the nodes and starts clients.

mod locks;
mod multis;
mod reconnects;
mod scene;
mod sessions;
mod watches;
