//! Controlling terminal of this process.

/// Effect of the controlling terminal on this process. The terminal need not be one of the
/// process's streams: a command in a pipeline may open `/dev/tty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    /// There is no terminal, as below a service manager.
    Absent,
    /// The terminal stops processes that read from it, as a job that the shell runs with `&`.
    Background,
    /// Ctrl-C and Ctrl-Z signal this process's group.
    Foreground,
}

impl Terminal {
    pub(super) fn of_this_process() -> Terminal {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Terminal::in_stat(&stat).unwrap_or(Terminal::Absent)
    }

    /// Parses the line of a process in /proc. Behind the name in parentheses come the state, the
    /// parent, the group, the session, the terminal's number and the group in the foreground.
    fn in_stat(stat: &str) -> Option<Terminal> {
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(2);
        let (group, _session) = (fields.next()?, fields.next()?);
        let (terminal, foreground) = (fields.next()?, fields.next()?);
        Some(match terminal {
            "0" => Terminal::Absent,
            _ if group == foreground => Terminal::Foreground,
            _ => Terminal::Background,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &str, expected: Option<Terminal>) {
        assert_eq!(Terminal::in_stat(stat), expected, "{stat}");
    }

    #[test]
    fn the_controlling_terminal_and_its_foreground_are_told() {
        check("71 (a b) S 1 71 71 0 -1 4194304", Some(Terminal::Absent));
        check("71 () 9) S 1 71 60 34816 71 4194304", Some(Terminal::Foreground));
        check("71 (zlock) S 1 71 60 34816 60 4194304", Some(Terminal::Background));
        check("", None);
    }
}
