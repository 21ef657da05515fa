//! The dashboard in a terminal: `standfast top`.
//!
//! [`screen`] makes the lines of text that are shown; this file draws them and reads keys.

pub mod screen;
mod time;
pub mod view;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Text};
use screen::{Line, Tone, screen};
use standfast_live::Dashboard;
use std::io;
use std::time::{Duration, Instant};
use view::{Key, View};

/// Returns a screen as plain text, for scripts.
pub fn plain(dashboard: &Dashboard, width: usize, height: usize) -> String {
    let lines = screen(dashboard, &View::default(), None, width, height);
    lines.iter().map(|line| format!("{}\n", line.text.trim_end())).collect()
}

/// Shows the answer of `ask`, every `interval`, until `q` is pressed. When `ask` fails, the screen says why, and how
/// old its data is.
///
/// # Errors
/// When the first `ask` fails, or the terminal cannot be used.
pub fn run(
    mut ask: impl FnMut() -> Result<Dashboard, String>,
    interval: Duration,
    colours: bool,
) -> io::Result<()> {
    let mut shown = ask().map_err(io::Error::other)?;
    let mut terminal = ratatui::try_init()?;
    let mut lost = Lost::default();
    let mut view = View::default();
    let result = loop {
        let age = lost.text();
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            let lines = screen(&shown, &view, age.as_deref(), area.width.into(), area.height.into());
            frame.render_widget(Text::from_iter(lines.iter().map(|line| row(line, colours))), area);
        });
        if let Err(error) = drawn {
            break Err(error);
        }
        match keys(interval, &mut view) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
        if !view.paused && lost.asked.elapsed() >= interval {
            lost.take(ask(), &mut shown);
        }
    };
    ratatui::try_restore()?;
    result
}

/// Since when no new data has come, and why.
struct Lost {
    asked: Instant,
    heard: Instant,
    why: Option<String>,
}

impl Default for Lost {
    fn default() -> Lost {
        Lost { asked: Instant::now(), heard: Instant::now(), why: None }
    }
}

impl Lost {
    fn take(&mut self, answer: Result<Dashboard, String>, shown: &mut Dashboard) {
        self.asked = Instant::now();
        match answer {
            Ok(dashboard) => {
                (self.heard, self.why) = (self.asked, None);
                *shown = dashboard;
            }
            Err(why) => self.why = Some(why),
        }
    }

    fn text(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        let why = why.lines().next().unwrap_or_default();
        Some(format!("{} s: {why}", self.heard.elapsed().as_secs()))
    }
}

/// Waits for a key, at most `interval`; returns false when the program shall end.
fn keys(interval: Duration, view: &mut View) -> io::Result<bool> {
    if !event::poll(interval)? {
        return Ok(true);
    }
    let Event::Key(key) = event::read()? else { return Ok(true) };
    if key.kind == KeyEventKind::Release {
        return Ok(true);
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return Ok(key.code != KeyCode::Char('c'));
    }
    let known = match key.code {
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return Ok(true),
    };
    Ok(view.press(known))
}

/// Draws a line. Bold also works without colours.
fn row(line: &Line, colours: bool) -> Row<'_> {
    let colour = match line.tone {
        Tone::Plain | Tone::Title => None,
        Tone::Good => Some(Color::Green),
        Tone::Warning => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
    };
    let mut style = Style::new();
    if line.tone != Tone::Plain {
        style = style.add_modifier(Modifier::BOLD);
    }
    if let Some(colour) = colour.filter(|_| colours) {
        style = style.fg(colour);
    }
    Row::styled(line.text.as_str(), style)
}
