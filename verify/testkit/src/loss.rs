use crate::rng::Rng;

/// The fate of unsynced changes in a power loss. Synced changes always survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each sector of each unsynced write, each change of a file's size and each created, renamed or removed name
    /// survives or is lost on its own, so writes are dropped, torn and reordered. The odds are drawn per file, from
    /// none to all, and in some files each write survives or is lost as a whole.
    Random,
    DropUnsynced,
    /// All changes survive, as if only the processes had died.
    KeepUnsynced,
    /// The first `n` unsynced changes, in the order in which they were made, survive as a whole, and the others are
    /// lost; see [`crate::SimMachine::unsynced_changes`].
    Prefix(u64),
}

/// Effect of a power loss, for messages of failed tests. Counts sectors, size changes and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossReport {
    pub survived: u64,
    pub lost: u64,
}

/// Decides for one change after the other whether it survives.
pub(crate) struct Verdict<'a> {
    loss: Loss,
    /// In [`Loss::Prefix`]: changes with a smaller order number survive.
    end_of_prefix: u64,
    /// In [`Loss::Random`]: percentage of surviving sectors, size changes and names of the current file.
    odds: u64,
    /// In [`Loss::Random`]: writes of the current file are not torn, but still dropped and reordered.
    whole: bool,
    /// Order number of the last change and whether it survived.
    last: Option<(u64, bool)>,
    rng: &'a mut Rng,
    pub(crate) report: LossReport,
}

impl<'a> Verdict<'a> {
    /// `orders` are the order numbers of all unsynced changes, ascending.
    pub(crate) fn new(loss: Loss, orders: &[u64], rng: &'a mut Rng) -> Verdict<'a> {
        let end_of_prefix = match loss {
            Loss::Prefix(n) => orders.get(n as usize).copied().unwrap_or(u64::MAX),
            _ => 0,
        };
        Verdict {
            loss,
            end_of_prefix,
            odds: 50,
            whole: false,
            last: None,
            rng,
            report: LossReport::default(),
        }
    }

    /// Draws new odds. With even odds alone, a large write would almost never survive or be lost as a whole.
    pub(crate) fn next_file(&mut self) {
        if self.loss == Loss::Random {
            self.odds = self.rng.pick(&[0, 10, 50, 90, 99, 100]).copied().unwrap_or(50);
            self.whole = self.rng.chance(30);
        }
    }

    /// Whether a sector, or the whole, of the change with this order number survives.
    pub(crate) fn survives(&mut self, order: u64) -> bool {
        let survives = match self.loss {
            Loss::Random => match self.last {
                Some((last, survived)) if self.whole && last == order => survived,
                _ => self.rng.chance(self.odds),
            },
            Loss::DropUnsynced => false,
            Loss::KeepUnsynced => true,
            Loss::Prefix(_) => order < self.end_of_prefix,
        };
        self.last = Some((order, survives));
        if survives {
            self.report.survived += 1;
        } else {
            self.report.lost += 1;
        }
        survives
    }
}
