//! The commands of `standfast dg`, in the spelling of DGMGRL: words in any case, names and values with or without quotes,
//! a semicolon at the end or none.

use standfast_environment::ProtectionMode;

/// A command. A member is a database or a far sync, by the name of its instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Help {
        about: Option<String>,
    },
    Exit,
    ShowConfiguration {
        verbose: bool,
        lag: bool,
    },
    ShowMember {
        name: String,
        verbose: bool,
    },
    ShowProperty {
        member: Option<String>,
        property: String,
    },
    SetProperty {
        member: Option<String>,
        property: String,
        value: Option<String>,
    },
    SetProtectionMode {
        mode: ProtectionMode,
    },
    /// Whether the standby applies redo.
    SetState {
        member: String,
        apply: bool,
    },
    Enable {
        member: String,
        shipping: bool,
    },
    /// Fast-start failover.
    FastStart {
        enable: bool,
        force: bool,
    },
    ShowFastStart,
    ShowObserver,
    Add {
        member: String,
        address: String,
    },
    Remove {
        member: String,
    },
    Validate {
        member: String,
        verbose: bool,
    },
    Export {
        file: Option<String>,
    },
    Switchover {
        to: String,
    },
    Failover {
        to: String,
        immediate: bool,
        force: bool,
    },
    Reinstate {
        member: String,
    },
    /// To a snapshot standby, or to a physical standby.
    Convert {
        member: String,
        snapshot: bool,
    },
}

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    #[error("a quote is not closed: {0}")]
    OpenQuote(String),
    #[error("{} comes {after}, not `{found}`", choice(.wanted))]
    Unexpected { after: String, found: String, wanted: &'static [&'static str] },
    #[error("{} is missing {after}", choice(.wanted))]
    Missing { after: String, wanted: &'static [&'static str] },
    #[error("the command is complete before `{0}`")]
    TooLong(String),
}

fn choice(wanted: &[&str]) -> String {
    match wanted {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => wanted.concat(),
    }
}

/// Whether a line of a script has no command: it is empty, or a comment (`--`, `#`).
pub fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("--") || line.starts_with('#')
}

/// Parses one command.
///
/// # Errors
/// The first word that does not belong there, with those that do.
pub fn parse(text: &str) -> Result<Command, SyntaxError> {
    let mut words = Words { all: words(text)?, at: 0 };
    let command = match words.one_of(&FIRST)? {
        "help" => Command::Help { about: words.rest() },
        "exit" | "quit" => Command::Exit,
        "show" => show(&mut words)?,
        "edit" => edit(&mut words)?,
        "enable" => enable(&mut words, true)?,
        "disable" => enable(&mut words, false)?,
        "add" => {
            let member = words.member()?;
            ["as", "connect", "identifier", "is"].iter().for_each(|word| _ = words.skip(word));
            Command::Add { member, address: words.name(&["HOST:PORT"])? }
        }
        "remove" => Command::Remove { member: words.member()? },
        "validate" => {
            words.one_of(&MEMBER)?;
            let verbose = words.skip("verbose");
            Command::Validate { member: words.name(&["the name of a member"])?, verbose }
        }
        "export" => {
            words.one_of(&["configuration"])?;
            let file = if words.skip("to") { Some(words.name(&["a file"])?) } else { None };
            Command::Export { file }
        }
        "switchover" => {
            words.one_of(&["to"])?;
            Command::Switchover { to: words.name(&["the name of a standby"])? }
        }
        "failover" => {
            words.one_of(&["to"])?;
            let to = words.name(&["the name of a standby"])?;
            Command::Failover { to, immediate: words.skip("immediate"), force: words.skip("force") }
        }
        "convert" => {
            words.one_of(&["database"])?;
            let member = words.name(&["the name of a standby"])?;
            words.one_of(&["to"])?;
            let snapshot = words.one_of(&["snapshot", "physical"])? == "snapshot";
            words.one_of(&["standby"])?;
            Command::Convert { member, snapshot }
        }
        _ => Command::Reinstate { member: words.member()? },
    };
    words.end()?;
    Ok(command)
}

const FIRST: [&str; 14] = [
    "show",
    "edit",
    "enable",
    "disable",
    "add",
    "remove",
    "validate",
    "export",
    "switchover",
    "failover",
    "reinstate",
    "convert",
    "help",
    "exit",
];
const MEMBER: [&str; 3] = ["database", "far_sync", "member"];

fn enable(words: &mut Words, enable: bool) -> Result<Command, SyntaxError> {
    if words.one_of(&["database", "far_sync", "member", "fast_start"])? == "fast_start" {
        words.one_of(&["failover"])?;
        return Ok(Command::FastStart { enable, force: !enable && words.skip("force") });
    }
    Ok(Command::Enable { member: words.name(&["the name of a member"])?, shipping: enable })
}

fn show(words: &mut Words) -> Result<Command, SyntaxError> {
    let of = words.one_of(&["configuration", "database", "far_sync", "member", "fast_start", "observer"])?;
    if of == "fast_start" {
        words.one_of(&["failover"])?;
        return Ok(Command::ShowFastStart);
    }
    if of == "observer" {
        return Ok(Command::ShowObserver);
    }
    if of != "configuration" {
        let verbose = words.skip("verbose");
        let name = words.name(&["the name of a member"])?;
        return Ok(match words.next() {
            Some(property) => Command::ShowProperty { member: Some(name), property },
            None => Command::ShowMember { name, verbose },
        });
    }
    let (mut verbose, mut lag) = (false, false);
    while let Some(word) = words.peek() {
        match word.to_ascii_lowercase().as_str() {
            "verbose" => verbose = true,
            "lag" => lag = true,
            _ => {
                let property = words.name(&["a property"])?;
                return Ok(Command::ShowProperty { member: None, property });
            }
        }
        words.at += 1;
    }
    Ok(Command::ShowConfiguration { verbose, lag })
}

fn edit(words: &mut Words) -> Result<Command, SyntaxError> {
    let member = match words.one_of(&["configuration", "database", "far_sync", "member"])? {
        "configuration" => None,
        _ => Some(words.name(&["the name of a member"])?),
    };
    let verb = words.one_of(&["set", "reset"])?;
    let what: &'static [&'static str] = match (&member, verb) {
        (_, "reset") => &["property"],
        (None, _) => &["property", "protection"],
        (Some(_), _) => &["property", "state"],
    };
    match (words.one_of(what)?, member) {
        ("property", member) => {
            let property = words.name(&["a property"])?;
            let value = if verb == "reset" {
                None
            } else {
                words.one_of(&["="])?;
                Some(words.name(&["a value"])?)
            };
            Ok(Command::SetProperty { member, property, value })
        }
        ("state", Some(member)) => {
            words.one_of(&["="])?;
            let apply = words.one_of(&["APPLY-ON", "APPLY-OFF"])? == "APPLY-ON";
            Ok(Command::SetState { member, apply })
        }
        _ => {
            words.one_of(&["mode"])?;
            words.one_of(&["as"])?;
            let mode = match words.one_of(&["MAXPERFORMANCE", "MAXAVAILABILITY", "MAXPROTECTION"])? {
                "MAXPERFORMANCE" => ProtectionMode::MaximumPerformance,
                "MAXAVAILABILITY" => ProtectionMode::MaximumAvailability,
                _ => ProtectionMode::MaximumProtection,
            };
            Ok(Command::SetProtectionMode { mode })
        }
    }
}

/// A command in words; `=` is one, wherever it stands outside quotes.
struct Words {
    all: Vec<String>,
    at: usize,
}

impl Words {
    fn peek(&self) -> Option<&str> {
        self.all.get(self.at).map(String::as_str)
    }

    fn next(&mut self) -> Option<String> {
        let word = self.all.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Where the parser stands, for messages.
    fn after(&self) -> String {
        match self.all[..self.at].join(" ") {
            nothing if nothing.is_empty() => "first".into(),
            before => format!("after `{before}`"),
        }
    }

    /// Takes the next word, which is one of these, as it is written there.
    fn one_of(&mut self, wanted: &'static [&'static str]) -> Result<&'static str, SyntaxError> {
        let Some(found) = self.peek() else {
            return Err(SyntaxError::Missing { after: self.after(), wanted });
        };
        let also = found.eq_ignore_ascii_case("quit").then_some("exit");
        let word = wanted.iter().find(|word| word.eq_ignore_ascii_case(also.unwrap_or(found)));
        let Some(word) = word else {
            return Err(SyntaxError::Unexpected { after: self.after(), found: found.into(), wanted });
        };
        self.at += 1;
        Ok(word)
    }

    /// Takes the next word if it is this one.
    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|next| next.eq_ignore_ascii_case(word));
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes the next word, whatever it is; `what`: what it stands for.
    fn name(&mut self, what: &'static [&'static str]) -> Result<String, SyntaxError> {
        let after = self.after();
        self.next().ok_or(SyntaxError::Missing { after, wanted: what })
    }

    fn member(&mut self) -> Result<String, SyntaxError> {
        self.one_of(&MEMBER)?;
        self.name(&["the name of a member"])
    }

    fn rest(&mut self) -> Option<String> {
        let rest = self.all[self.at..].join(" ");
        self.at = self.all.len();
        Some(rest).filter(|rest| !rest.is_empty())
    }

    fn end(&self) -> Result<(), SyntaxError> {
        self.peek().map_or(Ok(()), |word| Err(SyntaxError::TooLong(word.into())))
    }
}

fn words(text: &str) -> Result<Vec<String>, SyntaxError> {
    let mut all: Vec<String> = Vec::new();
    let mut rest = text.trim().trim_end_matches(';').trim();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => {
                let end = rest[1..].find(first).ok_or_else(|| SyntaxError::OpenQuote(rest.into()))?;
                all.push(rest[1..=end].into());
                end + 2
            }
            '=' => {
                all.push("=".into());
                1
            }
            _ => {
                let end = rest.find(|at: char| at.is_whitespace() || at == '=').unwrap_or(rest.len());
                all.push(rest[..end].into());
                end
            }
        };
        rest = rest[length..].trim_start();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn commands_are_understood_in_any_case_with_or_without_quotes() {
        let beta = || "beta".to_owned();
        for (text, command) in [
            ("show configuration", Command::ShowConfiguration { verbose: false, lag: false }),
            ("SHOW CONFIGURATION LAG VERBOSE;", Command::ShowConfiguration { verbose: true, lag: true }),
            ("show database verbose 'beta'", Command::ShowMember { name: beta(), verbose: true }),
            ("show far_sync beta", Command::ShowMember { name: beta(), verbose: false }),
            (
                "show configuration DrainTimeout",
                Command::ShowProperty { member: None, property: "DrainTimeout".into() },
            ),
            (
                "edit database \"beta\" set property LogXptMode='FASTSYNC';",
                Command::SetProperty {
                    member: Some(beta()),
                    property: "LogXptMode".into(),
                    value: Some("FASTSYNC".into()),
                },
            ),
            (
                "edit configuration reset property DrainTimeout",
                Command::SetProperty { member: None, property: "DrainTimeout".into(), value: None },
            ),
            (
                "edit configuration set protection mode as MaxAvailability",
                Command::SetProtectionMode { mode: ProtectionMode::MaximumAvailability },
            ),
            ("edit database beta set state = apply-off", Command::SetState { member: beta(), apply: false }),
            ("disable database beta", Command::Enable { member: beta(), shipping: false }),
            ("ENABLE FAST_START FAILOVER;", Command::FastStart { enable: true, force: false }),
            ("disable fast_start failover force", Command::FastStart { enable: false, force: true }),
            ("show fast_start failover", Command::ShowFastStart),
            ("show observer", Command::ShowObserver),
            (
                "add database beta as connect identifier is 10.0.0.2:7411",
                Command::Add { member: beta(), address: "10.0.0.2:7411".into() },
            ),
            ("validate database verbose beta", Command::Validate { member: beta(), verbose: true }),
            ("switchover to beta", Command::Switchover { to: beta() }),
            ("failover to beta immediate", Command::Failover { to: beta(), immediate: true, force: false }),
            ("reinstate database beta", Command::Reinstate { member: beta() }),
            (
                "convert database beta to snapshot standby",
                Command::Convert { member: beta(), snapshot: true },
            ),
            (
                "CONVERT DATABASE 'beta' TO PHYSICAL STANDBY;",
                Command::Convert { member: beta(), snapshot: false },
            ),
            ("export configuration to '/tmp/a b'", Command::Export { file: Some("/tmp/a b".into()) }),
            ("help edit configuration", Command::Help { about: Some("edit configuration".into()) }),
            ("quit", Command::Exit),
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&command), "{text}");
        }
    }

    #[test]
    fn syntax_error_names_the_word_and_what_belongs_there() {
        for (text, expected) in [
            (
                "",
                "show, edit, enable, disable, add, remove, validate, export, switchover, failover, reinstate, convert, help or exit is missing first",
            ),
            ("shwo configuration", "exit comes first, not `shwo`"),
            (
                "show",
                "configuration, database, far_sync, member, fast_start or observer is missing after `show`",
            ),
            ("show database", "the name of a member is missing after `show database`"),
            (
                "edit database beta set property NetTimeout 10",
                "= comes after `edit database beta set property NetTimeout`, not `10`",
            ),
            (
                "edit database beta set protection mode as MaxAvailability",
                "property or state comes after `edit database beta set`, not `protection`",
            ),
            (
                "edit configuration set protection mode as full",
                "MAXPERFORMANCE, MAXAVAILABILITY or MAXPROTECTION comes after",
            ),
            ("switchover beta", "to comes after `switchover`, not `beta`"),
            ("switchover to beta now", "the command is complete before `now`"),
            ("show database 'beta", "a quote is not closed: 'beta"),
        ] {
            assert!(error(text).contains(expected), "{text}: {}", error(text));
        }
    }

    #[test]
    fn comments_and_empty_lines_are_no_commands() {
        assert!(["", "  ", "-- a remark", "# a remark"].iter().all(|line| is_blank(line)));
        assert!(!is_blank("exit"));
    }
}
