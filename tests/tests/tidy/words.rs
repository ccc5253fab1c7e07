//! Rules of docs/dev/style.md for the words of comments and names. A rule that existing code breaks
//! has a number of exceptions, which may only fall.

use crate::{Text, none, texts};

/// First words that make a doc comment unclear when it is read alone.
const QUESTIONS: &[&str] = &[
    "What", "How", "Who", "Whose", "Whom", "Where", "When", "Which", "Since", "Until", "Those", "Nobody", "Whatever",
    "Whoever",
];
const PRONOUNS: &[&str] = &["It", "Its", "They", "Their", "The same", "The other", "One of them", "Likewise", "As it"];

/// Participles that do not end in "ed".
const PARTICIPLES: &[&str] = &[
    "Begun", "Built", "Done", "Drawn", "Found", "Given", "Gone", "Heard", "Held", "Kept", "Known", "Left", "Lost",
    "Made", "Met", "Read", "Run", "Said", "Seen", "Sent", "Set", "Shown", "Spent", "Taken", "Told", "Wants", "What",
    "Woken", "Written",
];
/// Nouns that end in "ed".
const NOUNS: &[&str] = &["Deed", "Need", "Seed"];

const TEST_NAME_MAX: usize = 60;

const QUESTIONS_LEFT: usize = 16;
const PRONOUNS_LEFT: usize = 1;
const PARTICIPLES_LEFT: usize = 77;
const LONG_TEST_NAMES_LEFT: usize = 324;

/// Fails if there are more than `left` findings, the number of known exceptions.
#[track_caller]
fn at_most(left: usize, findings: Vec<String>) {
    none(if findings.len() > left { findings } else { Vec::new() });
}

/// First lines of a file's doc comments, each with its line number.
fn doc_comments(file: &Text) -> impl Iterator<Item = (usize, &str)> {
    let mut within = false;
    (1..).zip(file.text.lines()).filter_map(move |(number, line)| {
        let words = line.trim().strip_prefix("///").or_else(|| line.trim().strip_prefix("//!"));
        let begins = words.is_some() && !within;
        within = words.is_some();
        words.filter(|_| begins).map(|words| (number, words.trim()))
    })
}

/// Doc comments that begin with one of these words.
fn beginning_with(firsts: &[&str]) -> Vec<String> {
    let begins = |words: &str, first: &str| {
        words
            .strip_prefix(first)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    let of = |file: &Text| {
        let found = doc_comments(file).filter(|(_, words)| firsts.iter().any(|first| begins(words, first)));
        found.map(|(number, words)| format!("{}:{number}: {words}", file.path)).collect::<Vec<_>>()
    };
    texts(".rs").iter().flat_map(of).collect()
}

#[test]
fn a_doc_comment_begins_with_a_noun_or_a_verb() {
    at_most(QUESTIONS_LEFT, beginning_with(QUESTIONS));
}

#[test]
fn a_doc_comment_can_be_read_alone() {
    at_most(PRONOUNS_LEFT, beginning_with(PRONOUNS));
}

/// Names that are declared with one of the keywords and that `is_found` accepts, each with its file
/// and line.
fn declared(keywords: &[&str], is_found: impl Fn(&str, Option<&str>) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let mut before = None;
        for (number, line) in (1..).zip(file.text.lines().map(str::trim)) {
            let words = ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|word| line.strip_prefix(word));
            let words = words.unwrap_or(line);
            let words = words.strip_prefix("async ").unwrap_or(words);
            let name = keywords.iter().find_map(|keyword| words.strip_prefix(keyword));
            let name = name.and_then(|name| name.split(|next: char| !next.is_alphanumeric() && next != '_').next());
            if let Some(name) = name.filter(|name| is_found(name, before)) {
                findings.push(format!("{}:{number}: {name}", file.path));
            }
            before = Some(line);
        }
    }
    findings
}

#[test]
fn a_type_is_a_noun() {
    let is_participle = |name: &str, _: Option<&str>| {
        let is_one_word = name.chars().skip(1).all(char::is_lowercase);
        PARTICIPLES.contains(&name) || (is_one_word && name.ends_with("ed") && !NOUNS.contains(&name))
    };
    at_most(PARTICIPLES_LEFT, declared(&["struct ", "enum ", "trait ", "type "], is_participle));
}

#[test]
fn the_name_of_a_test_is_short() {
    let is_long = |name: &str, before: Option<&str>| {
        name.len() > TEST_NAME_MAX && before.is_some_and(|line| line.starts_with("#[") && line.contains("test"))
    };
    at_most(LONG_TEST_NAMES_LEFT, declared(&["fn "], is_long));
}
