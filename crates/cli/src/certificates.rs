//! `standfast cert` and join tokens.

use crate::args::{CertCommand, UseArgs};
use crate::service_user;
use serde_json::json;
use standfast_environment::InstanceError;
use standfast_environment::Right;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::keeper_of;
use standfast_environment::creation::Joined;
use standfast_environment::security::{Ask, Keeper};
use standfast_environment::state::control::Control;
use standfast_environment::state::modes::{self, Readers};
use standfast_environment::state::paths::Paths;
use standfast_instance::server::answer::{CertificateRenewed, TokenIssued};
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_tls::{CertificateInfo, Token};
use standfast_types::hint;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Environment variable for a token; every user of the host can read command-line arguments.
pub const TOKEN_VARIABLE: &str = "STANDFAST_TOKEN";

/// Reads the token from a file, standard input (`-`), or else the environment.
pub fn token(file: Option<&Path>) -> Result<Option<Token>, InstanceError> {
    let text = match file {
        Some(path) if path == Path::new("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(InstanceError::io("read the token from", Path::new("standard input")))?;
            Some(text)
        }
        Some(path) => Some(modes::read_secret(path, Readers::Owner)?),
        None => std::env::var(TOKEN_VARIABLE).ok(),
    };
    Ok(text.map(|text| Token::parse(&text)).transpose()?)
}

/// Asks the instance for a new token and prints it.
pub fn issue(directory: &Path, name: String, uses: UseArgs, ttl: &str) -> Result<(), InstanceError> {
    let ttl_s = seconds(ttl)?;
    let answer: TokenIssued = control_client::ask_for(
        directory,
        &Request::IssueToken { name: name.clone(), rights: uses.rights(), ttl_s },
    )?;
    modes::narrow_output();
    println!("{}", answer.token);
    eprintln!(
        "One-time token for `{name}`, valid for {ttl}. Pass it in a file or on standard input, not as an argument"
    );
    Ok(())
}

fn seconds(text: &str) -> Result<u64, InstanceError> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => Some(1),
        "m" | "min" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=30 * 86_400).contains(seconds)).ok_or_else(|| {
        InstanceError::refused(format!("--ttl {text}: not a time"), "1s to 30d, as in 90s, 15m, 1h or 2d")
    })
}

pub fn run(directory: &Path, command: CertCommand) -> Result<(), InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    let keeper = keeper_of(&config, &paths);
    match command {
        CertCommand::Show { json } => show(&keeper, &config, json),
        CertCommand::Renew { from, issuer } => {
            let ask = Ask { from, issuer };
            // A running instance may get it over its open streams.
            let by_instance = match ask {
                Ask { from: None, issuer: None } => {
                    control_client::ask_for::<CertificateRenewed>(directory, &Request::RenewCertificate)
                }
                _ => Err(InstanceError::NotRunning { directory: directory.into() }),
            };
            let reported = match by_instance {
                Err(InstanceError::NotRunning { .. }) => {
                    service_user::refuse_root(directory, false)?;
                    keeper.renew(&ask)?
                }
                answer => answer?.notes,
            };
            tell(&reported);
            renewed(&keeper)
        }
        CertCommand::Join { from, token_file } => {
            service_user::refuse_root(directory, false)?;
            let token = token(token_file.as_deref())?.ok_or_else(no_token)?;
            tell(&keeper.join(&from, &token)?);
            renewed(&keeper)
        }
        CertCommand::Init => {
            service_user::refuse_root(directory, false)?;
            let disk = standfast_io::DirectDisk;
            let family = Control::load(&disk, &paths.control)?.family;
            keeper.found_family(&family.to_string())?;
            renewed(&keeper)
        }
        CertCommand::Allow { name, uses } => {
            let rights = uses.rights();
            let request = Request::AllowMember { name: name.clone(), rights: rights.clone() };
            match control_client::ask(directory, &request) {
                Err(InstanceError::NotRunning { .. }) => {
                    service_user::refuse_root(directory, false)?;
                    keeper.allow(&name, rights)?;
                }
                answer => drop(answer?),
            }
            println!("listed: {name}");
            Ok(())
        }
        CertCommand::Revoke { name } => {
            // Whether or not the instance runs, the same file is changed under the same rules.
            match control_client::ask(directory, &Request::RemoveMember { name: name.clone() }) {
                Err(InstanceError::NotRunning { .. }) => {
                    service_user::refuse_root(directory, false)?;
                    let destinations: Vec<String> =
                        config.destinations.into_iter().map(|at| at.name).collect();
                    keeper.remove(&name, &destinations)?;
                }
                answer => drop(answer?),
            }
            println!("no longer listed: {name}");
            Ok(())
        }
    }
}

fn no_token() -> InstanceError {
    InstanceError::refused(
        "no token",
        format!("--token-file FILE, --token-file - for standard input, or {TOKEN_VARIABLE}"),
    )
}

pub fn tell(notes: &[String]) {
    for note in notes {
        eprintln!("note: {}", hint::lines(note, ""));
    }
}

/// Tells what else there is to say of a new directory's certificate.
pub fn tell_joined(joined: &Joined, directory: &Path) {
    tell(&joined.notes);
    if joined.token_unused {
        eprintln!("the token was not used: {} has a certificate already", directory.display());
    }
}

fn renewed(keeper: &Arc<Keeper>) -> Result<(), InstanceError> {
    if let Some(shown) = keeper.shown()? {
        println!("certificate of `{}`, valid until {}", shown.info.name, date(shown.info.not_after));
    }
    eprintln!("new connections use it; open ones continue");
    Ok(())
}

fn show(keeper: &Arc<Keeper>, config: &Config, as_json: bool) -> Result<(), InstanceError> {
    let shown = keeper.shown()?.ok_or_else(|| {
        InstanceError::refused(
            "this instance has no certificate",
            "get one with a token of the primary: standfast cert join --from HOST:PORT --token-file FILE",
        )
    })?;
    let now = now_seconds();
    let destinations: Vec<String> = config.destinations.iter().map(|at| at.name.clone()).collect();
    let listed = keeper.members()?.listed(&destinations);
    if as_json {
        let one = |info: &CertificateInfo| {
            json!({
                "name": info.name,
                "issuer": info.issuer,
                "fingerprint": info.fingerprint_text(),
                "not_before": date(info.not_before),
                "not_after": date(info.not_after),
                "days_left": info.days_left(now),
            })
        };
        let peers = listed.iter().map(|member| {
            let (reads, sends) = (member.rights.has(Right::Read), member.rights.has(Right::Send));
            json!({ "name": member.name, "rights": member.rights, "reads": reads, "sends": sends })
        });
        let all = json!({
            "certificate": one(&shown.info),
            "authorities": shown.authorities.iter().map(one).collect::<Vec<_>>(),
            "gives_certificates": shown.is_issuer,
            "peers": peers.collect::<Vec<_>>(),
        });
        println!("{all:#}");
        return Ok(());
    }
    println!("certificate of `{}`", shown.info.name);
    print_one(&shown.info, now);
    for authority in &shown.authorities {
        println!("authority `{}`", authority.name);
        print_one(authority, now);
    }
    println!("gives certificates: {}", if shown.is_issuer { "yes" } else { "no" });
    for member in listed {
        println!("peer {}: may {}", member.name, member.rights);
    }
    Ok(())
}

fn print_one(info: &CertificateInfo, now: u64) {
    println!(
        "  valid       {} to {} ({} days left)",
        date(info.not_before),
        date(info.not_after),
        info.days_left(now)
    );
    println!("  signed by   {}", info.issuer);
    println!("  sha-256     {}", info.fingerprint_text());
}

fn date(seconds: u64) -> String {
    standfast_types::utc_text(seconds * 1_000_000)
}

fn now_seconds() -> u64 {
    standfast_environment::state::now::now_us() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        let ok = |text| seconds(text).ok();
        assert_eq!(["90", "90s", "15m", "1h", "2d"].map(ok), [90, 90, 900, 3600, 172_800].map(Some));
        assert_eq!(["", "0", "1w", "h", "-1h", "31d", "99999999999999999999d"].map(ok), [None; 7]);
    }
}
