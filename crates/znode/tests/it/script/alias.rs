//! Short names for the lock nodes that the keys of a script make: `k6 writer 0`.

use std::collections::BTreeSet;
use std::error::Error;

use goldenscript::{Argument, Command};

use super::request_key;

/// The word of an alias, and what stands between the UUID and the number in the full name.
const KINDS: [(&str, &str); 5] =
    [("lock", "-lock-"), ("reader", "-__READ__"), ("writer", "-__WRIT__"), ("latch", "-latch-"), ("lease", "-lease-")];

/// The keys whose lock nodes have an alias.
#[derive(Default)]
pub(crate) struct Aliases {
    keys: BTreeSet<u64>,
    /// The command `names full`: every name stands as it is.
    pub(crate) off: bool,
}

impl Aliases {
    /// From its first use on, a key has aliases.
    pub(crate) fn learn(&mut self, command: &Command) {
        for argument in &command.args {
            if let Argument::KeyValue(name, value) = argument
                && name == "key"
            {
                self.keys.extend(value.parse::<u64>());
            }
        }
    }

    /// Output with aliases. Refuses output that would not give back the full names.
    pub(crate) fn shorten(&self, full: &str) -> Result<String, Box<dyn Error>> {
        let mut text = full.to_owned();
        for (alias, name) in self.prefixes() {
            text = replace(&text, &name, |number| format!("{number:010}"), |number| format!("{alias}{number}"));
        }
        if self.lengthen(&text) == full {
            Ok(text)
        } else {
            Err(format!("a name looks like an alias in: {full}").into())
        }
    }

    /// An argument with full names. Refuses an alias of a key that was not used yet.
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
        for (alias, name) in self.prefixes() {
            text = replace(&text, &alias, |number| number.to_string(), |number| format!("{name}{number:010}"));
        }
        text
    }

    /// What an alias and the full name have before the number.
    fn prefixes(&self) -> impl Iterator<Item = (String, String)> {
        let keys = self.keys.iter().filter(|_| !self.off);
        keys.flat_map(|key| {
            KINDS.map(|(word, kind)| (format!("k{key} {word} "), format!("_c_{}{kind}", request_key(*key))))
        })
    }
}

/// Replaces the names that are this prefix and a number, written in this form.
fn replace(text: &str, prefix: &str, form: impl Fn(u64) -> String, with: impl Fn(u64) -> String) -> String {
    let mut pieces = text.split(prefix);
    let mut replaced = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        let (number, rest) = piece.split_at(digits);
        let is_whole = !replaced.ends_with(is_of_name) && !rest.starts_with(is_of_name);
        match number.parse() {
            Ok(value) if is_whole && form(value) == number => replaced += &(with(value) + rest),
            _ => replaced += &format!("{prefix}{piece}"),
        }
    }
    replaced
}

/// A name goes on with this character.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.".contains(c)
}

#[test]
fn aliases_give_back_the_full_names() {
    let aliases = Aliases { keys: BTreeSet::from([6, 10, 61]), off: false };
    let uuid = "_c_00000000-0000-0000-0000-0000000000";
    for (alias, name) in [
        ("k6 lock 0", format!("{uuid}06-lock-0000000000")),
        ("k10 reader 12", format!("{uuid}0a-__READ__0000000012")),
        ("k6 writer 2147483647", format!("{uuid}06-__WRIT__2147483647")),
        ("k61 latch 1", format!("{uuid}3d-latch-0000000001")),
        ("k6 lease 3", format!("{uuid}06-lease-0000000003")),
        ("[/l/k6 lock 0 k10 lock 1];7", format!("[/l/{uuid}06-lock-0000000000 {uuid}0a-lock-0000000001];7")),
    ] {
        assert_eq!(aliases.shorten(&name).unwrap(), alias);
        assert_eq!(aliases.expand(alias).unwrap(), name);
    }
}

#[test]
fn names_that_no_key_of_the_script_makes_stay_full() {
    let aliases = Aliases { keys: BTreeSet::from([6]), off: false };
    let uuid = "_c_00000000-0000-0000-0000-0000000000";
    for name in [
        format!("{uuid}07-lock-0000000000"),
        format!("{uuid}06-lock-"),
        format!("{uuid}06-lock-000000000"),
        format!("{uuid}06-lock-00000000001"),
        format!("{uuid}06-lock-0000000000x"),
        format!("x{uuid}06-lock-0000000000"),
        format!("{uuid}06-__rlock__0000000000"),
    ] {
        assert_eq!(aliases.shorten(&name).unwrap(), name);
    }
    assert!(aliases.shorten("created /l/k6 lock 0").is_err(), "a znode of that name");
    assert!(aliases.expand("delete /l/k7 lock 0").is_err(), "no command used key 7");
    assert!(Aliases { off: true, ..aliases }.expand("k6 lock 0").is_err(), "no aliases where names are full");
}
