//! A node's process.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;
use testkit::{Process, serve};

/// Path of the program `zlock` under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zlock-under-test");

/// A node: its files, and its process while it runs. Dropping the node kills the process.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) http_addr: String,
    pub(crate) zookeeper_addr: String,
    pub(crate) config: PathBuf,
    pub(crate) data_dir: PathBuf,
    pub(crate) log: PathBuf,
    /// Limit of the node's open files; `None` for the limit of the test's own process.
    pub(crate) open_files_max: Option<u64>,
    /// File whose existence makes the syncs of the disk hang; `None` for a disk that cannot hang.
    pub(crate) disk_hangs: Option<PathBuf>,
    /// Whether the node sends messages for systemd.
    pub(crate) notifies: bool,
    /// Whether the node's allocator returns freed memory to the system at once, for tests that
    /// measure memory.
    pub(crate) memory_is_measured: bool,
    pub(crate) process: Option<Process>,
}

impl Node {
    /// Starts the process, and returns its id. The process appends its output to the log file.
    pub(crate) fn start(&mut self) -> u32 {
        assert!(self.process.is_none(), "node {} runs already", self.id);
        let mut command = serve(Path::new(PROGRAM), &self.config);
        if let Some(limit) = self.open_files_max {
            let mut limited = Command::new("prlimit");
            limited.arg(format!("--nofile={limit}:{limit}")).arg(command.get_program()).args(command.get_args());
            command = limited;
        }
        if let Some(sign) = &self.disk_hangs {
            command.env("LD_PRELOAD", hanging_disk()).env("HANGING_DISK", sign);
        }
        if self.notifies {
            command.env("NOTIFY_SOCKET", self.config.with_extension("notify"));
        }
        if self.memory_is_measured {
            command.env("MIMALLOC_PURGE_DELAY", "0");
        }
        let process = Process::start(command, &self.log).unwrap();
        self.process.insert(process).id()
    }

    /// The process of a running node.
    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().unwrap_or_else(|| panic!("node {} does not run", self.id))
    }

    /// Kills the process by SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Exit status of the process; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended().unwrap()
    }

    /// Panics if the process has ended by itself.
    pub(crate) fn assert_runs(&mut self) {
        if let Some(status) = self.ended() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            panic!("node {} ended with {status}:\n{log}", self.id);
        }
    }
}

/// Compiles the library that makes disks hang, once for all tests of this process.
fn hanging_disk() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_dir, path) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libhanging_disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shim/hanging_disk.rs");
        let mut command = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
        command.args(["--edition", "2024", "--crate-type", "cdylib", "-C", "opt-level=1", source, "-o"]).arg(&path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (dir, path)
    });
    path
}

/// Runs `zlock` until it ends by itself. Returns its exit code and its stderr.
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
