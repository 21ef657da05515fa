//! Databases on stock SQLite, the same databases at a primary with a standby, and how a program is judged on them.

use super::connection::code;
use super::content;
use super::differences::{DIFFERENCES, UNSUMMED, documented, forgets_commits};
use super::generate::{PROTECTED, UNPROTECTED};
use super::program::{Door, Outcome, Program, Step};
use super::report::DifferentialReport;
use super::versions::Version;
use crate::instance::Instance;
use crate::process::{Finished, run};
use crate::programs::Programs;
use crate::verify::compare_pages;
use crate::{CampaignError, During, Result};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The smallest group size that is allowed, so that logs are switched continually.
const GROUP_BYTES: &str = "8388608";
const STANDBY: &str = "north";

/// Everything is killed on drop; the directory stays unless [`Scene::remove`] is called.
pub struct Scene {
    programs: Programs,
    directory: PathBuf,
    primary: Instance,
    standby: Instance,
}

impl Scene {
    /// Creates the databases, a primary that protects those of one side, and a standby for which its commits wait.
    ///
    /// # Errors
    /// When anything fails.
    pub fn set_up(programs: &Programs, directory: &Path) -> Result<Scene> {
        let sides = [directory.join("stock"), directory.join("ours")];
        for side in &sides {
            std::fs::create_dir_all(side).during(|| format!("create {}", side.display()))?;
        }
        let mut primary =
            Instance::init(programs, &directory.join("primary"), "south", &["--group-bytes", GROUP_BYTES])?;
        primary.start()?;
        for (name, page_size) in PROTECTED {
            let (stock, ours) = (sides[0].join(name), sides[1].join(name));
            make_database(&stock, page_size, "WAL")?;
            std::fs::copy(&stock, &ours).during(|| format!("copy {}", stock.display()))?;
            primary.must(&["protect", &ours.to_string_lossy()])?;
        }
        let mut standby = Instance::standby_of(&primary, &directory.join("standby"), STANDBY)?;
        standby.start()?;
        let destination = ["destination", "add", STANDBY, &standby.address, "--mode", "sync-affirm"];
        primary
            .must(&[&destination[..], &["--on-timeout", "stall", "--net-timeout-ms", "20000"]].concat())?;
        primary.await_status("the standby follows", |status| status.streams() && status.settled())?;
        Ok(Scene { programs: programs.clone(), directory: directory.to_owned(), primary, standby })
    }

    /// Runs a program on both sides and judges it.
    ///
    /// # Errors
    /// When it cannot be judged.
    pub fn judge(&self, program: &Program, version: &Version) -> Result<DifferentialReport> {
        self.judge_with_outcomes(program, version).map(|(report, _)| report)
    }

    /// Runs and judges a program like [`Scene::judge`], and returns the outcomes of the steps with the shim, too.
    ///
    /// # Errors
    /// When it cannot be judged.
    pub fn judge_with_outcomes(
        &self,
        program: &Program,
        version: &Version,
    ) -> Result<(DifferentialReport, Vec<Outcome>)> {
        let mut report = DifferentialReport { seed: program.seed, ..DifferentialReport::default() };
        let text = self.directory.join("program.json");
        std::fs::write(&text, serde_json::json!(program).to_string())
            .during(|| format!("write {}", text.display()))?;
        for side in ["stock", "ours"] {
            clear(&self.directory.join(side))?;
        }
        let (stock, ours) = std::thread::scope(|scope| {
            let stock = scope.spawn(|| self.work(program, version, &text, false));
            let ours = self.work(program, version, &text, true);
            (stock.join(), ours)
        });
        let stock = stock.map_err(|_| CampaignError::Unreadable {
            what: "a thread".into(),
            detail: "it panicked".into(),
        })??;
        let ours = ours?;
        let parted = compare_outcomes(program, &stock, &ours, &mut report);
        if report.none_found() {
            self.compare_contents(program, version, parted, &mut report)?;
        }
        report.programs = 1;
        Ok((report, ours.outcomes))
    }

    /// Runs a program on one side; returns its outcomes and how its process ended.
    fn work(&self, program: &Program, version: &Version, text: &Path, shim: bool) -> Result<Worked> {
        let side = self.directory.join(if shim { "ours" } else { "stock" });
        let mut command = Command::new(&self.programs.campaign);
        command.current_dir(side).args(["differential-worker", "--library"]).arg(&version.library);
        command.arg("--program").arg(text).env("STANDFAST_QUIET", "1").env_remove("LD_PRELOAD");
        if shim {
            command.arg("--shim");
            match program.door {
                Door::Extension => {
                    command.arg("--extension").arg(&self.programs.extension);
                }
                Door::Preload => {
                    let beside = self.programs.extension.with_file_name("libstandfast_preload.so");
                    command.env("LD_PRELOAD", beside);
                }
            }
        }
        let finished = run(command)?;
        let outcomes = finished.stdout.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        Ok(Worked { outcomes, finished })
    }

    /// Compares the contents of the databases. `parted`: the two sides may hold different content, so each is only
    /// checked by itself.
    fn compare_contents(
        &self,
        program: &Program,
        version: &Version,
        parted: bool,
        report: &mut DifferentialReport,
    ) -> Result<()> {
        let protected = program.protected.iter().map(|(name, _)| name.as_str());
        for name in protected.clone().chain(UNPROTECTED) {
            // Before any process opens it.
            let forgets = forgets_commits(&version.name, &self.directory.join("stock").join(name))?;
            let [stock, ours] =
                ["stock", "ours"].map(|side| content::describe(&self.directory.join(side).join(name)));
            let (stock, ours) = (stock?, ours);
            let different = match &ours {
                Ok(_) if parted => None,
                Ok(ours) => content::difference(&stock, ours),
                Err(error) => Some(error.to_string()),
            };
            if let (Some(_), Ok(_), true) = (&different, &ours, forgets) {
                *report.documented.entry(UNSUMMED.into()).or_default() += 1;
            } else if let Some(different) = different {
                report.lost += 1;
                report.notes.push(format!("{name}: {different}"));
            }
            if let Some(line) = ours.iter().flatten().find(|line| line.starts_with("integrity")) {
                report.integrity_failures += u64::from(line != "integrity [\"ok\"]");
            }
        }
        self.primary.await_status("the standby has applied everything", |status| status.settled())?;
        for name in protected {
            let ours = self.directory.join("ours").join(name);
            let found = compare_pages(&ours, &self.standby.standby_database(name))?.findings;
            report.page_differences += found.page_differences;
            report.notes.extend(found.notes);
        }
        Ok(())
    }

    /// Whether another program can be judged in this scene after one with this report.
    pub fn is_fit_after(&self, report: &DifferentialReport) -> bool {
        let parted =
            |name: &str| name == UNSUMMED || DIFFERENCES.iter().any(|at| at.parts && at.name == name);
        report.lost + report.integrity_failures + report.page_differences == 0
            && !report.documented.keys().any(|name| parted(name))
            && self.primary.is_ready()
            && self.standby.is_ready()
    }

    /// Kills the instances and removes the directory, after a run without findings.
    ///
    /// # Errors
    /// When its directory cannot be removed.
    pub fn remove(self) -> Result<()> {
        let directory = self.directory.clone();
        drop(self);
        std::fs::remove_dir_all(&directory).during(|| format!("remove {}", directory.display()))
    }

    pub fn last_words(&self) -> String {
        format!("primary:{}\nstandby:{}", self.primary.last_words(), self.standby.last_words())
    }
}

struct Worked {
    outcomes: Vec<Outcome>,
    finished: Finished,
}

/// Returns true when the two sides have diverged by a documented difference, and the later steps were not compared.
fn compare_outcomes(
    program: &Program,
    stock: &Worked,
    ours: &Worked,
    report: &mut DifferentialReport,
) -> bool {
    for (library, worked) in [("stock SQLite", stock), ("the shim", ours)] {
        let count = worked.outcomes.len();
        if worked.finished.code != 0 || count != program.steps.len() {
            report.differing = 1;
            let step = program.steps.get(count);
            let stderr = crate::error::last_lines(&worked.finished.stderr);
            report.notes.push(format!(
                "with {library} the process ended with code {} at step {count}: {step:?}{stderr}",
                worked.finished.code
            ));
        }
    }
    for (number, step) in program.steps.iter().enumerate() {
        let (Some(stock), Some(ours)) = (stock.outcomes.get(number), ours.outcomes.get(number)) else {
            return false;
        };
        report.steps += 1;
        report.errors += u64::from(!matches!(stock.code, code::OK | code::NOT_RUN));
        let only_shim = matches!(step, Step::Refused { .. } | Step::RefusedTogether { .. });
        if stock == ours && !only_shim {
            continue;
        }
        match documented(&program.steps[..number], step, stock, ours) {
            Some(difference) => {
                *report.documented.entry(difference.name.into()).or_default() += 1;
                if difference.parts {
                    return true;
                }
            }
            None => {
                report.differing = 1;
                report.notes.push(format!("step {number}: {step:?}\n  stock {stock:?}\n  ours  {ours:?}"));
                report.kind = format!("{step:?} {} {}", stock.code, ours.code);
                // After a difference, the databases of the two sides are no longer the same.
                return false;
            }
        }
    }
    false
}

fn make_database(path: &Path, page_size: u32, mode: &str) -> Result<()> {
    let during = || format!("create database {}", path.display());
    let connection = Connection::open(path).during(during)?;
    let text = format!(
        "PRAGMA page_size={page_size}; PRAGMA journal_mode={mode}; CREATE TABLE t0(id INTEGER PRIMARY KEY, a, b, c)"
    );
    connection.execute_batch(&text).during(during)?;
    connection.close().map_err(|(_, error)| error).during(during)
}

/// Removes what the last program has left beside the protected databases, and creates the other databases.
fn clear(side: &Path) -> Result<()> {
    let entries = std::fs::read_dir(side).during(|| format!("list {}", side.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let protected = PROTECTED.iter().any(|(file, _)| name.trim_start_matches('.').starts_with(file));
        if !protected {
            std::fs::remove_file(entry.path()).during(|| format!("remove {}", entry.path().display()))?;
        }
    }
    make_database(&side.join(UNPROTECTED[0]), 4096, "WAL")?;
    make_database(&side.join(UNPROTECTED[1]), 4096, "DELETE")
}

#[cfg(test)]
mod tests {
    use super::super::generate;
    use super::*;

    #[test]
    fn step_with_another_outcome_is_reported_unless_documented() {
        let program = generate::program(5);
        let worked = |change: Option<(usize, i32)>| {
            let mut outcomes = vec![Outcome::default(); program.steps.len()];
            if let Some((step, code)) = change {
                outcomes[step].code = code;
            }
            let finished = Finished::default();
            Worked { outcomes, finished }
        };
        let found = |ours: &Worked| {
            let mut report = DifferentialReport::default();
            assert!(!compare_outcomes(&program, &worked(None), ours, &mut report));
            report
        };
        assert_eq!(found(&worked(None)).differing, 0);
        let report = found(&worked(Some((1, code::BUSY))));
        assert_eq!(report.differing, 1);
        assert!(report.notes[0].starts_with("step 1:"), "{report}");
        let mut short = worked(None);
        short.outcomes.pop();
        assert_eq!(found(&short).differing, 1, "a process that ended early is found");
    }
}
