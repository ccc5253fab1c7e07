//! One node process.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zlock-under-test");

/// A node: its files, and its process while it runs. Dropping it kills the process.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) http_addr: String,
    pub(crate) zookeeper_addr: String,
    pub(crate) config: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) process: Option<Process>,
}

/// A running `zlock serve`. Its stdin is a pipe from here, so that it ends when the tests are killed.
pub(crate) struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
}

impl Node {
    /// Starts the process. Its lines are added to the log file.
    pub(crate) fn start(&mut self) -> u32 {
        assert!(self.process.is_none(), "node {} runs already", self.id);
        let log = OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg("--config").arg(&self.config).arg("--until-stdin-ends");
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        let _stdin = child.stdin.take();
        self.process = Some(Process { child, _stdin });
        pid
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().unwrap_or_else(|| panic!("node {} does not run", self.id));
        kill(process.child.id(), signal);
    }

    /// SIGSTOP, and waits until no thread of the process runs any more: one that still does sees its connections end.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let pid = self.process.as_ref().map(|process| as_pid(process.child.id()));
        let (_, status) = waitpid(pid, WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "node {} ended instead of stopping: {status:?}", self.id);
    }

    /// kill -9, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// How the process ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.child.try_wait().unwrap()
    }

    /// Fails when the process has ended by itself.
    pub(crate) fn assert_runs(&mut self) {
        if let Some(status) = self.ended() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            panic!("node {} ended with {status}:\n{log}", self.id);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that this test started.
pub(crate) fn kill(pid: u32, signal: Signal) {
    kill_process(as_pid(pid), signal).unwrap();
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Runs `zlock` with arguments until it ends by itself.
pub(crate) fn run_to_end<const N: usize>(args: [&str; N], config: Option<&Path>) -> (i32, String) {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::from(File::open("/dev/null").unwrap()));
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let Output { status, stderr, .. } = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    let code = status.code().unwrap_or_else(|| panic!("ended by signal {:?}: {stderr}", status.signal()));
    (code, stderr)
}
