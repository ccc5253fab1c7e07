//! The disk as a program: it is told on stdin what happens to it, and answers each line with one.
//!
//! | line | answer |
//! |---|---|
//! | | `mounted`, once, at the beginning |
//! | `cut SEED` | pages kept, pages lost, names kept, names lost: four numbers |
//! | `hang` | `done`; an fsync does not return from now on |
//! | `slow MS` | `done`; an fsync takes so many milliseconds from now on |
//! | `fail` | `done`; an fsync fails with EIO from now on |
//! | `mend` | `done`; an fsync works from now on, and those that hang do |
//! | `drop` | `done`; the same, but those that hang have failed |
//! | `hung` | how many fsyncs hang, or have not returned yet |
//! | `delayed` | how many have hung or been slow, since the beginning |
//!
//! It is unmounted when stdin ends. A process of its own: a caller that hangs in a system call on
//! the disk does not stop it.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption};
use rustix::mount::{UnmountFlags, unmount};

use crate::disk::Disk;
use crate::file::Cut;

/// Whether this process may mount a disk.
///
/// # Errors
/// Why not.
pub fn available() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("only root mounts without fusermount3"));
    }
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.map(drop).map_err(|error| io::Error::new(error.kind(), format!("/dev/fuse: {error}")))
}

/// Mounts an empty disk on `dir` and obeys `input` until it ends.
///
/// # Errors
/// When the disk cannot be mounted, or a line not be read or written.
pub fn serve(dir: &Path, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let disk = Disk::default();
    let session = fuser::spawn_mount(disk.clone(), dir, &config())?;
    let obeyed = obey(&disk, input, &mut output);
    // Lazily: a node may still have files open, and finds an error in their place.
    disk.drop_hung();
    let unmounted = unmount(dir, UnmountFlags::DETACH);
    // The thread ends with the process; the kernel then ends whatever still waits.
    std::mem::forget(session);
    obeyed.and(unmounted.map_err(io::Error::from))
}

/// A disk that this process serves. It is unmounted when this is dropped; no process may wait for
/// it then.
#[derive(Debug)]
pub struct Served {
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl Served {
    /// Mounts `disk` on `dir`.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(disk: &Disk, dir: &Path) -> io::Result<Served> {
        Ok(Served { dir: dir.to_owned(), session: Some(fuser::spawn_mount(disk.clone(), dir, &config())?) })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Lazily; the thread ends with the last open file, or with the process.
        let _gone = unmount(&self.dir, UnmountFlags::DETACH);
        std::mem::forget(self.session.take());
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("power-disk".into()), MountOption::NoAtime];
    config
}

fn obey(disk: &Disk, input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
    writeln!(output, "mounted")?;
    output.flush()?;
    for line in input.lines() {
        let line = line?;
        let answer = match line.split_once(' ').map_or((line.as_str(), ""), |(word, rest)| (word, rest)) {
            ("cut", seed) => match seed.parse() {
                Ok(seed) => {
                    let Cut { pages_kept, pages_lost, names_kept, names_lost } = disk.cut(seed);
                    format!("{pages_kept} {pages_lost} {names_kept} {names_lost}")
                }
                Err(error) => format!("error: the seed: {error}"),
            },
            ("slow", delay_ms) => match delay_ms.parse().map(Duration::from_millis) {
                Ok(delay) => done(|| disk.slow(delay)),
                Err(error) => format!("error: the milliseconds: {error}"),
            },
            ("hang", "") => done(|| disk.hang()),
            ("fail", "") => done(|| disk.fail()),
            ("mend", "") => done(|| disk.mend()),
            ("drop", "") => done(|| disk.drop_hung()),
            ("hung", "") => disk.hung().to_string(),
            ("delayed", "") => disk.delayed().to_string(),
            _ => format!("error: no such word: {line}"),
        };
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn done(act: impl FnOnce()) -> String {
    act();
    "done".to_owned()
}

/// A disk that another process serves. It is unmounted, and its process gone, when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    dir: PathBuf,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Mounted {
    /// Starts a program that ends in [`serve`], and waits until the disk is mounted.
    ///
    /// # Errors
    /// When it cannot be started or mounts nothing.
    pub fn start(program: &mut Command, dir: &Path) -> io::Result<Mounted> {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        let mut mounted = Mounted { dir: dir.to_owned(), child, stdin, stdout: BufReader::new(stdout) };
        match mounted.answer()?.as_str() {
            "mounted" => Ok(mounted),
            other => Err(io::Error::other(format!("the disk of {} says {other:?}", dir.display()))),
        }
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The power goes and comes back. Whatever ran on the disk must have been killed before.
    ///
    /// # Errors
    /// When the disk's process does not answer.
    pub fn cut(&mut self, seed: u64) -> io::Result<Cut> {
        let answer = self.ask(&format!("cut {seed}"))?;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [pages_kept, pages_lost, names_kept, names_lost] = numbers[..] else { return Err(unexpected(&answer)) };
        Ok(Cut { pages_kept, pages_lost, names_kept, names_lost })
    }

    /// From now on an fsync hangs.
    ///
    /// # Errors
    /// As for `cut`, and so for those below.
    pub fn hang(&mut self) -> io::Result<()> {
        self.tell("hang")
    }

    /// From now on an fsync returns that much later.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn slow(&mut self, delay: Duration) -> io::Result<()> {
        self.tell(&format!("slow {}", delay.as_millis()))
    }

    /// From now on an fsync fails with EIO.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn fail(&mut self) -> io::Result<()> {
        self.tell("fail")
    }

    /// From now on an fsync works, and those that hang do.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn mend(&mut self) -> io::Result<()> {
        self.tell("mend")
    }

    /// From now on an fsync works, and those that hang have failed. A process that waits for one
    /// cannot be killed without.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn drop_hung(&mut self) -> io::Result<()> {
        self.tell("drop")
    }

    /// How many fsyncs have hung or been slow, since the beginning.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn delayed(&mut self) -> io::Result<u64> {
        let answer = self.ask("delayed")?;
        answer.parse().map_err(|_| unexpected(&answer))
    }

    /// How many fsyncs hang, or have not returned yet.
    ///
    /// # Errors
    /// As for `cut`.
    pub fn hung(&mut self) -> io::Result<usize> {
        let answer = self.ask("hung")?;
        answer.parse().map_err(|_| unexpected(&answer))
    }

    fn tell(&mut self, word: &str) -> io::Result<()> {
        match self.ask(word)?.as_str() {
            "done" => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        let stdin = self.stdin.as_mut().expect("it is closed when this is dropped");
        writeln!(stdin, "{line}")?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::other(format!("the process of the disk at {} has ended", self.dir.display()))),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

fn unexpected(answer: &str) -> io::Error {
    io::Error::other(format!("the disk answers {answer:?}"))
}
