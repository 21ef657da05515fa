use crate::SimDisk;
use crate::clock::SimClock;
use crate::content::Content;
use crate::file_tree::{FileId, FileTree, normal};
use crate::locks::{FileLocks, HandleId};
use crate::loss::{Loss, LossReport, Verdict};
use crate::rng::Rng;
use crate::schedule::{CrashPlace, Event, Schedule};
use crate::sim_vfs::Registration;
use crate::sim_vfs_shm::Shm;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What every call returns, wrapped in an [`std::io::Error`], from the moment the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerLoss;

impl std::fmt::Display for PowerLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the simulated machine has lost power")
    }
}

impl std::error::Error for PowerLoss {}

/// Whether an error is a simulated power loss and nothing else.
pub fn is_power_loss(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<PowerLoss>())
}

/// Properties of a simulated machine's disk.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// What the VFS reports as sector size, in bytes: 512 or 4,096.
    pub sector_size: u32,
    /// Whether the VFS reports `SQLITE_IOCAP_POWERSAFE_OVERWRITE`, as the one for Unix does by default.
    /// Without it SQLite pads what it syncs to whole sectors. The disk itself never damages bytes beside a
    /// write, whatever is reported.
    pub powersafe_overwrite: bool,
    /// Bytes that all files together may have; writing more fails with `StorageFull` or `SQLITE_FULL`.
    pub capacity: u64,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions { sector_size: 4096, powersafe_overwrite: true, capacity: 1 << 40 }
    }
}

/// Counts power-ups. A handle remembers the boot it was opened in and is dead in every other.
pub(crate) type Boot = u64;

/// How far a call at a sync boundary gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// To the disk.
    Durable,
    /// The power fails while it is under way.
    InFlight,
    /// Nowhere, but the caller is told that it did.
    Lied,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tree: FileTree,
    pub(crate) rng: Rng,
    pub(crate) file_locks: BTreeMap<FileId, FileLocks>,
    pub(crate) shm: BTreeMap<FileId, Arc<Shm>>,
    schedule: Schedule,
    boot: Boot,
    powered: bool,
    lying: bool,
    capacity: u64,
    /// Directories whose device is gone.
    broken: BTreeSet<PathBuf>,
    last_handle: HandleId,
}

impl State {
    pub(crate) fn content(&self, file: FileId) -> Result<&Content> {
        self.tree.content(file).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    /// Writes, unsynced, if there is room.
    pub(crate) fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.reserve(file, offset + data.len() as u64)?;
        if let Some((content, order)) = self.tree.content_mut(file) {
            content.write(order, offset, data);
        }
        Ok(())
    }

    /// Writes durably, if there is room.
    pub(crate) fn write_through(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.reserve(file, offset + data.len() as u64)?;
        if let Some((content, _)) = self.tree.content_mut(file) {
            content.write_through(offset, data);
        }
        Ok(())
    }

    /// Cuts or extends, unsynced, if there is room.
    pub(crate) fn resize(&mut self, file: FileId, size: u64) -> Result<()> {
        self.reserve(file, size)?;
        if let Some((content, order)) = self.tree.content_mut(file) {
            content.resize(order, size);
        }
        Ok(())
    }

    fn reserve(&self, file: FileId, end: u64) -> Result<()> {
        let now = self.content(file)?.seen().len() as u64;
        if end > now && end - now > self.free_bytes() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.tree.bytes())
    }

    /// `EIO` for everything in a directory whose device is gone.
    pub(crate) fn reach(&self, path: &Path) -> Result<()> {
        let path = normal(path);
        match self.broken.iter().any(|directory| path.starts_with(directory)) {
            true => Err(Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }

    pub(crate) fn is_boot(&self, boot: Boot) -> bool {
        self.boot == boot
    }

    pub(crate) fn next_handle(&mut self) -> HandleId {
        self.last_handle += 1;
        self.last_handle
    }
}

/// One simulated host with a disk that loses power. Thread-safe; deterministic when used by one thread.
#[derive(Debug)]
pub struct SimMachine {
    pub(crate) options: SimOptions,
    clock: SimClock,
    state: Mutex<State>,
    vfs: OnceLock<Registration>,
}

impl SimMachine {
    /// A machine with an empty disk. `seed` determines SQLite's `xRandomness` and what becomes of a call that
    /// fails or crashes half-way.
    pub fn new(seed: u64) -> Arc<SimMachine> {
        SimMachine::with_options(seed, SimOptions::default())
    }

    /// As [`SimMachine::new`], with other properties.
    pub fn with_options(seed: u64, options: SimOptions) -> Arc<SimMachine> {
        let state = State {
            tree: FileTree::default(),
            rng: Rng::new(seed),
            file_locks: BTreeMap::new(),
            shm: BTreeMap::new(),
            schedule: Schedule::default(),
            boot: 0,
            powered: true,
            lying: false,
            capacity: options.capacity,
            broken: BTreeSet::new(),
            last_handle: 0,
        };
        let (clock, state) = (SimClock::default(), Mutex::new(state));
        Arc::new(SimMachine { options, clock, state, vfs: OnceLock::new() })
    }

    /// A second machine with the same disk, unsynced changes included, and nothing open: to try several power
    /// losses at one and the same instant. It is powered and has no crash planned.
    pub fn copy(&self, seed: u64) -> Arc<SimMachine> {
        let copy = SimMachine::with_options(seed, self.options);
        let (mut there, here) = (copy.lock(), self.lock());
        there.tree = here.tree.clone();
        there.broken = here.broken.clone();
        drop((there, here));
        copy
    }

    /// The disk as the redo stations see it. The handle dies with the next power loss.
    pub fn disk(self: &Arc<Self>) -> SimDisk {
        SimDisk::new(Arc::clone(self), self.boot())
    }

    /// Name of this machine's VFS in the SQLite that is compiled in, registered at the first call. It is
    /// unregistered when the machine and everything open on it is gone.
    ///
    /// Open files are dead after a power loss, but opening and deleting by name cannot be told apart by boot:
    /// drop the connections of a crashed run before [`SimMachine::power_loss`], as the death of a process does.
    pub fn vfs_name(self: &Arc<Self>) -> &str {
        self.vfs.get_or_init(|| Registration::new(self)).name()
    }

    /// The machine's clock. Sleeping connections advance it.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Number of sync boundaries since the machine was made: durable writes, syncs (`xSync` too), and the
    /// durable directory operations create, replace, rename and remove.
    pub fn boundaries(&self) -> u64 {
        self.lock().schedule.reached()
    }

    /// Lets the power fail at the `n`th sync boundary from now; 1 is the next one. That call and every later
    /// one returns [`PowerLoss`] or `SQLITE_IOERR` until [`SimMachine::power_loss`] or [`SimMachine::reboot`].
    /// Replaces what was planned before.
    pub fn crash_at(&self, n: u64, place: CrashPlace) {
        self.lock().schedule.plan(n, Event::Crash(place));
    }

    /// Lets the `n`th sync boundary from now fail with `EIO`, once, the power staying on. As on a real disk,
    /// what the call should have made durable may or may not survive a later power loss.
    pub fn fail_at(&self, n: u64) {
        self.lock().schedule.plan(n, Event::Fail);
    }

    /// Runs `work` at the `n`th sync boundary from now, before the call that reaches it does anything. It may use
    /// the machine. Replaces what was planned before.
    pub fn at_boundary(&self, n: u64, work: impl FnOnce() + Send + 'static) {
        self.lock().schedule.plan(n, Event::Run(Box::new(work)));
    }

    /// Forgets a planned crash, failure or work.
    pub fn cancel_crash(&self) {
        self.lock().schedule.cancel();
    }

    /// A lying disk reports syncs and durable writes as done and leaves them unsynced.
    pub fn set_lying(&self, lying: bool) {
        self.lock().lying = lying;
    }

    /// Changes the room for all files together, in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// The device of `directory` fails while the power is on: every call of a [`SimDisk`] that concerns a file in it
    /// fails with `EIO`, and a write that fails may still leave something, which no power loss spares for sure.
    pub fn break_directory(&self, directory: impl AsRef<Path>) {
        self.lock().broken.insert(normal(directory.as_ref()));
    }

    /// The devices of all directories work again, with what they held.
    pub fn mend_directories(&self) {
        self.lock().broken.clear();
    }

    /// Whether a device has failed.
    pub fn has_broken_directories(&self) -> bool {
        !self.lock().broken.is_empty()
    }

    /// The power fails now; the disk stays as it is until [`SimMachine::power_loss`] decides what survived.
    pub fn cut_power(&self) {
        self.lock().powered = false;
    }

    /// Whether the machine runs.
    pub fn is_powered(&self) -> bool {
        self.lock().powered
    }

    /// Loses power (if it has not yet), decides what survives of everything unsynced, and boots. Handles,
    /// locks and shared memory from before are dead; a planned crash is forgotten.
    pub fn power_loss(&self, loss: Loss, rng: &mut Rng) -> LossReport {
        let mut state = self.lock();
        let orders = state.tree.orders();
        let mut verdict = Verdict::new(loss, &orders, rng);
        state.tree.lose_power(&mut verdict);
        let report = verdict.report;
        state.file_locks.clear();
        state.shm.clear();
        state.schedule.cancel();
        state.boot += 1;
        state.powered = true;
        report
    }

    /// [`SimMachine::power_loss`] with [`Loss::Random`] and the machine's own generator.
    pub fn reboot(&self) -> LossReport {
        let mut rng = self.lock().rng.fork();
        self.power_loss(Loss::Random, &mut rng)
    }

    /// Number of changes that a power loss could undo; the range of [`Loss::Prefix`].
    pub fn unsynced_changes(&self) -> u64 {
        self.lock().tree.orders().len() as u64
    }

    /// Number of open files, of SQLite and of [`SimDisk`].
    pub fn open_files(&self) -> u64 {
        self.lock().tree.handles()
    }

    /// What the running system sees in a file.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.tree.content(state.tree.find(path.as_ref())?)?.seen().to_vec())
    }

    /// What is durable of a file that the running system sees.
    pub fn durable_contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.tree.content(state.tree.find(path.as_ref())?)?.durable().to_vec())
    }

    /// Puts a file on the disk, durable at once and without passing a boundary, whatever the power is.
    pub fn install(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let tree = &mut self.lock().tree;
        let file = tree.create(path.as_ref());
        if let Some((content, _)) = tree.content_mut(file) {
            *content = Content::durable_from(bytes);
        }
        tree.sync(file);
    }

    /// A sum over all names and contents that the running system sees: equal for equal disks.
    pub fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let state = self.lock();
        let mut hasher = DefaultHasher::new();
        state.tree.names().for_each(|(path, content)| (path, content.seen()).hash(&mut hasher));
        hasher.finish()
    }

    pub(crate) fn boot(&self) -> Boot {
        self.lock().boot
    }

    /// The state, dead or alive: for bookkeeping that must work after a power loss, such as closing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an ordinary call of a handle that was opened in `boot`.
    pub(crate) fn call<T>(&self, boot: Boot, call: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        call(&mut *self.powered(boot)?)
    }

    /// Runs a call at a sync boundary.
    pub(crate) fn boundary<T>(
        &self,
        boot: Boot,
        call: impl FnOnce(&mut State, Reach) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.powered(boot)?;
        let reach = if state.lying { Reach::Lied } else { Reach::Durable };
        let crash = match state.schedule.next() {
            Event::Nothing => return call(&mut state, reach),
            Event::Fail => {
                let _ = call(&mut state, Reach::InFlight);
                return Err(Error::from_raw_os_error(libc::EIO));
            }
            Event::Run(work) => {
                drop(state);
                work();
                return call(&mut *self.powered(boot)?, reach);
            }
            Event::Crash(place) => place,
        };
        // The caller learns nothing of the outcome: the power is off.
        let _ = match crash {
            CrashPlace::Before => None,
            CrashPlace::During => call(&mut state, Reach::InFlight).ok(),
            CrashPlace::After => call(&mut state, reach).ok(),
        };
        state.powered = false;
        Err(Error::other(PowerLoss))
    }

    fn powered(&self, boot: Boot) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.powered && state.boot == boot { Ok(state) } else { Err(Error::other(PowerLoss)) }
    }
}
