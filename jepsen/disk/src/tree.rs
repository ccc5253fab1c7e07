//! Inodes and directories: the names that processes see now, the names on the medium (durable), and
//! the changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fastrand::Rng;
use fuser::Errno;

use crate::file::{Cut, File};

/// Number of the root's inode.
pub(crate) const ROOT: u64 = 1;

/// Content of an inode.
#[derive(Debug)]
pub(crate) enum Body {
    /// A regular file.
    File(File),
    /// A directory.
    Directory(Directory),
}

/// Names of a directory and their inodes, as processes see them now and as they are durable.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    now: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
}

/// A file or a directory. A loss of power affects only contents and names: mode, owner and time are
/// always kept.
#[derive(Debug)]
pub(crate) struct Inode {
    /// Content of the inode.
    pub(crate) body: Body,
    /// Permission bits.
    pub(crate) mode: u16,
    /// User and group of the owner.
    pub(crate) owner: (u32, u32),
    /// Time of the last change of the content.
    pub(crate) modified: SystemTime,
    /// Number of open handles.
    opened: u64,
}

/// A name in a directory after a change, and its inode; `None` if the change removes the name.
#[derive(Clone, Debug)]
struct Slot {
    directory: u64,
    name: OsString,
    inode: Option<u64>,
}

/// Directory entries that one system call changes. They survive together or not at all, so a rename
/// never leaves a file without a name.
type Change = Vec<Slot>;

/// All inodes of a disk.
#[derive(Debug)]
pub(crate) struct Tree {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Changes of directories that are not durable yet, in order.
    pending: Vec<Change>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Inode::new(Body::Directory(Directory::default()), 0o755, (0, 0));
        Tree { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, pending: Vec::new() }
    }
}

impl Inode {
    /// Returns a new inode that has no name and no open handle yet.
    pub(crate) fn new(body: Body, mode: u16, owner: (u32, u32)) -> Inode {
        Inode { body, mode, owner, modified: SystemTime::now(), opened: 0 }
    }
}

impl Tree {
    /// Gets an inode by number.
    ///
    /// # Errors
    /// `ESTALE` when it does not exist.
    pub(crate) fn inode(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&number).ok_or(Errno::ESTALE)
    }

    /// Gets a file by number.
    ///
    /// # Errors
    /// `ESTALE` when it does not exist, `EISDIR` when it is a directory.
    pub(crate) fn file(&mut self, number: u64) -> Result<&mut File, Errno> {
        match &mut self.inode(number)?.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Errno::EISDIR),
        }
    }

    fn directory(&mut self, number: u64) -> Result<&mut Directory, Errno> {
        match &mut self.inode(number)?.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Finds the inode of a name.
    ///
    /// # Errors
    /// `ENOENT` when the name does not exist.
    pub(crate) fn lookup(&mut self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        self.directory(directory)?.now.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// Lists the names of a directory, in order.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub(crate) fn names(&mut self, directory: u64) -> Result<Vec<(OsString, u64)>, Errno> {
        Ok(self.directory(directory)?.now.iter().map(|(name, inode)| (name.clone(), *inode)).collect())
    }

    /// Number of bytes that all files occupy.
    pub(crate) fn allocated(&self) -> u64 {
        let allocated = |inode: &Inode| if let Body::File(file) = &inode.body { file.allocated() } else { 0 };
        self.inodes.values().map(allocated).sum()
    }

    /// Adds an inode under a new name, and returns its number.
    ///
    /// # Errors
    /// `EEXIST` when the name is taken.
    pub(crate) fn create(&mut self, directory: u64, name: &OsStr, inode: Inode) -> Result<u64, Errno> {
        if self.directory(directory)?.now.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, inode);
        self.change(vec![Slot { directory, name: name.to_owned(), inode: Some(number) }])?;
        Ok(number)
    }

    /// Removes a file's name. The file is removed with its last name and its last handle.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR` for a directory.
    pub(crate) fn unlink(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        let number = self.lookup(directory, name)?;
        self.file(number)?;
        self.change(vec![Slot { directory, name: name.to_owned(), inode: None }])
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub(crate) fn rmdir(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        let number = self.lookup(directory, name)?;
        if !self.directory(number)?.now.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.change(vec![Slot { directory, name: name.to_owned(), inode: None }])
    }

    /// Gives an inode another name, and replaces a file or an empty directory that has that name.
    /// `from` and `to` are a directory and a name in it.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`.
    pub(crate) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Errno> {
        let number = self.lookup(from.0, from.1)?;
        if let Ok(replaced) = self.lookup(to.0, to.1) {
            match (self.directory(number).is_ok(), self.directory(replaced)) {
                (true, Ok(directory)) if !directory.now.is_empty() && number != replaced => {
                    return Err(Errno::ENOTEMPTY);
                }
                (true, Err(_)) => return Err(Errno::ENOTDIR),
                (false, Ok(_)) => return Err(Errno::EISDIR),
                _ => {}
            }
        }
        self.directory(to.0)?;
        self.change(vec![
            Slot { directory: from.0, name: from.1.to_owned(), inode: None },
            Slot { directory: to.0, name: to.1.to_owned(), inode: Some(number) },
        ])
    }

    fn change(&mut self, change: Change) -> Result<(), Errno> {
        for slot in &change {
            put(&mut self.directory(slot.directory)?.now, slot);
        }
        self.pending.push(change);
        Ok(())
    }

    /// Counts a handle by which a process has opened an inode.
    pub(crate) fn open(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.opened += 1;
        }
    }

    /// Stops counting a handle that a process has closed.
    pub(crate) fn close(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.opened = inode.opened.saturating_sub(1);
        }
    }

    /// Makes the names of a directory durable, as fsync does. A rename from or to another directory
    /// becomes durable in both, together with earlier changes of its two names.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub(crate) fn sync_directory(&mut self, number: u64) -> Result<(), Errno> {
        self.directory(number)?;
        let mut names = BTreeSet::new();
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let touches =
                |slot: &Slot| slot.directory == number || names.contains(&(slot.directory, slot.name.clone()));
            if change.iter().any(touches) {
                names.extend(change.iter().map(|slot| (slot.directory, slot.name.clone())));
                now.push(change);
            } else {
                later.push(change);
            }
        }
        self.pending = later.into_iter().rev().collect();
        now.into_iter().rev().for_each(|change| self.make_durable(&change));
        self.collect();
        Ok(())
    }

    fn make_durable(&mut self, change: &Change) {
        for slot in change {
            // A directory that was removed durably keeps no names.
            if let Ok(directory) = self.directory(slot.directory) {
                put(&mut directory.durable, slot);
            }
        }
    }

    /// Cuts the power. POSIX promises nothing about unsynced names, so each change survives or is
    /// lost independently, as the seed decides.
    pub(crate) fn cut(&mut self, seed: u64) -> Cut {
        let (mut rng, mut cut) = (Rng::with_seed(seed), Cut::default());
        let survive = rng.f64();
        for change in std::mem::take(&mut self.pending) {
            if rng.f64() < survive {
                self.make_durable(&change);
                cut.names_kept += 1;
            } else {
                cut.names_lost += 1;
            }
        }
        for inode in self.inodes.values_mut() {
            match &mut inode.body {
                Body::File(file) => file.cut(&mut rng, &mut cut),
                Body::Directory(directory) => directory.now.clone_from(&directory.durable),
            }
        }
        self.collect();
        cut
    }

    /// Removes inodes that have neither a name (present, durable or pending) nor an open handle.
    fn collect(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        reached.extend(self.pending.iter().flatten().filter_map(|slot| slot.inode));
        reached.extend(self.inodes.iter().filter(|(_, inode)| inode.opened > 0).map(|(number, _)| *number));
        let mut open: Vec<u64> = reached.iter().copied().collect();
        while let Some(number) = open.pop() {
            let Some(Inode { body: Body::Directory(directory), .. }) = self.inodes.get(&number) else { continue };
            let named = directory.now.values().chain(directory.durable.values());
            open.extend(named.filter(|number| reached.insert(**number)));
        }
        self.inodes.retain(|number, _| reached.contains(number));
    }
}

fn put(names: &mut BTreeMap<OsString, u64>, slot: &Slot) {
    match slot.inode {
        Some(inode) => names.insert(slot.name.clone(), inode),
        None => names.remove(&slot.name),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    fn file(tree: &mut Tree, directory: u64, called: &str, text: &str) -> u64 {
        let number =
            tree.create(directory, name(called), Inode::new(Body::File(File::default()), 0o600, (0, 0))).unwrap();
        tree.file(number).unwrap().write(0, text.as_bytes());
        tree.file(number).unwrap().sync();
        number
    }

    fn directory(tree: &mut Tree, called: &str) -> u64 {
        let inode = Inode::new(Body::Directory(Directory::default()), 0o700, (0, 0));
        tree.create(ROOT, name(called), inode).unwrap()
    }

    /// Lists a directory as `name=text` of every file.
    fn list(tree: &mut Tree, directory: u64) -> String {
        let mut told = Vec::new();
        for (name, number) in tree.names(directory).unwrap() {
            let text = tree.file(number).map(|file| String::from_utf8(file.read(0, 100)).unwrap());
            told.push(format!("{}={}", name.display(), text.unwrap_or_else(|_| "dir".into())));
        }
        told.join(" ")
    }

    /// Returns all different listings of the root directory after a loss of power, found by trying
    /// many seeds.
    fn outcomes(build: impl Fn(&mut Tree)) -> Vec<String> {
        let left = (0..200).map(|seed| {
            let mut tree = Tree::default();
            build(&mut tree);
            tree.cut(seed);
            list(&mut tree, ROOT)
        });
        left.collect::<BTreeSet<String>>().into_iter().collect()
    }

    #[test]
    fn a_file_whose_directory_was_not_synced_may_be_gone() {
        let left = outcomes(|tree| _ = file(tree, ROOT, "a", "1"));
        assert_eq!(left, ["", "a=1"]);
    }

    #[test]
    fn a_synced_name_survives_every_cut() {
        let left = outcomes(|tree| {
            file(tree, ROOT, "a", "1");
            tree.sync_directory(ROOT).unwrap();
        });
        assert_eq!(left, ["a=1"]);
    }

    #[test]
    fn a_rename_is_kept_or_lost_as_a_whole() {
        let left = outcomes(|tree| {
            file(tree, ROOT, "a", "old");
            file(tree, ROOT, "a.new", "new");
            tree.sync_directory(ROOT).unwrap();
            tree.rename((ROOT, name("a.new")), (ROOT, name("a"))).unwrap();
        });
        assert_eq!(left, ["a=new", "a=old a.new=new"]);
    }

    #[test]
    fn an_unlinked_file_may_be_back() {
        let left = outcomes(|tree| {
            file(tree, ROOT, "a", "1");
            tree.sync_directory(ROOT).unwrap();
            tree.unlink(ROOT, name("a")).unwrap();
        });
        assert_eq!(left, ["", "a=1"]);
    }

    #[test]
    fn changes_of_two_names_survive_in_any_order() {
        let left = outcomes(|tree| {
            file(tree, ROOT, "a", "1");
            file(tree, ROOT, "b", "2");
        });
        assert_eq!(left, ["", "a=1", "a=1 b=2", "b=2"]);
    }

    #[test]
    fn a_rename_into_a_synced_directory_takes_along_what_was_done_to_its_name_before() {
        for seed in 0..100 {
            let mut tree = Tree::default();
            let (one, two) = (directory(&mut tree, "one"), directory(&mut tree, "two"));
            tree.sync_directory(ROOT).unwrap();
            file(&mut tree, one, "a", "1");
            tree.rename((one, name("a")), (two, name("b"))).unwrap();
            tree.sync_directory(two).unwrap();
            tree.cut(seed);
            assert_eq!((list(&mut tree, one), list(&mut tree, two)), (String::new(), "b=1".into()), "seed {seed}");
        }
    }

    #[test]
    fn a_lost_directory_takes_its_files_along() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut tree = Tree::default();
            let inside = directory(&mut tree, "d");
            file(&mut tree, inside, "a", "1");
            tree.sync_directory(inside).unwrap();
            tree.cut(seed);
            match tree.lookup(ROOT, name("d")) {
                Ok(number) => assert_eq!(list(&mut tree, number), "a=1", "seed {seed}"),
                Err(_) => {
                    lost += 1;
                    assert_eq!(tree.inodes.len(), 1, "seed {seed}: only the root is left");
                }
            }
        }
        assert!((20..80).contains(&lost), "{lost}");
    }

    #[test]
    fn an_open_file_without_a_name_can_be_read() {
        let mut tree = Tree::default();
        let number = file(&mut tree, ROOT, "a", "1");
        tree.open(number);
        tree.unlink(ROOT, name("a")).unwrap();
        tree.sync_directory(ROOT).unwrap();
        assert_eq!(tree.file(number).unwrap().read(0, 9), b"1");
        tree.close(number);
        tree.sync_directory(ROOT).unwrap();
        assert!(tree.inode(number).is_err());
    }

    #[test]
    fn system_calls_that_make_no_sense_are_refused() {
        let mut tree = Tree::default();
        let inside = directory(&mut tree, "d");
        file(&mut tree, inside, "a", "1");
        file(&mut tree, ROOT, "f", "2");
        let (d, f) = ((ROOT, name("d")), (ROOT, name("f")));
        assert_eq!(tree.rmdir(ROOT, name("d")), Err(Errno::ENOTEMPTY));
        assert_eq!(tree.unlink(ROOT, name("d")), Err(Errno::EISDIR));
        assert_eq!(tree.rmdir(ROOT, name("f")), Err(Errno::ENOTDIR));
        assert_eq!(tree.rename(f, d), Err(Errno::EISDIR));
        assert_eq!(tree.rename(d, f), Err(Errno::ENOTDIR));
        assert_eq!(tree.rename((ROOT, name("x")), f), Err(Errno::ENOENT));
        assert_eq!(tree.lookup(inside, name("x")), Err(Errno::ENOENT));
    }
}
