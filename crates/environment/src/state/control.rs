//! The control file: which instance this is, in which role and incarnation, and what it protects.
//!
//! [`Control`] is its content, and `storage` reads and writes it. `files` has its records about database files,
//! `stream` those about the redo stream.

mod files;
mod layouts;
mod storage;
mod stream;
mod trust;

pub use files::{
    FileStamp, FileSwap, KeptFile, KnownFile, LastingIdentity, OwedImage, RestingFile, RestingWal, WholeFile,
};
pub use layouts::{RedoLayout, RedoLayouts};
pub use stream::{GapRecord, Incarnation, LostRecord, Reinstating, SnapshotStandby, Superseding, Upstream};
pub use trust::{FencedBy, Trust};

use crate::config::error::InstanceError;
use serde::{Deserialize, Serialize};
use standfast_arbitration::primary::Required;
use standfast_transport as transport;
use standfast_transport::protection::ProtectionMode;
use standfast_types::{DATABASES_MAX, DatabaseId, IncarnationId, IncarnationNo, InstanceId, PageSize, Scn};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Primary,
    /// Receives and applies the redo of a primary.
    Standby,
    /// Receives the redo of a primary and forwards it; has no databases.
    #[serde(rename = "far sync")]
    FarSync,
}

impl Role {
    /// Returns the role as the transport names it.
    pub fn of_peer(self) -> transport::Role {
        match self {
            Role::Primary => transport::Role::Primary,
            Role::Standby => transport::Role::Standby,
            Role::FarSync => transport::Role::FarSync,
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.of_peer().fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseRecord {
    pub id: DatabaseId,
    /// File name on every standby; unique.
    pub name: String,
    pub path: PathBuf,
    pub page_size: PageSize,
    /// Redo of this database before this position is void for this instance: its protection, or its copy, began there.
    pub start_scn: Scn,
    /// On a standby: the position from which its redo is needed.
    #[serde(default)]
    pub redo_from: Scn,
    /// On a standby: it began with an attach record, not as a copy.
    #[serde(default)]
    pub begun_empty: bool,
}

/// A page of a database that verification has found to differ from the primary's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingPage {
    pub database: DatabaseId,
    /// The page, and what was found.
    #[serde(flatten)]
    pub difference: transport::PageDifference,
}

/// How far a store had come that arbitrates fast-start failover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSeen {
    /// The setting that names it.
    pub observer: String,
    /// Serial number of its record when that last stated something new.
    pub serial: u64,
}

/// The content of the control file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    pub instance: InstanceId,
    /// The instance made with `init`, of which all others are copies, whichever is the primary now. It identifies the
    /// family: only instances of one family exchange redo. Every log file has it in its header.
    pub family: InstanceId,
    pub role: Role,
    /// All incarnations of the stream, oldest first; the last one is current.
    pub incarnations: Vec<Incarnation>,
    /// Recovery begins here: everything before is in the synced databases.
    pub checkpoint: Scn,
    /// Protected databases. In the file, a path within the instance directory is relative to it.
    pub databases: Vec<DatabaseRecord>,
    /// Number for the next protected database.
    pub next_database: u16,
    /// Whether a copy of this family may exist elsewhere. If so, a database that becomes protected is copied into the
    /// redo, since no later copy brings it there. Absent in the file: yes.
    #[serde(default = "yes")]
    pub copied: bool,
    /// Databases to which recovery is applying redo, and from where on. Their own state does not count until recovery
    /// has recorded their positions in the redo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replays: Vec<(DatabaseId, Scn)>,
    /// Offline databases (not opened, or failed), and from where on each may lack redo: `checkpoint` does not apply to
    /// them. Removed when they are served again or no longer protected.
    #[serde(default, rename = "left_out", skip_serializing_if = "Vec::is_empty")]
    pub offline: Vec<(DatabaseId, Scn)>,
    /// See [`WholeFile`]; the newest one of each database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whole_files: Vec<WholeFile>,
    /// On a standby: see [`RestingFile`]. Written by a clean shutdown and removed by the next start, before anything is
    /// applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resting_files: Vec<RestingFile>,
    /// See [`OwedImage`]; a database whose image is complete has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed_images: Vec<OwedImage>,
    /// Files that were set aside when other content replaced a database, and were not removed since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_files: Vec<KeptFile>,
    /// See [`FileSwap`]; at most one per database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_swaps: Vec<FileSwap>,
    /// Files of databases, as a primary last had them open. Nothing is known of a database without an entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_files: Vec<KnownFile>,
    /// Databases that are no longer protected, and where the redo says so: earlier redo of their numbers is void. Kept
    /// until recovery no longer begins before that position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<(DatabaseId, Scn)>,
    /// Directories that were protected as such: unprotected database files in them are reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PathBuf>,
    /// Files of the redo log that were dropped while another member of their group continued: they lack redo until a
    /// start has brought them up to date. A path within the instance directory is relative to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale_members: Vec<PathBuf>,
    /// Groups and members of the redo logs, once they differ from the configuration.
    #[serde(default, skip_serializing_if = "RedoLayouts::is_empty")]
    pub redo_layouts: RedoLayouts,
    /// PROTECTION_MODE of this instance as a primary.
    #[serde(default)]
    pub protection_mode: ProtectionMode,
    /// Destinations, by name, that have been synchronised since they were configured: commits wait for them from the
    /// start. `None` in a file of an earlier release: all configured destinations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronised: Option<BTreeSet<String>>,
    /// On a primary: members without which no commit returns, because one of them may take over (fast-start failover).
    #[serde(default, skip_serializing_if = "Required::is_default")]
    pub required: Required,
    /// On a primary: the observer that has been asked since fast-start failover was enabled, NAME@HOST:PORT.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observer: String,
    /// How far a store that arbitrates had come: an older record there is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_seen: Option<StoreSeen>,
    /// On a standby: redo that is missing although later redo is there. Written before anything beyond the gap; removed
    /// when the gap is filled or what lay beyond it is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapRecord>,
    /// On a standby: redo that it had and can no longer read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostRecord>,
    /// On a standby: applications write to copies of its databases, and its own files are set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotStandby>,
    /// Set while the databases are being made those of another primary: until then the instance may not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinstating: Option<Reinstating>,
    /// Set while this instance may not open because another instance has taken over; the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced: Option<String>,
    /// On a standby or far sync: a newer incarnation that it has met and whose redo it does not follow yet. Meanwhile
    /// it neither takes nor forwards redo of an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Superseding>,
    /// Which claims about incarnations are trusted.
    #[serde(default, skip_serializing_if = "Trust::is_empty")]
    pub trust: Trust,
    /// The directory that this file was written in; `None` in a file of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<LastingIdentity>,
    /// On a standby: where its redo comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Pages that differed from the primary's when they were last compared, as a standby. After a failover they are
    /// still reported: this instance serves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<DifferingPage>,
    /// On a primary: when the next scheduled verification is due, microseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_due_us: Option<u64>,
    /// Set by a clean shutdown, cleared by a start.
    #[serde(default)]
    pub clean: bool,
}

fn yes() -> bool {
    true
}

impl Control {
    /// Content for an instance without databases whose redo begins at `checkpoint`.
    pub fn new(
        instance: InstanceId,
        family: InstanceId,
        role: Role,
        incarnations: Vec<Incarnation>,
        checkpoint: Scn,
    ) -> Control {
        Control {
            instance,
            family,
            role,
            incarnations,
            checkpoint,
            databases: Vec::new(),
            next_database: 1,
            copied: false,
            replays: Vec::new(),
            offline: Vec::new(),
            known_files: Vec::new(),
            whole_files: Vec::new(),
            resting_files: Vec::new(),
            owed_images: Vec::new(),
            kept_files: Vec::new(),
            file_swaps: Vec::new(),
            detached: Vec::new(),
            directories: Vec::new(),
            stale_members: Vec::new(),
            redo_layouts: Default::default(),
            protection_mode: Default::default(),
            synchronised: Some(Default::default()),
            required: Default::default(),
            observer: Default::default(),
            store_seen: None,
            gap: None,
            lost: None,
            snapshot: None,
            reinstating: None,
            fenced: None,
            superseded_by: None,
            trust: Default::default(),
            home: None,
            upstream: None,
            differing: Vec::new(),
            verify_due_us: None,
            clean: true,
        }
    }

    /// Returns the current incarnation; number 0 when there is none.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnations.last().cloned().unwrap_or(Incarnation {
            number: 0,
            id: IncarnationId::default(),
            branch: Scn::START,
            time_us: 0,
        })
    }

    /// Returns all incarnations that this instance knows: the newer ones that it has met, else those of its stream.
    pub fn known_incarnations(&self) -> &[Incarnation] {
        let newer = self.superseded_by.as_ref().filter(|newer| newer.number() > self.incarnation().number);
        newer.map_or(&self.incarnations, |newer| &newer.incarnations)
    }

    /// Returns the number of the incarnation that begins when this standby becomes primary: higher than all that it
    /// knows.
    pub fn next_incarnation(&self) -> IncarnationNo {
        self.known_incarnations().last().map_or(0, |incarnation| incarnation.number) + 1
    }

    /// Returns where recovery of an offline database begins; `None` when the database is not offline.
    pub fn offline_from(&self, id: DatabaseId) -> Option<Scn> {
        self.offline.iter().find(|(offline, _)| *offline == id).map(|(_, from)| *from)
    }

    /// Records that a database is offline and may lack redo from `from` on; a recorded position stays.
    pub fn take_offline(&mut self, id: DatabaseId, from: Scn) {
        if self.offline_from(id).is_none() {
            self.offline.push((id, from));
        }
    }

    /// Returns the position from which offline databases need archived logs; the greatest position when none is
    /// offline.
    pub fn archives_needed_from(&self) -> Scn {
        self.offline.iter().map(|(_, from)| *from).min().unwrap_or(Scn(u64::MAX))
    }

    /// Enters the history of a primary whose `databases` are copied here. When an incarnation began stays known.
    pub fn enter(&mut self, history: &[transport::Incarnation], databases: Vec<DatabaseRecord>) {
        let known = std::mem::take(&mut self.incarnations);
        let entered = |there: &transport::Incarnation| {
            let here = known.iter().find(|known| known.id == there.id).cloned();
            here.unwrap_or_else(|| Incarnation::from(there))
        };
        self.incarnations = history.iter().map(entered).collect();
        let next = databases.iter().map(|record| record.id.0 + 1).max().unwrap_or(1);
        self.next_database = self.next_database.max(next);
        self.databases = databases;
    }

    /// Makes this the content for a standby whose databases hold everything before `from`, as if they had been copied there:
    /// what was known of it as a primary, or as a standby of an earlier stream, is void.
    pub fn begin_as_standby(&mut self, from: Scn, resting_files: Vec<RestingFile>) {
        self.role = Role::Standby;
        self.checkpoint = from;
        self.resting_files = resting_files;
        (self.upstream, self.gap, self.lost, self.reinstating) = (None, None, None, None);
        (self.fenced, self.superseded_by, self.trust.fenced_by) = (None, None, None);
        self.replays.clear();
        self.offline.clear();
        self.whole_files.clear();
        self.known_files.clear();
        self.owed_images.clear();
        self.file_swaps.clear();
        self.detached.clear();
        self.differing.clear();
        self.no_fast_start();
        self.verify_due_us = None;
        (self.copied, self.clean) = (true, true);
    }

    /// Forgets what this primary owed to a target and an observer: it is a primary no longer, becomes one again, or fast-start
    /// failover is disabled.
    pub fn no_fast_start(&mut self) {
        self.required = Required::default();
        self.observer.clear();
    }

    /// Removes a database that is no longer protected; `scn`: the redo before it says so.
    pub fn forget(&mut self, id: DatabaseId, scn: Scn) {
        self.detached.retain(|(other, at)| *other != id && *at > self.checkpoint);
        self.detached.push((id, scn));
        self.databases.retain(|record| record.id != id);
        self.replays.retain(|(other, _)| *other != id);
        self.offline.retain(|(other, _)| *other != id);
        self.differing.retain(|page| page.database != id);
        self.known_files.retain(|known| known.database != id);
        self.whole_files.retain(|whole| whole.database != id);
        self.owed_images.retain(|owed| owed.database != id);
        self.file_swaps.retain(|swap| swap.database != id);
        self.resting_files.retain(|resting| resting.database != id);
    }

    /// Records that the file of a database alone holds everything before a position. An earlier record stays true.
    pub fn note_whole(&mut self, whole: WholeFile) {
        let known = self.whole_file(whole.database).map_or(Scn::ZERO, |known| known.scn);
        self.whole_files.retain(|other| other.database != whole.database);
        self.whole_files.push(WholeFile { scn: whole.scn.max(known), ..whole });
    }

    pub fn whole_file(&self, id: DatabaseId) -> Option<WholeFile> {
        self.whole_files.iter().find(|whole| whole.database == id).copied()
    }

    /// Records a file that was set aside.
    pub fn note_kept(&mut self, kept: KeptFile) {
        if self.kept_files.iter().all(|other| other.path != kept.path) {
            self.kept_files.push(kept);
        }
    }

    /// Records that a file is about to be replaced by another one.
    pub fn begin_swap(&mut self, swap: FileSwap) {
        self.file_swaps.retain(|other| other.database != swap.database);
        self.file_swaps.push(swap);
    }

    pub fn file_swap(&self, id: DatabaseId) -> Option<FileSwap> {
        self.file_swaps.iter().find(|swap| swap.database == id).cloned()
    }

    /// Records that a full resync image was begun.
    pub fn owe_image(&mut self, owed: OwedImage) {
        self.owed_images.retain(|other| other.database != owed.database);
        self.owed_images.push(owed);
    }

    pub fn owed_image(&self, id: DatabaseId) -> Option<OwedImage> {
        self.owed_images.iter().find(|owed| owed.database == id).copied()
    }

    /// Returns what is known of the file of a database.
    pub fn known_file(&self, id: DatabaseId) -> Option<KnownFile> {
        self.known_files.iter().find(|known| known.database == id).copied()
    }

    /// Records which file the database has; `None` removes the record.
    pub fn know_file(&mut self, id: DatabaseId, identity: Option<LastingIdentity>) {
        self.known_files.retain(|known| known.database != id);
        self.known_files.extend(identity.map(|identity| KnownFile { database: id, identity }));
    }

    /// Records that a destination has been synchronised.
    pub fn note_synchronised(&mut self, destination: &str) {
        self.synchronised.get_or_insert_default().insert(destination.to_owned());
    }

    /// Returns the number for the next database: one that was never used, or else the lowest number that is free again.
    /// A number is free when recovery reads no redo of it and no session uses it (`in_use`). `None`: all are in use.
    pub fn free_number(&self, in_use: impl Fn(DatabaseId) -> bool) -> Option<DatabaseId> {
        if usize::from(self.next_database) < DATABASES_MAX {
            return Some(DatabaseId(self.next_database));
        }
        let known = |id: DatabaseId| self.databases.iter().any(|record| record.id == id);
        let in_redo = |id| self.detached.iter().any(|(other, scn)| *other == id && *scn > self.checkpoint);
        let numbers = (1..DATABASES_MAX as u16).map(DatabaseId);
        numbers.into_iter().find(|id| !known(*id) && !in_redo(*id) && !in_use(*id))
    }

    /// Finds the database that a command names: by its name, or by a path of its file.
    ///
    /// # Errors
    /// `Refused` when there is none.
    pub fn find_database(&self, name: &str) -> Result<&DatabaseRecord, InstanceError> {
        let canonical = canonical(Path::new(name));
        let by_path = canonical.as_ref().and_then(|path| path.to_str());
        let found = self.database_named(name).or_else(|| self.database_named(by_path?));
        found.ok_or_else(|| {
            let what = format!("{name} is not protected by this instance");
            InstanceError::refused(what, "`standfast status` lists the protected databases")
        })
    }

    /// Finds the database with this name or path.
    pub fn database_named(&self, name: &str) -> Option<&DatabaseRecord> {
        self.databases.iter().find(|database| database.name == name || database.path == Path::new(name))
    }
}

/// Resolves the path also of a file that is gone, as long as its directory is there.
fn canonical(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::{WalPosition, WalSalts};

    pub(super) fn control() -> Control {
        Control {
            instance: InstanceId([1; 16]),
            family: InstanceId([1; 16]),
            role: Role::Primary,
            incarnations: vec![Incarnation {
                number: 1,
                id: IncarnationId([2; 8]),
                branch: Scn::START,
                time_us: 3,
            }],
            checkpoint: Scn(5),
            databases: vec![],
            next_database: 1,
            copied: false,
            replays: vec![],
            offline: vec![(DatabaseId(3), Scn(4))],
            whole_files: vec![WholeFile {
                database: DatabaseId(2),
                scn: Scn(4),
                stamp: FileStamp { bytes: 9, modified_ns: 10 },
            }],
            resting_files: vec![RestingFile {
                database: DatabaseId(2),
                stamp: FileStamp { bytes: 9, modified_ns: 10 },
                wal: Some(RestingWal {
                    position: WalPosition { salts: WalSalts(5, 6), frame: 7 },
                    checksum: 8,
                    is_in_file: true,
                }),
            }],
            owed_images: vec![OwedImage {
                database: DatabaseId(2),
                scn: Scn(4),
                position: WalPosition { salts: WalSalts(5, 6), frame: 7 },
                stamp: Some(FileStamp { bytes: 9, modified_ns: 10 }),
                may_lack: true,
            }],
            kept_files: vec![KeptFile {
                name: "app.db".into(),
                path: "/srv/app/app.db.before-9".into(),
                scn: Scn(9),
                bytes: 4096,
                kept_us: 11,
            }],
            file_swaps: vec![FileSwap {
                database: DatabaseId(2),
                made: LastingIdentity { inode: 12, created_ns: None },
                whole: None,
                kept: KeptFile {
                    name: "app.db".into(),
                    path: "/srv/app/app.db.before-10".into(),
                    scn: Scn(10),
                    bytes: 4096,
                    kept_us: 13,
                },
            }],
            known_files: vec![KnownFile {
                database: DatabaseId(2),
                identity: LastingIdentity { inode: 7, created_ns: Some(8) },
            }],
            detached: vec![(DatabaseId(4), Scn(6))],
            directories: vec!["/srv/app".into()],
            stale_members: vec!["redo2/online_1b.log".into()],
            redo_layouts: RedoLayouts {
                standby: Some(RedoLayout {
                    groups: [(1, 8 << 20), (4, 16 << 20)].into(),
                    members: [('a', "redo".into()), ('c', "/other".into())].into(),
                    configured: (3, 8 << 20, vec!["redo".into()]),
                }),
                online: None,
            },
            protection_mode: ProtectionMode::MaximumProtection,
            synchronised: Some(["oslo".to_owned()].into()),
            required: Required { members: ["oslo".to_owned()].into(), is_named: true },
            observer: "tokyo@tokyo:7413".into(),
            store_seen: Some(StoreSeen { observer: "etcd:https://tokyo:2379".into(), serial: 7 }),
            gap: None,
            lost: None,
            snapshot: None,
            reinstating: None,
            fenced: None,
            superseded_by: None,
            trust: Trust::default(),
            home: Some(LastingIdentity { inode: 7, created_ns: None }),
            upstream: None,
            differing: Vec::new(),
            verify_due_us: None,
            clean: false,
        }
    }

    #[test]
    fn database_is_found_by_name_or_path_without_its_file() {
        let directory = std::env::temp_dir().canonicalize().unwrap();
        let mut control = control();
        let path = directory.join("standfast-gone.db");
        control.databases.push(DatabaseRecord {
            id: DatabaseId(1),
            name: "gone.db".into(),
            path: path.clone(),
            page_size: PageSize::new(4096).unwrap(),
            start_scn: Scn(1),
            redo_from: Scn(1),
            begun_empty: false,
        });
        let indirect = directory.join(".").join("standfast-gone.db");
        for name in ["gone.db", &path.to_string_lossy(), &indirect.to_string_lossy()] {
            assert_eq!(control.find_database(name).unwrap().path, path, "{name}");
        }
        assert!(control.find_database("standfast-gone.db").is_err(), "another directory");
    }

    #[test]
    fn database_number_is_reused_once_no_redo_or_session_has_it() {
        let record = |id| DatabaseRecord {
            id: DatabaseId(id),
            name: format!("{id}.db"),
            path: PathBuf::new(),
            page_size: PageSize::new(4096).unwrap(),
            start_scn: Scn::ZERO,
            redo_from: Scn::ZERO,
            begun_empty: false,
        };
        let mut control = control();
        assert_eq!(control.free_number(|_| false), Some(DatabaseId(1)), "never used");
        control.next_database = DATABASES_MAX as u16;
        control.databases = (1..DATABASES_MAX as u16).map(record).collect();
        assert_eq!(control.free_number(|_| false), None);
        control.forget(DatabaseId(7), Scn(100));
        control.forget(DatabaseId(9), Scn(200));
        assert_eq!(control.free_number(|_| false), None, "recovery may read its redo");
        control.checkpoint = Scn(150);
        assert_eq!(control.free_number(|_| false), Some(DatabaseId(7)));
        assert_eq!(control.free_number(|id| id == DatabaseId(7)), None, "a session has it");
        control.checkpoint = Scn(200);
        assert_eq!(control.free_number(|id| id == DatabaseId(7)), Some(DatabaseId(9)));
    }

    /// An absent key is an empty list: a file of another release that names it otherwise would read as if all were well.
    #[test]
    fn offline_databases_keep_their_key_in_the_control_file() {
        let written = serde_json::to_value(control()).unwrap();
        assert_eq!(written["left_out"], serde_json::json!([[3, 4]]));
    }

    #[test]
    fn file_scn_advances_until_redo_changes_the_database() {
        let stamp = FileStamp { bytes: 9, modified_ns: 10 };
        let whole = |scn| WholeFile { database: DatabaseId(2), scn: Scn(scn), stamp };
        assert_eq!(whole(40).carried_to(Scn(90), Scn(40)), whole(90));
        assert_eq!(whole(40).carried_to(Scn(90), Scn(41)), whole(40), "the WAL may have the change");
        assert_eq!(whole(40).carried_to(Scn(30), Scn(0)), whole(40), "positions come out of order");
        let mut control = control();
        control.note_whole(WholeFile { stamp: FileStamp { bytes: 9, modified_ns: 11 }, ..whole(60) });
        control.note_whole(whole(50));
        assert_eq!(
            control.whole_file(DatabaseId(2)),
            Some(whole(60)),
            "the newest stamp, and no older position"
        );
    }
}
