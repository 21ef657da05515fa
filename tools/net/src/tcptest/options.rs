//! The classic command line: options with one dash, `-name=value`, in any order and case. Pure.

use crate::auth::Key;
use crate::plan::{DEFAULT_FILE, MAX_LENGTH, MAX_STREAMS, MIN_RANDOM_LENGTH, Mode, Payload, Plan};
use crate::server::{ServerPlan, TIMEOUT};
use crate::stream::Target;
use crate::{NetError, Result};
use standfast_page::units::{self, Extent};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of concurrent connections of tests at a server.
pub const CONNECTIONS: usize = 512;

#[derive(Debug)]
pub enum Command {
    Help,
    Server(ServerPlan),
    Client(Box<ClientCommand>),
}

/// A test, and what to do with its result.
#[derive(Debug)]
pub struct ClientCommand {
    pub target: Target,
    pub plan: Plan,
    /// How often the test is repeated, and for how long; None runs it once.
    pub frequency: Option<Frequency>,
    pub output: Option<PathBuf>,
    pub notices: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// Time from the start of one test to the start of the next.
    pub every: Duration,
    /// Time from the start of the first test to the end of all.
    pub during: Duration,
}

/// An option, with its value if it has one.
struct Given {
    name: String,
    value: Option<String>,
}

impl Given {
    fn option(&self) -> String {
        format!("-{}", self.name)
    }

    fn wrong(&self, allowed: &str) -> NetError {
        NetError::option(&self.option(), self.value.as_deref().unwrap_or(""), allowed)
    }

    fn text(&self, allowed: &str) -> Result<&str> {
        self.value.as_deref().filter(|value| !value.is_empty()).ok_or_else(|| self.wrong(allowed))
    }

    fn parsed<T>(&self, parse: impl Fn(&str) -> std::result::Result<T, &'static str>) -> Result<T> {
        parse(self.value.as_deref().unwrap_or("")).map_err(|allowed| self.wrong(allowed))
    }

    /// Returns whether a switch is on. It is on when it is given; `=true` and `=false` are accepted too.
    fn switch(&self) -> Result<bool> {
        match self.value.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("true" | "yes" | "on") => Ok(true),
            Some("false" | "no" | "off") => Ok(false),
            Some(_) => Err(self.wrong("no value, or true or false")),
        }
    }

    fn whole(&self, least: u64, most: u64) -> Result<u64> {
        let number = self.value.as_deref().and_then(|value| value.parse().ok());
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.wrong(&format!("a whole number from {least} to {most}")))
    }

    fn size(&self, least: u64, most: u64) -> Result<u32> {
        let bytes = self.parsed(units::size)?;
        if !(least..=most).contains(&bytes) {
            return Err(self.wrong(&format!("{} from {least} to {most} bytes", units::SIZE_FORMS)));
        }
        Ok(bytes as u32)
    }

    fn time(&self, bare: &str, least: Duration, most: Duration) -> Result<Duration> {
        let time = self.parsed(|value| units::time(value, bare))?;
        if !(least..=most).contains(&time) {
            let (least, most) = (units::classic_time(least), units::classic_time(most));
            return Err(self.wrong(&format!("{}, from {least} to {most}", units::TIME_FORMS)));
        }
        Ok(time)
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Splits words into those without a dash and options. `-name= value`, the result of a stray blank, is read as
/// `-name=value`.
fn split(words: &[String]) -> Result<(Vec<String>, Vec<Given>)> {
    let (mut bare, mut given) = (Vec::new(), Vec::<Given>::new());
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").or(word.strip_prefix('-')) else {
            bare.push(word.clone());
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        let follows = |next: &&String| !next.starts_with('-');
        let value = match value {
            Some(empty) if empty.is_empty() => words.next_if(follows).cloned().or(Some(empty)),
            other => other,
        };
        let name = name.to_ascii_lowercase();
        if given.iter().any(|earlier| earlier.name == name) {
            return Err(NetError::Usage(format!("-{name} is given twice")));
        }
        given.push(Given { name, value });
    }
    Ok((bare, given))
}

pub fn parse(words: &[String]) -> Result<Command> {
    let (bare, given) = split(words)?;
    if words.is_empty() || given.iter().any(|option| matches!(option.name.as_str(), "help" | "h" | "?")) {
        return Ok(Command::Help);
    }
    if given.iter().any(|option| option.name == "server") {
        return server(&bare, &given).map(Command::Server);
    }
    client(&bare, &given).map(|client| Command::Client(Box::new(client)))
}

fn port(option: &Given) -> Result<u16> {
    option.whole(1, 65_535).map(|port| port as u16)
}

fn server(bare: &[String], given: &[Given]) -> Result<ServerPlan> {
    let mut host = None;
    let mut plan = ServerPlan {
        host: None,
        port: 0,
        file: PathBuf::from(DEFAULT_FILE),
        buffer: 0,
        connections: CONNECTIONS,
        timeout: TIMEOUT,
        allow: Vec::new(),
        key: None,
    };
    for option in given {
        match option.name.as_str() {
            "server" => host.clone_from(&option.value),
            "port" => plan.port = port(option)?,
            "file" => plan.file = PathBuf::from(option.text("the name of a file")?),
            "sockbuf" => plan.buffer = option.size(0, 1 << 30)?,
            "psk_file" => plan.key = Some(key(option)?.0),
            _ => return Err(unknown(option, "a server", "-server -port -file -sockbuf -psk_file -help")),
        }
    }
    match bare {
        [] => plan.host = host,
        [address] if host.is_none() => plan.host = Some(address.clone()),
        [first, ..] => return Err(NetError::Usage(format!("{first:?}: a server listens on one address"))),
    }
    if plan.port == 0 {
        return Err(missing_port());
    }
    Ok(plan)
}

fn key(option: &Given) -> Result<(Key, bool)> {
    let file = option.text("the name of a file with the secret")?;
    Key::load(&option.option(), Path::new(file))
}

fn missing_port() -> NetError {
    NetError::Usage("-port is missing: a whole number from 1 to 65535, the same on server and client".into())
}

fn unknown(option: &Given, whose: &str, known: &str) -> NetError {
    NetError::Usage(format!("-{} is no option of {whose}; there are {known}", option.name))
}

const CLIENT_OPTIONS: &str = "-port -mode -write -num_conn -sockbuf -length -delay -rtt -random_length \
-random_delay -payload -interval -duration -freq -timeout -psk_file -output -help";

fn client(bare: &[String], given: &[Given]) -> Result<ClientCommand> {
    let host = match bare {
        [host] if host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err() => {
            return Err(NetError::Usage(format!("{host:?}: give the port by itself: HOST -port=N")));
        }
        [host] => host.clone(),
        [] => {
            return Err(NetError::Usage(
                "the server's host is missing: standfast tcptest HOST -port=N".into(),
            ));
        }
        [_, second, ..] => {
            return Err(NetError::Usage(format!(
                "{second:?}: one host is tested at a time; options begin with -"
            )));
        }
    };
    let mut plan = Plan::default();
    let (mut port_number, mut frequency, mut output) = (0, None, None);
    let (mut rtt, mut length, mut mode) = (false, None, None);
    let mut notices = Vec::new();
    let mut secret = None;
    for option in given {
        match option.name.as_str() {
            "port" => port_number = port(option)?,
            "mode" => mode = Some(transport_mode(option)?),
            "write" => plan.write = option.switch()?,
            "num_conn" => plan.streams = option.whole(1, MAX_STREAMS.into())? as u16,
            "sockbuf" => plan.buffer = option.size(0, 1 << 30)?,
            "length" => length = Some(option.size(0, MAX_LENGTH.into())?),
            "delay" => plan.delay = option.time("ms", Duration::ZERO, HOUR)?,
            "rtt" => rtt = option.switch()?,
            "random_length" => plan.random_length = option.switch()?,
            "random_delay" => plan.random_delay = option.switch()?,
            "payload" => plan.payload = payload(option)?,
            "interval" => plan.interval = option.time("s", Duration::from_millis(10), 30 * DAY)?,
            "duration" => {
                plan.duration = duration(option)?;
                let value = option.value.as_deref().unwrap_or("");
                if units::ambiguous_extent(value) {
                    notices.push(format!("-duration={value}: m means minutes; for data write mb"));
                }
            }
            "freq" => frequency = Some(repetition(option)?),
            "timeout" => {
                let time = option.time("s", Duration::ZERO, DAY)?;
                plan.timeout = Some(time).filter(|time| !time.is_zero());
            }
            "psk_file" => {
                let (key, exposed) = key(option)?;
                if exposed {
                    notices.push("-psk_file: others on this host can read it; chmod 600 ends that".into());
                }
                secret = Some(key);
            }
            "output" => output = Some(PathBuf::from(option.text("the name of a file")?)),
            _ => return Err(unknown(option, "a client", CLIENT_OPTIONS)),
        }
    }
    if port_number == 0 {
        return Err(missing_port());
    }
    plan.mode = mode.unwrap_or(Mode::Sync);
    plan.length = length.unwrap_or(plan.length);
    if rtt {
        if mode == Some(Mode::Async) || length.is_some_and(|length| length > 0) {
            let text = "-rtt is SYNC with length 0; it does not go with -mode=ASYNC or another -length";
            return Err(NetError::Usage(text.into()));
        }
        plan.length = 0;
    }
    check(&plan, frequency)?;
    Ok(ClientCommand {
        target: Target { host, port: port_number, key: secret },
        plan,
        frequency,
        output,
        notices,
    })
}

/// Refuses options that are possible by themselves but not together.
fn check(plan: &Plan, frequency: Option<Frequency>) -> Result<()> {
    let wrong = |text: &str| Err(NetError::Usage(text.into()));
    if plan.random_length && plan.length < MIN_RANDOM_LENGTH {
        return wrong(
            "-random_length draws from 512 bytes to -length, which is shorter; give a -length of 512 or more",
        );
    }
    if plan.random_delay && plan.delay.is_zero() {
        return wrong("-random_delay draws from 0 to -delay; give a -delay");
    }
    if plan.length == 0 && plan.mode == Mode::Async {
        return wrong("-mode=ASYNC with -length=0 sends nothing; give a -length, or -rtt for round trips");
    }
    match (plan.duration, frequency) {
        (Extent::Bytes(_), _) if plan.length == 0 => {
            wrong("messages without payload never reach a -duration in bytes; give a time")
        }
        (Extent::Endless, Some(_)) => wrong("-freq repeats a test that ends; give a -duration"),
        (Extent::Time(time), Some(frequency)) if time > frequency.every => wrong(
            "-freq begins the next test before -duration is over; make -duration shorter than the first time",
        ),
        _ => Ok(()),
    }
}

fn transport_mode(option: &Given) -> Result<Mode> {
    match option.value.as_deref().map(str::to_ascii_lowercase).as_deref() {
        Some("sync") => Ok(Mode::Sync),
        Some("async") => Ok(Mode::Async),
        _ => Err(option.wrong("SYNC or ASYNC")),
    }
}

fn payload(option: &Given) -> Result<Payload> {
    payload_named(&option.option(), option.value.as_deref().unwrap_or(""))
}

/// Returns the payload that the value of an option names.
pub fn payload_named(option: &str, name: &str) -> Result<Payload> {
    const FORMS: &str = "RANDOM, ZERO, or the name of a file that is not empty";
    match name.to_ascii_lowercase().as_str() {
        "random" => return Ok(Payload::Random),
        "zero" => return Ok(Payload::Zero),
        "" => return Err(NetError::option(option, name, FORMS)),
        _ => {}
    }
    let content = read_start(name);
    let content = content.map_err(|error| NetError::option(option, name, &format!("{FORMS} ({error})")))?;
    match content.is_empty() {
        true => Err(NetError::option(option, name, FORMS)),
        false => Ok(Payload::File { name: name.to_owned(), content: content.into() }),
    }
}

/// Reads as much of a file as a message can hold.
fn read_start(name: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = Vec::new();
    std::fs::File::open(name)?.take(MAX_LENGTH.into()).read_to_end(&mut content)?;
    Ok(content)
}

fn duration(option: &Given) -> Result<Extent> {
    match option.parsed(units::extent)? {
        Extent::Time(time) if time.is_zero() => Err(option.wrong(units::EXTENT_FORMS)),
        Extent::Bytes(0) => Err(option.wrong(units::EXTENT_FORMS)),
        extent => Ok(extent),
    }
}

fn repetition(option: &Given) -> Result<Frequency> {
    const FORMS: &str = "two times, the second not shorter: 1h/24h is every hour for a day";
    let parts = option.value.as_deref().and_then(|value| value.split_once('/'));
    let times = parts.map(|(every, during)| (units::time(every, "s"), units::time(during, "s")));
    match times {
        Some((Ok(every), Ok(during))) if !every.is_zero() && every <= during => {
            Ok(Frequency { every, during })
        }
        _ => Err(option.wrong(FORMS)),
    }
}
