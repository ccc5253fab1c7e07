//! `/v1/znodes`: creating, reading, setting and deleting znodes.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{ACCEPT, ETAG, HeaderMap, LOCATION, VARY};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;
use zlock_client::api::ProblemType::{BadVersion, EventsGone, InvalidAcl, NoNode, NotEmpty};
use zlock_client::api::{
    AclEntry, AclInfo, ChangedZnode, Children, CreatedZnode, Deletion, Events, Millis, Mode, NamedStat, PathInUrl, Stat,
};
use znode::{ADMIN, Acl, Error, Op, READ, Reply, State, WRITE, ZPath, ZnodeOp};

use crate::api::convert;
use crate::api::watch;
use crate::http::bodies::Room;
use crate::openapi::examples::{ZXID, stat};
use crate::openapi::problems::CREATE;
use crate::openapi::schemas::words;
use crate::problem::Problem;
use crate::request::access::readable;
use crate::request::call::{Answer, Call, WithBody, answer, json, with_header};
use crate::request::paths;
use crate::request::query::cut;
use crate::route::{Route, route};

/// URL paths for the root znode: the part after `/v1/znodes`, the znode's path, is empty.
const ROOT: &[&str] = &["/v1/znodes", "/v1/znodes/"];

pub(crate) const ROUTES: &[Route] = &[
    Route {
        spellings: ROOT,
        problems: &[CREATE, &[InvalidAcl]],
        rules: &[
            "the root is there already",
            "the mode needs one",
            "only with mode=persistent-ttl",
            "not a JSON list of entries",
        ],
        ..route!(create)
    },
    Route {
        spellings: ROOT,
        reads: true,
        problems: &[&[NoNode, EventsGone]],
        rules: &["given together with children"],
        ..route!(read)
    },
    Route { spellings: ROOT, problems: &[&[NoNode, BadVersion, InvalidAcl]], ..route!(set) },
    Route { spellings: ROOT, problems: &[&[NoNode, NotEmpty, BadVersion]], ..route!(delete) },
];

words!(ChildrenWord, ["true", "false", "stat"]);
words!(WatchWord, ["data", "exists", "children", "subtree"]);
words!(AnyTag, ["*"]);

pub(crate) const ROUTE: &str = "/v1/znodes";

/// Creates a znode. The body is its data.
#[utoipa::path(post, path = "/v1/znodes/{*path}", operation_id = "znodesCreate", tag = "znodes",
    params(("path" = PathInUrl, Path, example = "app",
        description = "path of the znode, with slashes as / or %2F; the last name may be empty for the sequential \
            modes"),
        ("mode" = Option<Mode>, Query), ("ttl" = Option<Millis>, Query,
            description = "time to live, only for the TTL modes"),
        ("acl" = Option<String>, Query, max_length = 4096,
            pattern = r"^(?:[a-z0-9]+:[^,]*:[cdrwa]{1,5}(?:,[a-z0-9]+:[^,]*:[cdrwa]{1,5})*|\[.*\])$",
            description = "scheme:id:perms, separated by commas; or a list of entries as JSON")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", example = "hello"),
    responses((status = 201,
        description = "The znode is created; `Location` has its path, and `ETag` its version", body = CreatedZnode,
        example = json!({"path": "/app", "stat": stat(7, 7, 0, 0, 5), "zxid": ZXID + 7}))))]
pub(crate) async fn create(WithBody(mut call): WithBody) -> Answer {
    let mode =
        call.query.take("mode")?.map_or(Ok(zlock_client::api::Mode::default()), |text| convert::parse_mode(&text))?;
    let ttl_ms = call.query.duration_ms("ttl", u64::MAX)?;
    let mode = convert::create_mode(mode, ttl_ms)?;
    let acl = call.query.take("acl")?.map(|text| convert::parse_acl(&text)).transpose()?;
    let acl = acl.map_or_else(|| Ok(Acl::open()), |acl| call.fixed_acl(acl))?;
    std::mem::take(&mut call.query).finish()?;
    let place = paths::decode_new(call.raw_path(ROUTE), mode)?;
    let (data, _permit) = data(&mut call).await?;
    let op = Op::Znode(ZnodeOp::Create(paths::create(place, data.into(), mode, acl)));
    let created = call.propose(op).await.map_err(|problem| match problem.is(Error::NoNode) {
        true => problem.because("the parent of the znode is missing: create that first"),
        false => problem,
    });
    let (zxid, Reply::Created { path, stat }) = created? else {
        return Err(Problem::internal("a create was not answered as one"));
    };
    let created = CreatedZnode { path: path.as_str().into(), stat: convert::stat(stat), zxid: zxid.0 };
    let response = json(StatusCode::CREATED, zxid, &created);
    let response = with_header(response, LOCATION, format!("{ROUTE}{}", paths::encode(&path)));
    Ok(with_header(response, ETAG, etag(stat.version)))
}

/// Reads a znode, its children, its ACL or its events.
#[utoipa::path(get, path = "/v1/znodes/{*path}", operation_id = "znodesRead", tag = "znodes",
    params(("path" = PathInUrl, Path, example = "app", description = "path of the znode, with slashes as / or %2F"),
        ("children" = inline(Option<ChildrenWord>), Query,
            description = "`true`: lists the children; `stat`: lists the children with their stats"),
        ("page_size" = Option<u64>, Query, minimum = 1, description = "largest number of children on the page"),
        ("after" = Option<String>, Query, max_length = 255, description = "`cursor` of the previous page"),
        ("acl" = Option<bool>, Query, description = "true: shows the ACL"),
        ("watch" = inline(Option<WatchWord>), Query,
            description = "kind of events to wait for"),
        ("since" = Option<u64>, Query, description = "only events after this zxid; absent: events from now on"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for an event; absent: no wait")),
    responses((status = 200,
        description = "The znode, its children, its ACL or its events, as the query asks; with `Accept: \
            application/octet-stream` the data as raw bytes",
        content((ZnodeAnswer = "application/json", example = json!({"path": "/app", "data": "hello", "stat": stat(7,
            7, 0, 0, 5)})), (Vec<u8> = "application/octet-stream")))))]
pub(crate) async fn read(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    if call.query.has("watch") {
        return watch::watch(call, path).await;
    }
    let with_stats = call.query.take_word("children", "stat");
    let children = with_stats || call.query.flag("children")?;
    match (children, call.query.flag("acl")?) {
        (true, true) => Err(Problem::bad("acl", "given together with children")),
        (true, false) => self::children(call, path, with_stats).await,
        (false, true) => self::acl(call, path).await,
        (false, false) => self::data_of(call, path).await,
    }
}

async fn data_of(mut call: Call, path: ZPath) -> Answer {
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let node = readable(&call.identities, &state, &path, READ)?;
    let response = if wants_bytes(call.headers()) {
        let bytes = Bytes::from_owner(Arc::clone(node.data()));
        answer(StatusCode::OK, state.last_zxid(), "application/octet-stream", bytes)
    } else {
        json(StatusCode::OK, state.last_zxid(), &convert::znode_info(&path, node))
    };
    Ok(with_header(with_header(response, ETAG, etag(node.stat().version)), VARY, "accept"))
}

async fn children(mut call: Call, path: ZPath, with_stats: bool) -> Answer {
    // The page is made later, of this state or a newer one.
    call.read().await?;
    let page_size = call.query.page_size(call.door.config.page_max)?;
    // All names sort after the empty name.
    let after = call.query.take("after")?.unwrap_or_default();
    let listing = ChildrenPageQuery { after, page_size, with_stats };
    call.page(move |call, state| page_of_children(call, state, &path, &listing)).await
}

/// Parameters of a page of children.
struct ChildrenPageQuery {
    after: String,
    page_size: usize,
    with_stats: bool,
}

fn page_of_children(call: &Call, state: &State, path: &ZPath, listing: &ChildrenPageQuery) -> Answer {
    let ChildrenPageQuery { after, page_size, with_stats } = listing;
    let node = readable(&call.identities, state, path, READ)?;
    let refused = |error| Problem::from(error).at(path, state.last_zxid());
    let names = state.children_from(path, after).map_err(refused)?;
    let mut names: Vec<String> = names.take(page_size + 1).map(String::from).collect();
    let cursor = cut(&mut names, *page_size).cloned();
    let stats = with_stats.then(|| names.iter().filter_map(|name| named_stat(state, path, name)).collect());
    let page =
        Children { path: path.as_str().into(), stat: convert::stat(node.stat()), cursor, children: names, stats };
    Ok(json(StatusCode::OK, state.last_zxid(), &page))
}

fn named_stat(state: &State, parent: &ZPath, name: &str) -> Option<NamedStat> {
    let child = parent.child(name).ok()?;
    Some(NamedStat { name: name.into(), stat: convert::stat(state.node(&child)?.stat()) })
}

async fn acl(mut call: Call, path: ZPath) -> Answer {
    let state = call.read().await?;
    call.query.finish()?;
    let node = readable(&call.identities, &state, &path, READ | ADMIN)?;
    let may_set = state.may(&path, node, ADMIN, &call.identities);
    let info = AclInfo {
        path: path.as_str().into(),
        acl: state.acl_of(&path, node).iter().map(|entry| convert::acl_entry(entry, may_set)).collect(),
        stat: convert::stat(node.stat()),
    };
    let response = json(StatusCode::OK, state.last_zxid(), &info);
    Ok(with_header(response, ETAG, etag(node.stat().aversion)))
}

/// Sets a znode's data, or with `?acl` its ACL.
#[utoipa::path(put, path = "/v1/znodes/{*path}", operation_id = "znodesSet", tag = "znodes",
    params(("path" = PathInUrl, Path, example = "app", description = "path of the znode, with slashes as / or %2F"),
        ("acl" = Option<bool>, Query, description = "true: sets the ACL; the body is a JSON list of ACL entries"),
        ("If-Match" = Option<String>, Header, max_length = 14,
            pattern = r#"^(?:\*|(?:W/)?"[01]?[0-9]{1,9}"|[01]?[0-9]{1,9})$"#,
            description = "the version to replace, from the `ETag` of an answer"),
        ("If-None-Match" = inline(Option<AnyTag>), Header,
            description = "`*`: the request is refused if the znode exists; PUT never creates a znode")),
    request_body(content((Vec<u8> = "application/octet-stream", example = "world"),
        (Vec<AclEntry> = "application/json",
            example = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}])))),
    responses((status = 200,
        description = "The data or the ACL is set; `ETag` has the new version", body = ChangedZnode,
        example = json!({"path": "/app", "stat": stat(7, 8, 1, 0, 5), "zxid": ZXID + 8}))))]
pub(crate) async fn set(WithBody(mut call): WithBody) -> Answer {
    let path = call.path(ROUTE)?;
    let is_acl = call.query.flag("acl")?;
    std::mem::take(&mut call.query).finish()?;
    let version = call.caller.version;
    let (op, _permit) = if is_acl {
        let (entries, permit) = call.json_list::<AclEntry>().await?;
        let acl = call.fixed_acl(convert::acl(entries)?)?;
        (Op::SetAcl { path: path.clone(), acl, version }, permit)
    } else {
        let (data, permit) = data(&mut call).await?;
        (Op::Znode(ZnodeOp::SetData { path: path.clone(), data: data.into(), version }), permit)
    };
    if call.caller.only_if_absent {
        let state = call.read().await?;
        readable(&call.identities, &state, &path, WRITE)?;
        let detail = "the znode exists, which If-None-Match forbids; PUT creates none: POST does";
        return Err(Problem::from(Error::BadVersion).because(detail).at(&path, state.last_zxid()));
    }
    let set = call.propose(op).await.map_err(|problem| match problem.is(Error::NoNode) {
        true => problem.because("there is no such znode: what is set must have been created before"),
        false => problem,
    });
    let (zxid, Reply::Set { stat }) = set? else {
        return Err(Problem::internal("a set was not answered as one"));
    };
    let set = ChangedZnode { path: path.as_str().into(), stat: convert::stat(stat), zxid: zxid.0 };
    let version = if is_acl { stat.aversion } else { stat.version };
    Ok(with_header(json(StatusCode::OK, zxid, &set), ETAG, etag(version)))
}

/// Deletes a znode without children.
#[utoipa::path(delete, path = "/v1/znodes/{*path}", operation_id = "znodesDelete", tag = "znodes",
    params(("path" = PathInUrl, Path, example = "app", description = "path of the znode, with slashes as / or %2F"),
        ("If-Match" = Option<String>, Header, max_length = 14,
            pattern = r#"^(?:\*|(?:W/)?"[01]?[0-9]{1,9}"|[01]?[0-9]{1,9})$"#,
            description = "the version to delete, from the `ETag` of an answer")),
    responses((status = 200,
        description = "The znode is deleted", body = Deletion, example = json!({"zxid": ZXID + 14}))))]
pub(crate) async fn delete(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    std::mem::take(&mut call.query).finish()?;
    if path.is_root() {
        return Err(Problem::bad("path", "the root cannot be deleted: name a znode below it"));
    }
    let (zxid, _) = call.propose(Op::Znode(ZnodeOp::Delete { path, version: call.caller.version })).await?;
    Ok(json(StatusCode::OK, zxid, &Deletion { zxid: zxid.0 }))
}

/// Reads the body, whose limit is that of a znode's data. The returned [`Room`] counts the body's
/// bytes against the memory for bodies.
async fn data(call: &mut Call) -> Result<(Bytes, Room), Problem> {
    let data_max = call.door.replica.state().limits().data_bytes_max as usize;
    call.body(data_max.min(call.door.config.body_bytes_max)).await
}

fn etag(version: i32) -> String {
    format!("\"{version}\"")
}

/// Tells whether the client prefers bytes: `Accept` lists them before JSON and before `*/*`.
fn wants_bytes(headers: &HeaderMap) -> bool {
    let ranges =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    for range in ranges {
        match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "application/octet-stream" => return true,
            "application/json" | "application/*" | "*/*" => return false,
            _ => {}
        }
    }
    false
}

/// Answers of a GET of a znode, depending on its query. Each answer has a field that the others
/// lack.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes the answers, which are written one by one")]
pub(crate) enum ZnodeAnswer {
    /// Answer to `children`.
    Children(Children),
    /// Answer to `acl`.
    Acl(AclInfo),
    /// Answer to `watch`.
    Events(Events),
    /// Answer without `children`, `acl` and `watch`, when the data is UTF-8.
    Text(TextZnode),
    /// Answer without `children`, `acl` and `watch`, when the data is not UTF-8.
    Bytes(BytesZnode),
}

/// A znode whose data is UTF-8.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "describes the answers of znodes.rs")]
pub(crate) struct TextZnode {
    /// The znode's path.
    path: String,
    /// The data.
    data: String,
    /// The znode's stat.
    stat: Stat,
}

/// A znode whose data is not UTF-8.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "describes the answers of znodes.rs")]
pub(crate) struct BytesZnode {
    /// The znode's path.
    path: String,
    /// The data in base64 (RFC 4648, padded).
    data_base64: String,
    /// The znode's stat.
    stat: Stat,
}
