//! Runs the scenes one after another: faults that are healed, and a last one during which the primary is lost.

use super::full_volume::FullVolume;
use super::plan::{ARRANGEMENTS, Arrangement, Fault, SCENES_A_ROUND, Strike, scene};
use super::report::FaultsReport;
use super::scene::Scene;
use crate::Result;
use crate::site::Site;
use standfast_testkit::Rng;
use std::time::{Duration, Instant};

/// Interval between two polls of which destinations commits wait for.
const LOOK: Duration = Duration::from_millis(40);

#[derive(Clone, Debug)]
pub struct FaultsConfig {
    pub site: Site,
    /// How often each fault strikes in each arrangement.
    pub count: u64,
    /// Seed of when and how the faults strike.
    pub seed: u64,
    /// Only the arrangement with this name.
    pub only: Option<String>,
    /// Only the scene with this number.
    pub scene: Option<u64>,
    /// The control experiment: demands everything acknowledged, whatever the mode promises. A campaign that finds no
    /// loss here cannot find any.
    pub demand_all: bool,
}

/// Runs the campaign. Errors are in the report.
pub fn run(config: &FaultsConfig) -> FaultsReport {
    let mut campaign = Campaign {
        config,
        report: FaultsReport { count: config.count, seed: config.seed, ..FaultsReport::default() },
    };
    if !FullVolume::is_possible() {
        campaign.report.skipped.push("FullDisk: only root may mount a volume without room".into());
    }
    if let Err(error) = campaign.run() {
        campaign.report.ending.error = Some(error.to_string());
    }
    let mut report = campaign.report;
    report.ending.kept = config.site.leave(report.passed());
    report
}

struct Campaign<'a> {
    config: &'a FaultsConfig,
    report: FaultsReport,
}

impl Campaign<'_> {
    fn say(&self, words: &str) {
        self.config.site.say(words);
    }

    fn run(&mut self) -> Result<()> {
        for (index, arrangement) in ARRANGEMENTS.iter().enumerate() {
            if self.config.only.as_ref().is_some_and(|only| only != arrangement.name) {
                continue;
            }
            for number in 0..self.config.count * SCENES_A_ROUND {
                if self.config.scene.is_none_or(|scene| scene == number) {
                    // Each scene has its own seed, so that it can be repeated without the others.
                    let mix = (index as u64) << 32 | number;
                    self.scene(
                        arrangement,
                        number,
                        Rng::new(self.config.seed ^ mix.wrapping_mul(0x9e37_79b9)),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn scene(&mut self, arrangement: &Arrangement, number: u64, mut rng: Rng) -> Result<()> {
        let mut strikes = scene(&mut rng, number);
        if !FullVolume::is_possible() {
            strikes.retain(|strike| strike.fault != Fault::FullDisk);
        }
        let Some((last, healed)) = strikes.split_last() else { return Ok(()) };
        let name = format!("{}-{number}", arrangement.name);
        self.say(&format!("{name}: set up"));
        let directory = self.config.site.directory.join(&name);
        let mut scene = Scene::set_up(&self.config.site.programs, &directory, *arrangement, rng.next_u64())?;
        let violations = self.report.violations.len();
        let played = self.play(&mut scene, arrangement, number, healed, last, &mut rng);
        self.report.acknowledged += scene.acknowledged();
        if played.is_err() || self.report.violations.len() > violations {
            let words = scene.last_words();
            self.say(&format!("{name}:{words}"));
        }
        drop(scene);
        played?;
        if self.report.violations.len() == violations {
            // The directory only takes space; the campaign removes its own directory at its end.
            let _ = std::fs::remove_dir_all(&directory);
        }
        Ok(())
    }

    fn play(
        &mut self,
        scene: &mut Scene,
        arrangement: &Arrangement,
        number: u64,
        healed: &[Strike],
        last: &Strike,
        rng: &mut Rng,
    ) -> Result<()> {
        for strike in healed {
            let lasted = self.strike(scene, arrangement, strike)?;
            scene.heal(strike, true)?;
            scene.await_running()?;
            self.judge_waits(scene, arrangement, number, strike, lasted);
        }
        let lasted = self.strike(scene, arrangement, last)?;
        let (application_first, degraded) = (rng.chance(50), scene.has_degraded());
        scene.lose_primary(application_first);
        let safe = arrangement.never_loses() && !arrangement.forgets(last.fault) && !degraded;
        if safe || self.config.demand_all {
            scene.protect_all();
        }
        self.judge_waits(scene, arrangement, number, last, lasted);
        scene.heal(last, false)?;
        let (findings, missing) = scene.fail_over()?;
        let cell = self.report.cell(arrangement.name, last.fault);
        cell.failovers += 1;
        cell.degraded += u64::from(degraded);
        cell.lost += findings.lost;
        cell.unprotected += missing - findings.lost;
        self.say(&format!(
            "    took over; {missing} acknowledged rows are not there, {} must be",
            findings.lost
        ));
        if !findings.none() {
            let notes = findings.notes.join("; ");
            self.violation(arrangement, number, last, &notes);
        }
        Ok(())
    }

    /// Lets `strike` begin and waits until it is due to end; returns how long it lasted.
    fn strike(&mut self, scene: &mut Scene, arrangement: &Arrangement, strike: &Strike) -> Result<Duration> {
        self.say(&format!("    {strike}"));
        // Strikes at a random moment.
        std::thread::sleep(strike.after);
        scene.note_hardened()?;
        let begun = Instant::now();
        scene.strike(strike)?;
        // A fault that strikes only once gets some time to show its effect.
        let lasts = if strike.fault.lasts() { strike.lasts } else { strike.after };
        while begun.elapsed() < lasts {
            if !arrangement.forgets(strike.fault) {
                scene.note_required()?;
            }
            std::thread::sleep(LOOK.min(lasts.saturating_sub(begun.elapsed())));
        }
        Ok(begun.elapsed())
    }

    fn judge_waits(
        &mut self,
        scene: &Scene,
        arrangement: &Arrangement,
        number: u64,
        strike: &Strike,
        lasted: Duration,
    ) {
        let (longest, allowed) = (scene.longest_wait(), arrangement.longest_wait(strike.fault, lasted));
        let cell = self.report.cell(arrangement.name, strike.fault);
        cell.runs += 1;
        cell.waited(longest, allowed);
        if longest > allowed {
            let what =
                format!("a commit took {} ms, {} ms are allowed", longest.as_millis(), allowed.as_millis());
            self.violation(arrangement, number, strike, &what);
        }
    }

    fn violation(&mut self, arrangement: &Arrangement, number: u64, strike: &Strike, what: &str) {
        let FaultsConfig { seed, count, .. } = self.config;
        let replay = format!(
            "standfast-campaign faults --seed {seed} --count {count} --only {} --scene {number}",
            arrangement.name
        );
        let text = format!("{}: {strike}: {what}\n  replay with: {replay}", arrangement.name);
        self.say(&text);
        self.report.violations.push(text);
    }
}
