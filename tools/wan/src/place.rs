//! Registry of running emulators: one directory each, under [`ROOT`]. A file lock, which the kernel releases when its
//! holder dies, tells which of them run; the next start removes the remains of the others.

use crate::error::Doing;
use crate::{Result, WanError, namespace};
use serde::{Deserialize, Serialize};
use standfast_types::Hint;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub const ROOT: &str = "/run/standfast-wan";
const NODES: &str = "nodes.json";
const LOCK: &str = "lock";
/// Maximum nodes of one emulator: every pair of them has two directions to emulate.
pub const MOST_NODES: usize = 16;

/// A node: one end of the links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub namespace: String,
    pub address: Ipv4Addr,
}

/// Returns the nodes with their namespaces and addresses. All emulators use the same addresses, because they are
/// isolated.
pub fn nodes(emulator: &str, names: &[String]) -> Result<Vec<Node>> {
    check_name("the emulator", emulator, true)?;
    names.iter().try_for_each(|name| check_name("a node", name, false))?;
    let twice = names.iter().enumerate().any(|(index, name)| names[..index].contains(name));
    if !(2..=MOST_NODES).contains(&names.len()) || twice {
        return Err(WanError::usage(
            format!("{:?} cannot be the nodes", names.join(",")),
            format!("give two to {MOST_NODES} different names: a,b"),
        ));
    }
    let node = |(index, name): (usize, &String)| Node {
        name: name.clone(),
        namespace: format!("wan-{emulator}-{name}"),
        address: Ipv4Addr::new(10, 77, 0, index as u8 + 1),
    };
    Ok(names.iter().enumerate().map(node).collect())
}

fn check_name(what: &str, name: &str, dashes: bool) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || (dashes && c == '-');
    if (1..=24).contains(&name.len()) && !name.starts_with('-') && name.chars().all(fits) {
        return Ok(());
    }
    let also = if dashes { " and -" } else { "" };
    Err(WanError::usage(
        format!("{name:?} cannot be the name of {what}"),
        format!("use 1 to 24 of a-z, 0-9{also}"),
    ))
}

/// The directory of an emulator that this process runs.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    nodes: Vec<Node>,
    _lock: File,
}

impl Place {
    /// Removes the remains of killed emulators, takes the name, and runs `build` before any other emulator may start.
    pub fn take<T>(
        emulator: &str,
        nodes: &[Node],
        build: impl FnOnce(&Place) -> Result<T>,
    ) -> Result<(Place, T)> {
        let _one_at_a_time = lock_root()?;
        remove_leftovers()?;
        let directory = directory(emulator);
        match private_directory(&directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(WanError::refused(
                    format!("an emulator of the name {emulator} runs"),
                    format!("choose another name, or end it: standfast wan stop {emulator}"),
                ));
            }
            done => done.doing(|| format!("create {}", directory.display()))?,
        }
        let lock = directory.join(LOCK);
        let lock = File::create(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .doing(|| format!("lock {}", lock.display()))?;
        let place = Place { directory, nodes: nodes.to_vec(), _lock: lock };
        // Written before the first namespace exists, so that every namespace is on a list.
        let list = place.directory.join(NODES);
        fs::write(&list, serde_json::to_vec(nodes).unwrap_or_default())
            .doing(|| format!("write {}", list.display()))?;
        let built = build(&place)?;
        Ok((place, built))
    }

    /// Path of the emulator's control socket.
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.directory)
    }
}

impl Drop for Place {
    /// Removes namespaces and directory. The next start retries what fails.
    fn drop(&mut self) {
        // Without it a concurrent start would take the half-removed directory for remains, and fail to remove it.
        let _one_at_a_time = lock_root();
        if let Err(error) = remove(&self.directory, &self.nodes) {
            eprintln!("wan: {}", error.for_terminal());
        }
    }
}

fn remove(directory: &Path, nodes: &[Node]) -> Result<()> {
    nodes.iter().try_for_each(|node| namespace::remove(&node.namespace))?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.doing(|| format!("remove {}", directory.display())),
    }
}

/// Held while an emulator starts or is removed: names and namespaces change under it only.
fn lock_root() -> Result<File> {
    let root = Path::new(ROOT);
    match private_directory(root) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).doing(|| format!("create {ROOT}"));
        }
        _ => {}
    }
    let path = root.join(LOCK);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.doing(|| format!("lock {}", path.display()))
}

fn private_directory(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn directory(emulator: &str) -> PathBuf {
    Path::new(ROOT).join(emulator)
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("control")
}

fn remove_leftovers() -> Result<()> {
    for directory in directories()? {
        if !is_running(&directory) {
            let list = fs::read(directory.join(NODES)).unwrap_or_default();
            // No list or half a list: its creator died before the first namespace.
            let nodes: Vec<Node> = serde_json::from_slice(&list).unwrap_or_default();
            remove(&directory, &nodes)?;
        }
    }
    Ok(())
}

fn directories() -> Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(ROOT) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // Without permission to read the directory, it would seem that nothing runs.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(WanError::refused(format!("{ROOT} cannot be read: {error}"), "run it as root"));
        }
        listed => listed.doing(|| format!("read {ROOT}"))?,
    };
    let paths = listed.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir()).collect())
}

fn is_running(directory: &Path) -> bool {
    let Ok(lock) = File::open(directory.join(LOCK)) else { return false };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Returns the nodes and the control socket of a running emulator.
pub fn find(emulator: &str) -> Result<(Vec<Node>, PathBuf)> {
    check_name("the emulator", emulator, true)?;
    let directory = directory(emulator);
    directories()?;
    if !is_running(&directory) {
        return Err(WanError::refused(
            format!("no emulator of the name {emulator} runs"),
            "standfast wan list shows those that do",
        ));
    }
    let list = directory.join(NODES);
    let nodes = fs::read(&list).doing(|| format!("read {}", list.display()))?;
    let nodes = serde_json::from_slice(&nodes).map_err(std::io::Error::from);
    Ok((nodes.doing(|| format!("read {}", list.display()))?, socket_in(&directory)))
}

/// Names of the running emulators, sorted.
pub fn running() -> Result<Vec<String>> {
    let running = directories()?.into_iter().filter(|directory| is_running(directory));
    let name = |directory: PathBuf| Some(directory.file_name()?.to_str()?.to_owned());
    let mut names: Vec<String> = running.filter_map(name).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(emulator: &str, names: &[&str]) -> Result<Vec<Node>> {
        nodes(emulator, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn nodes_have_separate_namespaces_and_consecutive_addresses() {
        let nodes = named("my-lab", &["paris", "oslo"]).unwrap();
        assert_eq!((nodes[1].namespace.as_str(), nodes[1].address.octets()[3]), ("wan-my-lab-oslo", 2));
    }

    #[test]
    fn ambiguous_or_unsafe_names_are_refused() {
        for (emulator, names) in [
            ("", vec!["a", "b"]),
            ("../x", vec!["a", "b"]),
            ("-x", vec!["a", "b"]),
            ("x", vec!["a"]),
            ("x", vec!["a", "a"]),
            ("x", vec!["a", "b-c"]),
            ("x", vec!["a", "B"]),
        ] {
            assert_eq!(named(emulator, &names).unwrap_err().exit_code(), 2, "{emulator} {names:?}");
        }
    }
}
