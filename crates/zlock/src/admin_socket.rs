//! Admin socket: a Unix socket whose clients are operators. Only the user that runs the node may
//! connect. It is created at start and removed at the end.
//!
//! The file's mode is set before the socket listens, so that no other user can connect. A socket
//! file of a dead process is replaced. A socket of a running process is an error.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Largest number of connections to the socket that wait to be accepted.
const BACKLOG: i32 = 64;
/// Number of tries to lock the directory while another process creates its socket there.
const TURNS: u32 = 100;
/// Pause between two tries to lock the directory.
const TURN: Duration = Duration::from_millis(50);

/// Identity of a socket file, which tells it from another file at the same path. The inode number
/// alone is not enough, because file systems reuse it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Made {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Made {
    fn of(file: &fs::Metadata) -> Made {
        Made { device: file.dev(), inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) }
    }
}

/// File of the admin socket. The drop removes the file.
pub(crate) struct AdminSocket {
    path: PathBuf,
    /// Identity of the created file. A file of another process at the path is not removed.
    made: Made,
}

impl AdminSocket {
    /// Creates the socket at `path` and listens on it.
    ///
    /// # Errors
    /// A message for the operator: another process listens there, the file is no socket, or a
    /// system call failed.
    pub(crate) fn listen(path: &Path) -> Result<(AdminSocket, tokio::net::UnixListener), String> {
        let refused = |why: String| format!("admin.socket: {}: {why}", path.display());
        let system = |error: io::Error| refused(error.to_string());
        let addr =
            SocketAddrUnix::new(path).map_err(|_| refused("the path is too long for a socket (107 bytes)".into()))?;
        // Locked, so that no other zlock process creates a socket between the check of an old file
        // and the creation of the new one.
        let _turn = turn(path).map_err(refused)?;
        make_room(path).map_err(refused)?;
        let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = made.map_err(|error| system(error.into()))?;
        bind(&socket, &addr).map_err(|error| system(error.into()))?;
        let opened = fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .and_then(|()| listening(socket).and_then(|listener| Ok((listener, fs::symlink_metadata(path)?))));
        match opened {
            Ok((listener, file)) => Ok((AdminSocket { path: path.to_owned(), made: Made::of(&file) }, listener)),
            Err(error) => {
                let _ = fs::remove_file(path);
                Err(system(error))
            }
        }
    }
}

fn listening(socket: OwnedFd) -> io::Result<tokio::net::UnixListener> {
    listen(&socket, BACKLOG)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// Locks the directory of the socket, until the returned file is dropped.
fn turn(path: &Path) -> Result<fs::File, String> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = fs::File::open(dir).map_err(|error| format!("cannot open the directory: {error}"))?;
    for _ in 0..TURNS {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(TURN),
            Err(error) => return Err(format!("cannot lock the directory: {error}")),
        }
    }
    Err("another process has locked the directory".into())
}

/// Removes the socket file of a dead process at `path`. Any other file is an error.
fn make_room(path: &Path) -> Result<(), String> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !file.file_type().is_socket() {
        return Err("there is something else than a socket: name another path, or remove it".into());
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| format!("a dead process has left it, and it cannot be removed: {error}")),
        Err(error) => Err(format!("cannot tell whether a process listens there: {error}")),
        Ok(_) => Err("a process listens there, most likely another node: each node has a path of its own".into()),
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|file| Made::of(&file) == self.made);
        if is_own {
            // An error is ignored, as the next start replaces the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_its_user_may_connect_and_the_file_goes_with_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let (socket, _listener) = AdminSocket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let error = AdminSocket::listen(&path).err().unwrap();
        assert!(error.contains("a process listens there, most likely another node"), "{error}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_dead_process_has_left_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the file stays");
        let (old, listener) = AdminSocket::listen(&path).unwrap();
        // Another node replaces the socket while this node's listener is closed; this node's drop
        // must not remove the new file.
        drop(listener);
        let mut new = AdminSocket::listen(&path).unwrap();
        // Repeats until the change times differ, as the file system's clock is coarse.
        while new.0.made == old.made {
            new = AdminSocket::listen(&path.with_extension("next")).unwrap();
            fs::rename(path.with_extension("next"), &path).unwrap();
            new.0.made = Made::of(&fs::symlink_metadata(&path).unwrap());
        }
        drop(old);
        assert!(UnixStream::connect(&path).is_ok());
        let file = dir.path().join("data");
        fs::write(&file, "precious").unwrap();
        let error = AdminSocket::listen(&file).err().unwrap();
        assert!(error.contains("something else than a socket"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        let error = AdminSocket::listen(&dir.path().join("x".repeat(120))).err().unwrap();
        assert!(error.contains("too long"), "{error}");
        let error = AdminSocket::listen(&dir.path().join("none/admin.sock")).err().unwrap();
        assert!(error.contains("cannot open the directory"), "{error}");
    }
}
