//! Reactions of a running instance to a file that is no longer what its path says; see [`standfast_environment::context::places`].

use crate::observe::watchers::Watchers;
use crate::role::running::{Mode, Running};
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::CONFIG_FILE;
use standfast_environment::context::places::{self, Changed, Expected, Moved, Place, What};
use standfast_log::{LogError, LogWriter, RedoLog};
use standfast_primary::commit::database::Database;
use standfast_session::published_path;
use standfast_standby::applier::STANDBY_DATABASES;
use standfast_types::{Hint, hint};
use std::sync::{Arc, TryLockError, Weak};
use std::time::{Duration, Instant};

/// How long to wait for the log of a standby.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of the check whether the certificate is due; longer for certificates with a long life.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(1);
/// Longest interval between two checks of the certificate.
const CERTIFICATE_PAUSE: Duration = Duration::from_secs(60);
const INSTANCE: &str = "instance";
const DATABASES: &str = "databases";
const REDO_LOG: &str = "redo log";

/// Starts the threads `places` and `certificate`.
///
/// # Errors
/// When one cannot be started.
pub(crate) fn start(running: &Arc<Running>) -> Result<Watchers, InstanceError> {
    let me = Arc::downgrade(running);
    let environment = &running.environment;
    let changed: Changed = {
        let me = me.clone();
        Arc::new(move |changes: &[Moved]| {
            if let Some(running) = me.upgrade() {
                running.note_moved(changes);
            }
        })
    };
    environment.places.register(INSTANCE, of_instance(running), changed);
    let mut watchers = Watchers::default();
    let look = |running: &Running| running.look_at_places();
    watchers
        .spawn("places", places::EVERY, &me, look)
        .map_err(InstanceError::io("begin the thread that watches files in", &environment.paths.directory))?;
    let mut looked = None;
    let look = move |running: &Running| {
        let now = Instant::now();
        if let Some(changes) = running.environment.keeper.clock_was_set() {
            running.environment.alert.say(changes);
            looked = None;
        }
        if looked.is_none_or(|then| now.saturating_duration_since(then) >= running.certificate_pause()) {
            looked = Some(now);
            running.look_at_certificate();
        }
    };
    watchers.spawn("certificate", CERTIFICATE_EVERY, &me, look).map_err(InstanceError::io(
        "begin the thread that renews certificates of",
        &environment.paths.directory,
    ))?;
    Ok(watchers)
}

fn of_instance(running: &Running) -> Vec<Place> {
    let (paths, environment) = (&running.environment.paths, &running.environment);
    let mut all = vec![
        Place::as_found(What::Directory, &paths.directory),
        Place::as_found(What::Lock, &paths.lock),
        Place::new(What::Control, &paths.control, Expected::Exists),
        Place::as_found(What::Segment, &environment.segment_path),
        Place::as_found(What::Segment, &published_path(&environment.segment_path)),
        Place::as_found(What::Directory, &paths.archive),
    ];
    // Some exist in one role only.
    all.retain(|place| place.what == What::Control || place.path.exists());
    all
}

/// The members of a redo log, as they are open.
fn of_log(log: &RedoLog) -> Vec<Place> {
    let place = |member: standfast_log::MemberPlace| {
        Place::new(What::LogMember, &member.path, Expected::Is(member.identity))
    };
    log.places().into_iter().map(place).collect()
}

impl Running {
    /// Interval of certificate checks: short enough that a failed renewal is retried several times before the
    /// certificate ends.
    fn certificate_pause(&self) -> Duration {
        let life = self.environment.keeper.life().unwrap_or(CERTIFICATE_PAUSE);
        (life / 100).clamp(CERTIFICATE_EVERY, CERTIFICATE_PAUSE)
    }

    fn look_at_certificate(&self) {
        let environment = &self.environment;
        if let Some(changes) = environment.keeper.renew_when_due() {
            environment.alert.say(changes);
        }
    }

    fn look_at_places(&self) {
        self.watch_memory();
        self.watch_log();
        self.watch_databases();
        self.environment.places.look();
        let environment = &self.environment;
        environment.keeper.look_at_rights(&environment.paths.directory.join(CONFIG_FILE));
    }

    /// Repairs the shared memory: other processes may write to it and truncate it.
    fn watch_memory(&self) {
        let segment = match &*self.mode() {
            Mode::Primary(primary) => primary.threads.shared().segment,
            Mode::Standby(standby) => standby.segment,
            _ => return,
        };
        self.environment.repair_memory(segment);
    }

    /// Registers the files of the log, which change with its groups and members.
    fn watch_log(&self) {
        let log = match &*self.mode() {
            Mode::Primary(primary) => Some(primary.source.redo_log().clone()),
            Mode::Standby(standby) => Some(standby.standby.shared().log.clone()),
            Mode::FarSync(far_sync) => Some(far_sync.shared().log.clone()),
            _ => None,
        };
        let places = &self.environment.places;
        if !matches!(&*self.mode(), Mode::Standby(_)) {
            places.forget(STANDBY_DATABASES);
        }
        let Some(log) = log else { return places.forget(REDO_LOG) };
        let me: Weak<Running> = self.me.clone();
        places.keep(REDO_LOG, of_log(&log), || {
            Arc::new(move |changes: &[Moved]| {
                if let Some(running) = me.upgrade() {
                    running.note_moved(changes);
                }
            })
        });
    }

    /// On a primary: a database with a file that is no longer what its path says fails. What its sessions write goes to
    /// files that are gone after the next start; the redo has it, and a start rolls forward the files that it finds.
    fn watch_databases(&self) {
        let databases = match &*self.mode() {
            Mode::Primary(primary) => primary.threads.shared().all_databases(),
            _ => Vec::new(),
        };
        let mut watched = self.watched.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_same = watched.len() == databases.len()
            && watched
                .iter()
                .zip(&databases)
                .all(|(known, now)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(now)));
        if is_same {
            return;
        }
        let places = databases.iter().flat_map(|database| database.places().clone()).collect();
        // Weak: watching a database must not keep it open.
        let served: Vec<Weak<Database>> = databases.iter().map(Arc::downgrade).collect();
        *watched = served.clone();
        let (environment, me) = (self.environment.clone(), self.me.clone());
        let changed: Changed = Arc::new(move |changes: &[Moved]| {
            if let Some(running) = me.upgrade() {
                running.note_moved(changes);
            }
            for moved in changes.iter().filter(|moved| moved.finding.is_certain()) {
                let is_of = |database: &Arc<Database>| database.places().contains(&moved.place);
                if let Some(database) = served.iter().filter_map(Weak::upgrade).find(is_of) {
                    database.fail(format!("{moved}"));
                    environment
                        .alert
                        .say(format!("database {} goes offline: {moved}", database.record().name));
                }
            }
        });
        self.environment.places.register(DATABASES, places, changed);
    }

    fn note_moved(&self, changes: &[Moved]) {
        for moved in changes {
            self.environment.alert.say(hint::in_one_line(
                format_args!("FILE NOT IN ITS PLACE: {moved}"),
                Some(remedy(moved.place.what)),
            ));
        }
        let certain = || changes.iter().filter(|moved| moved.finding.is_certain());
        let whole = certain().find(|moved| {
            moved.place.what == What::Lock
                || (moved.place.what == What::Directory
                    && moved.place.path == self.environment.paths.directory)
        });
        if let Some(moved) = whole {
            let cause = moved.to_string();
            self.with_log_writer(move |writer| {
                writer.refuse(&cause);
                writer.is_usable()
            });
        } else if certain().any(|moved| moved.place.what == What::LogMember) {
            self.with_log_writer(LogWriter::check_places);
        }
    }

    /// Runs `work` on the thread that writes the log; an error ends the primary, or the stream of the standby.
    fn with_log_writer(&self, work: impl FnOnce(&mut LogWriter) -> Result<(), LogError> + Send + 'static) {
        let received = match &*self.mode() {
            Mode::Primary(primary) => {
                let command = move |primary: &mut standfast_primary::commit::primary::Primary| {
                    Ok(work(primary.writer())?)
                };
                return primary.threads.shared().command(Box::new(command));
            }
            Mode::Standby(standby) => standby.received().clone(),
            Mode::FarSync(far_sync) => far_sync.received().clone(),
            _ => return,
        };
        // The receiver may hold the log during a whole log switch; the switch checks the files itself.
        let until = Instant::now() + LOG_TIMEOUT;
        let mut received = loop {
            match received.try_lock() {
                Ok(received) => break received,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(TryLockError::WouldBlock) => return,
            }
        };
        if let Err(error) = work(received.writer()) {
            self.environment
                .alert
                .say(format!("NOTHING IS ACKNOWLEDGED HERE ANY MORE: {}", error.in_one_line()));
        }
    }
}

fn remedy(what: What) -> &'static str {
    match what {
        What::Directory => {
            "stop this instance; with its directory everything that it keeps there is lost: create it again as a standby, or \
             restart it when the directory is back"
        }
        What::Lock => "restart this instance: another one could be started in the same directory",
        What::Control => "it is written again with the next change; restart this instance when it is there",
        What::Segment => "restart this instance: new connections do not find it",
        What::LogMember => {
            "`standfast log member add` makes a member again; when none is left, restart this instance when its files are back"
        }
        What::Database | What::Wal | What::WalIndex => {
            "find out who removes or replaces files here. At a primary end all programs that use the database and restart the \
             instance, which brings its files in line with the redo; for a standby `standfast unprotect` and `standfast protect` \
             at the primary copy the database again"
        }
    }
}
