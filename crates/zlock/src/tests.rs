//! Comparison of the command line's options with the golden file `tests/golden/command_line.txt`.
//! `UPDATE_GOLDENFILES=1` rewrites the file.

use std::path::Path;

use clap::Arg;

use super::*;

/// Text that stands for the options shared by all client commands, in the golden table of commands
/// and flags.
const SHARED: &str = "(shared)";

/// Returns one row of the golden table of commands and flags: the command, the flag or argument,
/// its value's name, default and environment variable.
fn row(command: &str, arg: &Arg) -> String {
    let texts = |texts: Vec<String>| texts.join(" ");
    let flags = [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    let named = texts(arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect());
    let possible: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let many = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) { "..." } else { "" };
    let takes_value = arg.get_action().takes_values();
    let (name, value) = match (flags.is_empty(), takes_value) {
        (true, _) => (named, many.to_owned()),
        (false, true) if possible.is_empty() => (flags.join(", "), format!("{named}{many}")),
        (false, true) => (flags.join(", "), possible.join("|")),
        (false, false) => (flags.join(", "), String::new()),
    };
    let needed = if arg.is_required_set() { " (required)" } else { "" };
    let default = arg.get_default_values().iter().filter(|_| takes_value);
    let default = texts(default.map(|value| value.to_string_lossy().into_owned()).collect());
    let variable = arg.get_env().map(|variable| variable.to_string_lossy()).unwrap_or_default();
    line(&[command, &format!("{name}{needed}"), &value, &default, &variable])
}

fn line(cells: &[&str]) -> String {
    format!("{}\n", cells.join(" | ").trim_end())
}

/// Appends the rows of a command and of its subcommands to `table`, the golden table of commands
/// and flags.
fn rows(name: &str, command: &Command, table: &mut String) {
    let shared = cli::before_commands();
    let is_shared = |arg: &&Arg| shared.iter().any(|one| one.get_id() == arg.get_id());
    let (connection, own): (Vec<_>, Vec<_>) = command.get_arguments().partition(is_shared);
    match (name, connection.len()) {
        // No row for the options before the command: they have no default.
        ("zlock", _) | (_, 0) => {}
        _ if connection.len() == shared.len() => *table += &line(&[name, SHARED, "", "", ""]),
        _ => connection.iter().for_each(|arg| *table += &row(name, arg)),
    }
    // The flags of configuration keys are left out: docs/operating.md has their table.
    for arg in own.iter().filter(|arg| name != "zlock serve" || arg.get_help_heading().is_none()) {
        *table += &row(name, arg);
    }
    if own.is_empty() && connection.is_empty() && !command.has_subcommands() {
        *table += &line(&[name, "", "", "", ""]);
    }
    command.get_subcommands().for_each(|deeper| rows(&format!("{name} {}", deeper.get_name()), deeper, table));
}

#[test]
fn commands_of_linux_are_those_of_the_list() {
    let of_linux = [server_commands(), cli::offline::commands()].concat();
    let names: Vec<&str> = of_linux.iter().map(Command::get_name).collect();
    assert_eq!(names, usage::OF_LINUX);
}

#[test]
fn commands_and_flags_are_those_of_the_table() {
    let mut table = line(&["command", "flag or argument", "value", "default", "variable"]);
    let whole = command();
    let listed = whole.find_subcommand("ls").expect("a command of a client");
    let shared = cli::before_commands();
    for arg in listed.get_arguments().filter(|arg| shared.iter().any(|one| one.get_id() == arg.get_id())) {
        table += &row(SHARED, arg);
    }
    rows("zlock", &whole, &mut table);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/command_line.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(file, table).unwrap();
    } else {
        let golden = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(table, golden, "UPDATE_GOLDENFILES=1 writes the table");
    }
}
