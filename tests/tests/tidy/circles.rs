//! Circles of uses: two files of a crate must not use each other, even by way of others.
//!
//! A path in a file is a use: `crate::a::B` and `super::B`, in `use` and elsewhere. A name that the
//! root of the crate re-exports belongs to the file that defines it.
//!
//! A method call is a use of the file that defines the method, which may differ from the file of
//! its type. Two forms of calls are found: `self.b(..)` in an `impl`, and `state.b(..)` in a file
//! that has a `state: &State`. If the calling file itself has a method of this type and name, the
//! call counts for the calling file.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Text, code, none, texts};

/// The files that each file of a crate uses, by module path. The root is left out.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The methods of a crate by type and name, each with the files where it stands.
type Methods = BTreeMap<(String, String), BTreeSet<String>>;

/// The sources of one crate by module path, without tests. `dir` is the folder of the sources.
fn modules(files: &[Text], dir: &str) -> BTreeMap<String, String> {
    let sources = files.iter().filter(|file| file.path.starts_with(dir));
    let module = |path: &str| {
        let path = path[dir.len()..].trim_end_matches(".rs").trim_end_matches("/mod");
        if path == "lib" { String::new() } else { path.replace('/', "::") }
    };
    let sources = sources.filter(|file| !file.path.ends_with("/tests.rs") && !file.path.ends_with("/main.rs"));
    sources.map(|file| (module(&file.path), code(&file.text))).collect()
}

/// Every path in a text that begins with `start`, with groups taken apart: `a::{B, c::D}` is `a::B`
/// and `a::c::D`.
fn paths(text: &str, start: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(start) {
        let before = text[..at].chars().next_back();
        if before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_' && letter != ':' && letter != '$') {
            take(&text[at + start.len()..], "", &mut found);
        }
    }
    found
}

/// Takes one path or group from the beginning of a text. Adds every path in it to `found`, with the
/// prefix `above`. Returns the rest of the text.
fn take<'a>(text: &'a str, above: &str, found: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = take(rest, above, found).trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            match rest.strip_prefix('}') {
                Some(after) => return after,
                None if rest.is_empty() => return rest,
                None => {}
            }
        }
    }
    let (name, rest) = text.split_at(name_at(text).len());
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}::{name}") };
    match rest.strip_prefix("::") {
        Some(below) => take(below, &path, found),
        None => {
            found.push(path);
            // This is an alias, or a character that is no part of a path.
            let end = rest.find([',', '}', ';', '\n']).unwrap_or(rest.len());
            if end == 0 && rest.starts_with('\n') { &rest[1..] } else { &rest[end..] }
        }
    }
}

/// The module file that a path leads to; `None` if it leads to no file of the crate. `passed_on`
/// maps names that the root re-exports to the files that define them.
fn file_of(path: &str, modules: &BTreeMap<String, String>, passed_on: &BTreeMap<String, String>) -> Option<String> {
    let names: Vec<&str> = path.split("::").collect();
    let longest = (1..=names.len()).rev().map(|length| names[..length].join("::"));
    let known = longest.into_iter().find(|module| modules.contains_key(module));
    known.or_else(|| passed_on.get(names[0]).cloned())
}

/// The name at the beginning of a text; empty where there is no name.
fn name_at(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The type of an `impl`, given the text before its brace: of ` Display for a::B<'_>` it is `B`.
fn type_of(head: &str) -> String {
    let mut depth = 0_usize;
    let outside = head.chars().filter(|letter| {
        depth += usize::from(*letter == '<');
        let outside = depth == 0;
        depth = depth.saturating_sub(usize::from(*letter == '>'));
        outside
    });
    let head: String = outside.collect();
    let named = head.split_whitespace().take_while(|word| *word != "where").last().unwrap_or_default();
    named.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Every `impl` in a text: the type and the body.
fn impls(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.split("\nimpl").skip(1).filter_map(|text| {
        let (head, body) = text.split_once('{')?;
        Some((type_of(head), body.split("\n}").next()?))
    })
}

/// The functions in the body of an `impl`.
fn functions(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| {
        let line = line.strip_prefix("    ").filter(|line| line.starts_with(char::is_alphabetic))?;
        let (_, named) = line.split_once("fn ")?;
        Some(name_at(named))
    })
}

/// The methods that a text calls on an expression that ends with `receiver`.
fn called_on<'a>(text: &'a str, receiver: &str) -> impl Iterator<Item = &'a str> {
    text.match_indices(receiver).filter_map(move |(at, receiver)| {
        let before = text[..at].chars().next_back();
        let rest = text[at + receiver.len()..].trim_start().strip_prefix('.')?.trim_start();
        let named = name_at(rest);
        let called = rest[named.len()..].trim_start().starts_with(['(', ':']);
        let whole = before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
        (called && whole).then_some(named)
    })
}

/// The variables and fields of a text that are declared as references, each with its name and type.
fn references(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(": &").filter_map(|(at, colon)| {
        let name = text[..at].rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
        let rest = &text[at + colon.len()..];
        let rest = if rest.starts_with('\'') { rest.split_once(' ')?.1 } else { rest };
        Some((name, name_at(rest.strip_prefix("mut ").unwrap_or(rest))))
    })
}

/// The methods that a file calls, each with its type and name.
fn calls(text: &str) -> BTreeSet<(String, String)> {
    let own = impls(text).flat_map(|(named, body)| {
        called_on(body, "self").map(move |method| (named.clone(), method.to_owned())).collect::<Vec<_>>()
    });
    let others = references(text).collect::<BTreeSet<_>>().into_iter();
    let others = others.flat_map(|(name, named)| {
        called_on(text, name).map(|method| (named.to_owned(), method.to_owned())).collect::<Vec<_>>()
    });
    own.chain(others).collect()
}

fn methods(modules: &BTreeMap<String, String>) -> Methods {
    let mut methods = Methods::new();
    for (module, text) in modules {
        for (named, body) in impls(text) {
            for function in functions(body) {
                methods.entry((named.clone(), function.to_owned())).or_default().insert(module.clone());
            }
        }
    }
    methods
}

fn uses(files: &[Text], dir: &str) -> Uses {
    let modules = modules(files, dir);
    let methods = methods(&modules);
    let root = modules.get("").cloned().unwrap_or_default();
    let passed_on = root.split("pub use ").skip(1).flat_map(|text| {
        let mut names = Vec::new();
        take(text.strip_prefix("crate::").unwrap_or(text), "", &mut names);
        names
    });
    let passed_on: BTreeMap<String, String> = passed_on
        .filter_map(|path| {
            let file = file_of(&path, &modules, &BTreeMap::new())?;
            Some((path.rsplit("::").next()?.to_owned(), file))
        })
        .collect();
    let used = |module: &String, text: &String| {
        let above = module.rsplit_once("::").map_or("", |(above, _)| above);
        let named = paths(text, "super::").into_iter().map(|path| format!("{above}::{path}"));
        let all = paths(text, "crate::").into_iter().chain(named);
        let named = all.filter_map(|path| file_of(path.trim_start_matches("::"), &modules, &passed_on));
        let called = calls(text).into_iter().filter_map(|call| methods.get(&call));
        let called = called.filter(|files| !files.contains(module)).flatten().cloned();
        named.chain(called).filter(|file| file != module).collect()
    };
    modules
        .iter()
        .filter(|(module, _)| !module.is_empty())
        .map(|(module, text)| (module.clone(), used(module, text)))
        .collect()
}

/// The files that a file both uses and is used by, directly or by way of other files.
fn circle<'a>(uses: &'a Uses, file: &'a str) -> BTreeSet<&'a str> {
    let reached = |from: &'a str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let below = uses.get(file).into_iter().flatten().map(String::as_str);
            next.extend(below.filter(|file| seen.insert(*file)));
        }
        seen
    };
    let below = reached(file);
    below.into_iter().filter(|other| reached(other).contains(file)).collect()
}

#[test]
fn no_files_of_a_crate_use_each_other() {
    let (files, mut findings) = (texts(".rs"), BTreeSet::new());
    let sources = |file: &Text| file.path.find("/src/").map(|at| file.path[..at + "/src/".len()].to_owned());
    let dirs: BTreeSet<String> = files.iter().filter_map(sources).collect();
    // The package `tests` has its code in its test programs.
    let tests = ["tests/tests/it/", "tests/tests/tidy/"].map(str::to_owned);
    for dir in dirs.into_iter().chain(tests) {
        let uses = uses(&files, &dir);
        let circles = uses.keys().map(|file| circle(&uses, file)).filter(|circle| !circle.is_empty());
        findings.extend(circles.map(|circle| format!("{dir}: {circle:?}")));
    }
    none(findings.into_iter().collect());
}

#[test]
fn paths_are_found_in_groups_and_in_the_middle_of_code() {
    let text = "use crate::a::{B, c::{D, e}, self as f};\nlet x = crate::g::h(crate::I);\nmy_crate::no";
    assert_eq!(paths(text, "crate::"), ["a::B", "a::c::D", "a::c::e", "a::self", "g::h", "I"]);
}

#[test]
fn methods_are_found_where_they_stand_and_where_they_are_called() {
    let text = "\nimpl<'a> fmt::Display for a::B<'a, C>\nwhere\n    C: D,\n{\n    pub(crate) fn one(&self, d: &mut D) {\n        \
                self\n            .two(); self.three.four(); myself.five(); d.six::<E>(|| d.seven)\n    }\n}\n";
    let found: Vec<_> = impls(text).map(|(named, body)| (named, functions(body).collect())).collect();
    assert_eq!(found, [("B".to_owned(), vec!["one"])]);
    let call = |named: &str, method: &str| (named.to_owned(), method.to_owned());
    assert_eq!(calls(text), BTreeSet::from([call("B", "two"), call("D", "six")]));
}

/// Crates with folders that are layers.
const LAYERED: &[&str] = &["replica", "wire", "znode"];

/// The folders that the files of each folder use. A file beside the folders belongs to the folder
/// of its name, or else counts as a folder. A file that belongs to no folder and uses none may be
/// used by all, and is left out.
fn folders(uses: &Uses) -> Uses {
    let folder = |file: &str| file.split("::").next().unwrap_or_default().to_owned();
    let mut found = Uses::new();
    for (file, used) in uses {
        let own = folder(file);
        let others = used.iter().map(|file| folder(file)).filter(|other| !other.is_empty() && *other != own);
        found.entry(own.clone()).or_default().extend(others.collect::<Vec<_>>());
    }
    let has_folder = |name: &str| uses.keys().any(|file| file.starts_with(&format!("{name}::")));
    let mut words = BTreeSet::new();
    loop {
        let more = found.iter().filter(|(name, used)| !has_folder(name) && used.is_subset(&words));
        let more: BTreeSet<String> = more.map(|(name, _)| name.clone()).collect();
        if more == words {
            break;
        }
        words = more;
    }
    found.retain(|name, _| !words.contains(name));
    found.values_mut().for_each(|used| used.retain(|name| !words.contains(name)));
    found
}

#[test]
fn folders_use_those_that_their_row_of_the_architecture_names() {
    let text = std::fs::read_to_string(crate::root().join("docs/dev/architecture.md")).unwrap();
    let (files, mut findings) = (texts(".rs"), Vec::new());
    for name in LAYERED {
        let start = format!("| `{name}/");
        let rows = text.lines().filter_map(|line| line.strip_prefix(&start));
        let mut rows: BTreeMap<&str, BTreeSet<String>> = rows
            .filter_map(|row| {
                let (folder, rest) = row.split_once('`')?;
                let (_, last) = rest.trim_end_matches([' ', '|']).rsplit_once(" |").unwrap_or(("", ""));
                Some((folder, last.split('`').skip(1).step_by(2).map(str::to_owned).collect()))
            })
            .collect();
        for (folder, used) in folders(&uses(&files, &format!("crates/{name}/src/"))) {
            match rows.remove(folder.as_str()) {
                Some(row) if row == used => {}
                Some(row) => findings.push(format!("{name}/{folder} uses {used:?}, its row names {row:?}")),
                None if used.is_empty() => {}
                None => findings.push(format!("{name}/{folder} has no row, and uses {used:?}")),
            }
        }
        findings.extend(rows.into_keys().map(|folder| format!("{name} has no folder {folder}")));
    }
    none(findings);
}
