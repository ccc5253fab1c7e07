//! Links between documents, and the width of their lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::{none, root, texts};

/// Columns of a line of prose.
const WIDTH_MAX: usize = 100;

/// The lines of a page with their numbers, without code blocks.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The targets of the Markdown links in a text.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, line) in lines(text) {
        for (start, _) in line.match_indices("](") {
            let rest = &line[start + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].to_owned());
            }
        }
    }
    found
}

/// The anchors that GitHub makes of a text's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// A link's path from the root, with `..` resolved.
fn resolve(from: &str, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in Path::new(from).parent().unwrap().join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut findings = Vec::new();
    for file in texts(".md") {
        for link in links(&file.text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (target, anchor) = link.split_once('#').map_or((link.as_str(), None), |(path, tag)| (path, Some(tag)));
            let path = if target.is_empty() { PathBuf::from(&file.path) } else { resolve(&file.path, target) };
            let full = root().join(&path);
            if !full.exists() {
                findings.push(format!("{}: {link}", file.path));
            } else if let Some(anchor) = anchor
                && full.extension().is_some_and(|extension| extension == "md")
                && !anchors(&std::fs::read_to_string(full).unwrap()).contains(anchor)
            {
                findings.push(format!("{}: {link} has no such heading", file.path));
            }
        }
    }
    none(findings);
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let pages: BTreeMap<String, Vec<String>> =
        texts(".md").into_iter().map(|file| (file.path, links(&file.text))).collect();
    let mut reached = BTreeSet::from(["README.md".to_owned()]);
    let mut open = vec!["README.md".to_owned()];
    while let Some(page) = open.pop() {
        for link in &pages[&page] {
            let target = link.split('#').next().unwrap();
            let mut path = resolve(&page, target);
            if root().join(&path).is_dir() {
                path.push("README.md");
            }
            let path = path.display().to_string();
            if pages.contains_key(&path) && reached.insert(path.clone()) {
                open.push(path);
            }
        }
    }
    none(pages.keys().filter(|page| page.starts_with("docs/") && !reached.contains(*page)).cloned().collect());
}

/// The test exempts rows of tables, headings and lone addresses, which cannot be broken.
#[test]
fn no_line_of_prose_is_wider_than_a_page() {
    let wide = |line: &str| line.chars().count() > WIDTH_MAX && line.trim().contains(' ');
    let mut findings = Vec::new();
    for file in texts(".md") {
        let broken = lines(&file.text).filter(|(_, line)| !line.starts_with(['|', '#']) && wide(line));
        findings.extend(broken.map(|(number, _)| format!("{}:{number}", file.path)));
    }
    none(findings);
}

/// The test exempts code blocks, diagrams and rows of tables in comments, which cannot be broken.
#[test]
fn no_comment_is_wider_than_a_page() {
    let mut findings = Vec::new();
    for file in texts(".rs") {
        let mut fenced = false;
        for (number, line) in file.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            fenced ^= comment.starts_with("```");
            if !fenced && !comment.starts_with('|') && line.chars().count() > WIDTH_MAX {
                findings.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    none(findings);
}

/// docs/dev/style.md names words that must not be the subject of a sentence.
#[test]
fn no_page_and_no_comment_has_a_subject_that_is_a_riddle() {
    let riddles = [concat!("who", "ever"), concat!("some", "body")];
    let riddle = |line: &str| {
        let words = line.split(|letter: char| !letter.is_alphanumeric());
        words.into_iter().any(|word| riddles.contains(&&*word.to_lowercase()))
    };
    let mut findings = Vec::new();
    for file in texts(".md").into_iter().chain(texts(".rs")).filter(|file| file.path != "docs/dev/style.md") {
        let is_page = file.path.ends_with(".md");
        let prose = file.text.lines().enumerate().filter(|(_, line)| is_page || line.trim_start().starts_with("//"));
        findings.extend(prose.filter(|(_, line)| riddle(line)).map(|(at, _)| format!("{}:{}", file.path, at + 1)));
    }
    none(findings);
}

/// Operators look for the documented messages in logs, and the alerts of their tools match them.
#[test]
fn every_message_of_the_log_that_is_documented_is_in_the_sources() {
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    let (_, table) = page.split_once("<!-- begin of the table of messages -->").expect("the page has the first mark");
    let (table, _) = table.split_once("<!-- end of the table of messages -->").expect("the page has the second mark");
    let sources: Vec<_> = texts(".rs").into_iter().filter(|file| file.path.starts_with("crates/")).collect();
    // The first cell of each row names messages.
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let messages: Vec<&str> = cells.flat_map(|cell| cell.trim_matches('`').split("`, `")).collect();
    assert!(messages.len() > 30, "{messages:?}");
    let is_missing = |message: &&str| !sources.iter().any(|file| file.text.contains(&format!("\"{message}\"")));
    none(messages.into_iter().filter(is_missing).map(|message| format!("no source says \"{message}\"")).collect());
}

/// The words between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Tells whether `words` is a path from the root, and not a pattern for several paths.
fn is_path(words: &str) -> bool {
    words.starts_with("crates/") && !words.contains(['{', '*', '<', ' '])
}

/// A page may only name files and directories of the sources that exist. The pages below
/// `decisions/` are left out, because they describe former states of the sources.
#[test]
fn every_source_file_that_a_page_names_is_there() {
    let names: BTreeSet<String> =
        texts(".rs").into_iter().filter_map(|file| Some(file.path.rsplit('/').next()?.to_owned())).collect();
    let mut findings = Vec::new();
    for page in texts(".md").iter().filter(|page| !page.path.contains("decisions/")) {
        for (number, line) in (1..).zip(page.text.lines()) {
            let named = quoted(line).filter_map(|words| words.rsplit(['/', ' ']).next());
            let files = named.filter(|name| name.ends_with(".rs") && !name.contains(['{', '*', '<']));
            let missing = files.filter(|name| !names.contains(*name));
            findings.extend(missing.map(|name| format!("{}:{number}: {name}", page.path)));
            let moved = quoted(line).filter(|words| is_path(words) && !root().join(words).exists());
            findings.extend(moved.map(|path| format!("{}:{number}: {path}", page.path)));
        }
    }
    none(findings);
}

/// Readers follow the examples in docs/dev/style.md, so the identifiers in these examples must
/// exist.
/// Before a release the script refuses the tag. It must still find what it reads in the sources.
#[test]
fn the_check_of_a_release_finds_level_and_versions() {
    let check = std::process::Command::new(root().join("deploy/release_check.sh")).arg("v0.0.0").output().unwrap();
    let words = String::from_utf8(check.stderr).unwrap();
    assert!(words.contains("the tag must be v"), "{words}");
    assert!(!words.contains("where this script looks for them"), "{words}");
}

#[test]
fn every_identifier_of_the_page_on_style_is_in_the_sources() {
    let sources: String = texts(".rs").into_iter().map(|file| file.text).collect();
    let words: BTreeSet<&str> = sources.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let page = std::fs::read_to_string(root().join("docs/dev/style.md")).unwrap();
    let is_identifier = |word: &&str| {
        let plain = word.chars().all(|c| c.is_alphanumeric() || c == '_');
        plain
            && word.starts_with(char::is_alphabetic)
            && (word.contains('_') || word.chars().skip(1).any(char::is_uppercase))
    };
    let named = lines(&page).flat_map(|(number, line)| {
        let words = quoted(line).flat_map(|words| words.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.filter(is_identifier).map(move |word| (number, word)).collect::<Vec<_>>()
    });
    none(
        named
            .filter(|(_, word)| !words.contains(word))
            .map(|(number, word)| format!("docs/dev/style.md:{number}: {word}"))
            .collect(),
    );
}
