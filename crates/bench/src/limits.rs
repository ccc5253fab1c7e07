//! Limits of the machine itself: numbers of syncs, of round trips over loopback, and of batches
//! replicated to a majority, per second. They involve no Raft, no state and no protocol, so a
//! system that does more work for each batch is slower.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;

const LENGTH: Duration = Duration::from_secs(2);
/// Rough size of a log entry: a write of 100 bytes with its path, session and framing.
const ENTRY_BYTES: usize = 256;

/// Numbers of entries in the replicated batches: the numbers of clients in the workloads that
/// write.
const BATCHES: [usize; 4] = [1, 16, 64, 256];

/// Rate of one basic step that this machine reaches, for example of disk syncs or replicated
/// batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) name: String,
    /// Number of entries in a batch; `None` for a limit without batches.
    pub(crate) batch: Option<usize>,
    pub(crate) per_second: f64,
}

/// Measures all limits, on the disk with the directory for temporary files.
pub(crate) fn measure() -> Result<Vec<Limit>, Error> {
    let dir = tempfile::tempdir()?;
    let limit = |name: String, batch, per_second| Limit { name, batch, per_second };
    let name = format!("append of {ENTRY_BYTES} bytes and fdatasync");
    let mut limits = vec![limit(name, None, syncs(dir.path())?)];
    let name = format!("round trip of {ENTRY_BYTES} bytes over loopback, two threads");
    limits.push(limit(name, None, round_trips()?));
    for entries in BATCHES {
        let batches = replicate(dir.path(), entries)?;
        let name = format!(
            "entries in batches of {entries}: a thread writes each batch to its log and sends it to two other threads; a batch counts when two of the three have synced it"
        );
        limits.push(limit(name, Some(entries), batches * entries as f64));
    }
    Ok(limits)
}

/// Returns the number of times a second that `step` can be done, one after the other.
fn rate(mut step: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let started = Instant::now();
    let mut count = 0_u32;
    while started.elapsed() < LENGTH {
        step()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

fn syncs(dir: &Path) -> io::Result<f64> {
    let mut log = log(dir, "sync")?;
    rate(|| append(&mut log, &[7; ENTRY_BYTES]))
}

fn log(dir: &Path, name: &str) -> io::Result<File> {
    File::options().create(true).append(true).open(dir.join(name))
}

fn append(log: &mut File, bytes: &[u8]) -> io::Result<()> {
    log.write_all(bytes)?;
    log.sync_data()
}

fn round_trips() -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let answering = thread::spawn(move || {
        let mut bytes = [0; ENTRY_BYTES];
        while far.read_exact(&mut bytes).is_ok() && far.write_all(&bytes).is_ok() {}
    });
    let mut bytes = [7; ENTRY_BYTES];
    let rate = rate(|| {
        near.write_all(&bytes)?;
        near.read_exact(&mut bytes)
    });
    drop(near);
    answering.join().map_err(|_| io::Error::other("the answering thread failed"))?;
    rate
}

/// Returns the number of batches a second. The leader sends a batch to two followers and syncs its
/// own log. The batch is done when the leader and one follower have synced; the slower follower's
/// answer is read one batch later.
fn replicate(dir: &Path, entries: usize) -> io::Result<f64> {
    let batch = vec![7; entries * ENTRY_BYTES];
    let (answers, answered) = std::sync::mpsc::channel();
    let mut followers = Vec::new();
    let mut threads = Vec::new();
    for number in 0..2 {
        let (near, mut far) = pair()?;
        let mut own = log(dir, &format!("follower-{number}-{entries}"))?;
        let size = batch.len();
        threads.push(thread::spawn(move || {
            let mut bytes = vec![0; size];
            while far.read_exact(&mut bytes).is_ok() && append(&mut own, &bytes).is_ok() && far.write_all(b"k").is_ok()
            {
            }
        }));
        let (mut reader, answers) = (near.try_clone()?, answers.clone());
        threads.push(thread::spawn(move || while reader.read_exact(&mut [0]).is_ok() && answers.send(()).is_ok() {}));
        followers.push(near);
    }
    let mut own = log(dir, &format!("leader-{entries}"))?;
    let (mut batches, mut acknowledged) = (0_u64, 0_u64);
    let rate = rate(|| {
        for follower in &mut followers {
            follower.write_all(&batch)?;
        }
        append(&mut own, &batch)?;
        batches += 1;
        // One answer of two is enough. An answer to an earlier batch does not count for this one.
        while acknowledged < 2 * batches - 1 {
            answered.recv().map_err(|_| io::Error::other("a follower has gone"))?;
            acknowledged += 1;
        }
        Ok(())
    });
    for follower in &followers {
        follower.shutdown(std::net::Shutdown::Both)?;
    }
    drop((followers, answered));
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a follower failed"))?;
    }
    rate
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}
