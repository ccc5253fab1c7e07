//! Histories for checkers of others: one file for each object, in Knossos' form.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::check::{Workload, calls_of_locks, calls_of_registers};
use crate::history::Operation;
use crate::models::{LockOp, RegisterOp};
use crate::wgl::Call;

/// Writes `<object>.edn` for each object of the history, and says how many there are.
///
/// # Errors
/// When the workload has no form that other checkers know, or a file cannot be written.
pub fn write(workload: Workload, operations: &[Operation], dir: &Path) -> io::Result<usize> {
    let objects: Vec<(String, String)> = match workload {
        Workload::Register => {
            calls_of_registers(operations).into_iter().map(|(key, calls)| (key, lines(&calls, register))).collect()
        }
        Workload::Lock => {
            calls_of_locks(operations).into_iter().map(|(lock, calls)| (lock, lines(&calls, lock_op))).collect()
        }
        _ => {
            let message =
                format!("{} is no register and no mutex: only register and lock are exported", workload.name());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    };
    std::fs::create_dir_all(dir)?;
    for (name, text) in &objects {
        std::fs::write(dir.join(format!("{}.edn", file_name(name))), text)?;
    }
    Ok(objects.len())
}

/// An operation as Knossos calls it, with its argument, and what a read was answered.
struct Told {
    f: &'static str,
    argument: String,
    result: String,
}

fn register(op: &RegisterOp) -> Told {
    let (f, value) = match op {
        RegisterOp::Read(value) => {
            let result = value.map_or("nil".to_owned(), |value| value.to_string());
            return Told { f: "read", argument: "nil".into(), result };
        }
        RegisterOp::Write(value) => ("write", value.to_string()),
        RegisterOp::Cas(old, new) => ("cas", format!("[{old} {new}]")),
    };
    Told { f, argument: value.clone(), result: value }
}

fn lock_op(op: &LockOp) -> Told {
    let (f, owner) = match op {
        LockOp::Acquire(owner) => ("acquire", owner),
        LockOp::Release(owner) => ("release", owner),
        LockOp::Close(owner) => ("close", owner),
    };
    Told { f, argument: owner.to_string(), result: owner.to_string() }
}

/// Each call is an invocation and its end, in the order of time. A call of unknown outcome ends
/// as `:info`, behind all others; its process does nothing else.
fn lines<O>(calls: &[Call<O>], told: impl Fn(&O) -> Told) -> String {
    let mut ends: Vec<(u64, usize, bool)> = Vec::with_capacity(calls.len() * 2);
    for (i, call) in calls.iter().enumerate() {
        ends.push((call.call, i, true));
        ends.push((call.complete.unwrap_or(u64::MAX), i, false));
    }
    ends.sort_unstable();
    let mut processes = Processes::default();
    let mut process_of = vec![0; calls.len()];
    let mut text = String::new();
    for (_, i, begins) in ends {
        let Told { f, argument, result } = told(&calls[i].op);
        let (kind, value) = match (begins, calls[i].complete) {
            (true, _) => {
                process_of[i] = processes.take();
                ("invoke", argument)
            }
            (false, Some(_)) => {
                processes.give_back(process_of[i]);
                ("ok", result)
            }
            (false, None) => ("info", argument),
        };
        let _ = writeln!(text, "{{:process {}, :type :{kind}, :f :{f}, :value {value}}}", process_of[i]);
    }
    text
}

/// Numbers of processes: the smallest that is free.
#[derive(Default)]
struct Processes {
    busy: Vec<bool>,
}

impl Processes {
    fn take(&mut self) -> usize {
        if let Some(free) = self.busy.iter().position(|busy| !busy) {
            self.busy[free] = true;
            return free;
        }
        self.busy.push(true);
        self.busy.len() - 1
    }

    fn give_back(&mut self, process: usize) {
        self.busy[process] = false;
    }
}

/// Letters, digits and `-` of a name.
fn file_name(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).chars().map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_comes_last_and_keeps_its_process() {
        let calls = [
            Call { op: RegisterOp::Write(1), call: 1, complete: None },
            Call { op: RegisterOp::Read(Some(1)), call: 2, complete: Some(4) },
            Call { op: RegisterOp::Cas(1, 2), call: 3, complete: Some(5) },
            Call { op: RegisterOp::Read(None), call: 6, complete: Some(7) },
        ];
        let expected = "\
{:process 0, :type :invoke, :f :write, :value 1}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 2, :type :invoke, :f :cas, :value [1 2]}
{:process 1, :type :ok, :f :read, :value 1}
{:process 2, :type :ok, :f :cas, :value [1 2]}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value nil}
{:process 0, :type :info, :f :write, :value 1}
";
        assert_eq!(lines(&calls, register), expected);
    }

    #[test]
    fn a_name_of_a_file_has_no_separators() {
        assert_eq!(file_name("\"0-1\""), "0-1");
        assert_eq!(file_name("/jepsen/lock/7"), "jepsen-lock-7");
    }
}
