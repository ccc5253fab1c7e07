//! `/v1/admin/upgrade`: the cluster's format level (version of the formats that all members use),
//! the versions of the members' programs, and the command to raise the format level.

use axum::http::StatusCode;
use replica::{FinalizeOutcome, MemberProgram, UpgradeStatus};
use zlock_client::api::ProblemType::MembersNotReady;
use zlock_client::api::{MemberUpgrade, ProblemType, Upgrade};

use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(look), Route { problems: &[&[MembersNotReady]], ..route!(finalize) }];

/// Shows the cluster's format level (version of the log's format) and the versions of the members'
/// programs, as the leader knows them.
#[utoipa::path(get, path = "/v1/admin/upgrade", operation_id = "adminUpgradeLook", tag = "admin",
    responses((status = 200,
        description = "The cluster's level, and the levels that each member knows",
        body = Upgrade, example = json!({"level": 1, "next_level": 2,
        "members": [{"id": 1, "version": "0.2.0", "level_min": 1, "level_max": 2, "reachable": true}]}))))]
pub(crate) async fn look(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let status = call.door.replica.upgrade(call.door.read_deadline()).await?;
    Ok(told(&call, &status))
}

/// Raises the cluster's format level for good, if every member's program knows the new level.
#[utoipa::path(put, path = "/v1/admin/upgrade", operation_id = "adminUpgradeFinalize", tag = "admin",
    params(("level" = Option<u16>, Query, maximum = 65535, example = 2,
        description = "the new level; absent: the highest level that any member knows")),
    responses((status = 200, description = "The cluster has this level", body = Upgrade,
        example = json!({"level": 2, "members": [{"id": 1, "version": "0.2.0", "level_min": 1, "level_max": 2,
        "reachable": true}]}))))]
pub(crate) async fn finalize(mut call: Call) -> Answer {
    let level = call.query.get::<u16>("level")?;
    std::mem::take(&mut call.query).finish()?;
    let finalized = call.door.replica.finalize(level, call.door.propose_deadline()).await;
    match finalized {
        Ok(FinalizeOutcome::Done(status)) => Ok(told(&call, &status)),
        Ok(FinalizeOutcome::NotReady { level, status }) => {
            Err(Problem::new(ProblemType::MembersNotReady, not_ready(level, &status)))
        }
        Err(replica::Error::Refused(znode::Error::BadArguments)) => {
            Err(Problem::bad("level", "nothing lowers it: to go back, restore a backup of before"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Describes the members whose programs do not support the format level `level`, and the remedy.
fn not_ready(level: u16, status: &UpgradeStatus) -> String {
    let hindering = status.members.iter().filter(|member| !member.is_ready_for(level));
    let why: Vec<String> = hindering.map(why_not).collect();
    format!(
        "level {level} needs every member to know it and to follow the leader, and {}: start a zlock that knows level {level} there",
        why.join(", ")
    )
}

fn why_not(member: &MemberProgram) -> String {
    let id = member.id;
    match &member.program {
        _ if !member.reachable => format!("node {id} does not follow now"),
        Some(program) => format!("node {id} runs {}, which knows {}", program.version, program.levels),
        None => format!("node {id} runs a zlock that does not say what it knows"),
    }
}

fn told(call: &Call, status: &UpgradeStatus) -> axum::response::Response {
    let member = |member: &MemberProgram| MemberUpgrade {
        id: member.id,
        version: member.program.as_ref().map(|program| program.version.clone()),
        level_min: member.program.as_ref().map(|program| program.levels.min),
        level_max: member.program.as_ref().map(|program| program.levels.max),
        reachable: member.reachable,
    };
    let members = status.members.iter().map(member).collect();
    let upgrade = Upgrade { level: status.level, next_level: status.next_level(), members };
    json(StatusCode::OK, call.door.replica.state().last_zxid(), &upgrade)
}

#[cfg(test)]
mod tests {
    use replica::Program;
    use znode::Levels;

    use super::*;

    #[test]
    fn a_level_that_is_held_up_names_each_member_that_does() {
        let program = |version: &str, max| Program { version: version.into(), levels: Levels { min: 1, max } };
        let member = |id, program, reachable| MemberProgram { id, program, reachable };
        let members = vec![
            member(1, Some(program("0.2.0", 2)), true),
            member(2, Some(program("0.1.0", 1)), true),
            member(3, Some(program("0.2.0", 2)), false),
            member(4, None, true),
        ];
        assert_eq!(
            not_ready(2, &UpgradeStatus { level: 1, members }),
            "level 2 needs every member to know it and to follow the leader, and node 2 runs 0.1.0, which knows only 1, \
             node 3 does not follow now, node 4 runs a zlock that does not say what it knows: start a zlock that knows \
             level 2 there"
        );
    }
}
