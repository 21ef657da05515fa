//! The figures that this project holds itself to: each with a bar that must be met and an aim to get to.

mod campaign;
mod idle;
mod instruments;
mod isolation;
mod measured;
mod net;
mod roles;
mod table;
mod transport;
mod trust;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::error::During;
use crate::stations::Stations;
use crate::suite::Missing;
use crate::{BenchError, Context, Result};

pub use measured::Measured;
pub use net::readings;
pub use table::FIGURES;

/// Figures that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Speed of commits.
    Commit,
    /// Speed of apply.
    Apply,
    /// Speed of the log writer.
    Log,
    /// Processes killed at random.
    Kill,
    /// Simulated power loss.
    Power,
    /// Random programs that must have the results of stock SQLite, and faults that must stay where they are.
    Promise,
    /// An instance that has nothing to do.
    Idle,
    /// Assessment of links, and emulated ones.
    Net,
    /// Redo on its way to a distant standby.
    Transport,
    /// Whether what the instruments say is true.
    Instruments,
    /// Cost of authentication and encryption.
    Trust,
    /// Changes of roles.
    Roles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Values from the bar upwards are good.
    Higher,
    /// Values up to the bar are good.
    Lower,
}

pub struct Figure {
    pub group: Group,
    pub name: &'static str,
    /// Unit of value, bar and aim.
    pub unit: &'static str,
    /// Digits printed after the decimal point.
    pub digits: usize,
    /// Must be met; None for a figure that has only an aim.
    pub bar: Option<f64>,
    /// Where to get to; None for a figure that has only a bar.
    pub aim: Option<f64>,
    pub better: Better,
    /// How it is computed from what was measured.
    pub compute: fn(&Measured) -> std::result::Result<f64, Missing>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub group: Group,
    pub name: String,
    pub verdict: Word,
    /// The value, unless there is none.
    pub value: Option<f64>,
    /// Unit of value, bar and aim.
    pub unit: String,
    /// Value that must be met; `None` with an aim only.
    pub bar: Option<f64>,
    /// Value that is worth reaching; `None` with a bar only.
    pub aim: Option<f64>,
    pub better: Better,
    /// Whether the aim is reached too.
    pub aim_reached: bool,
    /// Why there is no value; `None` with one.
    pub reason: Option<String>,
    /// The line of the table, as printed.
    pub line: String,
}

/// First word of a figure's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Word {
    Pass,
    /// The bar is not met, or the measurement went wrong.
    Miss,
    /// This machine, or this build, cannot give the figure.
    Skip,
    /// A measured figure that has neither bar nor aim: others are compared with it.
    Note,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Word::Pass => "PASS",
            Word::Miss => "MISS",
            Word::Skip => "SKIP",
            Word::Note => "NOTE",
        }
    }
}

impl Figure {
    pub fn judge(&self, measured: &Measured) -> Verdict {
        let outcome = match (self.compute)(measured) {
            Ok(value) if !value.is_finite() => Err(Missing::Failed("nothing to divide by".into())),
            other => other,
        };
        let (verdict, value, reason) = match outcome {
            Ok(value) => {
                let verdict = match self.bar.or(self.aim) {
                    None => Word::Note,
                    Some(_) if self.meets(value, self.bar) => Word::Pass,
                    Some(_) => Word::Miss,
                };
                (verdict, Some(value), None)
            }
            Err(Missing::Skipped(reason)) => (Word::Skip, None, Some(reason)),
            Err(Missing::Failed(reason)) => (Word::Miss, None, Some(reason)),
        };
        Verdict {
            group: self.group,
            name: self.name.to_owned(),
            verdict,
            value,
            unit: self.unit.to_owned(),
            bar: self.bar,
            aim: self.aim,
            better: self.better,
            aim_reached: value.is_some_and(|value| self.meets(value, self.aim)),
            line: self.line(verdict, value, reason.as_deref()),
            reason,
        }
    }

    /// A limit that does not exist is met by everything.
    fn meets(&self, value: f64, limit: Option<f64>) -> bool {
        limit.is_none_or(|limit| match self.better {
            Better::Higher => value >= limit,
            Better::Lower => value <= limit,
        })
    }

    /// `PASS|MISS|SKIP|NOTE group.name value unit (bar ..., aim ...)`, then a reason when there is no value.
    fn line(&self, verdict: Word, value: Option<f64>, reason: Option<&str>) -> String {
        let digits = self.digits;
        let value = value.map_or("-".into(), |value| format!("{value:.digits$}"));
        let limit = |limit: Option<f64>| limit.map_or("-".into(), |limit| limit.to_string());
        let group =
            self.group.to_possible_value().map(|group| group.get_name().to_owned()).unwrap_or_default();
        let mut line = format!("{} {group}.{} {value} {}", verdict.text(), self.name, self.unit);
        if self.bar.or(self.aim).is_some() {
            line.push_str(&format!(" (bar {}, aim {})", limit(self.bar), limit(self.aim)));
        }
        if let Some(reason) = reason {
            line.push_str(": ");
            // Put the reason on one line, whatever the program wrote.
            line.push_str(&reason.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        line
    }
}

#[derive(Clone, Debug)]
pub struct FiguresConfig {
    /// Groups, in this order; no group twice.
    pub groups: Vec<Group>,
    /// Runs of a speed, cycles of `kill`, seeds of `power`, programs of `promise` with each SQLite; None takes each group's own.
    pub count: Option<u64>,
    /// File into which the JSON is written.
    pub out: PathBuf,
}

#[derive(Serialize)]
struct Document<'d> {
    conditions: &'d Conditions,
    figures: &'d [Verdict],
    measured: &'d Measured,
}

/// Measures and prints; true when no bar is missed.
pub fn figures(context: &Context, config: &FiguresConfig, stations: &Stations) -> Result<bool> {
    let conditions = Conditions::read(context);
    eprintln!("{}", conditions.line());
    let mut measured = Measured::default();
    let mut verdicts = Vec::new();
    for &group in &config.groups {
        let begun = SystemTime::now();
        measured.measure(context, group, config.count, stations)?;
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            let verdict = figure.judge(&measured);
            println!("{}", verdict.line);
            verdicts.push(verdict);
        }
        // Write after each group, so that an interrupted run keeps its results.
        write_json(
            &config.out,
            &Document { conditions: &conditions, figures: &verdicts, measured: &measured },
        )?;
        if let (Group::Transport, Ok(found)) = (group, &measured.transport) {
            transport::write_plots(found, begun, &config.out.with_file_name("figures-transport.html"))?;
        }
    }
    Ok(verdicts.iter().all(|verdict| verdict.verdict != Word::Miss))
}

/// Writes a document as JSON, creating the directory.
pub(crate) fn write_json(path: &Path, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| BenchError::Unreadable { what: "the results".into(), detail: error.to_string() })?;
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).during(|| format!("create {}", directory.display()))?;
    }
    std::fs::write(path, text + "\n").during(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: Figure = Figure {
        group: Group::Commit,
        name: "ratio",
        unit: "x FULL",
        digits: 2,
        bar: Some(3.0),
        aim: Some(4.5),
        better: Better::Higher,
        compute: |_| Ok(3.456),
    };

    #[test]
    fn figure_at_its_bar_passes_and_has_its_line() {
        let verdict = RATIO.judge(&Measured::default());
        assert_eq!(verdict.line, "PASS commit.ratio 3.46 x FULL (bar 3, aim 4.5)");
        assert!(!verdict.aim_reached);
        let exactly = Figure { compute: |_| Ok(3.0), ..RATIO };
        assert_eq!(exactly.judge(&Measured::default()).verdict, Word::Pass);
        let below = Figure { compute: |_| Ok(2.99), ..RATIO };
        assert_eq!(below.judge(&Measured::default()).line, "MISS commit.ratio 2.99 x FULL (bar 3, aim 4.5)");
    }

    #[test]
    fn lower_is_better_where_the_figure_says_so() {
        let figure = Figure { better: Better::Lower, bar: Some(8.0), aim: Some(4.0), ..RATIO };
        let verdict = figure.judge(&Measured::default());
        assert_eq!(verdict.verdict, Word::Pass);
        assert!(verdict.aim_reached);
        let worse = Figure { compute: |_| Ok(8.5), ..figure };
        assert_eq!(worse.judge(&Measured::default()).verdict, Word::Miss);
    }

    #[test]
    fn figure_without_limits_is_only_noted() {
        let control = Figure { bar: None, aim: None, ..RATIO }.judge(&Measured::default());
        assert_eq!((control.verdict, control.line.as_str()), (Word::Note, "NOTE commit.ratio 3.46 x FULL"));
    }

    #[test]
    fn absent_input_is_skipped_and_failed_input_is_a_miss() {
        let absent = Figure { compute: |_| Err(Missing::Skipped("no PostgreSQL".into())), ..RATIO };
        let line = absent.judge(&Measured::default()).line;
        assert_eq!(line, "SKIP commit.ratio - x FULL (bar 3, aim 4.5): no PostgreSQL");
        let wrong = Figure { compute: |_| Err(Missing::Failed("lost\n  2 rows".into())), ..RATIO };
        assert_eq!(
            wrong.judge(&Measured::default()).line,
            "MISS commit.ratio - x FULL (bar 3, aim 4.5): lost 2 rows"
        );
        let nonsense = Figure { compute: |_| Ok(f64::NAN), ..RATIO };
        assert_eq!(nonsense.judge(&Measured::default()).verdict, Word::Miss);
    }

    #[test]
    fn a_figure_without_a_bar_cannot_miss() {
        let figure = Figure { bar: None, better: Better::Lower, aim: Some(1.0), ..RATIO };
        let verdict = figure.judge(&Measured::default());
        assert_eq!(
            verdict.line,
            "PASS commit.ratio 3.46 x FULL (bar -, aim 1)".replace("x FULL", RATIO.unit)
        );
        assert!(!verdict.aim_reached);
    }

    #[test]
    fn nothing_measured_gives_skips_and_no_panic() {
        for figure in FIGURES {
            let verdict = figure.judge(&Measured::default());
            assert_eq!(verdict.verdict, Word::Skip, "{}", verdict.line);
        }
    }

    #[test]
    fn names_are_unique_and_every_aim_lies_beyond_its_bar() {
        for (nth, figure) in FIGURES.iter().enumerate() {
            let twin =
                FIGURES[..nth].iter().find(|other| (other.group, other.name) == (figure.group, figure.name));
            assert!(twin.is_none(), "{}", figure.name);
            if let (Some(aim), Some(_)) = (figure.aim, figure.bar) {
                assert!(figure.meets(aim, figure.bar), "{}", figure.name);
            }
        }
    }
}
