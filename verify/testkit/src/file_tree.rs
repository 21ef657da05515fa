//! Names and contents of all files of a machine, each with its durable state.

use crate::content::{Content, Order};
use crate::loss::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Identifies a file independently of its names; never reused on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(u64);

/// A directory change that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, FileId),
    Unlink(PathBuf),
    /// From and to: one step, so that a power loss never leaves both names or neither.
    Move(PathBuf, PathBuf, FileId),
}

#[derive(Clone, Debug)]
struct Unsynced {
    order: u64,
    change: NameChange,
}

#[derive(Clone, Debug, Default)]
struct File {
    content: Content,
    /// Number of open handles; a file without names lives until the last one is closed.
    handles: u32,
}

/// All files of a machine. Directories are implied by the paths of the files in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileTree {
    files: BTreeMap<FileId, File>,
    seen: BTreeMap<PathBuf, FileId>,
    durable: BTreeMap<PathBuf, FileId>,
    unsynced: Vec<Unsynced>,
    order: Order,
    last_id: u64,
}

/// Returns the canonical form of a path in the tree: absolute, without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => _ = result.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    result
}

impl FileTree {
    pub(crate) fn find(&self, path: &Path) -> Option<FileId> {
        self.seen.get(&normal(path)).copied()
    }

    pub(crate) fn content(&self, file: FileId) -> Option<&Content> {
        self.files.get(&file).map(|file| &file.content)
    }

    /// The content, and the numbering that each change of it needs.
    pub(crate) fn content_mut(&mut self, file: FileId) -> Option<(&mut Content, &mut Order)> {
        let order = &mut self.order;
        self.files.get_mut(&file).map(|file| (&mut file.content, order))
    }

    /// Total size of all files that have a name in the running system or an open handle.
    pub(crate) fn bytes(&self) -> u64 {
        let named: BTreeSet<FileId> = self.seen.values().copied().collect();
        let held = self.files.iter().filter(|(id, file)| file.handles > 0 || named.contains(id));
        held.map(|(_, file)| file.content.seen().len() as u64).sum()
    }

    pub(crate) fn create_unnamed(&mut self, content: Content) -> FileId {
        self.last_id += 1;
        let id = FileId(self.last_id);
        self.files.insert(id, File { content, handles: 0 });
        id
    }

    /// Creates or replaces `path`; the name is unsynced.
    pub(crate) fn create(&mut self, path: &Path) -> FileId {
        let id = self.create_unnamed(Content::default());
        self.change(NameChange::Link(normal(path), id));
        id
    }

    /// Removes a file; returns whether it existed. The removal is unsynced.
    pub(crate) fn remove(&mut self, path: &Path) -> bool {
        let path = normal(path);
        let existed = self.seen.contains_key(&path);
        if existed {
            self.change(NameChange::Unlink(path));
        }
        existed
    }

    /// Renames a file, replacing `to`; returns whether `from` existed. The renaming is unsynced.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> bool {
        let (from, to) = (normal(from), normal(to));
        let Some(id) = self.seen.get(&from).copied() else { return false };
        if from != to {
            self.change(NameChange::Move(from, to, id));
        }
        true
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.seen, &change);
        self.unsynced.push(Unsynced { order: self.order.next(), change });
    }

    /// Makes all names durable, as a sync of the directories does.
    pub(crate) fn sync_names(&mut self) {
        self.sync_names_before(self.unsynced.len());
    }

    /// Makes the content of `file` and its name durable. A journalling file system commits name changes in order, so
    /// earlier name changes become durable too.
    pub(crate) fn sync(&mut self, file: FileId) {
        let names = self.unsynced.iter().rposition(|unsynced| match &unsynced.change {
            NameChange::Link(_, id) | NameChange::Move(_, _, id) => *id == file,
            NameChange::Unlink(_) => false,
        });
        self.sync_names_before(names.map_or(0, |last| last + 1));
        if let Some(file) = self.files.get_mut(&file) {
            file.content.sync();
        }
    }

    fn sync_names_before(&mut self, end: usize) {
        if end == 0 {
            return;
        }
        for unsynced in self.unsynced.drain(..end) {
            apply(&mut self.durable, &unsynced.change);
        }
        self.forget_unreachable();
    }

    pub(crate) fn opened(&mut self, file: FileId) {
        if let Some(file) = self.files.get_mut(&file) {
            file.handles += 1;
        }
    }

    pub(crate) fn closed(&mut self, file: FileId) {
        let Some(state) = self.files.get_mut(&file) else { return };
        state.handles = state.handles.saturating_sub(1);
        if state.handles == 0 && !self.seen.values().any(|id| *id == file) {
            self.forget_unreachable();
        }
    }

    /// Number of open handles of all files.
    pub(crate) fn handles(&self) -> u64 {
        self.files.values().map(|file| u64::from(file.handles)).sum()
    }

    /// Drops files that have no name, cannot regain one in a power loss, and are not open.
    fn forget_unreachable(&mut self) {
        let pending = self.unsynced.iter().filter_map(|unsynced| match &unsynced.change {
            NameChange::Link(_, id) | NameChange::Move(_, _, id) => Some(id),
            NameChange::Unlink(_) => None,
        });
        let reachable: BTreeSet<FileId> =
            self.seen.values().chain(self.durable.values()).chain(pending).copied().collect();
        self.files.retain(|id, file| file.handles > 0 || reachable.contains(id));
    }

    /// Entries of a directory: files and implied directories, sorted.
    pub(crate) fn list(&self, directory: &Path) -> Vec<PathBuf> {
        let root = normal(directory);
        let names: BTreeSet<PathBuf> = self
            .seen
            .keys()
            .filter_map(|path| path.strip_prefix(&root).ok()?.components().next())
            .map(|entry| directory.join(entry))
            .collect();
        names.into_iter().collect()
    }

    /// Names and contents of all files, sorted by name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&Path, &Content)> {
        self.seen.iter().filter_map(|(path, id)| Some((path.as_path(), self.content(*id)?)))
    }

    /// Order numbers of all unsynced changes, ascending.
    pub(crate) fn orders(&self) -> Vec<u64> {
        let names = self.unsynced.iter().map(|unsynced| unsynced.order);
        let contents = self.files.values().flat_map(|file| file.content.orders());
        let mut orders: Vec<u64> = names.chain(contents).collect();
        orders.sort_unstable();
        orders
    }

    /// Decides which unsynced changes survive; afterwards the seen state is the durable one, and no file is open.
    pub(crate) fn lose_power(&mut self, verdict: &mut Verdict<'_>) {
        if !self.unsynced.is_empty() {
            verdict.next_file();
        }
        for unsynced in self.unsynced.drain(..) {
            if verdict.survives(unsynced.order) {
                apply(&mut self.durable, &unsynced.change);
            }
        }
        self.seen.clone_from(&self.durable);
        for file in self.files.values_mut() {
            file.content.lose_power(verdict);
            file.handles = 0;
        }
        self.forget_unreachable();
    }
}

fn apply(names: &mut BTreeMap<PathBuf, FileId>, change: &NameChange) {
    match change {
        NameChange::Link(path, id) => _ = names.insert(path.clone(), *id),
        NameChange::Unlink(path) => _ = names.remove(path),
        NameChange::Move(from, to, id) => {
            // When the creation of the name was lost, `from` may belong to an older file, which stays.
            if names.get(from) == Some(id) {
                names.remove(from);
            }
            names.insert(to.clone(), *id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::rng::Rng;

    fn lose(tree: &mut FileTree, loss: Loss, seed: u64) {
        let orders = tree.orders();
        let mut rng = Rng::new(seed);
        tree.lose_power(&mut Verdict::new(loss, &orders, &mut rng));
    }

    fn put(tree: &mut FileTree, path: &str, bytes: &[u8]) -> FileId {
        let file = tree.create(Path::new(path));
        let (content, order) = tree.content_mut(file).unwrap();
        content.write(order, 0, bytes);
        file
    }

    fn get<'a>(tree: &'a FileTree, path: &str) -> Option<&'a [u8]> {
        Some(tree.content(tree.find(Path::new(path))?)?.seen())
    }

    #[test]
    fn a_file_that_was_never_synced_may_vanish() {
        let mut tree = FileTree::default();
        let old = put(&mut tree, "/d/old", b"old");
        tree.sync(old);
        put(&mut tree, "/d/new", b"new");
        lose(&mut tree, Loss::DropUnsynced, 0);
        assert_eq!((get(&tree, "/d/old"), get(&tree, "/d/new")), (Some(&b"old"[..]), None));
    }

    #[test]
    fn syncing_a_file_makes_its_name_and_earlier_removals_durable() {
        let mut tree = FileTree::default();
        let first = put(&mut tree, "/a", b"first");
        tree.sync(first);
        tree.remove(Path::new("/a"));
        let second = put(&mut tree, "/a", b"second");
        tree.sync(second);
        lose(&mut tree, Loss::DropUnsynced, 0);
        assert_eq!(get(&tree, "/a"), Some(&b"second"[..]));
        assert_eq!(tree.files.len(), 1, "the first file is gone for good");
    }

    #[test]
    fn an_unsynced_rename_shows_the_old_or_the_new_name_never_both() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..50 {
            let mut tree = FileTree::default();
            let file = put(&mut tree, "/a", b"x");
            tree.sync(file);
            tree.rename(Path::new("/a"), Path::new("/b"));
            lose(&mut tree, Loss::Random, seed);
            outcomes.insert((get(&tree, "/a").is_some(), get(&tree, "/b").is_some()));
        }
        assert_eq!(outcomes, BTreeSet::from([(true, false), (false, true)]));
    }

    #[test]
    fn a_removed_file_stays_readable_while_it_is_open() {
        let mut tree = FileTree::default();
        let file = put(&mut tree, "/a", b"x");
        tree.opened(file);
        tree.remove(Path::new("/a"));
        tree.sync_names();
        assert!(tree.content(file).is_some());
        tree.closed(file);
        assert!(tree.content(file).is_none());
    }

    #[test]
    fn paths_are_normalised_and_listed_as_requested() {
        let mut tree = FileTree::default();
        put(&mut tree, "d/./sub/../a", b"");
        put(&mut tree, "/d/sub/b", b"");
        put(&mut tree, "/other", b"");
        assert!(tree.find(Path::new("/d/a")).is_some());
        assert_eq!(tree.list(Path::new("d")), [PathBuf::from("d/a"), PathBuf::from("d/sub")]);
    }
}
