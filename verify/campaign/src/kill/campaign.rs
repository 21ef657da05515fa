//! Runs the cycles: run, kill, restart, wait until everything runs; sometimes check that everything is there, and
//! sometimes lose the primary for good.

use super::arms;
use super::report::KillReport;
use super::strike::{Strike, Victim};
use crate::instance::TIMEOUT;
use crate::process::await_condition;
use crate::scene::{Scene, ScenePlan};
use crate::site::Site;
use crate::verify::Findings;
use crate::{CampaignError, Result};
use standfast_testkit::Rng;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct KillConfig {
    pub site: Site,
    pub cycles: u64,
    /// Seed of the victims, the times and the transactions.
    pub seed: u64,
    /// The applications, and how commits are protected.
    pub plan: ScenePlan,
    /// Number of cycles between two checks; one more check follows the last cycle.
    pub check_every: u64,
    /// Number of cycles between two losses of the primary for good.
    pub failover_every: u64,
}

/// Runs the campaign. Errors are in the report.
pub fn run(config: &KillConfig) -> KillReport {
    let mut campaign = Campaign {
        config,
        rng: Rng::new(config.seed),
        report: KillReport { seed: config.seed, ..KillReport::default() },
        scenes: 0,
    };
    if let Err(error) = campaign.run() {
        campaign.report.ending.error = Some(error.to_string());
    }
    let mut report = campaign.report;
    report.ending.kept = config.site.leave(report.passed());
    report
}

struct Campaign<'a> {
    config: &'a KillConfig,
    rng: Rng,
    report: KillReport,
    scenes: u64,
}

impl Campaign<'_> {
    fn say(&self, words: &str) {
        self.config.site.say(words);
    }

    /// Stops at the first finding, so that the directory keeps its evidence.
    fn run(&mut self) -> Result<()> {
        while self.report.cycles < self.config.cycles && self.report.findings.none() {
            let scene = self.open_scene()?;
            let (scene, result) = self.play(scene);
            self.report.acknowledged += scene.commits();
            self.report.refused += scene.refusals();
            if let Err(error) = result {
                let alerts = format!(
                    "\nprimary:{}\nstandby:{}",
                    scene.primary.last_words(),
                    scene.standby.last_words()
                );
                self.say(&format!("failed: {error}{alerts}"));
                return Err(error);
            }
            if self.report.findings.none() {
                scene.discard()?;
            }
        }
        Ok(())
    }

    fn open_scene(&mut self) -> Result<Scene> {
        self.scenes += 1;
        let directory = self.config.site.directory.join(format!("scene-{}", self.scenes));
        let (late, fastsync) = (self.rng.chance(50), self.config.plan.fastsync || self.rng.chance(40));
        let plan = ScenePlan { late, fastsync, ..self.config.plan };
        self.say(&format!("set up {}: {plan:?}", directory.display()));
        Scene::set_up(&self.config.site.programs, &directory, plan)
    }

    /// Runs cycles in one scene, until the primary is lost, there is a finding, or the last cycle is done.
    fn play(&mut self, mut scene: Scene) -> (Scene, Result<()>) {
        let result = self.cycles(&mut scene);
        (scene, result)
    }

    fn cycles(&mut self, scene: &mut Scene) -> Result<()> {
        self.start_applications(scene)?;
        scene.await_progress()?;
        loop {
            let number = self.report.cycles + 1;
            let (last, failover) =
                (number == self.config.cycles, number.is_multiple_of(self.config.failover_every));
            // Each cycle has its own generator, so that durations do not shift the later cycles.
            let mut rng = self.rng.fork();
            if failover {
                self.fail_over(scene, &mut rng)?;
                self.report.cycles = number;
                return Ok(());
            }
            self.strike(scene, number, &mut rng)?;
            if last || number.is_multiple_of(self.config.check_every) {
                self.check(scene)?;
            }
            self.report.cycles = number;
            if last || !self.report.findings.none() {
                return Ok(());
            }
        }
    }

    fn start_applications(&mut self, scene: &mut Scene) -> Result<()> {
        let databases = scene.databases.clone();
        for number in 0..scene.applications.len() {
            scene.start_application(number, self.rng.next_u64(), &databases)?;
        }
        Ok(())
    }

    fn strike(&mut self, scene: &mut Scene, number: u64, rng: &mut Rng) -> Result<()> {
        let strike = Strike::draw(rng, scene.applications.len());
        self.say(&format!("cycle {number}: {strike}"));
        // Strikes at a random moment.
        std::thread::sleep(strike.after);
        self.kill_and_start(scene, &strike, rng)?;
        if let Some(pause) = strike.again {
            std::thread::sleep(pause);
            self.kill_and_start(scene, &strike, rng)?;
        }
        let killed = Instant::now();
        self.await_running(scene)?;
        self.say(&format!(
            "         runs again after {} ms, {} commits",
            killed.elapsed().as_millis(),
            scene.commits()
        ));
        Ok(())
    }

    /// Waits until everything runs. Restarts armed instances that have struck, without their fault points.
    fn await_running(&mut self, scene: &mut Scene) -> Result<()> {
        let before = scene.progress();
        await_condition("everything runs", TIMEOUT, || {
            self.revive(scene)?;
            scene.runs_since(&before)
        })
    }

    /// Restarts armed instances that have killed themselves.
    fn revive(&mut self, scene: &mut Scene) -> Result<()> {
        for (victim, instance) in
            [(Victim::Primary, &mut scene.primary), (Victim::Standby, &mut scene.standby)]
        {
            if !instance.has_ended() {
                continue;
            }
            let Some(faults) = instance.faults.take() else {
                return Err(instance.process().map_or_else(
                    || CampaignError::Unreadable { what: "a process".into(), detail: "it is gone".into() },
                    |process| process.failed("ended by itself"),
                ));
            };
            self.say(&format!("         {victim:?} struck by {faults}"));
            self.report.kills.count(victim);
            instance.kill();
            instance.spawn()?;
        }
        Ok(())
    }

    /// Restarts armed instances without their fault points, so that no instance kills itself from now on.
    fn disarm(&mut self, scene: &mut Scene) -> Result<()> {
        self.revive(scene)?;
        if self.config.plan.unprotected {
            return Ok(());
        }
        for victim in [Victim::Primary, Victim::Standby] {
            let instance = if victim == Victim::Primary { &scene.primary } else { &scene.standby };
            if instance.faults.is_some() {
                self.kill(scene, victim);
                let instance =
                    if victim == Victim::Primary { &mut scene.primary } else { &mut scene.standby };
                instance.faults = None;
                instance.spawn()?;
            }
        }
        self.await_running(scene)
    }

    fn kill_and_start(&mut self, scene: &mut Scene, strike: &Strike, rng: &mut Rng) -> Result<()> {
        strike.victims.iter().for_each(|victim| self.kill(scene, *victim));
        let databases = scene.databases.clone();
        for (pause, victim) in &strike.restarts {
            std::thread::sleep(*pause);
            match victim {
                Victim::Application(number) => {
                    scene.start_application(*number, rng.next_u64(), &databases)?;
                }
                Victim::Primary => {
                    scene.primary.faults = strike.primary_arms.clone();
                    scene.primary.spawn()?;
                }
                Victim::Standby if self.config.plan.unprotected => scene.standby.spawn()?,
                Victim::Standby => {
                    scene.standby.faults = strike.standby_arms.clone();
                    scene.standby.spawn()?;
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, scene: &mut Scene, victim: Victim) {
        match victim {
            Victim::Application(number) => drop(scene.applications[number].take()),
            Victim::Primary => scene.primary.kill(),
            Victim::Standby => scene.standby.kill(),
        }
        self.report.kills.count(victim);
    }

    fn check(&mut self, scene: &mut Scene) -> Result<()> {
        self.disarm(scene)?;
        let begun = Instant::now();
        scene.stop_applications()?;
        let findings = scene.check_both()?;
        self.report.checks += 1;
        self.note(findings, &format!("checked primary and standby in {} ms", begun.elapsed().as_millis()));
        if self.report.findings.none() {
            self.start_applications(scene)?;
            scene.await_progress()?;
        }
        Ok(())
    }

    fn note(&mut self, findings: Findings, what: &str) {
        let notes = findings.notes.iter().map(|note| format!("\n  {note}")).collect::<String>();
        self.say(&format!(
            "         {what}: {}{notes}",
            if findings.none() { "all is there" } else { "NOT ALL IS WELL" }
        ));
        self.report.findings.add(findings);
    }

    /// Loses the primary for good; the standby fails over with everything that was acknowledged, and continues.
    fn fail_over(&mut self, scene: &mut Scene, rng: &mut Rng) -> Result<()> {
        // FASTSYNC covers the loss of one of the two: a standby that also dies, before it has written what is in its
        // memory, loses that.
        let alone = scene.plan().fastsync && !scene.plan().unprotected;
        if alone {
            self.disarm(scene)?;
        }
        std::thread::sleep(Duration::from_millis(rng.between(150, 900)));
        let mut victims: Vec<Victim> = (0..scene.applications.len()).map(Victim::Application).collect();
        victims.push(Victim::Primary);
        let restart_standby = rng.chance(50) && !alone;
        victims.extend(restart_standby.then_some(Victim::Standby));
        rng.shuffle(&mut victims);
        self.say(&format!("cycle {}: kill {victims:?} for good, fail over", self.report.cycles + 1));
        victims.iter().for_each(|victim| self.kill(scene, *victim));
        if !restart_standby && scene.standby.faults.is_some() {
            // It is armed, and may or may not have struck.
            self.kill(scene, Victim::Standby);
        }
        if scene.standby.process().is_none() {
            scene.standby.faults = None;
            scene.standby.start()?;
        }
        if rng.chance(40) && !alone {
            self.interrupt_failover(scene, rng)?;
        }
        let begun = Instant::now();
        if scene.standby.status()?.role() != "primary" {
            scene.standby.must(&["failover"])?;
        }
        scene.standby.await_status("the standby is the primary", |status| {
            status.role() == "primary" && status.text("/state") == "open"
        })?;
        let took = begun.elapsed();
        self.report.failovers += 1;
        let findings = scene.check_standby()?;
        self.note(findings, &format!("failover in {} ms", took.as_millis()));
        if self.report.findings.none() {
            let databases = scene.standby_databases();
            scene.start_application(0, rng.next_u64(), &databases)?;
            scene.await_progress()?;
            scene.stop_applications()?;
            let findings = scene.check_standby()?;
            self.note(findings, "the application continues against the new primary");
        }
        Ok(())
    }

    /// Kills the standby in the middle of its failover. Afterwards it is either still a standby or the new primary.
    fn interrupt_failover(&mut self, scene: &mut Scene, rng: &mut Rng) -> Result<()> {
        if rng.chance(50) {
            let faults = arms::of_failover(rng);
            self.say(&format!("         fail over with {faults}"));
            self.kill(scene, Victim::Standby);
            scene.standby.faults = Some(faults);
            scene.standby.spawn()?;
            // It may die during its start.
            await_condition("the armed standby serves or dies", TIMEOUT, || {
                let settled = scene.standby.is_ready() || scene.standby.has_ended();
                Ok(if settled { Ok(()) } else { Err("neither".into()) })
            })?;
            let _ = scene.standby.run(&["failover"])?;
        } else {
            let pause = Duration::from_millis(rng.between(0, 200));
            self.say(&format!("         kill the standby {} ms into its failover", pause.as_millis()));
            let asking = scene.standby.begin(&["failover"])?;
            std::thread::sleep(pause);
            asking.kill();
        }
        self.kill(scene, Victim::Standby);
        scene.standby.faults = None;
        scene.standby.start()
    }
}
