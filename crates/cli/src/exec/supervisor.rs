//! Decides when a program runs that needs the primary. Pure: [`super`] carries the decisions out.

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Whether the instance is the open primary; `None`: it does not answer, or is changing its role.
    Role(Option<bool>),
    /// The program has ended.
    Ended,
    /// SIGTERM or SIGINT.
    Stop,
    /// The program has taken longer to end than it may.
    Overdue,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Start,
    /// Ask the program to end, and report [`Event::Overdue`] if it takes too long.
    Terminate,
    Kill,
    /// End with the exit code of the program that has ended, or 0 if none ran.
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Absent,
    Running,
    Ending,
}

/// The program and the role that it needs.
#[derive(Debug)]
pub struct Supervisor {
    program: Program,
    is_primary: bool,
    stops: bool,
}

impl Supervisor {
    /// Nothing runs, and the role is not known.
    pub fn new() -> Supervisor {
        Supervisor { program: Program::Absent, is_primary: false, stops: false }
    }

    /// Takes an event; the caller carries the action out before it reports the next one.
    pub fn take(&mut self, event: Event) -> Action {
        match (event, self.program) {
            // Nothing is known: the program stays as it is. If the instance is no longer the primary, it refuses writes.
            (Event::Role(None), _) => Action::Nothing,
            (Event::Role(Some(is_primary)), _) => {
                self.is_primary = is_primary;
                self.as_the_role_says()
            }
            (Event::Stop, Program::Absent) => Action::Exit,
            (Event::Stop, _) => {
                self.stops = true;
                self.as_the_role_says()
            }
            (Event::Overdue, Program::Ending) => Action::Kill,
            (Event::Overdue, _) => Action::Nothing,
            (Event::Ended, program) => {
                self.program = Program::Absent;
                // A program that ends by itself is a matter for the service manager that has started this one.
                if self.stops || program == Program::Running { Action::Exit } else { self.as_the_role_says() }
            }
        }
    }

    fn as_the_role_says(&mut self) -> Action {
        match (self.program, self.is_primary && !self.stops) {
            (Program::Absent, true) => {
                self.program = Program::Running;
                Action::Start
            }
            (Program::Running, false) => {
                self.program = Program::Ending;
                Action::Terminate
            }
            _ => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Exit, Kill, Nothing, Start, Terminate};
    use Event::{Ended, Overdue, Role, Stop};

    fn actions(events: &[Event]) -> Vec<Action> {
        let mut supervisor = Supervisor::new();
        events.iter().map(|event| supervisor.take(*event)).collect()
    }

    #[test]
    fn program_runs_while_the_instance_is_the_primary() {
        let events = [
            Role(Some(false)),
            Role(Some(true)),
            Role(Some(true)),
            Role(Some(false)),
            Ended,
            Role(Some(true)),
        ];
        assert_eq!(actions(&events), [Nothing, Start, Nothing, Terminate, Nothing, Start]);
    }

    #[test]
    fn program_stays_while_the_role_is_not_known() {
        assert_eq!(actions(&[Role(None), Role(Some(true)), Role(None)]), [Nothing, Start, Nothing]);
    }

    #[test]
    fn program_is_started_again_only_once_it_has_ended() {
        let events = [Role(Some(true)), Role(Some(false)), Role(Some(true)), Overdue, Ended];
        assert_eq!(actions(&events), [Start, Terminate, Nothing, Kill, Start]);
    }

    #[test]
    fn end_of_the_program_ends_the_supervisor() {
        assert_eq!(actions(&[Role(Some(true)), Ended]), [Start, Exit]);
        assert_eq!(
            actions(&[Role(Some(true)), Stop, Role(Some(true)), Ended]),
            [Start, Terminate, Nothing, Exit]
        );
        assert_eq!(actions(&[Role(Some(false)), Stop]), [Nothing, Exit]);
        assert_eq!(
            actions(&[Role(Some(true)), Role(Some(false)), Stop, Ended]),
            [Start, Terminate, Nothing, Exit]
        );
        assert_eq!(actions(&[Role(Some(true)), Overdue]), [Start, Nothing], "it was not asked to end");
    }
}
