//! `/v1/txn`: several operations on znodes, applied together or not at all.

use axum::http::StatusCode;
use tokio::task::yield_now;
use zlock_client::api::ProblemType::{BadVersion, InvalidAcl, NotEmpty};
use zlock_client::api::{Millis, Txn, TxnAnswer, TxnOp, TxnResult};
use znode::{Acl, Op, Reply, ZPath, ZnodeOp};

use crate::api::convert;
use crate::openapi::examples::{ZXID, stat};
use crate::openapi::problems::{CREATE, NO_FRACTION};
use crate::problem::Problem;
use crate::request::call::{Answer, Call, WithBody, json};
use crate::request::paths;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route {
    problems: &[CREATE, &[NotEmpty, BadVersion, InvalidAcl]],
    rules: &[
        NO_FRACTION,
        "the root is there already",
        "the mode needs one",
        "only with mode=persistent-ttl",
        "given together with data",
    ],
    ..route!(apply)
}];

/// Bound in bytes on the data of one operation. After decoding longer data, the task yields to
/// other tasks. Decoding this much takes a fraction of a millisecond.
const LONG_DATA_BYTES: usize = 64 << 10;

/// Creates, deletes, sets and checks several znodes in one transaction.
#[utoipa::path(post, path = "/v1/txn", operation_id = "txnApply", tag = "znodes", request_body(content = Txn,
    example = json!({"ops": [{"op": "create", "path": "/app/a", "data": "1"}, {"op": "set", "path": "/app",
    "data": "2", "version": 2}, {"op": "check", "path": "/app", "version": 3}, {"op": "delete", "path": "/app/a"}]})),
    responses((status = 200, description = "All operations are applied", body = TxnAnswer,
        example = json!({"zxid": ZXID + 15, "results": [{"op": "create", "path": "/app/a", "stat": stat(15, 15, 0, 0,
        1)}, {"op": "set", "stat": stat(7, 15, 3, 0, 1)}, {"op": "done"}, {"op": "done"}]}))))]
pub(crate) async fn apply(WithBody(mut call): WithBody) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let (txn, _permit) = call.json::<Txn>().await?;
    let mut ops = Vec::with_capacity(txn.ops.len());
    for (index, op) in txn.ops.into_iter().enumerate() {
        let op = self::op(&call, op).map_err(|problem| problem.of_op(index))?;
        // Decoding long data takes a while, so other tasks may run.
        if data_bytes(&op) > LONG_DATA_BYTES {
            yield_now().await;
        }
        ops.push(op);
    }
    let (zxid, Reply::Multi(replies)) = call.propose(Op::Multi(ops)).await? else {
        return Err(Problem::internal("a multi was not answered as one"));
    };
    let results = replies.into_iter().map(result).collect::<Result<_, _>>()?;
    Ok(json(StatusCode::OK, zxid, &TxnAnswer { zxid: zxid.0, results }))
}

fn op(call: &Call, op: TxnOp) -> Result<ZnodeOp, Problem> {
    Ok(match op {
        TxnOp::Create { path, data, data_base64, mode, ttl, acl } => {
            let mode = convert::create_mode(mode, ttl.map(|Millis(ms)| ms))?;
            let acl = acl.map_or_else(|| Ok(Acl::open()), |acl| call.fixed_acl(convert::acl(acl)?))?;
            let place = paths::parse_new(&path, mode)?;
            ZnodeOp::Create(paths::create(place, convert::data(data, data_base64)?, mode, acl))
        }
        TxnOp::Delete { path, version } => ZnodeOp::Delete { path: parse(&path)?, version },
        TxnOp::Set { path, data, data_base64, version } => {
            ZnodeOp::SetData { path: parse(&path)?, data: convert::data(data, data_base64)?, version }
        }
        TxnOp::Check { path, version } => ZnodeOp::Check { path: parse(&path)?, version },
    })
}

fn data_bytes(op: &ZnodeOp) -> usize {
    match op {
        ZnodeOp::Create(create) => create.data.len(),
        ZnodeOp::SetData { data, .. } => data.len(),
        _ => 0,
    }
}

fn parse(path: &str) -> Result<ZPath, Problem> {
    paths::parse("path", path)
}

fn result(reply: Reply) -> Result<TxnResult, Problem> {
    match reply {
        Reply::Created { path, stat } => {
            Ok(TxnResult::Create { path: path.as_str().into(), stat: convert::stat(stat) })
        }
        Reply::Set { stat } => Ok(TxnResult::Set { stat: convert::stat(stat) }),
        Reply::Done => Ok(TxnResult::Done),
        _ => Err(Problem::internal("an operation of a multi was not answered as one")),
    }
}
