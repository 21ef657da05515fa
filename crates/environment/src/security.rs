//! Certificates of an instance, the tokens it has issued, and the rights of its peers.
//!
//! `docs/security.md` says what protects against what, and how the files are handled.

mod authorities;
pub(crate) mod clocks;
pub mod files;
pub mod members;
mod progress;
pub(crate) mod promotion;
mod renewal;

pub use renewal::{Ask, RenewalState};

use crate::config::error::InstanceError;
use files::Files;
use members::{BadToken, Members, names_of};
use progress::Progress;
use standfast_tls::{
    Authority, CertificateInfo, Identity, Request, SystemClock, TlsError, Token, VALID_DAYS,
    first_certificate, unhex,
};
use standfast_transport::{
    CertificateChannel, CertificateGrant, CertificateRequest, CertificateRight, Identities, MemberRights,
    Refusal, RefuseCode, Rights, Security, now_seconds,
};
use standfast_types::{Hint, hint};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Manages the certificates of one instance. Files may be replaced while it runs.
pub struct Keeper {
    files: Files,
    name: String,
    loaded: Mutex<Option<Loaded>>,
    /// Held while the members file is changed.
    members: Mutex<()>,
    /// Validity of the certificates that this instance issues.
    valid_seconds: u64,
    renewal: Mutex<Progress>,
    /// Held while the certificate is renewed.
    renewing: Mutex<()>,
    rights: AtomicU64,
    /// Versions, at the last check, of the files that rights come from.
    seen: Mutex<Option<[Option<files::Stamp>; 2]>>,
    /// Open streams over which other members can be asked for a certificate.
    channels: Mutex<Vec<Weak<CertificateChannel>>>,
}

struct Loaded {
    stamp: [(u64, i64, i64); 2],
    identity: Arc<Identity>,
}

/// Certificates as shown by `standfast cert show` and in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub info: CertificateInfo,
    pub authorities: Vec<CertificateInfo>,
    pub is_issuer: bool,
}

impl From<TlsError> for InstanceError {
    fn from(error: TlsError) -> InstanceError {
        let hint = error.hint().map_or("see docs/security.md".into(), Cow::into_owned);
        InstanceError::refused(error.to_string(), hint)
    }
}

impl Keeper {
    /// Returns the keeper of the instance `name`, with its files in `directory`; they need not exist.
    pub fn new(directory: PathBuf, name: &str) -> Keeper {
        Keeper {
            files: Files::new(directory),
            name: name.into(),
            loaded: Mutex::default(),
            members: Mutex::default(),
            valid_seconds: VALID_DAYS * 86_400,
            renewal: Mutex::default(),
            renewing: Mutex::default(),
            channels: Mutex::default(),
            rights: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    /// Sets the validity of issued certificates, seconds.
    #[must_use]
    pub fn valid_for(self, seconds: u64) -> Keeper {
        Keeper { valid_seconds: seconds, ..self }
    }

    pub fn directory(&self) -> &Path {
        &self.files.directory
    }

    pub fn has_identity(&self) -> bool {
        self.files.identity.exists()
    }

    /// Creates a new authority for the family and, if this instance has no certificate, issues one to it. Authorities
    /// already trusted stay trusted, and an existing certificate stays in use until it is renewed: the other members do
    /// not know the new authority yet, and use their present certificates to request new ones from it.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn found_family(&self, family: &str) -> Result<(), InstanceError> {
        self.files.make_directory()?;
        let authority = Authority::create(family, now_seconds())?;
        let before = files::read(&self.files.authorities)?.unwrap_or_default();
        self.endorse_next(&authority)?;
        let identity = match self.current() {
            Ok(_) => None,
            Err(_) => Some(self.signed_by(&authority)?),
        };
        // A crash in between leaves a key without its certificate, which is detected, and the old identity.
        files::replace(&self.files.authority_key, &authority.key_pem())?;
        files::replace(&self.files.authorities, &(authority.certificate_pem().to_owned() + &before))?;
        identity.map_or(Ok(()), |identity| files::replace(&self.files.identity, &identity))
    }

    fn signed_by(&self, authority: &Authority) -> Result<String, InstanceError> {
        let request = Request::create(&self.name)?;
        let certificate = authority.sign_for(&self.name, request.der(), now_seconds(), self.valid_seconds)?;
        Ok(request.identity_pem(&certificate, &self.name)?)
    }

    fn authority(&self) -> Result<Option<Authority>, InstanceError> {
        let Some(key) = files::read(&self.files.authority_key)? else { return Ok(None) };
        let certificates = files::read(&self.files.authorities)?.unwrap_or_default();
        Ok(Some(Authority::from_pem(&certificates, &key)?))
    }

    /// Issues a token with which a host may join as `name`.
    ///
    /// # Errors
    /// When this instance does not have the authority's key.
    pub fn issue_token(&self, name: &str, rights: Rights, ttl_seconds: u64) -> Result<Token, InstanceError> {
        let authority = self.authority()?.ok_or_else(no_issuer)?;
        if name == self.name {
            return Err(InstanceError::refused(
                format!("`{name}` is the name of this instance"),
                "every instance of a family has a name of its own",
            ));
        }
        let pin = authority.fingerprint();
        self.change_members(|members| members.issue(pin, name, rights, now_seconds(), ttl_seconds))?
            .map_err(InstanceError::from)
    }

    /// Puts a host on the allow-list by hand, as if it had joined with a token of this instance.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn allow(&self, name: &str, rights: Rights) -> Result<(), InstanceError> {
        self.change_members(|members| members.allow(name, rights))
    }

    /// Rights of this instance in its family; `None` if none were reported.
    pub fn own_rights(&self) -> Option<Rights> {
        self.members().ok()?.listed_rights(&self.name).cloned()
    }

    /// Removes all rights of a host. `destinations` are the configured ones.
    ///
    /// # Errors
    /// When the host has no rights, or is one of the destinations: redo for it would be refused from then on, and
    /// commits may wait for it.
    pub fn remove(&self, name: &str, destinations: &[String]) -> Result<(), InstanceError> {
        if name == self.name {
            return Err(InstanceError::refused(
                format!("`{name}` is this instance"),
                "take it off at the others, with the same command there",
            ));
        }
        if destinations.iter().any(|destination| destination == name) {
            return Err(InstanceError::refused(
                format!("`{name}` is a destination of this instance; nothing has changed"),
                format!("first `standfast destination remove {name}`, then `standfast cert revoke {name}`"),
            ));
        }
        if self.change_members(|members| members.remove(name))? {
            return Ok(());
        }
        Err(InstanceError::refused(
            format!("`{name}` has not joined here"),
            "`standfast cert show` lists the hosts; a destination is removed with `standfast destination remove`",
        ))
    }

    /// Answers a request for a certificate.
    ///
    /// # Errors
    /// The refusal.
    pub fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
        destinations: &[String],
    ) -> Result<CertificateGrant, Refusal> {
        let not_allowed = |text: String| Refusal::new(RefuseCode::NotAllowed, text);
        let failed = |error: InstanceError| Refusal::new(RefuseCode::Source, error.in_one_line());
        let authority = self.authority().map_err(failed)?.ok_or_else(|| failed(no_issuer()))?;
        let request = unhex(&wish.request).ok_or_else(|| not_allowed("a request that is none".into()))?;
        let sign = || {
            authority
                .sign_for(&wish.name, &request, now_seconds(), self.valid_seconds)
                .map_err(|error| not_allowed(error.in_one_line()))
        };
        let certificate = match right {
            CertificateRight::Certificate => {
                if !self.members().map_err(failed)?.is_listed(&wish.name, destinations) {
                    return Err(not_allowed(format!("`{}` is not listed here", wish.name)));
                }
                sign()?
            }
            CertificateRight::Token { number, proof, session } => {
                // Signed before the token is used up.
                let certificate = sign()?;
                let redeemed = self.change_members(|members| {
                    members.redeem(now_seconds(), number, &wish.name, |key| {
                        key.accepts(proof, session, &wish.name, &request)
                    })
                });
                redeemed.map_err(failed)?.map_err(|bad| not_allowed(stated(bad, &wish.name)))?;
                certificate
            }
        };
        let authorities = files::read(&self.files.authorities).map_err(failed)?.unwrap_or_default();
        let endorsements = self.endorsements_by(&authority, &authorities).map_err(failed)?;
        let members = self.members().map_err(failed)?.endorsed_for(&self.name, destinations, true);
        Ok(CertificateGrant {
            certificate,
            authorities,
            issuer: self.name.clone(),
            peers: names_of(&members),
            members,
            endorsements,
        })
    }

    /// Records the members that an authenticated source on the allow-list endorses.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn endorsed(&self, source: &str, reported: &[MemberRights]) -> Result<(), InstanceError> {
        self.change_members(|members| members.endorse_as(source, reported))
    }

    /// Reads the allow-list.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn members(&self) -> Result<Members, InstanceError> {
        let Some(text) = files::read(&self.files.members)? else { return Ok(Members::default()) };
        serde_json::from_str(&text).map_err(|error| {
            InstanceError::refused(
                format!("{} is damaged: {error}", self.files.members.display()),
                "remove it; hosts that are no destinations must join again",
            )
        })
    }

    /// Rewrites the list if an earlier release wrote it, because that release stored token secrets with which a proof
    /// can be made.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn refresh_members(&self) -> Result<(), InstanceError> {
        let _one = locked(&self.members);
        let Some(before) = files::read(&self.files.members)? else { return Ok(()) };
        let text = members_text(&self.members()?)?;
        if text == before { Ok(()) } else { files::replace(&self.files.members, &text) }
    }

    fn change_members<T>(&self, change: impl FnOnce(&mut Members) -> T) -> Result<T, InstanceError> {
        let _one = locked(&self.members);
        let before = self.members()?;
        let mut members = before.clone();
        let result = change(&mut members);
        if members != before {
            self.files.make_directory()?;
            files::replace(&self.files.members, &members_text(&members)?)?;
            self.rights.fetch_add(1, Relaxed);
        }
        Ok(result)
    }

    /// Incremented when rights may have changed. The rights of open streams are then checked again, and their
    /// destinations get the list.
    pub fn rights_version(&self) -> u64 {
        self.rights.load(Relaxed)
    }

    /// Detects changes of the list, or of the destinations in `config`, that were not made through this keeper. Call it
    /// periodically.
    pub fn look_at_rights(&self, config: &Path) {
        let now = [files::stamp_of(&self.files.members), files::stamp_of(config)];
        if locked(&self.seen).replace(now).is_some_and(|before| before != now) {
            self.rights.fetch_add(1, Relaxed);
        }
    }

    /// Security settings for connections of this instance; `insecure`: allow plain TCP.
    pub fn security(self: &Arc<Keeper>, insecure: bool) -> Security {
        Security::with_certificates(self.clone(), insecure)
    }

    /// Returns the certificates to show; `None` without a certificate.
    ///
    /// # Errors
    /// When a file cannot be read or used.
    pub fn shown(&self) -> Result<Option<Shown>, InstanceError> {
        let Some(identity) = files::read(&self.files.identity)? else { return Ok(None) };
        let authorities = files::read(&self.files.authorities)?.unwrap_or_default();
        let each = authorities.split_inclusive("-----END CERTIFICATE-----\n");
        let infos = each
            .filter(|pem| pem.contains("BEGIN CERTIFICATE"))
            .map(|pem| CertificateInfo::of(&first_certificate(pem)?));
        Ok(Some(Shown {
            info: CertificateInfo::of(&first_certificate(&identity)?)?,
            authorities: infos.collect::<Result<_, _>>()?,
            is_issuer: self.files.authority_key.exists(),
        }))
    }
}

impl Identities for Keeper {
    fn current(&self) -> Result<Arc<Identity>, String> {
        let missing =
            || hint::in_one_line("this instance has no certificate", Some(&how_to_get_one(&self.name)));
        let mut loaded = locked(&self.loaded);
        let stamp = self.files.stamp().ok_or_else(missing)?;
        if let Some(loaded) = &*loaded
            && loaded.stamp == stamp
        {
            return Ok(loaded.identity.clone());
        }
        let one_line = |error: InstanceError| error.in_one_line();
        let text = |path| files::read(path).map_err(one_line)?.ok_or_else(missing);
        let (identity, authorities) = (text(&self.files.identity)?, text(&self.files.authorities)?);
        let identity = Identity::from_pem(&identity, &authorities, &clock())
            .map_err(|error| one_line(InstanceError::from(error)))?;
        if identity.info().name != self.name {
            let what = format!(
                "the certificate of this instance is for `{}`, and [instance] name is `{}`",
                identity.info().name,
                self.name
            );
            return Err(hint::in_one_line(what, Some("join again under the new name")));
        }
        let identity = Arc::new(identity);
        *loaded = Some(Loaded { stamp, identity: identity.clone() });
        Ok(identity)
    }
}

fn members_text(members: &Members) -> Result<String, InstanceError> {
    serde_json::to_string_pretty(members).map_err(|error| InstanceError::Failed(error.to_string()))
}

/// How the instance `name` gets its first certificate, for messages.
pub fn how_to_get_one(name: &str) -> String {
    format!(
        "at the primary `standfast standby token --name {name} > token`, then here `standfast cert join --from HOST:PORT \
         --token-file token`; if this is the primary, `standfast cert init`. Or, where everybody who reaches the ports is \
         trusted, plain TCP: `insecure = true` in [instance] at both ends"
    )
}

/// Returns the warning in the alert log at each start of an instance that allows plain TCP.
pub fn insecure() -> String {
    hint::in_one_line(
        "INSECURE: plain TCP is allowed, no name is proved, and every user and host that reaches the port, from this machine \
         too, can read and write redo and databases",
        Some(
            "give each instance a certificate (`standfast standby token` at the primary, `standfast cert join` at the \
             others), then take `insecure = true` out of [instance] at both ends and restart them",
        ),
    )
}

fn stated(bad: BadToken, name: &str) -> String {
    match bad {
        BadToken::Unknown | BadToken::Proof => {
            "this token is not known here: it was used already, or is another instance's; make a new one with `standfast \
             standby token`"
                .into()
        }
        BadToken::Expired => "this token has expired; make a new one with `standfast standby token`".into(),
        BadToken::Name => format!("this token is not for `{name}`; use the name that it was made for"),
    }
}

fn no_issuer() -> InstanceError {
    InstanceError::refused(
        "this instance gives no certificates: the authority's key is not here",
        "ask the instance where the family was founded, or put its ca.key into the tls directory here (docs/security.md)",
    )
}

fn clock() -> standfast_tls::Clock {
    Arc::new(SystemClock)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(what: &str, name: &str) -> Arc<Keeper> {
        let directory =
            std::env::temp_dir().join(format!("standfast-keeper-{what}-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        Arc::new(Keeper::new(directory, name))
    }

    #[test]
    fn renewed_certificate_is_presented_without_a_restart() {
        let paris = keeper("renew", "paris");
        assert!(paris.current().unwrap_err().contains("no certificate"));
        paris.found_family("0123").unwrap();
        let first = paris.current().unwrap();
        assert!(Arc::ptr_eq(&first, &paris.current().unwrap()));
        paris.renew(&Ask::default()).unwrap();
        let second = paris.current().unwrap();
        assert_eq!(second.info().name, "paris");
        assert_ne!(first.info().fingerprint, second.info().fingerprint);
        let shown = paris.shown().unwrap().unwrap();
        assert!(shown.is_issuer && shown.info == *second.info() && shown.authorities.len() == 1);
        // A family may get another authority; the old one stays trusted.
        paris.found_family("0123").unwrap();
        let shown = paris.shown().unwrap().unwrap();
        assert_eq!(
            (shown.authorities.len(), &shown.info),
            (2, second.info()),
            "the others do not know it yet"
        );
        paris.renew(&Ask::default()).unwrap();
        assert_eq!(paris.current().unwrap().info().issuer, shown.authorities[0].name);
        std::fs::remove_dir_all(&paris.files.directory).unwrap();
    }

    #[test]
    fn certificate_with_another_name_is_not_presented() {
        let paris = keeper("name", "paris");
        paris.found_family("0123").unwrap();
        let renamed = Arc::new(Keeper::new(paris.files.directory.clone(), "lyon"));
        assert!(renamed.current().unwrap_err().contains("`paris`"));
        std::fs::remove_dir_all(&paris.files.directory).unwrap();
    }

    #[test]
    fn token_cannot_be_redeemed_twice_even_after_a_restart() {
        let paris = keeper("token", "paris");
        assert!(paris.issue_token("oslo", Rights::all(), 60).is_err(), "no authority to issue it");
        paris.found_family("0123").unwrap();
        assert!(paris.issue_token("paris", Rights::all(), 60).is_err());
        let token = paris.issue_token("oslo", Rights::all(), 60).unwrap();
        let request = Request::create("oslo").unwrap();
        let session = [9; 32];
        let wish = CertificateRequest {
            name: "oslo".into(),
            request: standfast_tls::hex(request.der()),
            token: None,
            time: None,
        };
        let right = CertificateRight::Token {
            number: standfast_tls::hex(&token.number),
            proof: token.prove(&session, "oslo", request.der()).unwrap(),
            session,
        };
        let grant = paris.certify(&wish, &right, &[]).unwrap();
        assert!(request.identity_pem(&grant.certificate, "oslo").is_ok());
        assert_eq!(grant.peers, ["oslo", "paris"]);
        let again = Keeper::new(paris.files.directory.clone(), "paris");
        let refused = again.certify(&wish, &right, &[]).unwrap_err();
        assert!(refused.code == RefuseCode::NotAllowed && refused.message.contains("used already"));
        // A host on the list gets another certificate by presenting its current one.
        assert!(again.certify(&wish, &CertificateRight::Certificate, &[]).is_ok());
        again.remove("oslo", &[]).unwrap();
        assert!(again.certify(&wish, &CertificateRight::Certificate, &[]).is_err());
        std::fs::remove_dir_all(&paris.files.directory).unwrap();
    }
}
