//! How an instance obtains certificates: the first one with a token, later ones automatically.
//!
//! After two thirds of its life a certificate is renewed: with the authority's key if it is here, otherwise by the
//! instance that has it. That instance is asked over an open redo stream between the two, in either direction, or else
//! over a new connection. Its name and address are known since this instance joined, and every source reports them at
//! the begin of a stream.

use super::authorities::{each, grow};
use super::clocks::{self, Got};
use super::members::as_reported;
use super::{Keeper, clock, files, locked};
use crate::config::error::InstanceError;
use standfast_tls::{CertificateInfo, Identity, Request, Token, fingerprint, first_certificate, joining};
use standfast_transport::{
    CertificateChannel, CertificateGrant, CertificateRequest, Identities, IssuerAt, Security, TransportError,
    fetch_certificate, now_seconds,
};
use standfast_types::{Hint, hint};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Warn about a certificate that was not renewed in time and ends within this many days.
const WARN_DAYS: i64 = 30;
/// Timeout of an answer over a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const SET_THE_CLOCK: &str =
    "set the clock that is wrong (`timedatectl`) and nothing else: the certificate is renewed then";

#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Address, HOST:PORT; `None`: the known issuer.
    pub from: Option<String>,
    /// Name; `None`: the name of the known issuer.
    pub issuer: Option<String>,
}

/// State of a certificate, for monitoring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalState {
    Valid,
    Due,
    /// Not renewed yet, with the reason.
    Failed(String),
    /// Not renewed, and its last month has begun.
    Ending,
    /// Its validity begins in the future: the clock of this host or that of the issuer is wrong.
    NotValidYet,
    Expired,
}

impl RenewalState {
    pub fn word(&self) -> &'static str {
        match self {
            RenewalState::Valid => "valid",
            RenewalState::Due => "due",
            RenewalState::Failed(_) => "renewal failed",
            RenewalState::Ending => "ending",
            RenewalState::NotValidYet => "not valid yet",
            RenewalState::Expired => "expired",
        }
    }
}

/// Returns the state of the certificate at `now`; `failed`: why the last renewal failed.
fn state(info: &CertificateInfo, now: u64, failed: Option<&str>) -> RenewalState {
    match failed {
        _ if now > info.not_after => RenewalState::Expired,
        _ if now < info.not_before => RenewalState::NotValidYet,
        // Even if the clock here says that renewal is not due yet: it may be behind.
        Some(why) => RenewalState::Failed(why.to_owned()),
        None if now < info.renew_at() => RenewalState::Valid,
        None if info.days_left(now) < WARN_DAYS && info.not_after - info.renew_at() > 86_400 => {
            RenewalState::Ending
        }
        None => RenewalState::Due,
    }
}

struct Signed {
    identity: String,
    /// Authorities that are not trusted, as text.
    stated: Vec<String>,
    /// Name of the instance by whose clock the certificate was made.
    by: String,
}

impl Keeper {
    /// Obtains a new key and certificate: with the authority's key if it is here, else from the instance given by
    /// `ask`. New connections use it from now on. Returns as text which of the received authorities are not trusted,
    /// and whether the clocks of the two hosts differ.
    ///
    /// # Errors
    /// When neither is available, or the request is refused; when the new certificate is not valid by the clock of this
    /// host. Even then it is used, unless the present one is valid.
    pub fn renew(self: &Arc<Keeper>, ask: &Ask) -> Result<Vec<String>, InstanceError> {
        let _one = locked(&self.renewing);
        let Signed { identity, mut stated, by } = match (self.authority()?, &ask.from) {
            (Some(authority), None) => {
                Signed { identity: self.signed_by(&authority)?, stated: Vec::new(), by: self.name.clone() }
            }
            _ => self.ask_for_one(ask)?,
        };
        let (new, now) = (CertificateInfo::of(&first_certificate(&identity)?)?, now_seconds());
        let present = self.shown().ok().flatten();
        let is_better =
            clocks::holds(&new, now) || !present.is_some_and(|shown| clocks::holds(&shown.info, now));
        if is_better {
            files::replace(&self.files.identity, &identity)?;
        }
        let mut renewal = locked(&self.renewal);
        renewal.got = Some(Got { at: Instant::now(), unfit: clocks::is_due_by_the_clock(&new, now) });
        let ahead = clocks::ahead(&new, now);
        let differs = clocks::difference(ahead, &by);
        if !clocks::holds(&new, now) {
            let differs = differs.unwrap_or_else(|| format!("the clocks of this host and of `{by}` differ"));
            let what = format!(
                "{differs}, by which the certificate that it has just given is valid, and by the one here not"
            );
            return Err(InstanceError::refused(what, SET_THE_CLOCK));
        }
        renewal.failed = None;
        stated
            .extend(differs.map(|differs| {
                hint::in_one_line(differs, Some("set the one that is wrong (`timedatectl`)"))
            }));
        Ok(stated)
    }

    /// Records an open stream over TLS.
    pub fn note_channel(&self, channel: &Arc<CertificateChannel>) {
        let mut channels = locked(&self.channels);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(channel));
    }

    /// The newest open stream to the instance of that name.
    fn channel_to(&self, name: &str) -> Option<Arc<CertificateChannel>> {
        let channels: Vec<_> = locked(&self.channels).iter().filter_map(std::sync::Weak::upgrade).collect();
        channels.into_iter().rev().find(|channel| channel.peer() == name && !channel.is_closed())
    }

    /// Requests the certificate over an open stream to `issuer`; `None` when there is no stream, or it ended meanwhile.
    fn ask_over_stream(
        &self,
        issuer: &str,
        request: &Request,
    ) -> Option<Result<CertificateGrant, InstanceError>> {
        let wish = CertificateRequest::renewal(&self.name, request.der());
        match self.channel_to(issuer)?.ask(&wish, ANSWER_TIMEOUT) {
            Ok(grant) => Some(Ok(grant)),
            Err(error @ TransportError::Refused(_)) => Some(Err(InstanceError::refused(
                format!("no certificate from `{issuer}`, over the stream of redo: {error}"),
                "`standfast cert show` there says whether it gives certificates, and whom it lists",
            ))),
            Err(_) => None,
        }
    }

    fn ask_for_one(self: &Arc<Keeper>, ask: &Ask) -> Result<Signed, InstanceError> {
        let known = self.members()?.issuer().cloned();
        let address =
            ask.from.clone().or_else(|| Some(known.as_ref()?.address.clone())).ok_or_else(|| {
                InstanceError::refused(
                    "this instance has no authority's key to sign with",
                    "put its ca.key back into the tls directory here (docs/security.md), or name the instance that has it: standfast cert \
                     renew --from HOST:PORT --issuer NAME",
                )
            })?;
        // Any member could answer at this address: only the expected issuer is asked.
        let expected = ask.issuer.clone().or_else(|| Some(known?.name)).ok_or_else(|| {
            InstanceError::refused(
                format!("which instance gives certificates at {address} is not known here"),
                format!("name it: standfast cert renew --from {address} --issuer NAME"),
            )
        })?;
        let request = Request::create(&self.name)?;
        let over_stream =
            if ask.from.is_none() { self.ask_over_stream(&expected, &request).transpose()? } else { None };
        let grant = over_stream.map_or_else(
            || {
                // Always over TLS: plain TCP proves no name.
                let security = self.security(false);
                fetch_certificate(&address, &security, &self.name, request.der(), None, Some(&expected))
                    .map_err(|error| asking_failed(&address, &error))
            },
            Ok,
        )?;
        let identity = request.identity_pem(&grant.certificate, &self.name)?;
        let before = files::read(&self.files.authorities)?.unwrap_or_default();
        let (mut trusted, stated) = grow(&before, &grant.authorities, &grant.endorsements)?;
        if self.files.authority_key.exists() {
            // The first certificate of the file must stay the one of the key that is here: new ones follow it.
            let changes = each(&trusted).filter(|one| each(&before).all(|known| known != *one));
            trusted = each(&before).chain(changes).collect();
        }
        Identity::from_pem(&identity, &trusted, &clock()).map_err(|error| {
            let why = stated.first().cloned().unwrap_or_else(|| error.in_one_line());
            let (what, hint) = hint::split(&why);
            InstanceError::refused(
                format!("the certificate from {address} is of no use: {what}"),
                hint.unwrap_or("see docs/security.md"),
            )
        })?;
        files::replace(&self.files.authorities, &trusted)?;
        let issuer = IssuerAt { name: expected.clone(), address };
        self.change_members(|members| members.set_issuer(issuer))?;
        Ok(Signed { identity, stated, by: expected })
    }

    /// Obtains the first certificate of this instance with a token of the instance at `from`. Returns as text which of
    /// the received authorities are not trusted.
    ///
    /// # Errors
    /// When that instance cannot be reached or refuses, or a file cannot be written.
    pub fn join(&self, from: &str, token: &Token) -> Result<Vec<String>, InstanceError> {
        self.files.make_directory()?;
        let security = Security::joining(joining(token.authority, &clock())?);
        let request = Request::create(&self.name)?;
        let grant = fetch_certificate(from, &security, &self.name, request.der(), Some(token), None)
            .map_err(|error| asking_failed(from, &error))?;
        let identity = request.identity_pem(&grant.certificate, &self.name)?;
        // Only the authority that the token names is trusted, and those that it endorses.
        let is_named =
            |pem: &String| first_certificate(pem).is_ok_and(|one| fingerprint(&one) == token.authority);
        let named = each(&grant.authorities).find(is_named).ok_or_else(|| {
            InstanceError::refused(
                format!("{from} handed over another authority than the token names"),
                "do not trust that host; look whether it is the one that you meant",
            )
        })?;
        Identity::from_pem(&identity, &named, &clock())?;
        let before = files::read(&self.files.authorities)?.unwrap_or_default();
        let (trusted, stated) = grow(&(named + &before), &grant.authorities, &grant.endorsements)?;
        files::replace(&self.files.authorities, &trusted)?;
        let reported = as_reported(&grant.members, &grant.peers, &grant.issuer);
        self.change_members(|members| {
            members.endorse(&reported);
            members.set_issuer(IssuerAt { name: grant.issuer.clone(), address: from.to_owned() });
        })?;
        files::replace(&self.files.identity, &identity)?;
        Ok(stated)
    }

    /// Stores the issuer of certificates that a source reports.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn note_issuer(&self, issuer: IssuerAt) -> Result<(), InstanceError> {
        self.change_members(|members| members.set_issuer(issuer))
    }

    /// Returns the instance that renews certificates, to be reported to the destinations of this one; `port`: where
    /// this instance listens.
    pub fn issuer(&self, port: Option<u16>) -> Option<IssuerAt> {
        if self.files.authority_key.exists() {
            return Some(IssuerAt { name: self.name.clone(), address: format!(":{}", port?) });
        }
        self.members().ok()?.issuer().cloned()
    }

    /// State of the certificate; `None` without one.
    pub fn renewal_state(&self) -> Option<RenewalState> {
        let shown = self.shown().ok()??;
        let failed = locked(&self.renewal).failed.clone();
        Some(state(&shown.info, now_seconds(), failed.as_deref()))
    }

    /// Validity period of the certificate, from when it was made; `None` without one.
    pub fn life(&self) -> Option<Duration> {
        let info = self.current().ok()?.info().clone();
        // Renewal is due after two thirds of it, so one third is left then.
        let third = info.not_after.saturating_sub(info.renew_at());
        Some(Duration::from_secs(3 * third))
    }

    /// Why the certificate could not be renewed, or is not valid by the clock of this host.
    pub fn renewal_failure(&self) -> Option<String> {
        locked(&self.renewal).failed.clone()
    }

    /// Whether the clock of this host was set since the last call; then the certificate should be checked. Returns a
    /// message for the operator.
    pub fn clock_was_set(&self) -> Option<String> {
        let mut renewal = locked(&self.renewal);
        let by = renewal.watch.moved(Instant::now(), now_seconds())?;
        // A certificate that was not valid may be valid now, or a better one may be available.
        renewal.got.iter_mut().for_each(|got| got.unfit = false);
        let what = format!(
            "THE CLOCK OF THIS HOST WAS SET {} by {}, or the host was suspended: certificates are valid by it, here and at the \
             others of the family",
            if by > 0 { "AHEAD" } else { "BACK" },
            clocks::rough(by)
        );
        Some(hint::in_one_line(what, Some("compare it with those of the other hosts (`timedatectl`)")))
    }

    /// Renews the certificate when due. Returns a message for the operator: success, and each failure once a day.
    pub fn renew_when_due(self: &Arc<Keeper>) -> Option<String> {
        let shown = self.shown().ok()??;
        let (at, now) = (Instant::now(), now_seconds());
        {
            let mut renewal = locked(&self.renewal);
            let got = renewal.got.map(|got| (at.saturating_duration_since(got.at), got.unfit));
            if !clocks::is_due(&shown.info, now, got) {
                if !clocks::is_due_by_the_clock(&shown.info, now) {
                    renewal.failed = None;
                }
                return None;
            }
        }
        let outcome = match self.renew(&Ask::default()) {
            Ok(stated) => {
                let until = self.shown().ok().flatten().map_or(0, |shown| shown.info.not_after);
                let stated: String = stated.iter().map(|stated| format!("; {stated}")).collect();
                format!("the certificate was renewed automatically, valid until {}{stated}", date(until))
            }
            Err(error) => {
                let why = error.in_one_line();
                let what = match state(&shown.info, now, Some(&why)) {
                    RenewalState::Expired => {
                        "THE CERTIFICATE HAS EXPIRED by the clock of this host: new connections are refused, those that are open \
                         continue"
                            .to_owned()
                    }
                    RenewalState::NotValidYet => "THE CERTIFICATE IS NOT VALID YET by the clock of this host: new connections are \
                                                  refused, open ones continue"
                        .to_owned(),
                    _ => format!("THE CERTIFICATE IS NOT RENEWED and ends {}", date(shown.info.not_after)),
                };
                locked(&self.renewal).failed = Some(why.clone());
                format!("{what}: {why}")
            }
        };
        let (today, mut renewal) = (now / 86_400, locked(&self.renewal));
        let warning = (today, outcome.clone());
        let is_new = renewal.warned.replace(warning.clone()) != Some(warning);
        is_new.then_some(outcome)
    }
}

fn date(seconds: u64) -> String {
    standfast_types::utc_text(seconds * 1_000_000)
}

fn asking_failed(from: &str, error: &standfast_transport::TransportError) -> InstanceError {
    InstanceError::refused(
        format!("no certificate from {from}: {error}"),
        "check that the instance there runs, gives certificates (`standfast cert show`) and listens on this address",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_tls::{Authority, Request};

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn valid_for(seconds: u64) -> CertificateInfo {
        let family = Authority::create("0123", NOW).unwrap();
        let request = Request::create("oslo").unwrap();
        let pem = family.sign_for("oslo", request.der(), NOW, seconds).unwrap();
        CertificateInfo::of(&first_certificate(&pem).unwrap()).unwrap()
    }

    #[test]
    fn certificate_state_reports_a_missed_renewal() {
        let year = valid_for(365 * DAY);
        let at = |day: u64, failed| state(&year, NOW + day * DAY, failed);
        assert_eq!(
            (at(0, None), at(243, None), at(244, None)),
            (RenewalState::Valid, RenewalState::Valid, RenewalState::Due)
        );
        assert_eq!(at(244, Some("away")), RenewalState::Failed("away".into()));
        assert_eq!((at(334, None), at(336, None)), (RenewalState::Due, RenewalState::Ending));
        assert_eq!(at(366, Some("away")), RenewalState::Expired);
        // An hour is always within a month; that alone must not count as ending.
        let hour = valid_for(3600);
        assert_eq!(state(&hour, NOW + 10, None), RenewalState::Valid);
        assert_eq!(state(&hour, NOW + 2500, None), RenewalState::Due);
        assert_eq!(state(&hour, NOW + 2500, Some("away")), RenewalState::Failed("away".into()));
        // Clocks that are wrong by more than a day.
        assert_eq!(state(&hour, NOW - DAY - 1, None), RenewalState::NotValidYet);
        assert_eq!(state(&hour, NOW + DAY, None), RenewalState::Expired);
    }
}
