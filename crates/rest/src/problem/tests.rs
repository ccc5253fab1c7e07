//! Checks that the problems in the code, in docs/http-api.md and in the OpenAPI document agree.
//!
//! `tests/golden/problems.txt` lists all problems; `UPDATE_GOLDENFILES=1` rewrites it.

use std::collections::BTreeMap;
use std::path::Path;

use znode::Error as E;

use super::*;
use crate::openapi_document;

const API: &str = include_str!("../../../../docs/http-api.md");
const MODEL: &str = include_str!("../../../../docs/znode-model.md");

/// Errors of the state machine that no HTTP request causes.
const ELSEWHERE: [E; 3] = [E::StaleTerm, E::SessionMoved, E::OutOfTurn];

/// A row of the table in docs/http-api.md: one type of problem.
struct Row {
    status: u16,
    slug: &'static str,
    words: &'static str,
}

fn rows() -> Vec<Row> {
    let (_, table) = API.split_once("| status | type | when (`name`, `code`) |\n").expect("the page has the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let mut cells = line.trim_matches('|').splitn(3, '|');
        let [status, slug, words] = [(); 3].map(|()| cells.next().expect("three cells").trim());
        Row { status: status.parse().expect("a status"), slug: slug.trim_matches('`'), words }
    };
    rows.map(row).collect()
}

/// Returns the errors of the state machine that a row of the table names. `(NoNode, -101)` has a
/// name and a number, and `(-1006)` only a number.
fn codes(words: &'static str) -> Vec<(Option<&'static str>, i32)> {
    let code = |inside: &'static str| {
        let words: Vec<&str> = inside.split([' ', ',', ';']).collect();
        let at = words.iter().position(|word| word.starts_with('-'))?;
        Some(((at > 0).then(|| words[0]), words[at].parse().ok()?))
    };
    words.split('(').skip(1).filter_map(|rest| code(rest.split(')').next()?)).collect()
}

/// HTTP status of each problem type, by the type's slug.
type Statuses = BTreeMap<String, u16>;

/// Collects pairs of a problem type's slug and an HTTP status, and checks that each slug has only
/// one status.
fn statuses(found: impl Iterator<Item = (String, u16)>) -> Statuses {
    let mut statuses = Statuses::new();
    for (slug, status) in found {
        let first = *statuses.entry(slug.clone()).or_insert(status);
        assert_eq!(first, status, "{slug} has two statuses");
    }
    statuses
}

fn in_the_document() -> Statuses {
    let paths = openapi_document()["paths"].as_object().expect("an object");
    let operations = paths.values().flat_map(|item| item.as_object().expect("an object").values());
    let responses = operations.flat_map(|operation| operation["responses"].as_object().expect("an object"));
    statuses(responses.flat_map(|(status, response)| {
        let status = status.parse().expect("a status");
        let uris = response["x-problem-types"].as_array().into_iter().flatten();
        let kinds = uris.filter_map(|uri| uri.as_str()).map(|uri| ProblemType::from_uri(uri).expect("a type"));
        kinds.map(move |kind| (kind.slug().to_owned(), status))
    }))
}

#[test]
fn every_problem_is_in_the_page_and_in_the_document_with_its_status() {
    let in_the_code = statuses(ProblemType::ALL.iter().map(|kind| (kind.slug().to_owned(), kind.status())));
    let rows = rows();
    let in_the_page = statuses(rows.iter().map(|row| (row.slug.to_owned(), row.status)));
    assert_eq!((&in_the_page, rows.len()), (&in_the_code, in_the_page.len()), "a row for each");
    let mut of_operations = in_the_code;
    // These two problems are answered where the document has no operation.
    of_operations.retain(|slug, _| !["no-route", "method-not-allowed"].contains(&slug.as_str()));
    assert_eq!(in_the_document(), of_operations);
}

/// Returns the golden file's rows of a problem type: one for each error of the state machine that
/// the type reports. A row without an error follows if the type reports none of these errors, or if
/// a new problem of the type has another outcome than `Refused`.
fn golden_rows(kind: ProblemType) -> String {
    let row = |name: &str, code: &str, outcome: Outcome| {
        let (slug, status, title) = (kind.slug(), kind.status(), kind.title());
        format!("{slug} | {status} | {title} | {name} | {code} | {}\n", format!("{outcome:?}").to_lowercase())
    };
    // `NoNode` stands both for a missing znode and for a missing ticket.
    let is_told = |error: &E| match kind {
        ProblemType::TicketGone => *error == E::NoNode,
        kind => error.row().problem == kind.slug(),
    };
    let told = E::ALL.iter().filter(|error| !ELSEWHERE.contains(error) && is_told(error));
    let mut rows: String =
        told.map(|error| row(error.row().name, &error.code().to_string(), Problem::from(*error).outcome)).collect();
    let own = Problem::new(kind, "").outcome;
    if rows.is_empty() || own != Outcome::Refused {
        rows += &row("", "", own);
    }
    rows
}

#[test]
fn problems_are_those_of_the_table() {
    let mut table = "type | status | title | name | code | outcome\n".to_owned();
    table.extend(ProblemType::ALL.iter().map(|kind| golden_rows(*kind)));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/problems.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(file, table).unwrap();
    } else {
        let golden = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(table, golden, "UPDATE_GOLDENFILES=1 writes the table");
    }
}

#[test]
fn every_error_is_in_the_row_of_its_problem_with_its_number() {
    let rows = rows();
    let listed = MODEL.lines().filter(|line| line.starts_with("| `") && line.contains("` | -")).count();
    assert_eq!(listed, E::ALL.len(), "an error that the page does not know");
    for error in E::ALL.iter().copied().filter(|error| !ELSEWHERE.contains(error)) {
        let kind = ProblemType::from_slug(error.row().problem).expect("a type of problem");
        let row = rows.iter().find(|row| row.slug == kind.slug()).unwrap_or_else(|| panic!("no row of {error:?}"));
        let said = codes(row.words);
        assert!(said.iter().any(|(_, code)| *code == error.code()), "{error:?}: {said:?} in {}", row.words);
    }
    for (name, code) in rows.iter().flat_map(|row| codes(row.words)) {
        let known =
            E::ALL.iter().copied().filter(|error| !ELSEWHERE.contains(error)).find(|error| error.code() == code);
        let known = known.unwrap_or_else(|| panic!("no error has the number {code}"));
        assert!(name.is_none_or(|name| name == known.row().name), "{name:?} {code}");
    }
}
