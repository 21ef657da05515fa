//! A primary with one or two standbys behind proxies, one database, and an application that writes to it.

use super::full_volume::FullVolume;
use super::plan::{Arrangement, Fault, NET_TIMEOUT, Strike};
use super::proxy::{Proxy, Trick, Way};
use crate::acknowledgements::Acknowledgements;
use crate::instance::{Instance, TIMEOUT};
use crate::process::{Process, await_condition};
use crate::programs::Programs;
use crate::schema::create_database;
use crate::status::Status;
use crate::verify::{Findings, check_integrity, check_ledger};
use crate::{During, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DATABASE: &str = "orders.db";
/// Names of the standbys at the primary.
const STANDBYS: [&str; 2] = ["north", "west"];
const WRITERS: usize = 3;
/// Log switches after which a standby that cannot archive has no free group.
const SWITCHES: usize = 5;
/// Maximum number of frames that one strike tampers with.
const TRICKS: u64 = 4;

/// A standby and the proxy in front of it.
pub struct Far {
    pub instance: Instance,
    /// Between the primary and the standby.
    pub proxy: Proxy,
    volume: Option<FullVolume>,
}

pub struct Scene {
    programs: Programs,
    directory: PathBuf,
    arrangement: Arrangement,
    pub primary: Instance,
    /// The standbys, in the order of the destinations.
    pub standbys: Vec<Far>,
    database: PathBuf,
    pub reported: Acknowledgements,
    /// The part of `reported` that must survive.
    protected: Acknowledgements,
    application: Option<Process>,
    degraded_before: usize,
}

impl Scene {
    /// Sets everything up and waits until commits flow.
    ///
    /// # Errors
    /// When anything fails.
    pub fn set_up(
        programs: &Programs,
        directory: &Path,
        arrangement: Arrangement,
        seed: u64,
    ) -> Result<Scene> {
        std::fs::create_dir_all(directory).during(|| format!("create {}", directory.display()))?;
        let database = directory.join(DATABASE);
        create_database(&database, 4096, false)?;
        let mut primary =
            Instance::init(programs, &directory.join("primary"), "south", &["--group-bytes", "8388608"])?;
        primary.start()?;
        primary.must(&["protect", &database.to_string_lossy()])?;
        let mut standbys = Vec::new();
        for (name, destination) in STANDBYS.iter().zip(arrangement.destinations) {
            let mut instance = Instance::standby_of(&primary, &directory.join(name), name)?;
            instance.start()?;
            let proxy = Proxy::start(&instance.address)?;
            let net_timeout = NET_TIMEOUT.as_millis().to_string();
            let mut words = vec!["destination", "add", name, &proxy.address, "--mode", destination.mode];
            words.extend(["--net-timeout-ms", &net_timeout]);
            words.extend(destination.on_timeout.iter().flat_map(|value| ["--on-timeout", value]));
            primary.must(&words)?;
            standbys.push(Far { instance, proxy, volume: None });
        }
        let reported = Acknowledgements::create(&directory.join("acknowledged"), WRITERS)?;
        let protected = Acknowledgements::create(&directory.join("protected"), WRITERS)?;
        let mut scene = Scene {
            programs: programs.clone(),
            directory: directory.to_owned(),
            arrangement,
            primary,
            standbys,
            database,
            reported,
            protected,
            application: None,
            degraded_before: 0,
        };
        scene.start_application(seed)?;
        scene.await_running()?;
        Ok(scene)
    }

    fn start_application(&mut self, seed: u64) -> Result<()> {
        let mut command = Command::new(&self.programs.campaign);
        command.arg("app").arg("--light").arg("--extension").arg(&self.programs.extension);
        command.arg("--database").arg(&self.database);
        command.arg("--acknowledgements").arg(self.directory.join("acknowledged"));
        command.args(["--first-writer", "0", "--threads"]).arg(WRITERS.to_string());
        command.arg("--seed").arg(seed.to_string());
        self.application = Some(Process::start(command, &self.directory.join("application.out"))?);
        Ok(())
    }

    fn commits(&self) -> Vec<u64> {
        (0..WRITERS).map(|writer| self.reported.entry(writer, 0).commits()).collect()
    }

    pub fn acknowledged(&self) -> u64 {
        self.commits().iter().sum()
    }

    /// Waits until every destination receives redo as it is written, commits wait for the synchronous ones, and every
    /// writer has had a commit acknowledged.
    ///
    /// # Errors
    /// When that takes too long, or a process has ended.
    pub fn await_running(&self) -> Result<()> {
        let before = self.commits();
        let destinations = self.arrangement.destinations;
        let stage = |status: &Status| {
            destinations.iter().enumerate().all(|(nth, destination)| {
                let of = |what: &str| status.json()["destinations"][nth][what].clone();
                of("state") == "streaming" && (!destination.is_synchronous() || of("required") == true)
            })
        };
        self.primary.await_status("every destination follows", stage)?;
        await_condition("every writer commits", TIMEOUT, || {
            if let Some(application) =
                self.application.as_ref().filter(|one| one.ended_within(Duration::ZERO))
            {
                return Err(application.failed("ended by itself"));
            }
            let now = self.commits();
            let stuck = before.iter().zip(&now).position(|(before, now)| now == before);
            Ok(stuck.map_or(Ok(()), |writer| Err(format!("writer {writer} does not commit"))))
        })
    }

    /// Records what must survive from now on: commits that were acknowledged before the call, once the standby that
    /// takes over has them on its disk.
    ///
    /// # Errors
    /// When the standby does not get that far.
    pub fn note_hardened(&mut self) -> Result<()> {
        let noted = self.snapshot();
        let captured = self.primary.status()?.number("/captured");
        let hardened = |status: &Status| status.number("/destinations/0/hardened") >= captured;
        self.primary.await_status("the standby has what is captured", hardened)?;
        self.protect(&noted);
        self.degraded_before = self.degradations();
        for writer in 0..WRITERS {
            self.reported.entry(writer, 0).forget_waits();
        }
        Ok(())
    }

    /// The last acknowledged row of each writer.
    fn snapshot(&self) -> Vec<u64> {
        (0..WRITERS).map(|writer| self.reported.entry(writer, 0).acknowledged()).collect()
    }

    fn protect(&self, noted: &[u64]) {
        for (writer, seq) in noted.iter().enumerate() {
            self.protected.entry(writer, 0).acknowledge(*seq);
        }
    }

    /// How often commits degraded the destination of the standby that takes over.
    fn degradations(&self) -> usize {
        self.primary.alerts().matches(&format!("destination {}: DEGRADED", STANDBYS[0])).count()
    }

    /// Whether commits have continued without the standby that takes over since [`Scene::note_hardened`].
    pub fn has_degraded(&self) -> bool {
        self.degradations() > self.degraded_before
    }

    /// Records that everything acknowledged so far must survive, if commits still wait for the standby that takes over.
    /// The acknowledged rows are read first: a row that was acknowledged before the standby was seen as required was
    /// acknowledged with it.
    ///
    /// # Errors
    /// When the primary does not answer.
    pub fn note_required(&self) -> Result<()> {
        let noted = self.snapshot();
        let status = self.primary.status()?;
        if status.json()["destinations"][0]["required"] == true && !self.has_degraded() {
            self.protect(&noted);
        }
        Ok(())
    }

    /// Records that everything acknowledged must survive.
    pub fn protect_all(&self) {
        self.protect(&self.snapshot());
    }

    /// The longest COMMIT since [`Scene::note_hardened`], without those that still wait.
    pub fn longest_wait(&self) -> Duration {
        (0..WRITERS).map(|writer| self.reported.entry(writer, 0).longest_wait()).max().unwrap_or_default()
    }

    fn struck(&mut self) -> &mut Far {
        let index = self.arrangement.struck();
        &mut self.standbys[index]
    }

    /// Begins the fault.
    ///
    /// # Errors
    /// When it cannot.
    pub fn strike(&mut self, strike: &Strike) -> Result<()> {
        let far = self.struck();
        match strike.fault {
            Fault::Killed => far.instance.kill(),
            Fault::Frozen => far.instance.process().into_iter().for_each(|process| process.freeze(true)),
            Fault::Cut => far.proxy.hold_up(true),
            Fault::SlowDisk => {
                far.instance.kill();
                far.instance.faults = Some(format!("log-write=sleep:{}@1+", strike.write_ms()));
                far.instance.start()?;
            }
            Fault::FullDisk => {
                far.volume = Some(FullVolume::over(&far.instance.directory.join("archive"))?);
                self.switch_logs()?;
            }
            Fault::Corrupt | Fault::Duplicate | Fault::Reorder => self.tamper(strike)?,
            Fault::HalfOpen => far.proxy.lose_end(strike.form & 1 == 0),
        }
        Ok(())
    }

    /// Tampers with frames in both directions, one after another: after a frame that ends the connection, the next
    /// frame is on another connection.
    fn tamper(&mut self, strike: &Strike) -> Result<()> {
        let proxy = &self.struck().proxy;
        for nth in 0..1 + strike.form % TRICKS {
            let way = if (strike.form >> nth) & 4 == 0 { Way::There } else { Way::Back };
            let trick = match strike.fault {
                Fault::Corrupt => Trick::Corrupt(strike.form.rotate_left(nth as u32 * 7)),
                Fault::Duplicate => Trick::Duplicate,
                _ => Trick::Reorder,
            };
            let before = proxy.struck();
            proxy.arm(way, trick);
            await_condition("a frame passes to be tampered with", TIMEOUT, || {
                Ok(if proxy.struck() > before { Ok(()) } else { Err(String::new()) })
            })?;
        }
        Ok(())
    }

    /// Switches logs until a standby that cannot archive blocks. Ignores whether the primary itself can continue.
    fn switch_logs(&self) -> Result<()> {
        for _ in 0..SWITCHES {
            let before = self.acknowledged();
            let _ = self.primary.run(&["switch-logfile"])?;
            // An empty log is not switched. Commits that wait for the standby end this wait.
            let begun = Instant::now();
            await_condition("a commit in the new log", TIMEOUT, || {
                let done = self.acknowledged() > before || begun.elapsed() > NET_TIMEOUT / 4;
                Ok(if done { Ok(()) } else { Err(String::new()) })
            })?;
        }
        Ok(())
    }

    /// Ends the fault: completely, so that the standby can follow again, or (`false`) only so far that it can take
    /// over.
    ///
    /// # Errors
    /// When the standby cannot be started.
    pub fn heal(&mut self, strike: &Strike, to_follow: bool) -> Result<()> {
        let far = self.struck();
        far.proxy.disarm();
        match strike.fault {
            Fault::Killed => far.instance.start()?,
            Fault::Frozen => far.instance.process().into_iter().for_each(|process| process.freeze(false)),
            Fault::Cut => far.proxy.hold_up(false),
            Fault::SlowDisk if to_follow => {
                far.instance.kill();
                far.instance.faults = None;
                far.instance.start()?;
            }
            Fault::FullDisk => far.volume = None,
            _ => {}
        }
        Ok(())
    }

    /// Kills the primary and the application for good.
    pub fn lose_primary(&mut self, application_first: bool) {
        if application_first {
            self.application = None;
        }
        self.primary.kill();
        self.application = None;
    }

    /// Fails over to the first standby and compares its content with what the application was acknowledged. Returns the
    /// findings about rows that must be there, and the number of all acknowledged rows that are missing.
    ///
    /// # Errors
    /// When the failover fails, or a check cannot be made.
    pub fn fail_over(&mut self) -> Result<(Findings, u64)> {
        let heir = &self.standbys[0].instance;
        heir.must(&["failover"])?;
        heir.await_status("the standby is the primary", |status| {
            status.role() == "primary" && status.text("/state") == "open"
        })?;
        let path = heir.standby_database(DATABASE);
        for writer in 0..WRITERS {
            self.protected.entry(writer, 0).attempt(self.reported.entry(writer, 0).attempted());
        }
        let mut findings = check_integrity(&path)?;
        findings.add(check_ledger(&path, 0, &self.protected)?);
        let missing = check_ledger(&path, 0, &self.reported)?.lost;
        Ok((findings, missing))
    }

    pub fn last_words(&self) -> String {
        let mut words = format!("\nprimary:{}", self.primary.last_words());
        for (name, far) in STANDBYS.iter().zip(&self.standbys) {
            words += &format!("\n{name}:{}", far.instance.last_words());
        }
        words
    }
}
