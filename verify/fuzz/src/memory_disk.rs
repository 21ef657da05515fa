//! A disk that holds its files in memory.

use standfast_io::{Disk, LogFile};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Content = Arc<Mutex<Vec<u8>>>;

/// A disk on which every path is a file in memory.
#[derive(Default)]
pub struct MemoryDisk(Mutex<BTreeMap<PathBuf, Content>>);

struct MemoryFile(Content);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDisk {
    pub fn put(&self, path: &str, bytes: &[u8]) {
        lock(&self.0).insert(path.into(), Arc::new(Mutex::new(bytes.to_vec())));
    }

    fn find(&self, path: &Path) -> Result<Content> {
        lock(&self.0).get(path).cloned().ok_or_else(|| Error::from(ErrorKind::NotFound))
    }
}

impl LogFile for MemoryFile {
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write(data, offset)
    }
    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        let (mut bytes, at) = (lock(&self.0), offset as usize);
        match bytes.get_mut(at..at + data.len()) {
            Some(place) => place.copy_from_slice(data),
            // Files have their final size from the beginning; a decoder that writes elsewhere was misled by its input.
            None => return Err(ErrorKind::StorageFull.into()),
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let bytes = lock(&self.0);
        let place = usize::try_from(offset).ok().and_then(|at| bytes.get(at..at.checked_add(out.len())?));
        out.copy_from_slice(place.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        self.replace(path, &vec![0; bytes as usize])?;
        self.open(path)
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>> {
        Ok(Arc::new(MemoryFile(self.find(path)?)))
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(lock(&*self.find(path)?).clone())
    }
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        lock(&self.0).insert(path.to_owned(), Arc::new(Mutex::new(bytes.to_vec())));
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = lock(&self.0);
        let content = files.remove(from).ok_or(ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }
    fn remove(&self, path: &Path) -> Result<()> {
        lock(&self.0).remove(path);
        Ok(())
    }
    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        Ok(lock(&self.0).keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }
    fn in_turns(&self) -> bool {
        true
    }
    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX)
    }
}
