//! Runs the rounds: counts commits of all other databases before, during and after each fault.

use super::fault::Fault;
use super::report::{FaultResult, IsolationReport, Phase, Round};
use super::stage::{Stage, volume_path};
use super::strike::{Strike, skipped};
use super::volume::Volume;
use crate::Result;
use crate::site::Site;
use std::time::{Duration, Instant};

/// Windows of each phase of a round.
const WINDOWS: u32 = 5;

#[derive(Clone, Debug)]
pub struct IsolationConfig {
    pub site: Site,
    pub databases: usize,
    pub faults: Vec<Fault>,
    /// How long commits are counted in each round before, during and after the fault.
    pub phase: Duration,
    pub rounds: u64,
    /// Show commits per second without judging them, for a machine that runs other work.
    pub states_only: bool,
}

/// Runs the campaign. Errors are in the report.
pub fn run(config: &IsolationConfig) -> IsolationReport {
    let mut report = IsolationReport {
        databases: config.databases as u64,
        phase_s: config.phase.as_secs_f64(),
        states_only: config.states_only,
        ..IsolationReport::default()
    };
    if let Err(error) = (Campaign { config }).run(&mut report) {
        report.ending.error = Some(error);
    }
    report.ending.kept = config.site.leave(report.passed());
    report
}

struct Campaign<'c> {
    config: &'c IsolationConfig,
}

impl Campaign<'_> {
    fn run(&self, report: &mut IsolationReport) -> std::result::Result<(), String> {
        let site = &self.config.site;
        let volume = self.config.faults.contains(&Fault::FullVolume).then(|| {
            keep_mounts_here();
            Volume::at(&volume_path(&site.directory))
        });
        let volume = match volume {
            Some(Ok(volume)) => Some(volume),
            Some(Err(error)) => {
                site.say(&error.to_string());
                None
            }
            None => None,
        };
        site.say(&format!("set up {} databases", self.config.databases));
        let mut stage = Stage::set_up(&site.programs, &site.directory, self.config.databases, volume)
            .map_err(|error| error.to_string())?;
        let mut run = || {
            for (nth, fault) in self.config.faults.iter().enumerate() {
                report.faults.push(self.fault(&mut stage, nth, *fault)?);
            }
            stage.stop_load()?;
            site.say("checks all databases");
            let found = stage.check()?;
            report.findings = found;
            Ok(())
        };
        let outcome: Result<()> = run();
        outcome.map_err(|error| stage.explain(&error))
    }

    fn fault(&self, stage: &mut Stage, nth: usize, fault: Fault) -> Result<FaultResult> {
        let mut result = FaultResult::new(fault);
        result.skipped = skipped(fault, stage.volume.is_some());
        if let Some(why) = &result.skipped {
            self.config.site.say(&format!("{}: skipped, {why}", fault.name()));
            return Ok(result);
        }
        // Each fault has another victim; database 0 is on the small volume.
        let last = self.config.databases - 1;
        let victim = if fault == Fault::FullVolume || last == 0 { 0 } else { 1 + nth % last };
        for number in 1..=self.config.rounds {
            let round = self.round(stage, victim, fault, &mut result)?;
            self.config.site.say(&format!("{} {number}: {round}", fault.name()));
            result.rounds.push(round);
        }
        result.settle();
        Ok(result)
    }

    fn round(
        &self,
        stage: &mut Stage,
        victim: usize,
        fault: Fault,
        result: &mut FaultResult,
    ) -> Result<Round> {
        stage.start_load(victim)?;
        if fault.restarts_primary() {
            // The cost of a restart is no part of the cost of the fault.
            stage.restart_primary()?;
        }
        stage.await_progress(|_| true)?;
        let mut strike = Strike::prepare(stage, victim, fault)?;
        let (alerts, refused) = (stage.alert_bytes(), refusals(stage, victim));
        let before = self.phase(stage, victim);
        strike.begin(stage)?;
        if fault.restarts_primary() {
            stage.await_progress(|number| number != victim)?;
        }
        strike.await_act()?;
        let pid = stage.primary.process().map_or(0, |process| u64::from(process.pid()));
        let during = self.phase(stage, victim);
        strike.thaw(stage);
        result.changed.extend(self.changes(stage, victim, pid, alerts)?);
        let state = if stage.primary.has_ended() { "?".into() } else { stage.state(victim)? };
        if !fault.may_go_offline() && state != "open" {
            result.changed.push(format!("the victim is {state}, which this fault must not make it"));
        }
        result.victim = state;
        result.acts += strike.end(stage)?;
        let after = self.phase(stage, victim);
        if stage.primary.has_ended() {
            stage.restart_primary()?;
        } else {
            result.changed.extend(self.changes(stage, victim, pid, alerts)?);
        }
        if !fault.restarts_primary() {
            result.refused += refusals(stage, victim) - refused;
        }
        // A victim that is neither damaged nor allowed to be offline must take commits by itself after the fault.
        if !fault.may_go_offline() && stage.await_progress(|number| number == victim).is_err() {
            result.changed.push("the victim takes no commits when the fault is over".into());
        }
        stage.stop_load()?;
        stage.recover(victim, fault.spoils_files())?;
        Ok(Round { before, during, after })
    }

    /// Counts the commits of all databases but the victim, in windows.
    fn phase(&self, stage: &Stage, victim: usize) -> Phase {
        let others = || (0..self.config.databases).filter(|number| *number != victim);
        others().for_each(|number| stage.reported.entry(number, 0).forget_waits());
        let commits = || others().map(|number| stage.reported.entry(number, 0).commits()).sum::<u64>();
        let (mut last, mut begun) = (commits(), Instant::now());
        let mut rates = Vec::new();
        for _ in 0..WINDOWS {
            // The elapsed time is what is measured.
            std::thread::sleep(self.config.phase / WINDOWS);
            let (now, ended) = (commits(), Instant::now());
            rates.push((now - last) as f64 / (ended - begun).as_secs_f64());
            (last, begun) = (now, ended);
        }
        let longest = others().map(|number| stage.reported.entry(number, 0).longest_wait()).max();
        Phase { rates, longest_ms: longest.unwrap_or_default().as_millis() as u64 }
    }

    /// Returns what changed in the instance and the other databases since the alert log had `alerts` bytes.
    fn changes(&self, stage: &Stage, victim: usize, pid: u64, alerts: usize) -> Result<Vec<String>> {
        if stage.primary.has_ended() || stage.primary_pid()? != pid {
            return Ok(vec!["the primary has ended".into()]);
        }
        let mut changes = stage.changed(victim)?;
        changes.extend(stage.alerts_about_others(alerts, victim));
        Ok(changes)
    }
}

/// Counts the failed commits of all databases but the victim.
fn refusals(stage: &Stage, victim: usize) -> u64 {
    let others = (0..stage.databases.len()).filter(|number| *number != victim);
    others.map(|number| stage.reported.entry(number, 0).refusals()).sum()
}

/// Keeps later mounts in this thread and the processes that it starts; they go with the last of these.
fn keep_mounts_here() {
    // SAFETY: the only memory involved is static strings. Where unshare is refused, so is mounting.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0 {
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null());
        }
    }
}
