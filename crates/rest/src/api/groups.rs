//! `/v1/groups`: groups and their present members. A member is an ephemeral child of the group's
//! znode, as with Curator's GroupMember.
//!
//! Each join and each leave is one log entry.

use axum::http::StatusCode;
use replica::{Step, WatchKey};
use zlock_client::api::ProblemType::TicketGone;
use zlock_client::api::{Deletion, Group, GroupMember, Millis, PathInUrl, ZnodeName};
use znode::{Ensure, Error, Identity, Op, State, ZPath, Zxid};

use crate::api::convert;
use crate::api::ensure::{ensure, gone};
use crate::openapi::examples::ZXID;
use crate::openapi::problems::CREATE;
use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, Call, WithBody, json};
use crate::request::wait::Wait;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route { in_session: true, problems: &[CREATE, &[TicketGone]], ..route!(join) },
    Route { reads: true, ..route!(list) },
    Route { in_session: true, ..route!(leave) },
];

const ROUTE: &str = "/v1/groups";

/// Joins a group; the body is the member's data.
#[utoipa::path(post, path = "/v1/groups/{*path}", operation_id = "groupsJoin", tag = "groups",
    params(("path" = PathInUrl, Path, example = "workers", description = "path of the group, with slashes as / or %2F"),
        ("member" = ZnodeName, Query, example = "a", description = "the member's name in the group")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", example = "http://a:80"),
    responses((status = 201,
        description = "The member has joined", body = GroupMember, example = json!({"member": "a", "session": 6,
        "data": "http://a:80", "joined_at_ms": 1795262273398_u64})),
        (status = 200, description = "The session had already joined with this name", body = GroupMember,
            example = json!({"member": "a", "session": 6, "data": "http://a:80", "joined_at_ms": 1795262273398_u64}))))]
pub(crate) async fn join(WithBody(mut call): WithBody) -> Answer {
    call.caller.session()?;
    let path = call.path(ROUTE)?;
    let own = member(&mut call, &path)?;
    let data_max = call.door.replica.state().limits().data_bytes_max as usize;
    let (data, _permit) = call.body(data_max.min(call.door.config.body_bytes_max)).await?;
    let (zxid, stat) = ensure(&call, &own, data.into(), Ensure::Own).await?;
    let state = call.state_with(zxid).await.map_err(Problem::behind_a_write)?;
    let there = state.node(&own).is_some_and(|node| node.stat().czxid == stat.czxid);
    let member = info(&call.identities, &state, &own).filter(|_| there).ok_or_else(|| gone(&call, &own, None))?;
    let status = if stat.czxid == zxid { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, zxid, &member))
}

/// Leaves a group.
#[utoipa::path(delete, path = "/v1/groups/{*path}", operation_id = "groupsLeave", tag = "groups",
    params(("path" = PathInUrl, Path, example = "workers", description = "path of the group, with slashes as / or %2F"),
        ("member" = ZnodeName, Query, example = "a", description = "the member's name in the group")),
    responses((status = 200, description = "The member has left, by this request or before it", body = Deletion,
        example = json!({"zxid": ZXID + 30}))))]
pub(crate) async fn leave(mut call: Call) -> Answer {
    call.caller.session()?;
    let path = call.path(ROUTE)?;
    let own = member(&mut call, &path)?;
    // Unlike a delete, a release needs no permission in an ACL, because the session owns the znode.
    let zxid = match call.propose(Op::Release { ticket: own.clone().into() }).await {
        Ok((zxid, _)) => zxid,
        Err(problem) if problem.is(Error::NoNode) => problem.zxid.unwrap_or(Zxid(0)),
        Err(problem) if problem.is(Error::NotOwner) => {
            return Err(Problem::from(Error::LockNotHeld).at(&own, problem.zxid.unwrap_or(Zxid(0))));
        }
        Err(problem) => return Err(problem),
    };
    Ok(json(StatusCode::OK, zxid, &Deletion { zxid: zxid.0 }))
}

/// Lists a group. With `since`, waits until a member joins or leaves after that zxid.
#[utoipa::path(get, path = "/v1/groups/{*path}", operation_id = "groupsList", tag = "groups",
    params(("path" = PathInUrl, Path, example = "workers", description = "path of the group, with slashes as / or %2F"),
        ("page_size" = Option<u64>, Query, minimum = 1), ("after" = Option<String>, Query, max_length = 255),
        ("since" = Option<u64>, Query, description = "`upto` of the last answer: waits for the next change after it"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for a change; absent: no wait")),
    responses((status = 200, description = "Members, sorted by name", body = Group, example = json!({"path": "/workers",
        "count": 1, "members": [{"member": "a", "session": 6, "data": "http://a:80", "joined_at_ms": 1795262273398_u64}],
        "upto": ZXID + 29}))))]
pub(crate) async fn list(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    let wait = Wait::take(&mut call)?;
    let since: Option<u64> = call.query.get("since")?;
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let after = call.query.take("after")?.unwrap_or_default();
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let step = |state: &State| match since == Some(changed(state, &path)) {
        true => Step::Watch(WatchKey::Children(path.clone())),
        false => Step::Ready(()),
    };
    // The list is answered even if the wait ends without a change.
    wait.until(&call, state, step).await?;
    let page = move |call: &Call, state: &State| {
        Ok(json(StatusCode::OK, state.last_zxid(), &page(&call.identities, state, &path, &after, page_size)?))
    };
    call.page(page).await
}

fn member(call: &mut Call, path: &ZPath) -> Result<ZPath, Problem> {
    let name = call.query.take("member")?.ok_or_else(|| Problem::bad("member", "its name in the group"))?;
    std::mem::take(&mut call.query).finish()?;
    path.child(&name).map_err(|_| Problem::bad("member", "not the name of a znode"))
}

/// Returns the zxid at which a member last joined or left; 0 for a group without a znode.
fn changed(state: &State, path: &ZPath) -> u64 {
    state.node(path).map_or(0, |node| node.stat().pzxid.0)
}

fn page(identities: &[Identity], state: &State, path: &ZPath, after: &str, page_size: usize) -> Result<Group, Problem> {
    // Access is checked for each state, because the znode may be created or get another ACL during
    // the wait.
    check_readable(identities, state, path)?;
    let mut group = Group {
        path: path.as_str().into(),
        count: state.node(path).map_or(0, |node| node.stat().num_children),
        members: Vec::new(),
        upto: changed(state, path),
        cursor: None,
    };
    // A group without a znode has no members.
    let Ok(names) = state.children_from(path, after) else { return Ok(group) };
    for name in names {
        if group.members.len() == page_size {
            group.cursor = group.members.last().map(|member| member.member.clone());
            break;
        }
        group.members.extend(info(identities, state, &path.child(name)?));
    }
    Ok(group)
}

/// Describes the group's member at `path`, with its data if the request may read the data; `None`
/// if the member has left.
fn info(identities: &[Identity], state: &State, path: &ZPath) -> Option<GroupMember> {
    let said = convert::shown_info(path, state.node(path)?, state, identities);
    Some(GroupMember {
        member: path.name().into(),
        session: state.owner_of(path).map(|session| session.0),
        data: said.data,
        data_base64: said.data_base64,
        joined_at_ms: said.stat.ctime,
    })
}
