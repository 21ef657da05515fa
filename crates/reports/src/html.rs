//! Sections as one HTML file that loads nothing: light and dark, for screens, phones and paper. Pure.

use crate::rules::{Finding, Severity};
use crate::section::{Section, Table};
use standfast_page::markup::{Markup, text};
use standfast_page::page;

/// The first lines of every report.
pub const SIGNATURE: &str = "<!DOCTYPE html>\n<!-- standfast workload report, version 1 -->\n";

pub fn html(title: &str, sections: &[Section]) -> String {
    page::document(SIGNATURE, title, Markup::new().all(sections.iter().map(section)))
}

fn section(of: &Section) -> Markup {
    let notes = of.notes.iter().map(|note| Markup::new().leaf("p", note));
    let facts = match of.facts.is_empty() {
        true => Markup::new(),
        false => page::facts(&of.facts),
    };
    let numbers = of.table.as_ref().map_or_else(Markup::new, |of_it| table(&of.title, of_it));
    let plots = of.plots.iter().map(|plot| {
        let caption = text(&plot.title).leaf("p", &plot.description);
        Markup::new().raw("\n").element(
            "figure",
            &[],
            Markup::new().element("figcaption", &[], caption).then(plot.drawings()),
        )
    });
    let content =
        Markup::new().all(notes).all(of.findings.iter().map(finding)).then(facts).all(plots).then(numbers);
    page::section(&of.title, content)
}

fn table(caption: &str, of: &Table) -> Markup {
    let columns = of.columns.iter().map(|column| page::Column { name: column.name, numeric: column.numeric });
    let columns: Vec<page::Column> = columns.collect();
    page::table(caption, &columns, of.rows.iter().cloned())
}

fn finding(found: &Finding) -> Markup {
    let class = match found.severity {
        Severity::Critical => "fail",
        Severity::Warning | Severity::Notice => "warn",
        Severity::Remark => "",
    };
    let line = Markup::new().leaf("strong", format!("{}: {}", found.rule, found.title));
    let evidence = page::list(found.evidence.iter().map(text));
    let more = evidence
        .leaf("p", format!("To do: {}", found.remedy))
        .leaf("p", format!("Refuted by: {}", found.refuted_by));
    page::notice(class, found.severity.word(), line, more)
}
