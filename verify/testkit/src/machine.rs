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

/// The error of every call, wrapped in an [`std::io::Error`], from the moment the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerLoss;

impl std::fmt::Display for PowerLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the simulated machine has lost power")
    }
}

impl std::error::Error for PowerLoss {}

/// Whether an error is a simulated power loss.
pub fn is_power_loss(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<PowerLoss>())
}

/// Properties of the disk of a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// Sector size that the VFS reports, in bytes: 512 or 4,096.
    pub sector_size: u32,
    /// Whether the VFS reports `SQLITE_IOCAP_POWERSAFE_OVERWRITE`, as the Unix VFS does by default. Without it SQLite
    /// pads what it syncs to whole sectors. The disk itself never damages bytes beside a write, whatever is reported.
    pub powersafe_overwrite: bool,
    /// Limit for the total size of all files, in bytes; a write beyond it fails with `StorageFull` or `SQLITE_FULL`.
    pub capacity: u64,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions { sector_size: 4096, powersafe_overwrite: true, capacity: 1 << 40 }
    }
}

/// Number of the current boot. A handle records the boot in which it was opened and is dead in every other.
pub(crate) type Boot = u64;

/// How far a call at a sync boundary takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Durable,
    /// The power fails while the call is in flight.
    InFlight,
    /// It has no effect on durability, but the caller gets success.
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
    broken: BTreeSet<PathBuf>,
    last_handle: HandleId,
}

impl State {
    pub(crate) fn content(&self, file: FileId) -> Result<&Content> {
        self.tree.content(file).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    /// Writes unsynced. Fails when there is no room.
    pub(crate) fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.reserve(file, offset + data.len() as u64)?;
        if let Some((content, order)) = self.tree.content_mut(file) {
            content.write(order, offset, data);
        }
        Ok(())
    }

    /// Writes durably. Fails when there is no room.
    pub(crate) fn write_through(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.reserve(file, offset + data.len() as u64)?;
        if let Some((content, _)) = self.tree.content_mut(file) {
            content.write_through(offset, data);
        }
        Ok(())
    }

    /// Truncates or extends, unsynced. Fails when there is no room.
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

    /// Fails with `EIO` for every path in a directory whose device has failed.
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

/// One simulated host with a disk that loses power. Thread-safe; deterministic when only one thread uses it.
#[derive(Debug)]
pub struct SimMachine {
    pub(crate) options: SimOptions,
    clock: SimClock,
    state: Mutex<State>,
    vfs: OnceLock<Registration>,
}

impl SimMachine {
    /// Makes a machine with an empty disk. `seed` determines SQLite's `xRandomness` and the effect of a call that fails
    /// or crashes half-way.
    pub fn new(seed: u64) -> Arc<SimMachine> {
        SimMachine::with_options(seed, SimOptions::default())
    }

    /// Makes a machine like [`SimMachine::new`] with these properties.
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

    /// Makes a second machine with the same disk, including unsynced changes, and no open files: for trying several
    /// power losses at the same instant. It is powered and has no planned crash.
    pub fn copy(&self, seed: u64) -> Arc<SimMachine> {
        let copy = SimMachine::with_options(seed, self.options);
        let (mut there, here) = (copy.lock(), self.lock());
        there.tree = here.tree.clone();
        there.broken = here.broken.clone();
        drop((there, here));
        copy
    }

    /// The disk for the redo stages. The handle is dead after the next power loss.
    pub fn disk(self: &Arc<Self>) -> SimDisk {
        SimDisk::new(Arc::clone(self), self.boot())
    }

    /// Name of this machine's VFS in the SQLite that is compiled in, registered at the first call. It is unregistered
    /// when the machine and everything open on it is dropped.
    ///
    /// Open files are dead after a power loss, but opening and deleting by name cannot be assigned to a boot: drop the
    /// connections of a crashed run before [`SimMachine::power_loss`], as the death of a process does.
    pub fn vfs_name(self: &Arc<Self>) -> &str {
        self.vfs.get_or_init(|| Registration::new(self)).name()
    }

    /// The machine's clock. A sleeping connection advances it.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Number of sync boundaries since the machine was made: durable writes, syncs (including `xSync`), and the durable
    /// directory operations create, replace, rename and remove.
    pub fn boundaries(&self) -> u64 {
        self.lock().schedule.reached()
    }

    /// Makes the power fail at the `n`th sync boundary from now; 1 is the next one. That call and every later one
    /// returns [`PowerLoss`] or `SQLITE_IOERR` until [`SimMachine::power_loss`] or [`SimMachine::reboot`]. Replaces any
    /// earlier plan.
    pub fn crash_at(&self, n: u64, place: CrashPlace) {
        self.lock().schedule.plan(n, Event::Crash(place));
    }

    /// Makes the `n`th sync boundary from now fail once with `EIO`; the power stays on. As on a real disk, the bytes
    /// that the call should have made durable may or may not survive a later power loss.
    pub fn fail_at(&self, n: u64) {
        self.lock().schedule.plan(n, Event::Fail);
    }

    /// Runs `work` at the `n`th sync boundary from now, before the call at that boundary takes effect. `work` may use
    /// the machine. Replaces any earlier plan.
    pub fn at_boundary(&self, n: u64, work: impl FnOnce() + Send + 'static) {
        self.lock().schedule.plan(n, Event::Run(Box::new(work)));
    }

    /// Cancels a planned crash, failure or work.
    pub fn cancel_crash(&self) {
        self.lock().schedule.cancel();
    }

    /// Sets whether the disk lies: it then reports syncs and durable writes as done and leaves them unsynced.
    pub fn set_lying(&self, lying: bool) {
        self.lock().lying = lying;
    }

    /// Sets the limit for the total size of all files, in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// Makes the device of `directory` fail while the power is on: every call of a [`SimDisk`] for a file in it fails
    /// with `EIO`. A failed write may still leave some bytes, which may or may not survive a power loss.
    pub fn break_directory(&self, directory: impl AsRef<Path>) {
        self.lock().broken.insert(normal(directory.as_ref()));
    }

    /// Makes the devices of all directories work again, with their content.
    pub fn repair_directories(&self) {
        self.lock().broken.clear();
    }

    pub fn has_broken_directories(&self) -> bool {
        !self.lock().broken.is_empty()
    }

    /// Makes the power fail now; the disk stays as it is until [`SimMachine::power_loss`] decides what survives.
    pub fn cut_power(&self) {
        self.lock().powered = false;
    }

    pub fn is_powered(&self) -> bool {
        self.lock().powered
    }

    /// Loses power (if it has not yet), decides which unsynced changes survive, and boots. Handles, locks and shared
    /// memory from before are dead; a planned crash is cancelled.
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

    /// Calls [`SimMachine::power_loss`] with [`Loss::Random`] and the machine's own generator.
    pub fn reboot(&self) -> LossReport {
        let mut rng = self.lock().rng.fork();
        self.power_loss(Loss::Random, &mut rng)
    }

    /// Number of changes that a power loss could undo; the range of [`Loss::Prefix`].
    pub fn unsynced_changes(&self) -> u64 {
        self.lock().tree.orders().len() as u64
    }

    /// Number of open files, of SQLite and of [`SimDisk`] together.
    pub fn open_files(&self) -> u64 {
        self.lock().tree.handles()
    }

    /// Content of a file for the running system; None when the file does not exist.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.tree.content(state.tree.find(path.as_ref())?)?.seen().to_vec())
    }

    /// Durable content of a file that exists in the running system.
    pub fn durable_contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.tree.content(state.tree.find(path.as_ref())?)?.durable().to_vec())
    }

    /// Puts a file on the disk, durable immediately and without a boundary, with or without power.
    pub fn install(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let tree = &mut self.lock().tree;
        let file = tree.create(path.as_ref());
        if let Some((content, _)) = tree.content_mut(file) {
            *content = Content::durable_from(bytes);
        }
        tree.sync(file);
    }

    /// Hash over all names and contents that the running system sees: equal for equal disks.
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

    /// The state, with or without power: for bookkeeping that must work after a power loss, such as closing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call, without a sync boundary, of a handle that was opened in `boot`.
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
        // The caller does not get the result: the power is off.
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
