//! The HTTP server of a node (called the door in this code): it turns every request into one call
//! of a [`replica::Replica`], and every result into one JSON document.
//!
//! ```text
//!  connection -> http/     serve.rs accepts and ends connections
//!                          connection.rs has their timeouts, and parks idle ones
//!                          layer.rs around every request: bounds of the head, heartbeat,
//!                          headers of the answer
//!                          origin.rs refuses foreign pages · delivery.rs notes flushed answers
//!                          bodies.rs memory of bodies and long answers (long_answers.rs)
//!                          long_work.rs thread for long lists
//!                          waiter.rs takes an abandoned acquire out of the queue
//!             -> request/  door.rs state of all requests · call.rs one request: headers
//!                          (caller.rs), query (query.rs), path (paths.rs), body
//!                          access.rs read access · operator.rs operators
//!             -> api/      one file for each resource; convert.rs converts the state's types to
//!                          the API's; next to each handler is its row (route.rs)
//!             -> problem.rs    errors as answers
//!  routes.rs     the router and the document (openapi.rs), both made of these rows
//! ```
//!
//! The server translates requests and waits, and decides nothing: the Raft log decides whether a
//! waiting acquire got its lock. `waiter.rs` guards the client's place in the queue until the
//! client has its answer (`delivery.rs`).

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
pub use request::identity::digest;
pub use request::operator::for_operators;
pub use routes::{openapi_document, router};
