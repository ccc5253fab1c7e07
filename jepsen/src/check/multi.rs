//! `multi`: transfers between accounts are strictly serializable, with the zxid as the witness of the order.

use std::collections::BTreeMap;

use serde_json::Value;

use super::order;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Balance and version of every account.
type Accounts = Vec<(i64, i64)>;

/// One side of a transfer: the account, and its balance and version afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    account: usize,
    balance: i64,
    version: i64,
}

/// A transfer with what it made of both accounts.
#[derive(Clone, Copy)]
struct Transfer<'a> {
    operation: &'a Operation,
    sides: [Side; 2],
}

/// Judges `transfer`s and `read`s of all accounts against accounts that hold `initial` each.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let setup = operations.iter().find(|operation| operation.f == "open-accounts" && operation.is_ok());
    let (Some(count), Some(initial)) =
        (setup.and_then(|op| op.number("accounts")), setup.and_then(|op| op.number("initial")))
    else {
        verdict.doubt("the accounts were not opened");
        return verdict;
    };
    let initial = i64::try_from(initial).unwrap_or(0);
    let accounts: Accounts = vec![(initial, 0); usize::try_from(count).unwrap_or(0)];
    let total = initial * i64::try_from(accounts.len()).unwrap_or(0);
    let transfers: Vec<Transfer<'_>> = operations.iter().filter_map(transfer).collect();
    check_versions(&transfers, &mut verdict);
    let looks = |operation: &&Operation| matches!(operation.f.as_str(), "read" | "snapshot") && operation.is_ok();
    for read in operations.iter().filter(looks) {
        let sum: i64 = numbers(read, "balances").iter().sum();
        if sum != total {
            verdict.found("wrong-total", format!("the accounts hold {sum} and not {total}"), &[read]);
        }
    }
    order::check_zxids(operations, |f| matches!(f, "transfer" | "read").then_some(false), &mut verdict);
    replay(operations, &transfers, accounts, &mut verdict);
    verdict.figure("transfers", transfers.iter().filter(|transfer| transfer.operation.is_ok()).count());
    verdict
}

fn numbers(operation: &Operation, name: &str) -> Vec<i64> {
    let list = operation.result.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_i64).collect()
}

fn transfer(operation: &Operation) -> Option<Transfer<'_>> {
    if operation.f != "transfer" || !operation.is_possible() {
        return None;
    }
    let sides = operation.result.get("sides")?;
    let side = |i: usize| {
        let side = sides.get(i)?;
        let account = usize::try_from(side.get(0)?.as_u64()?).ok()?;
        Some(Side { account, balance: side.get(1)?.as_i64()?, version: side.get(2)?.as_i64()? })
    };
    Some(Transfer { operation, sides: [side(0)?, side(1)?] })
}

/// A version of an account is made once.
fn check_versions(transfers: &[Transfer<'_>], verdict: &mut Verdict) {
    let mut made: BTreeMap<(usize, i64), &Operation> = BTreeMap::new();
    for transfer in transfers.iter().filter(|transfer| transfer.operation.is_ok()) {
        for side in transfer.sides {
            if let Some(other) = made.insert((side.account, side.version), transfer.operation) {
                let detail = format!("version {} of account {} was made twice", side.version, side.account);
                verdict.found("lost-update", detail, &[other, transfer.operation]);
            }
        }
    }
}

/// Replays everything acknowledged in the order of zxids. A transfer of unknown outcome is put in where its version is needed.
fn replay(operations: &[Operation], transfers: &[Transfer<'_>], mut accounts: Accounts, verdict: &mut Verdict) {
    let mut unknown: Vec<Transfer<'_>> = transfers.iter().filter(|one| !one.operation.is_ok()).copied().collect();
    let sides: BTreeMap<u64, [Side; 2]> = transfers.iter().map(|one| (one.operation.call, one.sides)).collect();
    let mut done: Vec<&Operation> =
        operations.iter().filter(|op| op.is_ok() && matches!(op.f.as_str(), "transfer" | "read")).collect();
    done.sort_by_key(|operation| (operation.zxid, operation.call));
    let mut last_ok: Option<&Operation> = None;
    let mut recovered = 0;
    for operation in done {
        let wanted: Vec<(usize, i64, Option<i64>)> = match sides.get(&operation.call) {
            Some(sides) => sides.iter().map(|side| (side.account, side.version - 1, None)).collect(),
            None => {
                let balances = numbers(operation, "balances");
                let versions = numbers(operation, "versions");
                versions.into_iter().zip(balances).enumerate().map(|(i, (v, b))| (i, v, Some(b))).collect()
            }
        };
        recovered += catch_up(&mut accounts, &mut unknown, &wanted);
        let agrees = |(account, version, balance): &(usize, i64, Option<i64>)| {
            let state = accounts.get(*account);
            state.is_some_and(|(b, v)| v == version && balance.is_none_or(|balance| balance == *b))
        };
        if !wanted.iter().all(agrees) {
            let detail = format!("in the order of zxids this is impossible: the accounts are {accounts:?}");
            let part: Vec<&Operation> = last_ok.into_iter().chain([operation]).collect();
            verdict.found("not-serializable", detail, &part);
            return;
        }
        for side in sides.get(&operation.call).into_iter().flatten() {
            accounts[side.account] = (side.balance, side.version);
        }
        last_ok = Some(operation);
    }
    verdict.figure("transfers-recovered", recovered);
}

/// Applies transfers of unknown outcome, whole, as long as that brings an account nearer to the version that was seen.
fn catch_up(accounts: &mut Accounts, unknown: &mut Vec<Transfer<'_>>, wanted: &[(usize, i64, Option<i64>)]) -> usize {
    let mut applied = 0;
    loop {
        let behind = |account: usize, accounts: &Accounts| {
            wanted.iter().any(|(a, version, _)| *a == account && accounts.get(*a).is_some_and(|(_, v)| v < version))
        };
        let fits = |one: &Transfer<'_>| {
            one.sides.iter().all(|side| accounts.get(side.account).is_some_and(|(_, v)| v + 1 == side.version))
                && one.sides.iter().any(|side| behind(side.account, accounts))
        };
        let Some(at) = unknown.iter().position(fits) else { return applied };
        for side in unknown.swap_remove(at).sides {
            accounts[side.account] = (side.balance, side.version);
        }
        applied += 1;
    }
}
