//! `/openapi.json`, generated from the handlers.

use axum::http::StatusCode;
use protocol::{AclInfo, Children, Events, LockHistory, LockQueue, Problem, TokenCheck, ZnodeInfo, headers};
use serde::Serialize;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, ObjectBuilder, OpenApi, Ref, RefOr, Required, ResponseBuilder, Type,
};
use utoipa::{Modify, OpenApi as _, ToSchema};

use crate::call::{Answer, Call, json};
use crate::{
    acquire, barriers, elections, fence, groups, locks, metrics, multilocks, node, release, revoke, sessions,
    simple_locks, txn, znodes,
};

/// What a GET of a znode answers, by its query.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes the answers, which are written one by one")]
pub(crate) enum ZnodeAnswer {
    Znode(ZnodeInfo),
    Children(Children),
    Acl(AclInfo),
    Events(Events),
}

/// What a GET of a lock answers, by its query.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes the answers, which are written one by one")]
pub(crate) enum LockAnswer {
    Queue(LockQueue),
    Token(TokenCheck),
    History(LockHistory),
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "zlock", description = "Locks and znodes over HTTP.", license(name = "Apache-2.0")),
    paths(
        sessions::open,
        sessions::list,
        sessions::one,
        sessions::close,
        sessions::keep_alive,
        znodes::create,
        znodes::read,
        znodes::set,
        znodes::delete,
        txn::apply,
        acquire::acquire,
        locks::queue,
        locks::set,
        locks::list,
        locks::ticket,
        release::release,
        release::release_held,
        fence::check,
        elections::campaign,
        elections::observe,
        elections::proclaim,
        elections::resign,
        multilocks::acquire,
        multilocks::ticket,
        simple_locks::acquire,
        simple_locks::look,
        simple_locks::release,
        barriers::close,
        barriers::open,
        barriers::pass,
        barriers::enter,
        barriers::leave,
        groups::join,
        groups::leave,
        groups::list,
        revoke::revoke,
        node::cluster,
        node::live,
        node::ready,
        node::version,
        metrics::metrics
    ),
    components(schemas(Problem)),
    modifiers(&Everywhere)
)]
struct Document;

/// What every operation has: the request headers and the problems.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, api: &mut OpenApi) {
        for item in api.paths.paths.values_mut() {
            let reads = item.get.as_mut().into_iter().map(|operation| (operation, false));
            let writes = [&mut item.post, &mut item.put, &mut item.delete].into_iter().filter_map(Option::as_mut);
            for (operation, is_write) in reads.chain(writes.map(|operation| (operation, true))) {
                add_headers(operation, is_write);
                add_problem(operation);
            }
        }
    }
}

fn add_headers(operation: &mut Operation, is_write: bool) {
    let session = (headers::SESSION, "`<id>.<secret>`: the session; counts as its heartbeat");
    let all: &[(&str, &str)] = if is_write {
        &[
            session,
            (headers::IDEMPOTENCY_KEY, "a UUID that marks retries of one write"),
            (headers::IF_LOCK, "`<lock path>;<token>`: refused unless the token holds the lock"),
        ]
    } else {
        &[session, (headers::MIN_ZXID, "with consistency=local: not older than this")]
    };
    let parameters = operation.parameters.get_or_insert_default();
    for (name, description) in all {
        let parameter = ParameterBuilder::new().name(*name).parameter_in(ParameterIn::Header);
        let parameter = parameter.required(Required::False).description(Some(*description)).schema(Some(text()));
        parameters.push(parameter.build().into());
    }
    if !is_write {
        let parameter = ParameterBuilder::new().name("consistency").parameter_in(ParameterIn::Query);
        let description = "linearizable (the default) or local";
        let parameter = parameter.required(Required::False).description(Some(description)).schema(Some(text()));
        parameters.push(parameter.build().into());
    }
}

fn add_problem(operation: &mut Operation) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let problem = ResponseBuilder::new().description("A problem").content("application/problem+json", content).build();
    let responses = &mut operation.responses.responses;
    responses.insert("default".into(), RefOr::T(problem));
    for response in responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        for name in [headers::ZXID, headers::NODE, headers::LEADER] {
            response.headers.insert(name.into(), HeaderBuilder::new().schema(Some(text())).build().into());
        }
    }
}

fn text() -> RefOr<utoipa::openapi::Schema> {
    ObjectBuilder::new().schema_type(Type::String).build().into()
}

/// The description of this API.
pub(crate) fn document() -> OpenApi {
    Document::openapi()
}

/// Answers the description.
pub(crate) async fn answer(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    Ok(json(StatusCode::OK, call.door.replica().state().last_zxid(), &document()))
}
