//! The dashboard as lines of text. The words say everything; colour only repeats it.

use crate::view::View;
use standfast_live::{Dashboard, Figure, Severity};

/// Meaning of a line, for terminals with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Title,
    Good,
    Warning,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    pub text: String,
}

fn plain(text: impl Into<String>) -> Line {
    Line { tone: Tone::Plain, text: text.into() }
}

fn title(text: impl Into<String>) -> Line {
    Line { tone: Tone::Title, text: text.into() }
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Ok => Tone::Good,
        Severity::Unknown | Severity::Warning => Tone::Warning,
        Severity::Critical => Tone::Bad,
    }
}

const KEYS: &str = "1-7 part  0 all  / filter  p pause  ? help  q quit";

const HELP: [&str; 16] = [
    "1 verdict      2 topology   3 standbys   4 where commit time goes",
    "5 sessions     6 blockers   7 events     0 or Esc: all of them",
    "up, down       rows of a part that do not fit",
    "/              only rows with this text; Enter keeps it, Esc clears it",
    "p              pause, resume",
    "?              this help",
    "q              quit",
    "",
    "transport lag  redo that a standby has not received",
    "apply lag      redo that it has not applied, transport lag included",
    "               both as the time span of that redo, and in bytes",
    "unknown        never 0: a lag of 0 is shown only while the standby is heard",
    "||             local write, network and remote write run at the same time:",
    "               only what was waited for counts",
    "",
    "Rates are those of the last ten seconds.",
];

/// Returns the screen, at most `height` lines of at most `width` characters. `lost` says why no new data comes, and
/// since when.
pub fn screen(
    dashboard: &Dashboard,
    view: &View,
    lost: Option<&str>,
    width: usize,
    height: usize,
) -> Vec<Line> {
    let mut lines = vec![head(dashboard, view)];
    if let Some(lost) = lost {
        lines.push(Line { tone: Tone::Bad, text: format!("No data from the instance for {lost}") });
    }
    let room = height.saturating_sub(lines.len() + 1);
    let body = match (view.help, view.part) {
        (true, _) => HELP.map(plain).to_vec(),
        (false, None) => overview(dashboard, view, width),
        (false, Some(part)) => scrolled(self::part(dashboard, view, part), view.above, room),
    };
    lines.extend(body.into_iter().take(room));
    lines.push(foot(view));
    lines.iter_mut().for_each(|line| cut(&mut line.text, width));
    lines
}

fn head(dashboard: &Dashboard, view: &View) -> Line {
    let paused = if view.paused { "  PAUSED" } else { "" };
    let time = crate::time::clock_text(dashboard.time_us);
    title(format!("{}  {} ({})  {time} UTC{paused}", dashboard.name, dashboard.role, dashboard.state))
}

fn foot(view: &View) -> Line {
    let filter = match (view.writes_filter, view.filter.as_str()) {
        (true, text) => format!("filter: {text}_  (Enter keeps it, Esc clears it)"),
        (false, "") => KEYS.into(),
        (false, text) => format!("{KEYS}  [filter: {text}]"),
    };
    title(filter)
}

/// Truncates a text that does not fit, and marks it.
fn cut(text: &mut String, width: usize) {
    if text.chars().count() > width {
        *text = text.chars().take(width.saturating_sub(1)).chain(['>']).collect();
    }
}

/// Scrolls the rows; the title stays.
fn scrolled(mut lines: Vec<Line>, above: usize, room: usize) -> Vec<Line> {
    let most = lines.len().saturating_sub(room);
    lines.drain(1..1 + above.min(most).min(lines.len().saturating_sub(1)));
    lines
}

fn kept(lines: impl IntoIterator<Item = Line>, view: &View) -> Vec<Line> {
    let wanted = view.filter.to_lowercase();
    lines.into_iter().filter(|line| line.text.to_lowercase().contains(&wanted)).collect()
}

/// Returns at most `most` lines; when there are more, the last line gives the number of the others.
fn first(lines: Vec<Line>, most: usize) -> Vec<Line> {
    let more = lines.len().saturating_sub(most);
    let mut shown: Vec<Line> = lines.into_iter().take(if more > 0 { most - 1 } else { most }).collect();
    if more > 0 {
        shown.push(plain(format!("  ... {} more", more + 1)));
    }
    shown
}

fn overview(dashboard: &Dashboard, view: &View, width: usize) -> Vec<Line> {
    let mut lines = verdict(dashboard, 2);
    lines.push(title("2 Topology"));
    lines.extend(first(kept(links(dashboard), view), 2));
    lines.push(standby_title());
    lines.extend(first(kept(standbys(dashboard), view), 3));
    lines.push(title("4 Commits"));
    lines.extend(commit_lines(dashboard));
    lines.push(plain(format!("  {}", shares(dashboard, width.saturating_sub(2)))));
    lines.push(title("5 Sessions"));
    lines.push(plain(session_line(dashboard)));
    lines.push(title("6 Blockers and room"));
    lines.extend(pressure(dashboard).into_iter().take(2));
    lines.push(title("7 Events"));
    lines.extend(kept(events(dashboard), view));
    lines
}

fn part(dashboard: &Dashboard, view: &View, part: u8) -> Vec<Line> {
    let (name, rows) = match part {
        1 => return verdict(dashboard, usize::MAX),
        2 => (title("2 Topology"), kept(links(dashboard), view)),
        3 => (standby_title(), kept(standby_details(dashboard), view)),
        4 => {
            let rows = commit_lines(dashboard).into_iter().chain(kept(parts(dashboard), view));
            (title("4 Where commit time goes"), rows.collect())
        }
        5 => {
            let rows = [plain(session_line(dashboard))].into_iter().chain(kept(sessions(dashboard), view));
            (title("5 Active sessions, and threads that wait"), rows.collect())
        }
        6 => (title("6 Blockers and room"), pressure(dashboard)),
        _ => (title("7 Events, the newest first"), kept(events(dashboard), view)),
    };
    [name].into_iter().chain(rows).collect()
}

fn verdict(dashboard: &Dashboard, most: usize) -> Vec<Line> {
    let verdict = &dashboard.verdict;
    let mut lines = vec![
        Line {
            tone: tone(verdict.severity),
            text: format!("1 {}: {}", verdict.severity.word(), verdict.headline),
        },
        plain(format!("  protection: {} configured, {} actual", verdict.configured, verdict.actual)),
    ];
    let findings = verdict.findings.iter().map(|finding| Line {
        tone: tone(finding.severity),
        text: format!("  {:<8} {}", finding.severity.word(), finding.text),
    });
    lines.extend(first(findings.collect(), most));
    lines
}

fn links(dashboard: &Dashboard) -> Vec<Line> {
    let link = |link: &standfast_live::Link| {
        let state = if link.up { "up" } else { "DOWN" };
        let details = [link.gap.as_ref().map(|gap| format!("gap: {gap}")), link.trouble.clone()];
        let mut text = format!(
            "  {} > {} {state}, heard {}; {}, {}; commits {}",
            link.from,
            link.to,
            ago(&link.heard),
            link.mode,
            link.state,
            link.commits,
        );
        for detail in details.into_iter().flatten() {
            text += &format!("; {detail}");
        }
        Line { tone: if link.up { Tone::Plain } else { Tone::Bad }, text }
    };
    let lines: Vec<Line> = dashboard.topology.iter().map(link).collect();
    if lines.is_empty() { vec![plain("  redo is shipped nowhere")] } else { lines }
}

fn ago(heard: &Figure) -> String {
    heard.value.map_or_else(|| heard.text.clone(), |_| format!("{} ago", heard.text))
}

fn standby_title() -> Line {
    title(format!(
        "{:<16} {:>19} {:>19} {:>11} {:>10}",
        "3 Standbys", "transport lag", "apply lag", "receives", "applies"
    ))
}

fn standbys(dashboard: &Dashboard) -> Vec<Line> {
    let lag = |time: &Figure, bytes: &Figure| match time.text == bytes.text {
        true => time.text.clone(),
        false => format!("{} / {}", time.text, bytes.text),
    };
    let row = |at: &standfast_live::StandbyState| {
        plain(format!(
            "  {:<14} {:>19} {:>19} {:>11} {:>10}",
            at.name,
            lag(&at.transport_lag, &at.transport_lag_bytes),
            lag(&at.apply_lag, &at.apply_lag_bytes),
            at.receive_rate.text,
            at.apply_rate.text
        ))
    };
    dashboard.standbys.iter().map(row).collect()
}

/// Returns the rows of the standbys, each with a second line for the figures that have no room in a column.
fn standby_details(dashboard: &Dashboard) -> Vec<Line> {
    let more = |at: &standfast_live::StandbyState| {
        let text =
            format!("  {:<14} caught up in {}, round trip {}", at.name, at.catch_up.text, at.round_trip.text);
        plain(text)
    };
    let pairs = standbys(dashboard).into_iter().zip(&dashboard.standbys);
    pairs.flat_map(|(line, at)| [line, more(at)]).collect()
}

fn commit_lines(dashboard: &Dashboard) -> Vec<Line> {
    let commit = &dashboard.commit;
    let waits =
        format!("  {} commits, waits p50 {} p99 {}", commit.commits.text, commit.p50.text, commit.p99.text);
    vec![plain(waits), plain(format!("  critical path: {}", commit.critical_path))]
}

/// Returns the largest parts of commit time, as many as fit.
fn shares(dashboard: &Dashboard, width: usize) -> String {
    let mut parts: Vec<_> =
        dashboard.commit.parts.iter().filter_map(|at| Some((at.share.value?, at))).collect();
    parts.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut line = String::new();
    for (_, part) in parts.iter().filter(|(share, _)| *share >= 0.005) {
        let next = format!("{}{} {}", if line.is_empty() { "" } else { ", " }, part.name, part.share.text);
        if line.len() + next.len() > width {
            break;
        }
        line += &next;
    }
    if line.is_empty() { "parts unknown".into() } else { line }
}

fn parts(dashboard: &Dashboard) -> Vec<Line> {
    let head = format!("  {:<27}{:>6}  {:<20} {:>8} {:>8}", "part", "share", "", "mean", "p99");
    let row = |part: &standfast_live::PartTime| {
        let mark = if part.overlaps { " ||" } else { "" };
        let bar = "#".repeat((part.share.value.unwrap_or(0.0) * 20.0).round() as usize);
        let share = part.share.value.map_or("-", |_| part.share.text.as_str());
        let name = format!("{}{mark}", part.name);
        let unknown = |figure: &Figure| figure.value.map_or_else(|| "-".to_owned(), |_| figure.text.clone());
        plain(format!(
            "  {name:<27}{share:>6}  {bar:<20} {:>8} {:>8}",
            unknown(&part.mean),
            unknown(&part.p99)
        ))
    };
    [title(head)].into_iter().chain(dashboard.commit.parts.iter().map(row)).collect()
}

fn session_line(dashboard: &Dashboard) -> String {
    let sessions = &dashboard.sessions;
    let active = sessions.active.as_ref().map_or_else(
        || "active unknown".to_owned(),
        |classes| {
            let busy = classes.iter().filter(|at| at.sessions > 0 || at.class == "CPU");
            let each: Vec<String> = busy.map(|at| format!("{} {}", at.class, at.sessions)).collect();
            format!("active: {}", each.join(", "))
        },
    );
    format!("  {} connected; {active}; processors {}", sessions.connected.text, sessions.cpus.text)
}

fn sessions(dashboard: &Dashboard) -> Vec<Line> {
    let classes = dashboard.sessions.active.iter().flatten().map(|at| {
        let bar = "#".repeat(at.sessions.min(50) as usize);
        plain(format!("  {:<16} {:>4}  {bar}", at.class, at.sessions))
    });
    let threads = dashboard.sessions.threads.iter();
    let threads = threads
        .map(|at| plain(format!("  {:<16} waits for {}, {} so far", at.thread, at.event, at.waited.text)));
    classes.chain(threads).collect()
}

fn pressure(dashboard: &Dashboard) -> Vec<Line> {
    let pressure = &dashboard.pressure;
    let blocked = Line {
        tone: if pressure.blocked_by.is_some() { Tone::Bad } else { Tone::Plain },
        text: format!(
            "  commits held up by: {}; {} wait; redo {}",
            pressure.blocked_by.as_deref().unwrap_or("nothing"),
            pressure.waiting_commits.text,
            pressure.redo_rate.text
        ),
    };
    vec![
        blocked,
        plain(format!(
            "  log {}, {} full; switch every {}; {} left",
            pressure.sequence.text,
            pressure.log_filled.text,
            pressure.switch_interval.text,
            pressure.disk_free.text
        )),
        plain(format!("  full logs that are not archived: {}", pressure.unarchived.text)),
    ]
}

fn events(dashboard: &Dashboard) -> Vec<Line> {
    dashboard.events.iter().map(|event| plain(format!("  {} {}", event.time, event.text))).collect()
}
