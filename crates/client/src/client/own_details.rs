//! Description that a client sends of itself when it opens a session, for people who look for the
//! holder of a lock.

use std::path::Path;

use crate::api::{ClientDetails, is_unseen};

/// Length in bytes to which the names of the machine and the program are cut. By default a node
/// accepts at most this length.
const TEXT_MAX: usize = 256;

/// Returns the names of this machine and program, and the number of this process.
pub(crate) fn own_details() -> ClientDetails {
    let program = std::env::args_os().next().or_else(|| std::env::current_exe().ok().map(Into::into));
    let name = program.as_deref().map(Path::new).and_then(Path::file_name);
    ClientDetails {
        host: plain(&rustix::system::uname().nodename().to_string_lossy()),
        pid: Some(std::process::id()),
        program: name.map(|name| plain(&name.to_string_lossy())).unwrap_or_default(),
    }
}

/// Removes control characters and invisible characters, and cuts the text to [`TEXT_MAX`] bytes.
fn plain(text: &str) -> String {
    let mut plain: String = text.chars().filter(|c| !c.is_control() && !is_unseen(*c)).collect();
    let end = (0..=TEXT_MAX.min(plain.len())).rev().find(|at| plain.is_char_boundary(*at));
    plain.truncate(end.unwrap_or(0));
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_names_its_machine_process_and_program() {
        let own = own_details();
        assert!(!own.host.is_empty() && !own.program.is_empty(), "{own:?}");
        assert_eq!(own.pid, Some(std::process::id()));
    }

    #[test]
    fn names_are_cut_to_what_a_node_takes() {
        assert_eq!(plain("a\nb\x1b\u{202e}"), "ab");
        assert_eq!(plain(&"ü".repeat(200)).len(), TEXT_MAX);
        assert_eq!(plain(&format!("{}ü", "x".repeat(255))), "x".repeat(255));
    }
}
