//! The three kinds of arbiter: the shipped state machine of an observer, and models of the two kinds of store.

use standfast_arbitration::arbiter::{Answer, Ask, Replace};
use standfast_arbitration::record::{Kept, Record, Version};
use standfast_arbitration::register::Register;
use standfast_testkit::Rng;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Observer,
    /// A store whose versions are numbers of revisions, as etcd.
    Revisions,
    /// A store whose versions are sums of the content, with a client that repeats a request of which the answer got lost.
    Objects,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Observer, Kind::Revisions, Kind::Objects];
}

pub enum SimArbiter {
    Observer {
        register: Register,
        /// Everything that was ever stored; the last one is the file.
        stored: Vec<Option<Record>>,
    },
    Revisions {
        revision: u64,
        record: Option<Record>,
    },
    Objects {
        record: Option<Record>,
    },
}

impl SimArbiter {
    pub fn new(kind: Kind, rng: &mut Rng) -> SimArbiter {
        match kind {
            Kind::Observer => {
                SimArbiter::Observer { register: Register::new(rng.next_u64(), None), stored: vec![None] }
            }
            Kind::Revisions => SimArbiter::Revisions { revision: 0, record: None },
            Kind::Objects => SimArbiter::Objects { record: None },
        }
    }

    /// Starts an observer again. `forgets`: with a file that is older, or lost.
    pub fn restart(&mut self, forgets: bool, rng: &mut Rng) {
        if let SimArbiter::Observer { register, stored } = self {
            let last = stored.len() as u64 - 1;
            let found = if forgets { rng.below(last + 1) } else { last } as usize;
            let record = stored[found].clone();
            stored.push(record.clone());
            *register = Register::new(rng.next_u64(), record);
        }
    }

    pub fn ask(&mut self, from: &str, ask: &Ask, rng: &mut Rng) -> Answer {
        match self {
            SimArbiter::Observer { register, stored } => {
                let answered = register.answer(from, ask);
                if answered.store {
                    stored.push(register.record().cloned());
                }
                answered.answer
            }
            SimArbiter::Revisions { revision, record } => {
                let version = record.as_ref().map(|_| Version(revision.to_string()));
                match ask {
                    Ask::Replace(replace) if replace.expected == version => {
                        *revision += 1;
                        *record = Some(replace.record.clone());
                        Answer::Replaced { version: Version(revision.to_string()) }
                    }
                    _ => is(record.as_ref(), version),
                }
            }
            SimArbiter::Objects { record } => {
                let first = put(record, ask);
                // The answer got lost and the client has sent the request again.
                if rng.chance(20) { put(record, ask) } else { first }
            }
        }
    }
}

fn is(record: Option<&Record>, version: Option<Version>) -> Answer {
    let kept = record.zip(version).map(|(record, version)| Kept { version, record: record.clone() });
    Answer::Is { kept, votes: true }
}

fn sum(record: &Record) -> Version {
    let mut hasher = DefaultHasher::new();
    format!("{record:?}").hash(&mut hasher);
    Version(hasher.finish().to_string())
}

fn put(record: &mut Option<Record>, ask: &Ask) -> Answer {
    let version = record.as_ref().map(sum);
    match ask {
        Ask::Replace(Replace { expected, record: new, .. }) if *expected == version => {
            *record = Some(new.clone());
            Answer::Replaced { version: sum(new) }
        }
        _ => is(record.as_ref(), version),
    }
}
