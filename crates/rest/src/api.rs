//! Operations of the HTTP API: one file for each resource, with the handlers and a [`Route`] for
//! each operation.

use crate::route::Route;

pub(crate) mod acquire;
pub(crate) mod backup;
pub(crate) mod convert;
pub(crate) mod drain;
pub(crate) mod elections;
pub(crate) mod ensure;
pub(crate) mod fence;
pub(crate) mod groups;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod holders;
pub(crate) mod locks;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod mixed_clients;
pub(crate) mod multilocks;
pub(crate) mod node;
pub(crate) mod process;
pub(crate) mod release;
pub(crate) mod revoke;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod simple_locks;
pub(crate) mod txn;
pub(crate) mod upgrade;
pub(crate) mod watch;
pub(crate) mod znodes;

/// [`Route`]s of all operations of the HTTP API, one list for each file of this folder.
pub(crate) const ROUTES: &[&[Route]] = &[
    sessions::ROUTES,
    znodes::ROUTES,
    txn::ROUTES,
    acquire::ROUTES,
    locks::ROUTES,
    settings::ROUTES,
    history::ROUTES,
    release::ROUTES,
    revoke::ROUTES,
    fence::ROUTES,
    elections::ROUTES,
    multilocks::ROUTES,
    simple_locks::ROUTES,
    groups::ROUTES,
    node::ROUTES,
    health::ROUTES,
    metrics::ROUTES,
    backup::ROUTES,
    drain::ROUTES,
    members::ROUTES,
    upgrade::ROUTES,
];
