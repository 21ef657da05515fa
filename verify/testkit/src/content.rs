use crate::SECTOR_BYTES;
use crate::loss::Verdict;

/// Numbers the changes of all files of a machine in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order(u64);

impl Order {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Grow(u64),
    Truncate(u64),
}

#[derive(Clone, Debug)]
struct Unsynced {
    order: u64,
    change: Change,
}

/// The bytes of one file: the content that the running system sees, the durable content, and the changes between the
/// two.
///
/// Invariant: `durable` with all `unsynced` changes applied in order equals `seen`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

impl Content {
    pub(crate) fn durable_from(bytes: &[u8]) -> Content {
        Content { seen: bytes.to_vec(), durable: bytes.to_vec(), unsynced: Vec::new() }
    }

    pub(crate) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(crate) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(crate) fn orders(&self) -> impl Iterator<Item = u64> {
        self.unsynced.iter().map(|unsynced| unsynced.order)
    }

    pub(crate) fn write(&mut self, order: &mut Order, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        // The new size and the new bytes reach the disk separately: after a power loss the file may be longer, with
        // zeros.
        self.grow(order, offset + data.len() as u64);
        self.change(order, Change::Write { offset, bytes: data.to_vec() });
    }

    pub(crate) fn grow(&mut self, order: &mut Order, size: u64) {
        if size > self.seen.len() as u64 {
            self.change(order, Change::Grow(size));
        }
    }

    /// Truncates or extends the file to `size` bytes.
    pub(crate) fn resize(&mut self, order: &mut Order, size: u64) {
        if size < self.seen.len() as u64 {
            self.change(order, Change::Truncate(size));
        } else {
            self.grow(order, size);
        }
    }

    fn change(&mut self, order: &mut Order, change: Change) {
        apply(&mut self.seen, &change);
        self.unsynced.push(Unsynced { order: order.next(), change });
    }

    pub(crate) fn sync(&mut self) {
        for unsynced in self.unsynced.drain(..) {
            apply(&mut self.durable, &unsynced.change);
        }
    }

    /// Writes durably: these bytes, and the file size that they need, survive; other unsynced bytes stay unsynced.
    pub(crate) fn write_through(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.settle_sizes();
        self.forget_unsynced(offset, end);
        for bytes in [&mut self.seen, &mut self.durable] {
            apply(bytes, &Change::Grow(end));
            put(bytes, offset, data);
        }
    }

    /// Makes all changes of the size durable; written bytes stay unsynced. Bytes that a truncation removed are lost
    /// permanently.
    fn settle_sizes(&mut self) {
        let mut kept: Vec<Unsynced> = Vec::with_capacity(self.unsynced.len());
        for unsynced in self.unsynced.drain(..) {
            match unsynced.change {
                Change::Write { .. } => kept.push(unsynced),
                Change::Grow(_) => apply(&mut self.durable, &unsynced.change),
                Change::Truncate(size) => {
                    apply(&mut self.durable, &unsynced.change);
                    kept = kept.into_iter().flat_map(|earlier| without(earlier, size, u64::MAX)).collect();
                }
            }
        }
        self.unsynced = kept;
    }

    /// Drops the unsynced bytes of `start..end`, because a later write replaces them.
    fn forget_unsynced(&mut self, start: u64, end: u64) {
        let unsynced = std::mem::take(&mut self.unsynced);
        self.unsynced = unsynced.into_iter().flat_map(|earlier| without(earlier, start, end)).collect();
    }

    /// Decides which unsynced changes survive; afterwards the seen content is the durable one.
    pub(crate) fn lose_power(&mut self, verdict: &mut Verdict<'_>) {
        if self.unsynced.is_empty() {
            return;
        }
        verdict.next_file();
        for Unsynced { order, change } in self.unsynced.drain(..) {
            match change {
                Change::Write { offset, bytes } => {
                    for (at, chunk) in sectors(offset, &bytes) {
                        if verdict.survives(order) {
                            apply(&mut self.durable, &Change::Grow(at + chunk.len() as u64));
                            put(&mut self.durable, at, chunk);
                        }
                    }
                }
                other => {
                    if verdict.survives(order) {
                        apply(&mut self.durable, &other);
                    }
                }
            }
        }
        self.seen.clone_from(&self.durable);
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        // Writes are inside the file here: `write` records the growth first, and `settle_sizes` applies it before the
        // writes. After a truncation in between, `without` has shortened the writes to fit.
        Change::Write { offset, bytes: data } => put(bytes, *offset, data),
        Change::Grow(size) => bytes.resize(bytes.len().max(*size as usize), 0),
        Change::Truncate(size) => bytes.truncate(*size as usize),
    }
}

fn put(bytes: &mut [u8], offset: u64, data: &[u8]) {
    let start = offset as usize;
    bytes[start..start + data.len()].copy_from_slice(data);
}

/// Returns the parts of a write that are outside `start..end`; returns other changes unchanged.
fn without(unsynced: Unsynced, start: u64, end: u64) -> impl Iterator<Item = Unsynced> {
    let Unsynced { order, change } = unsynced;
    let parts = match change {
        Change::Write { offset, bytes } => {
            let cut = |at: u64| (at.saturating_sub(offset) as usize).min(bytes.len());
            let (before, after) = (&bytes[..cut(start)], &bytes[cut(end)..]);
            let after_offset = offset + cut(end) as u64;
            [(offset, before), (after_offset, after)]
                .into_iter()
                .filter(|(_, bytes)| !bytes.is_empty())
                .map(|(offset, bytes)| Change::Write { offset, bytes: bytes.to_vec() })
                .collect()
        }
        other => vec![other],
    };
    parts.into_iter().map(move |change| Unsynced { order, change })
}

/// Splits a write at sector boundaries.
fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = offset;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
        let (chunk, tail) = rest.split_at(room.min(rest.len()));
        let result = (at, chunk);
        at += chunk.len() as u64;
        rest = tail;
        Some(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::rng::Rng;

    fn lose(content: &mut Content, loss: Loss, seed: u64) {
        let mut orders: Vec<u64> = content.orders().collect();
        orders.sort_unstable();
        let mut rng = Rng::new(seed);
        content.lose_power(&mut Verdict::new(loss, &orders, &mut rng));
    }

    #[test]
    fn a_write_is_split_at_sector_limits() {
        let bytes = [7; 1100];
        let chunks: Vec<_> = sectors(500, &bytes).map(|(at, chunk)| (at, chunk.len())).collect();
        assert_eq!(chunks, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    }

    #[test]
    fn syncing_random_changes_always_yields_the_visible_content() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut content, mut order) = (Content::default(), Order::default());
            for _ in 0..40 {
                let (offset, length) = (rng.below(3000), rng.between(1, 1500) as usize);
                match rng.below(8) {
                    0 => content.resize(&mut order, offset),
                    1 => content.sync(),
                    2 | 3 => content.write_through(offset, &rng.bytes(length)),
                    _ => content.write(&mut order, offset, &rng.bytes(length)),
                }
                let mut synced = content.clone();
                synced.sync();
                assert_eq!(synced.durable, content.seen, "seed {seed}");
                lose(&mut synced, Loss::DropUnsynced, 0);
                assert_eq!(synced.seen, content.seen, "seed {seed}");
            }
        }
    }

    #[test]
    fn durable_write_survives_any_pending_changes_around_it() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut content, mut order) = (Content::default(), Order::default());
            for _ in 0..10 {
                let offset = rng.below(3000);
                match rng.below(3) {
                    0 => content.resize(&mut order, offset),
                    _ => content.write(&mut order, offset, &rng.bytes(1000)),
                }
            }
            content.write_through(1024, &[9; 512]);
            content.write(&mut order, 0, &[1; 1024]);
            content.write(&mut order, 1536, &[1; 1024]);
            lose(&mut content, Loss::Random, seed);
            assert_eq!(content.seen[1024..1536], [9; 512], "seed {seed}");
        }
    }

    #[test]
    fn a_random_loss_drops_tears_and_reorders() {
        let (mut dropped, mut kept, mut torn, mut reordered) = (0, 0, 0, 0);
        for seed in 0..400 {
            let (mut content, mut order) = (Content::durable_from(&[0; 2048]), Order::default());
            content.write(&mut order, 0, &[1; 1024]);
            content.write(&mut order, 1024, &[2; 1024]);
            lose(&mut content, Loss::Random, seed);
            let (first, second) = content.seen.split_at(1024);
            let whole = |half: &[u8]| half.iter().all(|b| *b == half[0]).then_some(half[0]);
            match (whole(first), whole(second)) {
                (Some(0), Some(0)) => dropped += 1,
                (Some(1), Some(2)) => kept += 1,
                (Some(0), Some(2)) => reordered += 1,
                _ => torn += 1,
            }
        }
        assert!(
            dropped > 20 && kept > 20 && torn > 20 && reordered > 5,
            "{dropped} {kept} {torn} {reordered}"
        );
    }

    #[test]
    fn prefix_loss_keeps_exactly_the_first_changes() {
        let (mut content, mut order) = (Content::durable_from(b"....."), Order::default());
        content.write(&mut order, 0, b"a");
        content.resize(&mut order, 3);
        content.write(&mut order, 1, b"b");
        let after = |n| {
            let mut content = content.clone();
            lose(&mut content, Loss::Prefix(n), 0);
            String::from_utf8(content.seen).unwrap()
        };
        assert_eq!((0..5).map(after).collect::<Vec<_>>(), [".....", "a....", "a..", "ab.", "ab."]);
    }

    #[test]
    fn growth_may_survive_without_its_bytes() {
        let outcomes: Vec<Vec<u8>> = (0..400)
            .map(|seed| {
                let (mut content, mut order) = (Content::default(), Order::default());
                content.write(&mut order, 0, &[5; 512]);
                lose(&mut content, Loss::Random, seed);
                content.seen
            })
            .collect();
        assert!(
            outcomes.contains(&vec![0; 512])
                && outcomes.contains(&vec![5; 512])
                && outcomes.contains(&vec![])
        );
    }
}
