//! Roots of trust: a new one is added only when a trusted authority endorses it, or a token names it.

use super::{Keeper, files};
use crate::config::error::InstanceError;
use standfast_tls::{Authority, CertificateInfo, Endorsement, TlsError, endorse, grown};
use standfast_transport::AuthorityEndorsement;
use standfast_types::hint;

impl Keeper {
    /// Endorses the next authority with the key of the current one, if that key is here, so that members that trust the
    /// current authority trust the next one too.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn endorse_next(&self, next: &Authority) -> Result<(), InstanceError> {
        // Without the key, because it is lost or damaged, there is no endorsement: members then trust the new authority
        // only through a token that names it.
        let Ok(Some(before)) = self.authority() else { return Ok(()) };
        let endorsed = endorse(before.certificate_pem(), &before.key_pem(), next.certificate_pem())?;
        let mut all = self.stored_endorsements()?;
        all.push(on_wire(endorsed));
        let text =
            serde_json::to_string_pretty(&all).map_err(|error| InstanceError::Failed(error.to_string()))?;
        files::replace(&self.files.endorsements, &text)
    }

    fn stored_endorsements(&self) -> Result<Vec<AuthorityEndorsement>, InstanceError> {
        let Some(text) = files::read(&self.files.endorsements)? else { return Ok(Vec::new()) };
        serde_json::from_str(&text).map_err(|error| {
            InstanceError::refused(
                format!("{} is damaged: {error}", self.files.endorsements.display()),
                "remove it; instances that do not trust the newest authority yet join again with a token",
            )
        })
    }

    /// Returns the endorsements to send with `authorities` (PEM): those made when each authority was created, and
    /// endorsements by the signing authority of the earlier ones, which this instance trusts.
    ///
    /// # Errors
    /// When a file cannot be read or used.
    pub(super) fn endorsements_by(
        &self,
        authority: &Authority,
        authorities: &str,
    ) -> Result<Vec<AuthorityEndorsement>, InstanceError> {
        let mut all = self.stored_endorsements()?;
        let key = authority.key_pem();
        for other in each(authorities).filter(|other| other != authority.certificate_pem()) {
            all.push(on_wire(endorse(authority.certificate_pem(), &key, &other)?));
        }
        Ok(all)
    }
}

/// Splits a PEM text into its certificates.
pub(super) fn each(pem: &str) -> impl Iterator<Item = String> {
    let all = pem.split_inclusive("-----END CERTIFICATE-----");
    all.filter_map(|part| Some(format!("{}\n", &part[part.find("-----BEGIN")?..])))
}

/// Returns what an instance that trusts `trusted` trusts after receiving `offered`, and, as text, which of the offered
/// authorities it does not.
///
/// # Errors
/// When a certificate cannot be read.
pub(super) fn grow(
    trusted: &str,
    offered: &str,
    endorsements: &[AuthorityEndorsement],
) -> Result<(String, Vec<String>), TlsError> {
    let endorsements: Vec<Endorsement> = endorsements.iter().cloned().map(off_wire).collect();
    let (pem, refused) = grown(trusted, offered, &endorsements)?;
    Ok((pem, refused.iter().map(not_trusted).collect()))
}

fn not_trusted(info: &CertificateInfo) -> String {
    let what = format!(
        "the authority `{}` ({}) is not trusted here: none that is trusted has signed it",
        info.name,
        info.fingerprint_text()
    );
    let remedy = "if it is one of this family, `standfast cert join` with a token that was made under it";
    hint::in_one_line(what, Some(remedy))
}

fn on_wire(endorsement: Endorsement) -> AuthorityEndorsement {
    let Endorsement { by, of, signature } = endorsement;
    AuthorityEndorsement { by, of, signature }
}

fn off_wire(endorsement: AuthorityEndorsement) -> Endorsement {
    let AuthorityEndorsement { by, of, signature } = endorsement;
    Endorsement { by, of, signature }
}
