//! Admin socket, by which the node's own user is its operator: made at start, removed at the end.
//!
//! The mode of its file lets no other user connect, because it is set before the socket listens. A
//! file that a dead process has left is replaced. A file at which a process listens is not.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Largest number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Number of tries to lock the directory while another process makes its socket there, and the
/// pause after each.
const TURNS: u32 = 100;
const TURN: Duration = Duration::from_millis(50);

/// Identity of a socket file among all files that have had its path. The inode number alone is not
/// enough, because the system gives it to later files again.
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

/// File of the admin socket. Removed when this is dropped.
pub(crate) struct AdminSocket {
    path: PathBuf,
    /// Identity of the file that was made here: another process may have replaced it.
    made: Made,
}

impl AdminSocket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// A message for the operator: another process listens there, the file is no socket, or the
    /// system refuses.
    pub(crate) fn listen(path: &Path) -> Result<(AdminSocket, tokio::net::UnixListener), String> {
        let refused = |why: String| format!("admin.socket: {}: {why}", path.display());
        let system = |error: io::Error| refused(error.to_string());
        let addr =
            SocketAddrUnix::new(path).map_err(|_| refused("the path is too long for a socket (107 bytes)".into()))?;
        // No other process of zlock may act between the look at an old file and the making of the
        // new one.
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

/// Locks the directory of the socket, until the result is dropped.
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

/// Removes the socket that a dead process has left.
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
            // A file that stays is replaced at the next start.
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
        // Another node took the place when this one had died for others, and is left alone.
        drop(listener);
        let mut new = AdminSocket::listen(&path).unwrap();
        // The system's clock is coarse.
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
