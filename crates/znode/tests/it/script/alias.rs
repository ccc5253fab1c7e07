//! Short names (aliases) for the lock nodes that a script's idempotency keys make, such as `k6
//! reader 0`.

use std::collections::BTreeSet;
use std::error::Error;

use goldenscript::{Argument, Command};
use znode::{LockMode, RequestKey};

use super::request_key;
use crate::model::{number, ticket_name};

/// The word for each form of lock node names in an alias, such as `reader` in `k6 reader 0`; with a
/// lock mode of that form.
const KINDS: [(&str, LockMode); 3] =
    [("lock", LockMode::Exclusive), ("reader", LockMode::Read), ("lease", LockMode::Lease { permits: 1, limit: 1 })];

/// Idempotency keys whose lock nodes are shown by an alias, such as `k6 reader 0`.
#[derive(Default)]
pub(crate) struct Aliases {
    keys: BTreeSet<u64>,
    /// True after the command `names full`: every name is shown as it is.
    pub(crate) off: bool,
}

impl Aliases {
    /// Adds aliases for the lock nodes of an idempotency key, when a command first uses the key.
    pub(crate) fn learn(&mut self, command: &Command) {
        for argument in &command.args {
            if let Argument::KeyValue(name, value) = argument
                && name == "key"
            {
                self.keys.extend(value.parse::<u64>());
            }
        }
    }

    /// Replaces full names by aliases. Returns an error for output that already contains a text
    /// like an alias, because the full names could not be restored from the result.
    pub(crate) fn shorten(&self, full: &str) -> Result<String, Box<dyn Error>> {
        let words = full.split_inclusive(|c| !is_of_name(c)).map(|piece| {
            let (word, end) = piece.split_at(piece.trim_end_matches(|c| !is_of_name(c)).len());
            let alias = number(&format!("/{word}")).and_then(|number| {
                let mut aliases = self.aliases();
                aliases
                    .find(|(_, mode, key)| ticket_name(*mode, *key, number) == word)
                    .map(|(alias, ..)| (alias, number))
            });
            alias.map_or_else(|| piece.to_owned(), |(alias, number)| format!("{alias}{number}{end}"))
        });
        let text: String = words.collect();
        if self.lengthen(&text) == full {
            Ok(text)
        } else {
            Err(format!("a name looks like an alias in: {full}").into())
        }
    }

    /// Replaces aliases by full names. Returns an error for an alias with a key that no command has
    /// used.
    pub(crate) fn expand(&self, text: &str) -> Result<String, Box<dyn Error>> {
        let full = self.lengthen(text);
        let words: Vec<&str> = full.split_whitespace().collect();
        for window in words.windows(3) {
            let key = window[0].rsplit('/').next().and_then(|word| word.strip_prefix('k'));
            let is_key = key.is_some_and(|key| key.parse::<u64>().is_ok());
            if is_key && KINDS.iter().any(|(word, _)| *word == window[1]) {
                return Err(
                    format!("{} is no alias: no command used its key, or names are full", window.join(" ")).into()
                );
            }
        }
        Ok(full)
    }

    fn lengthen(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (alias, mode, key) in self.aliases() {
            text = replace(&text, &alias, |number| ticket_name(mode, key, number));
        }
        text
    }

    /// The beginning of each alias, before its sequence number; with the mode and the idempotency
    /// key of the lock nodes.
    fn aliases(&self) -> impl Iterator<Item = (String, LockMode, RequestKey)> {
        let keys = self.keys.iter().filter(|_| !self.off);
        keys.flat_map(|key| KINDS.map(|(word, mode)| (format!("k{key} {word} "), mode, request_key(*key))))
    }
}

/// Replaces each word of `text` that consists of `prefix` and a number by the result of `with`.
fn replace(text: &str, prefix: &str, with: impl Fn(u64) -> String) -> String {
    let mut pieces = text.split(prefix);
    let mut replaced = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (number, rest) = piece.split_at(digits);
        let is_whole = !replaced.ends_with(is_of_name) && !rest.starts_with(is_of_name);
        match number.parse::<u64>() {
            Ok(value) if is_whole && value.to_string() == number => replaced += &(with(value) + rest),
            _ => replaced += &format!("{prefix}{piece}"),
        }
    }
    replaced
}

/// Tells whether a character may be part of a name.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}

#[test]
fn aliases_give_back_the_full_names() {
    let aliases = Aliases { keys: BTreeSet::from([6, 10, 61]), off: false };
    let digits = "000000000000000000000000000000";
    for (alias, name) in [
        ("k6 lock 0", format!("0000000000_{digits}06__WRIT__0000000000__lock__0000000000")),
        ("k10 reader 12", format!("0000000012_{digits}0a__READ__0000000012__rlock__0000000012")),
        ("k61 lease 3", "_c_00000000-0000-0000-0000-00000000003d-lease-0000000003".into()),
        (
            "[/l/k6 lock 7 k10 lock 1];7",
            format!(
                "[/l/0000000007_{digits}06__WRIT__0000000007__lock__0000000007 \
                 0000000001_{digits}0a__WRIT__0000000001__lock__0000000001];7"
            ),
        ),
    ] {
        assert_eq!(aliases.shorten(&name).unwrap(), alias);
        assert_eq!(aliases.expand(alias).unwrap(), name);
    }
}

#[test]
fn names_that_no_key_of_the_script_makes_stay_full() {
    let aliases = Aliases { keys: BTreeSet::from([6]), off: false };
    let digits = "000000000000000000000000000000";
    for name in [
        format!("0000000000_{digits}07__WRIT__0000000000__lock__0000000000"),
        format!("0000000001_{digits}06__WRIT__0000000000__lock__0000000000"),
        format!("{digits}06__WRIT__0000000000__lock__0000000000"),
        format!("0000000000_{digits}06__WRIT__0000000000__lock__0000000000x"),
        format!("0000000000_{digits}06__WRIT__0000000000__rlock__0000000000"),
        "_c_00000000-0000-0000-0000-000000000006-lock-0000000000".into(),
    ] {
        assert_eq!(aliases.shorten(&name).unwrap(), name);
    }
    assert!(aliases.shorten("created /l/k6 lock 0").is_err(), "a znode of that name");
    assert!(aliases.expand("delete /l/k7 lock 0").is_err(), "no command used key 7");
    assert!(Aliases { off: true, ..aliases }.expand("k6 lock 0").is_err(), "no aliases where names are full");
}
