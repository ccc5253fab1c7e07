//! The table of problems in docs/http-api.md against the code and the OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use znode::Error as E;

use super::*;
use crate::openapi_document;

const API: &str = include_str!("../../../../docs/http-api.md");
const MODEL: &str = include_str!("../../../../docs/znode-model.md");

/// Errors that no HTTP request meets.
const ELSEWHERE: [E; 3] = [E::StaleTerm, E::SessionMoved, E::OutOfTurn];

/// A row: the statuses, the names of the problems, and the words.
struct Row {
    statuses: Vec<u16>,
    slugs: Vec<&'static str>,
    words: &'static str,
}

fn rows() -> Vec<Row> {
    let (_, table) = API.split_once("| status | type | when (`name`, `code`) |\n").expect("the page has the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let mut cells = line.trim_matches('|').splitn(3, '|');
        let [statuses, slugs, words] = [(); 3].map(|()| cells.next().expect("three cells"));
        let statuses = statuses.split(',').map(|status| status.trim().parse().expect("a status")).collect();
        let slugs = slugs.split(',').map(|slug| slug.trim().trim_matches('`')).collect();
        Row { statuses, slugs, words }
    };
    rows.map(row).collect()
}

/// The errors that a row names, by number, with the name where the row has one: `(NoNode, -101)` or
/// `(-1006)`.
fn codes(words: &'static str) -> Vec<(Option<&'static str>, i32)> {
    let code = |inside: &'static str| {
        let words: Vec<&str> = inside.split([' ', ',', ';']).collect();
        let at = words.iter().position(|word| word.starts_with('-'))?;
        Some(((at > 0).then(|| words[0]), words[at].parse().ok()?))
    };
    words.split('(').skip(1).filter_map(|rest| code(rest.split(')').next()?)).collect()
}

/// The statuses of each problem in a list.
type Statuses = BTreeMap<String, BTreeSet<u16>>;

fn in_the_page() -> Statuses {
    let mut found = Statuses::new();
    for Row { statuses, slugs, .. } in rows() {
        // In `404, 405` beside two names, each name has one status.
        let pairs = statuses.len() == slugs.len();
        for (index, slug) in slugs.iter().enumerate() {
            let own = if pairs { &statuses[index..=index] } else { &statuses[..] };
            found.entry((*slug).into()).or_default().extend(own);
        }
    }
    found
}

fn in_the_document() -> Statuses {
    let mut found = Statuses::new();
    let paths = openapi_document()["paths"].as_object().expect("an object");
    let operations = paths.values().flat_map(|item| item.as_object().expect("an object").values());
    let responses = operations.flat_map(|operation| operation["responses"].as_object().expect("an object"));
    for (status, response) in responses {
        for uri in response["x-problem-types"].as_array().into_iter().flatten() {
            let slug = uri.as_str().and_then(|uri| uri.strip_prefix(zlock_client::api::PROBLEM_TYPE_BASE));
            found.entry(slug.expect("a type").into()).or_default().insert(status.parse().expect("a status"));
        }
    }
    found
}

#[test]
fn every_problem_is_in_the_page_and_in_the_document_with_its_statuses() {
    let in_the_code: Statuses =
        ProblemType::ALL.iter().map(|kind| (kind.slug().into(), kind.statuses().iter().copied().collect())).collect();
    assert_eq!(in_the_page(), in_the_code);
    let mut of_operations = in_the_code;
    // These are the answers where no operation exists.
    of_operations.retain(|slug, _| !["no-route", "method-not-allowed"].contains(&slug.as_str()));
    assert_eq!(in_the_document(), of_operations);
}

#[test]
fn every_error_is_in_the_row_of_its_problem_with_its_number() {
    let rows = rows();
    let listed = MODEL.lines().filter(|line| line.starts_with("| `") && line.contains("` | -")).count();
    assert_eq!(listed, E::ALL.len(), "an error that the page does not know");
    for error in E::ALL.iter().copied().filter(|error| !ELSEWHERE.contains(error)) {
        assert!(ProblemType::from_slug(error.row().problem).is_some(), "{error:?}");
        let problem = Problem::from(error);
        let status = problem.status.as_u16();
        let fits = |row: &&Row| row.slugs.contains(&problem.kind.slug()) && row.statuses.contains(&status);
        let row = rows.iter().find(fits).unwrap_or_else(|| panic!("no row of {error:?}"));
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
