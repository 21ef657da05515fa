//! Who is believed when a newer incarnation is spoken of: it fences a primary for good, so only what a member has done that may
//! become primary counts.

use super::members::Members;
use super::{Keeper, files};
use crate::error::InstanceError;
use standfast_tls::{Signature, TlsError, sign, signer};
use standfast_transport::{Incarnation, PeerIdentity, Promotion, Right, Rights};
use standfast_types::IncarnationId;

/// What is known of who began an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A record of the promotion, which its key has signed.
    Signed(&'a str),
    /// A peer says so, which has shown a certificate for its name.
    Proven(&'a str),
    /// Somebody says so over plain TCP, where every name is believed.
    Plain(&'a str),
}

/// Whether it is believed by an instance called `own` with this list and these destinations. Otherwise: the name that has not the
/// right, and what it may do instead.
pub fn believed(
    word: Word<'_>,
    own: &str,
    members: &Members,
    destinations: &[String],
) -> Result<(), (String, Rights)> {
    let (name, rights) = match word {
        // The key of this instance: its holder is this instance.
        Word::Signed(name) if name == own => return Ok(()),
        Word::Signed(name) | Word::Proven(name) => (name, members.rights(name, destinations)),
        // The list is not asked for what it does not know; a restriction that it knows counts.
        Word::Plain(name) => (name, members.listed_rights(name).cloned().unwrap_or_else(Rights::all)),
    };
    if rights.has(Right::Candidate) { Ok(()) } else { Err((name.to_owned(), rights)) }
}

impl Keeper {
    /// The record that this instance begins `incarnation`; `None` without a certificate.
    ///
    /// # Errors
    /// When its key cannot be used.
    pub fn sign_promotion(
        &self,
        family: IncarnationId,
        incarnation: Incarnation,
        time_us: u64,
    ) -> Result<Option<Promotion>, InstanceError> {
        let Some(identity) = files::read(&self.files.identity)? else { return Ok(None) };
        let mut record = Promotion {
            family,
            incarnation,
            time_us,
            name: self.name.clone(),
            certificate: String::new(),
            signature: String::new(),
        };
        let signed = sign(&identity, Promotion::PURPOSE, &record.text())?;
        (record.certificate, record.signature) = (signed.certificate, signed.signature);
        Ok(Some(record))
    }

    /// The record that `peer` shows for `newer`, when it is one, of this family, and signed by the member that it names.
    pub fn record_of<'a>(&self, peer: &'a PeerIdentity, newer: &Incarnation) -> Option<&'a Promotion> {
        let record = peer.promotion.as_ref().filter(|record| record.incarnation == *newer)?;
        let family = peer.incarnations.first()?.id;
        let signed =
            Signature { certificate: record.certificate.clone(), signature: record.signature.clone() };
        let authorities = files::read(&self.files.authorities).ok()??;
        let signer: Result<String, TlsError> =
            signer(&signed, &authorities, Promotion::PURPOSE, &record.text());
        (record.family == family && signer.is_ok_and(|name| name == record.name)).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_transport::{MemberRights, Role};
    use standfast_types::{InstanceId, Scn};

    fn members() -> Members {
        let mut members = Members::default();
        members.allow("reports", Rights::never_primary());
        members.allow("near", Rights::far_sync());
        members.vouch(&[MemberRights { name: "north".into(), rights: Rights::all() }]);
        members
    }

    #[test]
    fn only_a_member_that_may_become_primary_is_believed() {
        let (members, destinations) =
            (members(), ["reports".to_owned(), "near".to_owned(), "oslo".to_owned()]);
        let is_believed = |word| believed(word, "south", &members, &destinations).is_ok();
        assert!(is_believed(Word::Proven("north")) && is_believed(Word::Signed("north")));
        for name in ["reports", "near", "stranger", "oslo"] {
            assert!(!is_believed(Word::Proven(name)) && !is_believed(Word::Signed(name)), "{name}");
        }
        assert!(!is_believed(Word::Plain("reports")), "a restriction counts without a certificate, too");
        assert!(is_believed(Word::Plain("stranger")), "plain TCP proves no name, and its list is empty");
        assert!(is_believed(Word::Signed("south")));
        assert_eq!(
            believed(Word::Signed("reports"), "south", &members, &[]),
            Err(("reports".to_owned(), Rights::never_primary()))
        );
    }

    #[test]
    fn a_record_counts_for_its_incarnation_and_its_member_only() {
        let directory = std::env::temp_dir().join(format!("standfast-promotion-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let keeper = Keeper::new(directory.clone(), "north");
        let at = |number: u32| Incarnation {
            number,
            id: IncarnationId([number as u8; 8]),
            branch: Scn(4096 + u64::from(number)),
        };
        assert_eq!(keeper.sign_promotion(at(1).id, at(2), 7).unwrap(), None, "without a certificate");
        keeper.found_family("0123").unwrap();
        let record = keeper.sign_promotion(at(1).id, at(2), 7).unwrap().unwrap();
        let peer = |promotion: Promotion| PeerIdentity {
            instance: InstanceId([1; 16]),
            name: "near".into(),
            family: None,
            role: Role::FarSync,
            incarnations: vec![at(1), at(2)],
            promotion: Some(promotion),
        };
        let counts = |record: Promotion, newer| keeper.record_of(&peer(record), &newer).is_some();
        assert!(counts(record.clone(), at(2)));
        assert!(!counts(record.clone(), at(3)), "another incarnation");
        assert!(!counts(Promotion { name: "oslo".into(), ..record.clone() }, at(2)));
        assert!(!counts(Promotion { time_us: 8, ..record.clone() }, at(2)));
        assert!(!counts(Promotion { family: at(3).id, ..record.clone() }, at(2)));
        assert!(!counts(Promotion { incarnation: at(3), ..record }, at(3)));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
