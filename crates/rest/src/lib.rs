//! The HTTP door: every request becomes one call of a [`replica::Replica`], every answer one JSON
//! document.
//!
//! ```text
//!  connection -> http/     serve.rs their number; handshakes; the end of all
//!                          connection.rs bounds: head, idle, stalled answers; parked while idle
//!                          layer.rs every request: bounds of the head, heartbeat; every answer: Zlock-Zxid, -Node, -Leader
//!                          origin.rs which pages of a browser may ask · delivery.rs that answers leave
//!                          long_answers.rs their place among the bodies (bodies.rs) · waiter.rs what an acquire leaves in a queue
//!                          long_work.rs the thread for long lists and bodies
//!             -> request/  door.rs what all requests share · call.rs one request: headers (caller.rs), query (query.rs),
//!                          path (paths.rs), body · access.rs what it may read · operator.rs who may operate the node
//!             -> api/      one file for each resource, and convert.rs, which says things of the state in the words of the API
//!             -> problem.rs    the only place where an error meets HTTP
//!                          beside each handler its row (route.rs)
//!  routes.rs     the router and the document (openapi.rs), both made of these rows
//! ```
//!
//! The door translates and waits, and decides nothing: whether a wait ended with or without the
//! lock is decided by the log. What an acquire leaves in a queue is guarded by `waiter.rs` until
//! the client has its answer (`delivery.rs`).

mod api;
mod config;
mod http;
mod openapi;
mod problem;
mod request;
mod route;
mod routes;

pub use config::RestConfig;
pub use http::origin::{normal_host, normal_origin};
pub use http::serve::{Entrances, serve};
pub use request::operator::for_operators;
pub use routes::{openapi_document, router};
