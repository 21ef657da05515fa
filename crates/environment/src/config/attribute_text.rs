//! Destinations in the notation of `LOG_ARCHIVE_DEST_n`, for operators who have such lines or know them:
//! `SERVICE=oslo:7411 SYNC AFFIRM NET_TIMEOUT=10 DB_UNIQUE_NAME=oslo`.
//!
//! Times are seconds here (DELAY minutes), as in Oracle Data Guard. An attribute that is not given has the default of
//! [`DestinationConfig`].

use crate::config::destination_config::{
    Compression, DestinationConfig, OnTimeout, State, TransportMode, ValidFor, ValidLogs, ValidRole,
};
use std::fmt::Write;

/// Minutes that DELAY stands for when it is written without a number.
const BARE_DELAY_MIN: u32 = 30;

/// Why a text is not a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attribute}: {why}")]
pub struct AttributeError {
    /// The attribute as it was written.
    pub attribute: String,
    /// What is wrong, and what is allowed.
    pub why: String,
}

fn wrong<T>(attribute: &str, why: impl Into<String>) -> Result<T, AttributeError> {
    Err(AttributeError { attribute: attribute.into(), why: why.into() })
}

/// Parses `text`. Does not check ranges and combinations: see [`crate::config::destination_config::check_all`].
///
/// # Errors
/// The first attribute that is unknown, malformed, given twice or in conflict with an earlier one.
pub fn parse(text: &str) -> Result<DestinationConfig, AttributeError> {
    let mut destination = DestinationConfig::new("", "");
    let mut stated = Stated::default();
    for (index, word) in words(text)?.iter().enumerate() {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key.trim().to_ascii_uppercase(), Some(value.trim())),
            None => (word.to_ascii_uppercase(), None),
        };
        if index == 0 && key != "SERVICE" && key != "LOCATION" {
            return wrong(word, "SERVICE=HOST:PORT or LOCATION=DIRECTORY comes first");
        }
        if stated.keys.contains(&key) {
            return wrong(word, "given twice");
        }
        take(&mut destination, &mut stated, word, &key, value)?;
        stated.keys.push(key);
    }
    if stated.keys.is_empty() {
        return wrong("(nothing)", "SERVICE=HOST:PORT or LOCATION=DIRECTORY is required");
    }
    destination.mode = stated.mode()?;
    Ok(destination)
}

/// Keywords seen so far. SYNC or ASYNC and AFFIRM or NOAFFIRM together make one attribute.
#[derive(Default)]
struct Stated {
    keys: Vec<String>,
    sync: Option<bool>,
    affirm: Option<bool>,
}

impl Stated {
    fn mode(&self) -> Result<Option<TransportMode>, AttributeError> {
        Ok(match (self.sync, self.affirm) {
            (Some(true), Some(false)) => Some(TransportMode::Fastsync),
            (Some(true), _) => Some(TransportMode::SyncAffirm),
            // Commits do not wait for ASYNC: whether the standby has written makes no difference to them.
            (Some(false), _) => Some(TransportMode::Async),
            (None, Some(_)) => return wrong("AFFIRM", "say SYNC or ASYNC as well"),
            (None, None) => None,
        })
    }
}

fn take(
    at: &mut DestinationConfig,
    stated: &mut Stated,
    word: &str,
    key: &str,
    value: Option<&str>,
) -> Result<(), AttributeError> {
    let given = || match value {
        Some(value) if !value.is_empty() => Ok(value.trim_matches(|quote| quote == '\'' || quote == '"')),
        _ => wrong(word, format!("needs a value: {key}=...")),
    };
    match key {
        "SERVICE" => at.address = given()?.into(),
        "LOCATION" => at.location = Some(given()?.into()),
        "DB_UNIQUE_NAME" => at.name = given()?.into(),
        "SYNC" | "ASYNC" => {
            if stated.sync.replace(key == "SYNC").is_some() {
                return wrong(word, "SYNC and ASYNC exclude each other");
            }
        }
        "AFFIRM" | "NOAFFIRM" => {
            if stated.affirm.replace(key == "AFFIRM").is_some() {
                return wrong(word, "AFFIRM and NOAFFIRM exclude each other");
            }
        }
        "NET_TIMEOUT" => at.net_timeout_ms = milliseconds(word, given()?)?,
        "REOPEN" => at.reopen_ms = milliseconds(word, given()?)?,
        "MAX_FAILURE" => at.max_failure = Some(number(word, given()?)?),
        "DELAY" => at.delay_min = value.map_or(Ok(BARE_DELAY_MIN), |value| number(word, value))?,
        "NODELAY" => at.delay_min = 0,
        "COMPRESSION" => at.compression = compression(word, given()?)?,
        "VALID_FOR" => at.valid_for = valid_for(word, given()?)?,
        "ALTERNATE" => at.alternate = Some(given()?.into()),
        "GROUP" => at.group = number(word, given()?)?,
        "PRIORITY" => at.priority = number(word, given()?)?,
        "MANDATORY" => at.mandatory = true,
        "OPTIONAL" => at.mandatory = false,
        "MAX_CONNECTIONS" => at.max_connections = number(word, given()?)?,
        "SDU" => at.sdu_bytes = number(word, given()?)?,
        "SEND_BUF_SIZE" => at.send_buffer_bytes = number(word, given()?)?,
        "RECV_BUF_SIZE" => at.receive_buffer_bytes = number(word, given()?)?,
        "ON_TIMEOUT" => at.on_timeout = Some(on_timeout(word, given()?)?),
        "STATE" => at.state = state(word, given()?)?,
        "LGWR" => {}
        "ARCH" => {
            return wrong(word, "archived logs are fetched by a standby that lacks them; say SYNC or ASYNC");
        }
        "ENCRYPTION" => {
            return wrong(word, "encryption is a matter of both hosts, not of one attribute: see TLS");
        }
        "NOREGISTER" | "TEMPLATE" | "DEPENDENCY" | "QUOTA_SIZE" | "QUOTA_USED" | "VERIFY" => {
            return wrong(word, "there is no such thing here; leave it away");
        }
        _ => return wrong(word, "unknown attribute; `standfast destination set --help` lists them"),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, AttributeError> {
    value.parse().or_else(|_| wrong(word, "needs a whole number"))
}

/// Parses seconds with up to three decimals.
fn milliseconds(word: &str, value: &str) -> Result<u64, AttributeError> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return wrong(word, "needs seconds, such as 10 or 0.25");
    }
    let fraction: u64 = number(word, &format!("{fraction:0<3}"))?;
    Ok(number::<u64>(word, whole)?.saturating_mul(1000).saturating_add(fraction))
}

fn compression(word: &str, value: &str) -> Result<Compression, AttributeError> {
    match value.to_ascii_uppercase().as_str() {
        "DISABLE" => Ok(Compression::None),
        "ENABLE" | "LZ4" => Ok(Compression::Lz4),
        "ZSTD" => Ok(Compression::Zstd),
        _ => wrong(word, "ENABLE (LZ4), DISABLE, LZ4 or ZSTD"),
    }
}

/// Parses LOG_ARCHIVE_DEST_STATE_n, a parameter of its own in Oracle Data Guard.
fn state(word: &str, value: &str) -> Result<State, AttributeError> {
    match value.to_ascii_uppercase().as_str() {
        "ENABLE" => Ok(State::Enable),
        "DEFER" => Ok(State::Defer),
        "ALTERNATE" => Ok(State::Alternate),
        _ => wrong(word, "ENABLE, DEFER or ALTERNATE"),
    }
}

fn on_timeout(word: &str, value: &str) -> Result<OnTimeout, AttributeError> {
    match value.to_ascii_uppercase().as_str() {
        "DEGRADE" => Ok(OnTimeout::Degrade),
        "STALL" => Ok(OnTimeout::Stall),
        _ => wrong(word, "DEGRADE or STALL"),
    }
}

fn valid_for(word: &str, value: &str) -> Result<ValidFor, AttributeError> {
    let rule = "(ONLINE_LOGFILE|STANDBY_LOGFILE|ALL_LOGFILES, PRIMARY_ROLE|STANDBY_ROLE|ALL_ROLES)";
    let inner = value.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let Some((logs, role)) = inner.and_then(|inner| inner.split_once(',')) else { return wrong(word, rule) };
    let singular = |text: &str| {
        let text = text.trim().to_ascii_uppercase();
        text.strip_suffix('S').map(str::to_owned).unwrap_or(text)
    };
    let logs = match singular(logs).as_str() {
        "ONLINE_LOGFILE" => ValidLogs::OnlineLogfile,
        "STANDBY_LOGFILE" => ValidLogs::StandbyLogfile,
        "ALL_LOGFILE" => ValidLogs::AllLogfiles,
        _ => return wrong(word, rule),
    };
    let role = match singular(role).as_str() {
        "PRIMARY_ROLE" => ValidRole::PrimaryRole,
        "STANDBY_ROLE" => ValidRole::StandbyRole,
        "ALL_ROLE" => ValidRole::AllRoles,
        _ => return wrong(word, rule),
    };
    Ok(ValidFor(logs, role))
}

/// Splits at blanks and commas outside parentheses and quotes.
fn words(text: &str) -> Result<Vec<String>, AttributeError> {
    let mut words = vec![String::new()];
    let (mut depth, mut quote) = (0u32, None);
    for character in text.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 && (character.is_whitespace() || character == ',') => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.push(character);
        }
    }
    if depth > 0 || quote.is_some() {
        return wrong(words.last().map_or("", String::as_str), "a parenthesis or quote is not closed");
    }
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// Formats `destination` in this notation, without most of the attributes that have their default.
pub fn write(destination: &DestinationConfig) -> String {
    let at = destination;
    let mut text = match &at.location {
        Some(location) => format!("LOCATION={}", quoted(&location.display().to_string())),
        None => format!("SERVICE={}", quoted(&at.address)),
    };
    let mut say = |attribute: &str, value: &dyn std::fmt::Display| {
        // Writing to a string cannot fail.
        let _ = write!(text, " {attribute}{value}");
    };
    if !at.is_local() {
        let mode = match at.transport_mode() {
            TransportMode::SyncAffirm => "SYNC AFFIRM",
            TransportMode::Fastsync => "SYNC NOAFFIRM",
            TransportMode::Async => "ASYNC NOAFFIRM",
        };
        say("", &mode);
        if at.is_sync() {
            say("NET_TIMEOUT=", &seconds(at.net_timeout_ms));
        }
    }
    say("REOPEN=", &seconds(at.reopen_ms));
    say("MAX_FAILURE=", &at.failures_allowed());
    if let Some(on_timeout) = at.on_timeout {
        say("ON_TIMEOUT=", &if on_timeout == OnTimeout::Stall { "STALL" } else { "DEGRADE" });
    }
    if at.delay_min > 0 {
        say("DELAY=", &at.delay_min);
    }
    match at.compression {
        Compression::None => {}
        Compression::Lz4 => say("COMPRESSION=", &"LZ4"),
        Compression::Zstd => say("COMPRESSION=", &"ZSTD"),
    }
    if at.valid_for != ValidFor::default() {
        let logs = match at.valid_for.0 {
            ValidLogs::OnlineLogfile => "ONLINE_LOGFILE",
            ValidLogs::StandbyLogfile => "STANDBY_LOGFILE",
            ValidLogs::AllLogfiles => "ALL_LOGFILES",
        };
        let role = match at.valid_for.1 {
            ValidRole::PrimaryRole => "PRIMARY_ROLE",
            ValidRole::StandbyRole => "STANDBY_ROLE",
            ValidRole::AllRoles => "ALL_ROLES",
        };
        say("VALID_FOR=", &format!("({logs},{role})"));
    }
    if let Some(alternate) = &at.alternate {
        say("ALTERNATE=", &quoted(alternate));
    }
    if at.group > 0 {
        say("GROUP=", &format!("{} PRIORITY={}", at.group, at.priority));
    }
    if at.mandatory {
        say("", &"MANDATORY");
    }
    match at.state {
        State::Enable => {}
        State::Defer => say("STATE=", &"DEFER"),
        State::Alternate => say("STATE=", &"ALTERNATE"),
    }
    let numbers = [
        ("MAX_CONNECTIONS=", u32::from(at.max_connections), 1),
        ("SDU=", at.sdu_bytes, 0),
        ("SEND_BUF_SIZE=", at.send_buffer_bytes, 0),
        ("RECV_BUF_SIZE=", at.receive_buffer_bytes, 0),
    ];
    for (attribute, value, _) in numbers.into_iter().filter(|(_, value, unset)| value != unset) {
        say(attribute, &value);
    }
    say("DB_UNIQUE_NAME=", &quoted(&at.name));
    text
}

/// Quotes a value so that it is read as one word.
fn quoted(value: &str) -> String {
    let plain = |character: char| !character.is_whitespace() && !",()'\"".contains(character);
    match value.chars().all(plain) {
        true => value.to_owned(),
        false if value.contains('\'') => format!("\"{value}\""),
        false => format!("'{value}'"),
    }
}

/// Formats whole seconds without decimals, others with three.
fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { (ms / 1000).to_string() } else { format!("{:.3}", ms as f64 / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn log_archive_dest_attribute_line_is_parsed() {
        let at = parse(
            "SERVICE=oslo:7411 LGWR SYNC AFFIRM NET_TIMEOUT=10 REOPEN=15, max_failure=3 COMPRESSION=ENABLE \
             VALID_FOR=(ONLINE_LOGFILES, PRIMARY_ROLE) DB_UNIQUE_NAME=oslo MAX_CONNECTIONS=5 DELAY",
        )
        .unwrap();
        assert_eq!((at.address.as_str(), at.name.as_str()), ("oslo:7411", "oslo"));
        assert_eq!(at.transport_mode(), TransportMode::SyncAffirm);
        assert_eq!((at.net_timeout_ms, at.reopen_ms, at.max_failure), (10_000, 15_000, Some(3)));
        assert_eq!((at.compression, at.delay_min, at.max_connections), (Compression::Lz4, 30, 5));
        assert_eq!(at.valid_for, ValidFor(ValidLogs::OnlineLogfile, ValidRole::PrimaryRole));
        let mode = |text: &str| parse(&format!("SERVICE=h:1 {text}")).unwrap().transport_mode();
        assert_eq!(mode("SYNC NOAFFIRM"), TransportMode::Fastsync);
        assert_eq!(mode("ASYNC"), TransportMode::Async);
        let local = parse("LOCATION='/srv/a b' MANDATORY").unwrap();
        assert_eq!(local.location.as_deref(), Some(std::path::Path::new("/srv/a b")));
        assert!(local.mandatory);
    }

    #[test]
    fn attribute_errors_state_the_fault_and_what_is_allowed() {
        assert!(error("").contains("SERVICE=HOST:PORT"));
        assert!(error("SYNC SERVICE=h:1").contains("comes first"));
        assert!(error("SERVICE=h:1 SYNC ASYNC").contains("exclude"));
        assert!(error("SERVICE=h:1 AFFIRM").contains("SYNC or ASYNC"));
        assert!(error("SERVICE=h:1 NET_TIMEOUT=soon").contains("NET_TIMEOUT=soon: needs seconds"));
        assert!(error("SERVICE=h:1 REOPEN=1.2345").contains("needs seconds"));
        assert!(error("SERVICE=h:1 MAX_FAILURE=x").contains("needs a whole number"));
        assert!(error("SERVICE=h:1 REOPEN").contains("needs a value"));
        assert!(error("SERVICE=h:1 VALID_FOR=(ALL)").contains("ONLINE_LOGFILE"));
        assert!(error("SERVICE=h:1 COMPRESSION=LZO").contains("LZ4"));
        assert!(error("SERVICE=h:1 GRUOP=1").contains("unknown attribute"));
        assert!(error("SERVICE=h:1 GROUP=1 GROUP=2").contains("twice"));
        assert!(error("SERVICE=h:1 VALID_FOR=(A").contains("not closed"));
    }

    #[test]
    fn attribute_line_survives_writing_and_parsing() {
        let texts = [
            "SERVICE=h:1 SYNC NET_TIMEOUT=8 REOPEN=5 MAX_FAILURE=2 GROUP=3 PRIORITY=2 DB_UNIQUE_NAME=a",
            "SERVICE=h:1 ASYNC DELAY=5 COMPRESSION=ZSTD VALID_FOR=(STANDBY_LOGFILE,STANDBY_ROLE) SDU=65535 \
             SEND_BUF_SIZE=1048576 RECV_BUF_SIZE=2097152 MAX_CONNECTIONS=7 REOPEN=1 MAX_FAILURE=0 DB_UNIQUE_NAME=b",
            "SERVICE=h:1 SYNC AFFIRM NET_TIMEOUT=1.5 REOPEN=0.05 MAX_FAILURE=0 DB_UNIQUE_NAME=d",
            "LOCATION='/srv/a b, (c)' REOPEN=0.001 MAX_FAILURE=0 DB_UNIQUE_NAME='a b'",
            "LOCATION=/y STATE=ALTERNATE REOPEN=1 MAX_FAILURE=0 DB_UNIQUE_NAME=y",
            "LOCATION=/x MANDATORY ALTERNATE=y REOPEN=9 MAX_FAILURE=1 DB_UNIQUE_NAME=x",
            "SERVICE=h:1 SYNC NOAFFIRM NET_TIMEOUT=9 REOPEN=2 MAX_FAILURE=0 ON_TIMEOUT=STALL DB_UNIQUE_NAME=c",
        ];
        for text in texts {
            let read = parse(text).unwrap();
            assert_eq!(parse(&write(&read)).unwrap(), read, "{}", write(&read));
        }
    }
}
