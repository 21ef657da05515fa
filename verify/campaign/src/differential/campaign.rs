//! Runs many programs with many versions of SQLite.

use super::generate;
use super::program::Program;
use super::report::DifferentialReport;
use super::scene::Scene;
use super::shrink::shrink;
use super::versions::{self, Version};
use crate::Result;
use crate::site::Site;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Attempts to make a failing program smaller.
const SHRINK_TRIES: u32 = 200;
/// Programs after which the scene is created again, which bounds the disk space of a long campaign.
const PROGRAMS_A_SCENE: u64 = 500;

#[derive(Clone, Debug)]
pub struct DifferentialConfig {
    pub site: Site,
    /// Programs with each version of SQLite.
    pub programs: u64,
    /// The seed of the first program; those of the others follow.
    pub seed: u64,
    pub libraries: PathBuf,
    /// Versions and variants; empty means all that are found.
    pub versions: Vec<String>,
    /// Versions that run at the same time.
    pub jobs: usize,
    /// Do not make a failing program smaller.
    pub whole: bool,
}

/// Runs the campaign. Errors are in the report.
pub fn run(config: &DifferentialConfig) -> DifferentialReport {
    let mut report = DifferentialReport { seed: config.seed, ..DifferentialReport::default() };
    match versions::find(&config.libraries, &config.versions) {
        Ok(versions) => report.add(run_all(config, &versions)),
        Err(error) => report.ending.error = Some(error.to_string()),
    }
    report.ending.kept = config.site.leave(report.passed());
    report
}

fn run_all(config: &DifferentialConfig, versions: &[Version]) -> DifferentialReport {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(DifferentialReport::default());
    std::thread::scope(|scope| {
        for _ in 0..config.jobs.clamp(1, versions.len()) {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let number = next.fetch_add(1, SeqCst);
                    let Some(version) = versions.get(number) else { return };
                    let first = config.seed + number as u64 * config.programs;
                    let part = run_version(config, version, first, &stop);
                    if !part.passed() {
                        stop.store(true, SeqCst);
                    }
                    total.lock().unwrap_or_else(PoisonError::into_inner).add(part);
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_version(
    config: &DifferentialConfig,
    version: &Version,
    first: u64,
    stop: &AtomicBool,
) -> DifferentialReport {
    let mut part = Part { config, version, report: DifferentialReport::default(), scenes: 0 };
    if let Err(error) = part.run(first, stop) {
        part.report.ending.error = Some(format!("{}: {error}", version.name));
    }
    part.report
}

struct Part<'a> {
    config: &'a DifferentialConfig,
    version: &'a Version,
    report: DifferentialReport,
    scenes: u32,
}

impl Part<'_> {
    fn scene(&mut self) -> Result<Scene> {
        self.scenes += 1;
        let name = format!("{}-{}", self.version.name, self.scenes);
        Scene::set_up(&self.config.site.programs, &self.config.site.directory.join(name))
    }

    /// Runs the programs with one version, up to the first finding.
    fn run(&mut self, first: u64, stop: &AtomicBool) -> Result<()> {
        let mut scene = None;
        for number in 0..self.config.programs {
            if stop.load(SeqCst) {
                return Ok(());
            }
            if number % PROGRAMS_A_SCENE == 0 {
                scene.take().map_or(Ok(()), Scene::remove)?;
            }
            let current = match scene.take() {
                Some(scene) => scene,
                None => self.scene()?,
            };
            let program = generate::program(first + number);
            let judged = current.judge(&program, self.version);
            let judged = judged.inspect_err(|error| {
                self.config.site.say(&format!("seed {}: {error}\n{}", program.seed, current.last_words()));
            })?;
            let (passed, is_fit) = (judged.passed(), current.is_fit_after(&judged));
            let words = if passed { String::new() } else { current.last_words() };
            self.report.add(judged);
            *self.report.versions.entry(self.version.name.clone()).or_default() += 1;
            if !passed {
                self.explain(&program, &words);
                return Ok(());
            }
            match is_fit {
                true => scene = Some(current),
                false => current.remove()?,
            }
            if (number + 1).is_multiple_of(50) {
                self.config.site.say(&format!("{}: {} programs", self.version.name, number + 1));
            }
        }
        scene.map_or(Ok(()), Scene::remove)
    }

    /// Reports how to replay a failing program, and the steps of it that are needed to fail.
    fn explain(&mut self, program: &Program, words: &str) {
        let again = format!(
            "replay with: standfast-campaign differential --programs 1 --sqlite {} --seed {}",
            self.version.name, program.seed
        );
        self.config.site.say(&format!("{}\n{again}\n{words}", self.report.notes.join("\n")));
        let kind = self.report.kind.clone();
        let smallest = if self.config.whole { program.clone() } else { self.shrink(program, &kind) };
        self.report.notes.push(format!("in {}:\n{}{again}", self.version.name, smallest.listing()));
    }

    fn shrink(&mut self, program: &Program, kind: &str) -> Program {
        let mut scene = None;
        let mut last = Vec::new();
        let smallest = shrink(program, SHRINK_TRIES, |candidate| {
            let current = match scene.take() {
                Some(scene) => scene,
                None => match self.scene() {
                    Ok(scene) => scene,
                    Err(_) => return false,
                },
            };
            match current.judge(candidate, self.version) {
                Ok(judged) => {
                    scene = current.is_fit_after(&judged).then_some(current);
                    let same = !judged.passed() && judged.kind == kind;
                    if same {
                        last = judged.notes;
                    }
                    same
                }
                Err(error) => {
                    last = vec![error.to_string()];
                    true
                }
            }
        });
        if last.is_empty() {
            self.report.notes.push(
                "in a new scene, with any step omitted, it does not fail: it is not made smaller".into(),
            );
        }
        self.report.notes.extend(last);
        smallest
    }
}
