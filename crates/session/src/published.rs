//! What the instance publishes and sessions read. The instance keeps a copy of its own and never reads the published
//! one back.
//!
//! An *epoch* counts the generations of a WAL. The instance moves it and publishes the salts that it stands for before
//! it captures anything of the generation. So a position (epoch, frame) belongs to one of the published generations,
//! and nothing that a session or any other process writes has a part in it. See docs/decisions/0057.

use crate::layout::{DATABASES, GENERATIONS_KEPT, Generation, Published, PublishedDatabase};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// What a session waits for: a frame of a WAL generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    position: u64,
    /// Salts of the generation, if the instance had not yet published its epoch.
    unconfirmed: Option<u64>,
}

impl Target {
    /// Returns epoch and frame, packed as in a release position.
    pub fn position(self) -> u64 {
        self.position
    }
}

/// Whether what is published has reached a [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    No,
    Yes,
    /// Only the end of its epoch is certain: the epoch stood for another generation, or is so old that its salts are no
    /// longer published.
    CannotSay,
}

pub(crate) fn packed([first, second]: [u32; 2]) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

pub(crate) fn unpacked(salts: u64) -> [u32; 2] {
    [salts as u32, (salts >> 32) as u32]
}

fn kept(generations: &[Generation; GENERATIONS_KEPT], epoch: u32) -> &Generation {
    &generations[epoch as usize % GENERATIONS_KEPT]
}

impl PublishedDatabase {
    /// The salts that `epoch` stands for; `None` when they are not published, or being written.
    fn salts_of(&self, epoch: u32) -> Option<u64> {
        let generation = kept(&self.generations, epoch);
        if generation.epoch.load(SeqCst) != epoch {
            return None;
        }
        let salts = generation.salts.load(SeqCst);
        (generation.epoch.load(SeqCst) == epoch).then_some(salts)
    }

    /// The newest epoch, and its salts. `None` only where another process writes garbage there.
    pub(crate) fn generation(&self) -> Option<(u32, u64)> {
        // Each time that the salts are not published there is a newer epoch: salts stay published for longer than this.
        (0..1_000).find_map(|_| {
            let epoch = self.epoch.load(SeqCst);
            Some((epoch, self.salts_of(epoch)?))
        })
    }

    /// Where `frame` of the generation with `salts` stands, for the session that has just committed it and holds the
    /// write lock. If the newest published generation is another one, this generation is its successor: the instance
    /// publishes each generation before it captures any of it, and a WAL is reset only when all of it is captured.
    pub(crate) fn target(&self, salts: [u32; 2], frame: u32) -> Option<Target> {
        let salts = packed(salts);
        let (epoch, known) = self.generation()?;
        let (epoch, unconfirmed) =
            if known == salts { (epoch, None) } else { (epoch.wrapping_add(1), Some(salts)) };
        Some(Target { position: u64::from(epoch) << 32 | u64::from(frame), unconfirmed })
    }

    /// Like [`PublishedDatabase::target`], for sessions that hold no lock: `None` unless `salts` are those of the
    /// newest generation.
    pub(crate) fn target_of_reader(&self, salts: [u32; 2], frame: u32) -> Option<Target> {
        let (epoch, known) = self.generation()?;
        let position = u64::from(epoch) << 32 | u64::from(frame);
        (known == packed(salts)).then_some(Target { position, unconfirmed: None })
    }

    pub(crate) fn reached(&self, target: Target) -> Reached {
        if self.durable.load(SeqCst) < target.position {
            return Reached::No;
        }
        match target.unconfirmed {
            None => Reached::Yes,
            // Published before anything of the generation was durable.
            Some(salts) if self.salts_of((target.position >> 32) as u32) == Some(salts) => Reached::Yes,
            Some(_) => Reached::CannotSay,
        }
    }

    /// Whether `target`, which is not reached, can still be. It cannot when what was published was garbage as it was
    /// read, and has been corrected since: a session that waited for it would wait for ever.
    pub(crate) fn can_reach(&self, target: Target) -> bool {
        let Some((newest, known)) = self.generation() else { return true };
        let epoch = (target.position >> 32) as u32;
        match target.unconfirmed {
            None => epoch <= newest,
            Some(salts) if epoch <= newest => self.salts_of(epoch) == Some(salts),
            Some(salts) => epoch == newest.wrapping_add(1) && known != salts,
        }
    }

    /// Lets `epoch` stand for `salts`, as the newest epoch.
    pub(crate) fn begin_generation(&self, epoch: u32, salts: u64) {
        let generation = kept(&self.generations, epoch);
        generation.epoch.store(!epoch, SeqCst);
        generation.salts.store(salts, SeqCst);
        generation.epoch.store(epoch, SeqCst);
        self.epoch.store(epoch, SeqCst);
    }

    fn words(&self) -> (impl Iterator<Item = &AtomicU32>, impl Iterator<Item = &AtomicU64>) {
        let short = [&self.state, &self.epoch, &self.rewriting, &self.other_writers, &self.gate];
        let epochs = self.generations.iter().map(|generation| &generation.epoch);
        let salts = self.generations.iter().map(|generation| &generation.salts);
        let long = [&self.durable, &self.scn, &self.current_as_of_ns];
        (short.into_iter().chain(epochs), long.into_iter().chain(salts))
    }
}

impl Published {
    pub(crate) fn of(&self, database: u16) -> &PublishedDatabase {
        &self.databases[usize::from(database) % DATABASES]
    }

    /// All words that the instance is responsible for; wake words are not among them.
    pub(crate) fn words(&self) -> (impl Iterator<Item = &AtomicU32>, impl Iterator<Item = &AtomicU64>) {
        let settings = &self.settings;
        let short = [
            &self.head.version,
            &self.head.retired,
            &settings.commit_mode,
            &settings.durable_visibility,
            &settings.write_wait_ms,
            &settings.commit_wait_ms,
            &settings.running,
            &settings.unconfirmed,
        ];
        let long = [&self.head.magic, &self.head.instance[0], &self.head.instance[1], &settings.clock];
        (
            short.into_iter().chain(self.databases.iter().flat_map(|of| of.words().0)),
            long.into_iter()
                .chain(&settings.primary)
                .chain(self.databases.iter().flat_map(|of| of.words().1)),
        )
    }

    /// Copies it into memory of this process alone.
    pub(crate) fn copied(&self) -> Box<Published> {
        // SAFETY: the size is not zero; all bits zero are a valid value of a type of atomics, and the box frees what
        // has just been allocated for this type. On the stack it would be large.
        let copy = unsafe {
            let layout = std::alloc::Layout::new::<Published>();
            let place = std::alloc::alloc_zeroed(layout).cast::<Published>();
            if place.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            Box::from_raw(place)
        };
        let ((short, long), (from_short, from_long)) = (copy.words(), self.words());
        // Most words are zero, and a page that is not written takes no memory.
        short
            .zip(from_short)
            .map(|(to, from)| (to, from.load(SeqCst)))
            .filter(|(_, value)| *value != 0)
            .for_each(|(to, value)| to.store(value, SeqCst));
        long.zip(from_long)
            .map(|(to, from)| (to, from.load(SeqCst)))
            .filter(|(_, value)| *value != 0)
            .for_each(|(to, value)| to.store(value, SeqCst));
        copy
    }
}
