//! Checker of the workload `multi`: transfers between accounts are strictly serializable, in the
//! order of their zxids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::order;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Largest number of steps of the search for an order of the transfers of unknown outcome. A usual
/// run needs a few more steps than it has operations.
const STEPS_MAX: u64 = 1_000_000;

/// Balance and version of every account.
type Accounts = Vec<(i64, i64)>;

/// One side of a transfer: the account, and its balance and version afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    account: usize,
    balance: i64,
    version: i64,
}

/// A transfer, with the state of both accounts after it.
#[derive(Clone, Copy)]
struct Transfer<'a> {
    operation: &'a Operation,
    sides: [Side; 2],
}

/// Judges `transfer`s, and `read`s of all accounts. At first each account has the balance `initial`
/// of the operation `open-accounts`.
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
    check_last(operations, &mut verdict);
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

/// Makes a valid verdict unknown when no read of all accounts follows the last acknowledged
/// transfer, because a loss of that transfer would then stay unseen.
fn check_last(operations: &[Operation], verdict: &mut Verdict) {
    let acknowledged = |f: &'static str| operations.iter().filter(move |op| op.f == f && op.is_ok());
    let Some(last) = acknowledged("transfer").max_by_key(|transfer| transfer.complete) else { return };
    if !acknowledged("read").any(|read| read.call > last.complete) {
        verdict.doubt(format!("the accounts were not read behind the last transfer: {}", last.describe()));
    }
}

/// Checks that no two acknowledged transfers made the same version of an account.
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

/// Replays all acknowledged operations in the order of zxids. A transfer of unknown outcome is
/// inserted where its effect is seen.
///
/// Several transfers of unknown outcome may have tried to make the same version of an account, and
/// only a later answer may show which of them succeeded. So the search tries them one by one, and
/// backtracks.
fn replay(operations: &[Operation], transfers: &[Transfer<'_>], accounts: Accounts, verdict: &mut Verdict) {
    let unknown: Vec<[Side; 2]> = transfers.iter().filter(|one| !one.operation.is_ok()).map(|one| one.sides).collect();
    let sides: BTreeMap<u64, Transfer<'_>> = transfers.iter().map(|one| (one.operation.call, *one)).collect();
    let mut done: Vec<&Operation> =
        operations.iter().filter(|op| op.is_ok() && matches!(op.f.as_str(), "transfer" | "read")).collect();
    done.sort_by_key(|operation| (operation.zxid, operation.call));
    let mut ways = vec![Way { at: 0, accounts, used: BTreeSet::new() }];
    let mut furthest: Option<Way> = None;
    let mut steps = STEPS_MAX;
    while let Some(way) = ways.pop() {
        let Some(operation) = done.get(way.at) else {
            verdict.figure("transfers-recovered", way.used.len());
            return;
        };
        let transfer = sides.get(&operation.call);
        let seen = transfer.map_or_else(|| seen_by_read(operation), seen_by_transfer);
        let before = ways.len();
        recover(&way, &unknown, &seen, &mut ways, &mut steps);
        for next in &mut ways[before..] {
            next.at += 1;
            for side in transfer.into_iter().flat_map(|transfer| transfer.sides) {
                next.accounts[side.account] = (side.balance, side.version);
            }
        }
        if steps == 0 {
            verdict.doubt(format!("gave up after {STEPS_MAX} ways to order transfers of unknown outcome"));
            return;
        }
        if ways.len() == before && furthest.as_ref().is_none_or(|furthest| furthest.at < way.at) {
            furthest = Some(way);
        }
    }
    let Some(Way { at, accounts, .. }) = furthest else { return };
    let detail = format!("in the order of zxids this is impossible: the accounts are {accounts:?}");
    verdict.found("not-serializable", detail, &done[at.saturating_sub(1)..=at]);
}

/// State of the search in [`replay`]: the number `at` of acknowledged operations that were
/// replayed, and the accounts after these operations.
struct Way {
    at: usize,
    accounts: Accounts,
    /// Indexes of the transfers of unknown outcome that the search has inserted between the
    /// replayed operations.
    used: BTreeSet<usize>,
}

/// Accounts that an operation has seen, each with version and balance.
type View = BTreeMap<usize, (i64, i64)>;

fn seen_by_read(read: &Operation) -> View {
    numbers(read, "versions").into_iter().zip(numbers(read, "balances")).enumerate().collect()
}

/// Returns both accounts as the client of a transfer had read them before, computed from the state
/// after the transfer.
fn seen_by_transfer(transfer: &Transfer<'_>) -> View {
    let amount = transfer.operation.argument.get("amount").and_then(Value::as_i64).unwrap_or(0);
    let [from, to] = transfer.sides;
    BTreeMap::from([
        (from.account, (from.version - 1, from.balance + amount)),
        (to.account, (to.version - 1, to.balance - amount)),
    ])
}

/// Finds every way to bring the accounts from the state in `way` to the state `seen` of an answer,
/// by applying transfers of unknown outcome. Adds the resulting states to `found`.
fn recover(way: &Way, unknown: &[[Side; 2]], seen: &View, found: &mut Vec<Way>, steps: &mut u64) {
    *steps = steps.saturating_sub(1);
    if *steps == 0 {
        return;
    }
    let is_right = |(account, wanted): (&usize, &(i64, i64))| {
        way.accounts.get(*account).is_some_and(|(balance, version)| (*version, *balance) == *wanted)
    };
    if seen.iter().all(is_right) {
        found.push(Way { at: way.at, accounts: way.accounts.clone(), used: way.used.clone() });
        return;
    }
    let version = |account: usize| way.accounts.get(account).map(|(_, version)| *version);
    let behind = seen.iter().find(|(account, (wanted, _))| version(**account).is_some_and(|version| version < *wanted));
    let Some((account, _)) = behind else { return };
    raise(way, unknown, *account, &BTreeSet::new(), &mut |next| recover(&next, unknown, seen, found, steps));
}

/// Finds every way to make the next version of `account` by transfers of unknown outcome, and calls
/// `then` with each resulting state. If such a transfer needs a later version of its other account,
/// that version is made first. `wanted` has the transfers that wait for a version of their other
/// account.
fn raise(way: &Way, unknown: &[[Side; 2]], account: usize, wanted: &BTreeSet<usize>, then: &mut dyn FnMut(Way)) {
    for (i, sides) in unknown.iter().enumerate().filter(|(i, _)| !way.used.contains(i) && !wanted.contains(i)) {
        let lacks = |side: &Side| way.accounts.get(side.account).map_or(-1, |(_, version)| side.version - version - 1);
        if !sides.iter().any(|side| side.account == account && lacks(side) == 0) {
            continue;
        }
        match sides.iter().find(|side| lacks(side) != 0) {
            None => {
                let mut next = Way { at: way.at, accounts: way.accounts.clone(), used: way.used.clone() };
                next.used.insert(i);
                sides.iter().for_each(|side| next.accounts[side.account] = (side.balance, side.version));
                then(next);
            }
            Some(other) if lacks(other) > 0 => {
                let wanted = wanted.iter().copied().chain([i]).collect();
                raise(way, unknown, other.account, &wanted, then);
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::Kind;
    use crate::verdict::Validity;

    fn operation(at: u64, f: &str, outcome: Kind, result: Value) -> Operation {
        Operation {
            process: at,
            f: f.into(),
            argument: result.clone(),
            outcome,
            result,
            call: 2 * at,
            complete: if outcome == Kind::Ok { 2 * at + 1 } else { u64::MAX },
            time: (at, at),
            error: None,
            zxid: Some(at),
        }
    }

    /// Judges three transfers of unknown outcome, one acknowledged transfer that has seen account 0
    /// at version 1, and a read of all accounts. Only the read shows which of the three set account
    /// 0.
    fn judged(balances: [i64; 4], versions: [i64; 4]) -> Validity {
        let transfer = |from: u64, to: u64, sides: Value| json!({"from": from, "to": to, "amount": 2, "sides": sides});
        let history = [
            operation(0, "open-accounts", Kind::Ok, json!({"accounts": 4, "initial": 10})),
            operation(1, "transfer", Kind::Info, transfer(0, 1, json!([[0, 8, 1], [1, 12, 1]]))),
            operation(2, "transfer", Kind::Info, transfer(0, 2, json!([[0, 8, 1], [2, 12, 1]]))),
            operation(3, "transfer", Kind::Info, transfer(2, 1, json!([[2, 8, 1], [1, 14, 2]]))),
            operation(4, "transfer", Kind::Ok, transfer(0, 3, json!([[0, 6, 2], [3, 12, 1]]))),
            operation(5, "read", Kind::Ok, json!({"balances": balances, "versions": versions})),
        ];
        check(&history).valid
    }

    #[test]
    fn transfers_of_unknown_outcome_are_put_in_as_they_were_seen() {
        assert_eq!(judged([6, 12, 10, 12], [2, 1, 0, 1]), Validity::Valid, "the first");
        assert_eq!(judged([6, 10, 12, 12], [2, 0, 1, 1]), Validity::Valid, "the second");
        assert_eq!(judged([6, 14, 8, 12], [2, 2, 1, 1]), Validity::Valid, "the third, which needs the first");
        assert_eq!(judged([8, 10, 10, 12], [2, 0, 0, 1]), Validity::Invalid, "none");
        assert_eq!(judged([6, 12, 10, 12], [2, 0, 1, 1]), Validity::Invalid, "the versions of another one");
        assert_eq!(judged([6, 12, 12, 10], [2, 1, 1, 1]), Validity::Invalid, "two that exclude each other");
    }
}
