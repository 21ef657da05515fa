//! Which part of the dashboard is shown, and what keys do.

/// A key that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    /// Ends a filter and keeps it.
    Enter,
    /// Closes the innermost of what is open.
    Escape,
    Backspace,
    Up,
    Down,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// A part, 1 to 7; `None` shows all of them in short.
    pub part: Option<u8>,
    /// Rows without this text are hidden.
    pub filter: String,
    pub writes_filter: bool,
    /// The screen keeps the data that it shows.
    pub paused: bool,
    pub help: bool,
    /// Rows of a part that are scrolled above the screen.
    pub above: usize,
}

impl View {
    /// Handles a key; returns false when the program shall end.
    pub fn press(&mut self, key: Key) -> bool {
        if self.writes_filter {
            self.write_filter(key);
            return true;
        }
        match key {
            Key::Char('q') => return false,
            Key::Char('?') => self.help = !self.help,
            Key::Char('p') => self.paused = !self.paused,
            Key::Char('/') => self.writes_filter = true,
            Key::Char('0') => self.show(None),
            Key::Char(digit @ '1'..='7') => self.show(digit.to_digit(10).map(|digit| digit as u8)),
            Key::Down | Key::Char('j') => self.above += 1,
            Key::Up | Key::Char('k') => self.above = self.above.saturating_sub(1),
            Key::Escape => self.close(),
            _ => {}
        }
        true
    }

    fn show(&mut self, part: Option<u8>) {
        (self.part, self.help, self.above) = (part, false, 0);
    }

    /// Closes the innermost of what is open.
    fn close(&mut self) {
        if self.help {
            self.help = false;
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.show(None);
        }
    }

    fn write_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Enter => self.writes_filter = false,
            Key::Escape => {
                self.writes_filter = false;
                self.filter.clear();
            }
            Key::Up | Key::Down => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(keys: &[Key]) -> View {
        let mut view = View::default();
        keys.iter().for_each(|key| assert!(view.press(*key)));
        view
    }

    #[test]
    fn digits_choose_a_part_and_escape_goes_back_step_by_step() {
        assert_eq!(pressed(&[Key::Char('4')]).part, Some(4));
        assert_eq!(pressed(&[Key::Char('4'), Key::Char('9')]).part, Some(4));
        let mut view = pressed(&[Key::Char('7'), Key::Char('/'), Key::Char('x'), Key::Enter, Key::Char('?')]);
        assert_eq!((view.help, view.filter.as_str(), view.part), (true, "x", Some(7)));
        view.press(Key::Escape);
        view.press(Key::Escape);
        assert_eq!((view.help, view.filter.as_str(), view.part), (false, "", Some(7)));
        view.press(Key::Escape);
        assert_eq!(view, View::default());
    }

    #[test]
    fn letters_are_filter_text_while_a_filter_is_edited() {
        let view = pressed(&[Key::Char('/'), Key::Char('q'), Key::Char('p'), Key::Backspace]);
        assert_eq!((view.filter.as_str(), view.paused, view.writes_filter), ("q", false, true));
        assert!(!View::default().press(Key::Char('q')));
    }
}
