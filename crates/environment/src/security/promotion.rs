//! Trust in reports of a newer incarnation: such a report fences a primary permanently, so only a promotion by a member
//! with the right to become primary counts.

use super::members::Members;
use super::{Keeper, files};
use crate::config::error::InstanceError;
use standfast_tls::{Signature, TlsError, sign, signer};
use standfast_transport::{Incarnation, PeerIdentity, Promotion, Right, Rights, Role};
use standfast_types::IncarnationId;

/// Evidence of who began an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A record of the promotion, signed with this member's key.
    Signed(&'a str),
    /// Reported by this peer, which began it and has presented a certificate for its name.
    Began(&'a str),
    /// Reported without proof by this peer, which has presented a certificate for its name but did not begin the
    /// incarnation.
    Forwarded(&'a str),
    /// Reported by this peer over plain TCP, where every name is trusted.
    Plain(&'a str),
}

impl<'a> Word<'a> {
    /// Classifies a report of `peer`, which presents `record`; `proven`: it has presented a certificate for its name.
    pub fn of(peer: &'a PeerIdentity, record: Option<&'a Promotion>, proven: bool) -> Word<'a> {
        match record {
            Some(record) => Word::Signed(&record.name),
            // The primary of an incarnation is the instance that began it.
            None if proven && peer.role == Role::Primary => Word::Began(&peer.name),
            None if proven => Word::Forwarded(&peer.name),
            None => Word::Plain(&peer.name),
        }
    }
}

/// Why a report is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// This member has these rights, but not the right to begin an incarnation.
    MayNot(String, Rights),
    /// This member did not begin the incarnation and presents no record of who did; the one that did may lack the
    /// right.
    NoRecord(String),
}

/// Whether an instance called `own`, with this list and these destinations, trusts the report.
pub fn trusted(
    word: Word<'_>,
    own: &str,
    members: &Members,
    destinations: &[String],
) -> Result<(), Untrusted> {
    let (name, rights) = match word {
        // The key of this instance: only this instance holds it.
        Word::Signed(name) if name == own => return Ok(()),
        Word::Signed(name) | Word::Began(name) => (name, members.rights(name, destinations)),
        // The right of the peer that passes the report on says nothing about the instance that began the incarnation.
        Word::Forwarded(name) => return Err(Untrusted::NoRecord(name.to_owned())),
        // A name that is not on the list is accepted; a restriction on the list applies.
        Word::Plain(name) => (name, members.listed_rights(name).cloned().unwrap_or_else(Rights::all)),
    };
    if rights.has(Right::Candidate) { Ok(()) } else { Err(Untrusted::MayNot(name.to_owned(), rights)) }
}

impl Keeper {
    /// Signs the record that this instance begins `incarnation`; `None` without a certificate.
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

    /// The record that `peer` presents for `newer`, if it belongs to this family and is signed by the member that it
    /// names.
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
        members.endorse(&[MemberRights { name: "north".into(), rights: Rights::all() }]);
        members
    }

    #[test]
    fn only_a_promotion_of_an_eligible_member_is_trusted() {
        let (members, destinations) =
            (members(), ["reports".to_owned(), "near".to_owned(), "oslo".to_owned()]);
        let is_trusted = |word| trusted(word, "south", &members, &destinations).is_ok();
        assert!(is_trusted(Word::Began("north")) && is_trusted(Word::Signed("north")));
        for name in ["reports", "near", "unlisted", "oslo"] {
            assert!(!is_trusted(Word::Began(name)) && !is_trusted(Word::Signed(name)), "{name}");
        }
        assert!(!is_trusted(Word::Plain("reports")), "a restriction counts without a certificate, too");
        assert!(is_trusted(Word::Plain("unlisted")), "plain TCP proves no name, and its list is empty");
        assert!(is_trusted(Word::Signed("south")));
        assert_eq!(
            trusted(Word::Signed("reports"), "south", &members, &[]),
            Err(Untrusted::MayNot("reports".to_owned(), Rights::never_primary()))
        );
    }

    #[test]
    fn instance_relaying_an_incarnation_needs_a_signed_record() {
        let (members, at) = (members(), Incarnation { number: 2, id: IncarnationId([2; 8]), branch: Scn(9) });
        let peer = |role| PeerIdentity {
            instance: InstanceId([1; 16]),
            name: "north".into(),
            family: None,
            role,
            incarnations: vec![at],
            promotion: None,
        };
        let record = |name: &str| Promotion {
            family: at.id,
            incarnation: at,
            time_us: 7,
            name: name.into(),
            certificate: String::new(),
            signature: String::new(),
        };
        // `north` may become primary. As a standby it forwards what another instance has reported.
        for role in [Role::Standby, Role::FarSync] {
            let north = peer(role);
            let judged =
                |record: Option<&Promotion>| trusted(Word::of(&north, record, true), "south", &members, &[]);
            assert_eq!(judged(None), Err(Untrusted::NoRecord("north".into())));
            assert!(judged(Some(&record("north"))).is_ok());
            assert!(judged(Some(&record("reports"))).is_err());
        }
        let began = peer(Role::Primary);
        assert!(trusted(Word::of(&began, None, true), "south", &members, &[]).is_ok(), "an earlier release");
        assert_eq!(Word::of(&began, None, false), Word::Plain("north"));
    }

    #[test]
    fn promotion_record_holds_only_for_its_incarnation_and_member() {
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
