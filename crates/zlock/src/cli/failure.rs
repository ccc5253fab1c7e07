//! Failures of commands: a message with a remedy for people, a problem document for programs, and
//! an exit code.

use std::io::Write as _;

use serde_json::{Value, json};
use zlock_client::api::Outcome;
use zlock_client::{Error, ProblemType};

use super::seen::{plain, seen_json};

/// Exit code when the cluster or the program refused the request.
const REFUSED: u8 = 1;
/// Exit code when the command line is wrong.
const USAGE: u8 = 2;
/// Exit code when no node could be reached, or the outcome of the request is unknown.
const UNCLEAR: u8 = 3;
/// Exit code when the request was executed, but its answer could not be written to stdout.
const UNWRITTEN: u8 = 4;
/// Exit code in place of [`REFUSED`] and [`UNCLEAR`] for commands that run another program, such as
/// `zlock lock`.
const CANNOT: u8 = 125;

/// Kind of exit code of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Exit code 1; 125 for a command that runs another program, which could itself end with 1 or
    /// 3.
    Refused,
    /// Exit code 3; 125 for a command that runs another program.
    Unclear,
    Code(u8),
}

/// Failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    ending: Ending,
    /// The message for people; `None` for a silent failure.
    line: Option<String>,
    /// The problem document for `--json`: that of the node, if a node refused the request.
    problem: Value,
    /// Type of the problem document that a node sent; `None` if no node has refused the request.
    code: Option<ProblemType>,
}

impl Failure {
    pub(crate) fn refused(line: impl Into<String>) -> Failure {
        Failure { ending: Ending::Refused, line: Some(line.into()), problem: own_problem(Outcome::Refused), code: None }
    }

    /// Returns the message for people; empty for a silent failure.
    pub(crate) fn into_line(self) -> String {
        self.line.unwrap_or_default()
    }

    /// Returns the failure for an error of the command line that clap does not detect.
    pub(crate) fn usage(line: impl Into<String>) -> Failure {
        Failure::refused(line).of_command_line()
    }

    /// Returns the failure for an error of writing to stdout. If the reader has closed the pipe, as
    /// `head` does, the failure has no message and exit code 0.
    pub(crate) fn unwritten(error: &std::io::Error) -> Failure {
        Failure::unwritten_and(error, "what was asked for is done")
    }

    /// Returns the failure for an error of writing to stdout, with a message that says what is
    /// `done`.
    pub(crate) fn unwritten_and(error: &std::io::Error, done: &str) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::silent(0);
        }
        Failure::refused(format!("cannot write to stdout: {error}; {done}")).with_code(UNWRITTEN)
    }

    /// Changes the exit code to that of a wrong command line.
    pub(crate) fn of_command_line(self) -> Failure {
        self.with_code(USAGE)
    }

    /// Returns a failure with this exit code and without a message.
    pub(crate) fn silent(code: u8) -> Failure {
        Failure { ending: Ending::Code(code), line: None, problem: Value::Null, code: None }
    }

    /// Sets the exit code.
    pub(crate) fn with_code(self, code: u8) -> Failure {
        Failure { ending: Ending::Code(code), ..self }
    }

    /// Sets exit code 125 in place of 1 and 3, for a command that runs another program, which could
    /// itself end with 1 or 3.
    pub(crate) fn of_a_run(self) -> Failure {
        match self.ending {
            Ending::Refused | Ending::Unclear => self.with_code(CANNOT),
            Ending::Code(_) => self,
        }
    }

    /// Adds advice for this combination of command and problem to the message, if there is any.
    pub(crate) fn hinting(mut self, command: &str) -> Failure {
        if let (Some(hint), Some(line)) = (self.code.and_then(|code| hint_of(command, code)), &mut self.line) {
            *line = format!("{line}; {hint}");
        }
        self
    }

    /// Prints the message to stderr, or the problem document with `json`, and returns the exit
    /// code.
    pub(crate) fn tell(mut self, json: bool) -> u8 {
        let code = match self.ending {
            Ending::Refused => REFUSED,
            Ending::Unclear => UNCLEAR,
            Ending::Code(code) => code,
        };
        if let Some(line) = self.line {
            let text = if json {
                self.problem["detail"] = line.into();
                self.problem["exit_code"] = code.into();
                seen_json(&self.problem.to_string())
            } else {
                format!("zlock: {line}")
            };
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        code
    }
}

/// Returns the problem document for a failure that no node has reported. Its type is `about:blank`.
fn own_problem(outcome: Outcome) -> Value {
    json!({ "type": "about:blank", "outcome": outcome })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let ending = if matches!(error, Error::Refused { .. }) { Ending::Refused } else { Ending::Unclear };
        let what = match &error {
            Error::Refused { message, .. } => message.clone(),
            Error::Unavailable { reason } => format!("nothing was done, because no node could: {reason}"),
            Error::Unknown { reason } => format!("it is not known whether it was done: {reason}"),
        };
        let problem = match &error {
            Error::Refused { problem, .. } => json!(problem),
            Error::Unavailable { .. } => own_problem(Outcome::Unavailable),
            Error::Unknown { .. } => own_problem(Outcome::Unknown),
        };
        let line = match hint(&error) {
            Some(hint) => format!("{what}; {hint}"),
            None => what,
        };
        let code = error.code();
        Failure { ending, line: Some(plain(&line.replace('\n', " "))), problem, code }
    }
}

/// Returns advice for an error, which does not depend on the command; `None` without advice.
fn hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::Unavailable { .. } => Some("`zlock status` shows the nodes, --endpoints says which they are"),
        Error::Unknown { .. } => Some("look before you do it again"),
        Error::Refused { code, .. } => match code {
            Some(ProblemType::NoAuth) => Some("its ACL would have to permit it"),
            Some(ProblemType::SessionExpired) => Some("this client was cut off or paused for longer than its session"),
            Some(ProblemType::LockNotManaged) => {
                Some("`zlock settings LOCK --managed` makes it so while its queue is empty")
            }
            Some(ProblemType::QuotaExceeded) => Some("delete something first"),
            _ => None,
        },
    }
}

/// Returns advice for a user whose `command` was refused with the problem type `code`; `None`
/// without advice.
fn hint_of(command: &str, code: ProblemType) -> Option<&'static str> {
    match (command, code) {
        ("rm", ProblemType::NotEmpty) => Some("`zlock rm --recursive` deletes what is below it, too"),
        ("settings", ProblemType::NotEmpty) => {
            Some("what a lock is changes while its queue is empty: `zlock locks` shows who is in it")
        }
        ("create", ProblemType::NodeExists) => Some("`zlock set` replaces its data"),
        ("create", ProblemType::NoNode) => Some("`--parents` creates all that are missing"),
        ("get" | "set" | "stat" | "ls" | "tree" | "rm" | "acl" | "quota", ProblemType::NoNode) => {
            Some("`zlock ls` shows what there is")
        }
        ("set" | "rm" | "acl", ProblemType::BadVersion) => Some("`zlock stat` shows the one that it has"),
        ("release", ProblemType::SeveralHeld) => Some("`zlock release TICKET` gives one of them back"),
        ("watch", ProblemType::EventsGone) => Some("read afresh and watch from there"),
        ("semaphore", ProblemType::PermitsMaxDiffers) => {
            Some("without --permits-max the number that is set counts; `zlock settings` changes it")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_did_and_what_nobody_knows_end_with_another_code_than_a_refusal() {
        let failure = Failure::from(Error::Unavailable { reason: "no\nleader".into() });
        assert_eq!(failure.ending, Ending::Unclear);
        let line = failure.line.unwrap();
        assert!(
            line.starts_with("nothing was done") && line.contains("zlock status") && !line.contains('\n'),
            "{line}"
        );
        let failure = Failure::from(Error::Unknown { reason: "lost".into() });
        assert_eq!(failure.ending, Ending::Unclear);
        assert_eq!(Failure::refused("no").ending, Ending::Refused);
    }

    #[test]
    fn a_hint_belongs_to_its_command() {
        let line = |command: &str| {
            let failure = Failure { code: Some(ProblemType::NotEmpty), ..Failure::refused("it has children") };
            failure.hinting(command).line.unwrap()
        };
        assert_eq!(line("rm"), "it has children; `zlock rm --recursive` deletes what is below it, too");
        assert!(line("settings").contains("`zlock locks` shows who is in it"));
        assert_eq!(line("create"), "it has children");
    }

    #[test]
    fn what_zlock_fails_at_is_told_from_what_its_command_fails_at() {
        let after = |failure: Failure| failure.of_a_run().tell(false);
        assert_eq!(after(Failure::refused("no")), CANNOT);
        assert_eq!(after(Failure::from(Error::Unknown { reason: "lost".into() })), CANNOT);
        assert_eq!(after(Failure::refused("not free").with_code(124)), 124);
        assert_eq!(after(Failure::silent(143)), 143);
        assert_eq!(after(Failure::silent(1)), 1, "a code that was asked for");
    }
}
