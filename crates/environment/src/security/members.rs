//! Rights of hosts: issued tokens, and the allow-list. Uses no clock and no files.
//!
//! ```text
//!  token issued for a name ── redeemed ──> joined: has the rights of the token, and is endorsed
//!  stream of a source on the list ───────> names and rights that it endorses, replacing those endorsed before
//!  destination configured ───────────────> may receive and read, unless one of these says otherwise
//!  removed ──────────────────────────────> has no right, not even as a destination, until allowed or joined again
//! ```
//!
//! [`Right`] lists the rights. A standby's list contains what its primary endorses, so that after a failover it takes
//! redo from the new primary, and trusts a report of a new incarnation only if a member with that right began it. Local
//! entries for a name take precedence over what others report about it.

use serde::{Deserialize, Serialize};
use standfast_tls::{TlsError, Token, TokenKey, hex};
use standfast_transport::{IssuerAt, MemberRights, Right, Rights};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of tokens that have not expired and were not redeemed; at the limit none is issued.
const TOKENS_MAX: usize = 1000;

/// Tokens and the allow-list: the content of `members.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Members {
    /// Tokens that can still be redeemed, by token number in hexadecimal.
    tokens: BTreeMap<String, IssuedToken>,
    /// Hosts that joined with a token of this instance; without any right: hosts that were removed since.
    joined: BTreeMap<String, Joined>,
    /// Members that the last primary endorsed, including itself.
    #[serde(rename = "vouched", deserialize_with = "endorsed")]
    endorsed: BTreeMap<String, Rights>,
    /// The instance that renews the certificate of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<IssuerAt>,
}

/// What is stored of a token: enough to verify a proof, not to make one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReadToken")]
struct IssuedToken {
    /// A [`TokenKey`] in hexadecimal, which verifies a proof.
    verifier: String,
    name: String,
    rights: Rights,
    /// Seconds since the Unix epoch at which it expires.
    expires: u64,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedToken({}, verifier withheld)", self.name)
    }
}

/// A token as stored in the file, by this or an earlier release.
#[derive(Deserialize)]
struct ReadToken {
    #[serde(default)]
    verifier: Option<String>,
    /// Earlier releases: a secret with which a proof could be made.
    #[serde(default)]
    key: Option<String>,
    name: String,
    #[serde(flatten)]
    rights: ReadRights,
    expires: u64,
}

impl From<ReadToken> for IssuedToken {
    fn from(read: ReadToken) -> IssuedToken {
        let old = || Some(TokenKey::from_old_hex(&read.key?)?.to_hex());
        IssuedToken {
            // Without either value every proof fails.
            verifier: read.verifier.or_else(old).unwrap_or_default(),
            name: read.name,
            rights: read.rights.into(),
            expires: read.expires,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReadRights")]
struct Joined {
    rights: Rights,
}

/// Rights as stored in the file; earlier releases had two kinds of hosts.
#[derive(Deserialize)]
struct ReadRights {
    #[serde(default)]
    rights: Option<Rights>,
    #[serde(default)]
    never_primary: bool,
}

impl From<ReadRights> for Rights {
    fn from(read: ReadRights) -> Rights {
        let old = || if read.never_primary { Rights::never_primary() } else { Rights::all() };
        read.rights.unwrap_or_else(old)
    }
}

impl From<ReadRights> for Joined {
    fn from(read: ReadRights) -> Joined {
        Joined { rights: read.into() }
    }
}

/// Earlier releases stored only names, of hosts that may become primary.
fn endorsed<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Rights>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Rights(BTreeMap<String, Rights>),
        Names(BTreeSet<String>),
    }
    Ok(match Read::deserialize(from)? {
        Read::Rights(rights) => rights,
        Read::Names(names) => names.into_iter().map(|name| (name, Rights::all())).collect(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// No such number: never issued, already used, or forgotten after it expired.
    Unknown,
    Expired,
    Name,
    Proof,
}

impl Members {
    /// Issues a token with which a host may join as `name`, with these rights.
    ///
    /// # Errors
    /// `Random`; `Request` when too many tokens are unredeemed.
    pub fn issue(
        &mut self,
        authority: [u8; 32],
        name: &str,
        rights: Rights,
        now: u64,
        ttl_seconds: u64,
    ) -> Result<Token, TlsError> {
        self.tokens.retain(|_, token| token.expires > now);
        if self.tokens.len() >= TOKENS_MAX {
            return Err(TlsError::Request(format!("{TOKENS_MAX} tokens are out; wait until some expire")));
        }
        let token = Token::generate(authority)?;
        let expires = now.saturating_add(ttl_seconds);
        let issued = IssuedToken { verifier: token.key()?.to_hex(), name: name.into(), rights, expires };
        self.tokens.insert(hex(&token.number), issued);
        Ok(token)
    }

    /// Redeems a token: it is used up, and its bearer is put on the allow-list.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    pub fn redeem(
        &mut self,
        now: u64,
        number: &str,
        name: &str,
        proves: impl FnOnce(&TokenKey) -> bool,
    ) -> Result<(), BadToken> {
        let token = self.tokens.get(number).ok_or(BadToken::Unknown)?;
        if token.expires <= now {
            return Err(BadToken::Expired);
        }
        if token.name != name {
            return Err(BadToken::Name);
        }
        if !TokenKey::from_hex(&token.verifier).is_some_and(|key| proves(&key)) {
            return Err(BadToken::Proof);
        }
        let rights = token.rights.clone();
        self.tokens.remove(number);
        self.allow(name, rights);
        Ok(())
    }

    /// Puts a host on the allow-list.
    pub fn allow(&mut self, name: &str, rights: Rights) {
        self.joined.insert(name.into(), Joined { rights });
    }

    /// Replaces the endorsed members by those of `members`; members endorsed only by the previous source lose their
    /// entries.
    pub fn endorse(&mut self, members: &[MemberRights]) {
        self.endorsed = members.iter().map(|member| (member.name.clone(), member.rights.clone())).collect();
    }

    /// Does [`Members::endorse`] for a source of redo. A source that may not become primary itself forwards what its
    /// primary reports; it cannot add the right to become primary to a member that does not already have it here,
    /// because it could name itself.
    pub fn endorse_as(&mut self, source: &str, members: &[MemberRights]) {
        let may = |name: &str| self.listed_rights(name).is_some_and(|rights| rights.has(Right::Candidate));
        let limited = |member: &MemberRights| match may(source) || may(&member.name) {
            true => member.clone(),
            false => MemberRights {
                name: member.name.clone(),
                rights: member.rights.clone().without(Right::Candidate),
            },
        };
        let limited: Vec<MemberRights> = members.iter().map(limited).collect();
        self.endorse(&limited);
    }

    /// The instance that renews the certificate of this one.
    pub fn issuer(&self) -> Option<&IssuerAt> {
        self.issuer.as_ref()
    }

    /// Sets the instance that renews the certificate of this one from now on.
    pub fn set_issuer(&mut self, issuer: IssuerAt) {
        self.issuer = Some(issuer);
    }

    /// Removes all rights of a host, whatever others report about it, and its tokens. Returns false if there is nothing
    /// to remove, and no report about the host that could change.
    ///
    /// The host stays on the list without rights. A host that is on no list has the rights of a destination if it is
    /// one, and the next source's report about it would apply again.
    pub fn remove(&mut self, name: &str) -> bool {
        let tokens = self.tokens.len();
        self.tokens.retain(|_, token| token.name != name);
        let had = match self.joined.get(name) {
            Some(joined) => joined.rights != Rights::default(),
            None => self.endorsed.contains_key(name),
        };
        let had = had || self.tokens.len() < tokens;
        if had {
            self.allow(name, Rights::default());
        }
        had
    }

    /// Rights of `name` from the local list, or else as endorsed by the primary; `None` if there is no entry.
    pub fn listed_rights(&self, name: &str) -> Option<&Rights> {
        self.joined.get(name).map(|joined| &joined.rights).or_else(|| self.endorsed.get(name))
    }

    /// Rights of `name` here, where `destinations` are configured.
    pub fn rights(&self, name: &str, destinations: &[String]) -> Rights {
        let as_destination = || {
            let configured = destinations.iter().any(|destination| destination == name);
            // Configuring a destination does not grant it the right to take over: a restriction may merely not have
            // arrived here yet.
            if configured { Rights::never_primary() } else { Rights::default() }
        };
        self.listed_rights(name).cloned().unwrap_or_else(as_destination)
    }

    pub fn is_listed(&self, name: &str, destinations: &[String]) -> bool {
        self.rights(name, destinations) != Rights::default()
    }

    /// The members that an instance called `own`, with these destinations, endorses, including itself; if it
    /// `forwards`, also those that its source endorses.
    pub fn endorsed_for(&self, own: &str, destinations: &[String], forwards: bool) -> Vec<MemberRights> {
        let names: BTreeSet<&String> = destinations
            .iter()
            .chain(self.joined.keys())
            .chain(self.endorsed.keys().filter(|_| forwards))
            .filter(|name| *name != own)
            .collect();
        let of = |name: &String| self.rights(name, destinations);
        // An instance without an entry about itself was made by `init` or by an unrestricted token.
        let own_rights = self.listed_rights(own).cloned().unwrap_or_else(Rights::all);
        let mut all: Vec<MemberRights> =
            names.into_iter().map(|name| MemberRights { name: name.clone(), rights: of(name) }).collect();
        all.push(MemberRights { name: own.to_owned(), rights: own_rights });
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Known members that may become primary.
    pub fn candidates(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.joined.keys().chain(self.endorsed.keys()).collect();
        let may =
            |name: &&String| self.listed_rights(name).is_some_and(|rights| rights.has(Right::Candidate));
        names.into_iter().filter(may).cloned().collect()
    }

    /// All members on the list and destinations, with their rights.
    pub fn listed(&self, destinations: &[String]) -> Vec<MemberRights> {
        let names: BTreeSet<&String> =
            self.joined.keys().chain(self.endorsed.keys()).chain(destinations).collect();
        let member =
            |name: &String| MemberRights { name: name.clone(), rights: self.rights(name, destinations) };
        names.into_iter().map(member).collect()
    }
}

/// Names of the members from which redo is taken; earlier releases know no other rights.
pub fn names_of(members: &[MemberRights]) -> Vec<String> {
    let sends = members.iter().filter(|member| member.rights.has(Right::Send));
    sends.map(|member| member.name.clone()).collect()
}

/// Returns the members that a source reports: `members`, or for an earlier release `names` and the source itself.
pub fn as_reported(members: &[MemberRights], names: &[String], source: &str) -> Vec<MemberRights> {
    if !members.is_empty() {
        return members.to_vec();
    }
    let names: BTreeSet<&str> = names.iter().map(String::as_str).chain([source]).collect();
    names.into_iter().map(|name| MemberRights { name: name.into(), rights: Rights::all() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    fn issued(members: &mut Members, name: &str, rights: Rights) -> String {
        hex(&members.issue([1; 32], name, rights, NOW, HOUR).unwrap().number)
    }

    fn may(members: &Members, name: &str, right: Right) -> bool {
        members.rights(name, &[]).has(right)
    }

    fn all(names: &[&str]) -> Vec<MemberRights> {
        names.iter().map(|name| MemberRights { name: (*name).into(), rights: Rights::all() }).collect()
    }

    fn names(members: &[MemberRights]) -> Vec<&str> {
        members.iter().map(|member| member.name.as_str()).collect()
    }

    #[test]
    fn token_is_valid_once_for_its_name_until_it_expires() {
        let mut members = Members::default();
        let number = issued(&mut members, "oslo", Rights::all());
        assert_eq!(members.redeem(NOW, "00", "oslo", |_| true), Err(BadToken::Unknown));
        assert_eq!(members.redeem(NOW, &number, "paris", |_| true), Err(BadToken::Name));
        assert_eq!(members.redeem(NOW, &number, "oslo", |_| false), Err(BadToken::Proof));
        assert_eq!(members.redeem(NOW + HOUR, &number, "oslo", |_| true), Err(BadToken::Expired));
        assert!(!members.is_listed("oslo", &[]));
        assert_eq!(members.redeem(NOW + HOUR - 1, &number, "oslo", |_| true), Ok(()));
        assert_eq!(members.redeem(NOW, &number, "oslo", |_| true), Err(BadToken::Unknown), "used");
        assert_eq!(members.rights("oslo", &[]), Rights::all());
    }

    #[test]
    fn host_keeps_its_token_rights_as_a_destination() {
        let mut members = Members::default();
        for (name, rights) in [("reports", Rights::never_primary()), ("near", Rights::far_sync())] {
            let number = issued(&mut members, name, rights.clone());
            members.redeem(NOW, &number, name, |_| true).unwrap();
            assert_eq!(members.rights(name, &[name.to_owned()]), rights);
            assert!(!may(&members, name, Right::Candidate));
        }
        let destinations = ["oslo".to_owned(), "reports".to_owned()];
        let reported = members.endorsed_for("paris", &destinations, false);
        assert_eq!(names(&reported), ["near", "oslo", "paris", "reports"]);
        assert_eq!(reported[3].rights, Rights::never_primary(), "it is reported to the others");
        assert_eq!(names_of(&reported), ["near", "paris"]);
    }

    #[test]
    fn destination_not_on_the_allow_list_may_not_become_primary() {
        let destinations = ["oslo".to_owned()];
        let mut members = Members::default();
        assert_eq!(members.rights("oslo", &destinations), Rights::never_primary());
        let reported = members.endorsed_for("paris", &destinations, false);
        assert_eq!(
            (names(&reported), &reported[0].rights),
            (vec!["oslo", "paris"], &Rights::never_primary())
        );
        members.allow("oslo", Rights::all());
        assert_eq!(members.rights("oslo", &destinations), Rights::all());
    }

    #[test]
    fn removing_a_member_never_raises_its_rights() {
        let destinations = ["reports".to_owned()];
        for rights in [Rights::never_primary(), Rights::far_sync(), Rights::status_only(), Rights::all()] {
            let (mut here, mut stated) = (Members::default(), Members::default());
            here.allow("reports", rights.clone());
            stated.endorse(&here.endorsed_for("south", &destinations, false));
            assert!(here.remove("reports") && stated.remove("reports"));
            for members in [&here, &stated] {
                assert_eq!(members.rights("reports", &destinations), Rights::default());
                assert!(!members.is_listed("reports", &destinations));
            }
            // The next source's report does not restore its rights, and the instances that receive the list grant it
            // none.
            stated.endorse(&all(&["south", "reports"]));
            assert_eq!(stated.rights("reports", &destinations), Rights::default());
            let mut third = Members::default();
            third.endorse(&here.endorsed_for("south", &[], false));
            assert_eq!(third.rights("reports", &destinations), Rights::default());
            assert!(third.remove("reports") && !third.remove("reports"), "it may be reported here, too");
        }
    }

    #[test]
    fn redeemed_token_lists_a_removed_member_again() {
        let mut members = Members::default();
        members.allow("oslo", Rights::all());
        members.remove("oslo");
        let number = issued(&mut members, "oslo", Rights::never_primary());
        assert_eq!(members.rights("oslo", &[]), Rights::default(), "not before it is used");
        members.redeem(NOW, &number, "oslo", |_| true).unwrap();
        assert_eq!(members.rights("oslo", &[]), Rights::never_primary());
    }

    #[test]
    fn member_restriction_survives_a_failover() {
        let mut south = Members::default();
        south.allow("reports", Rights::never_primary());
        let mut north = Members::default();
        north.endorse(&south.endorsed_for("south", &["north".into()], false));
        // As primary it ships to the same host.
        let destinations = ["reports".to_owned()];
        assert!(!north.rights("reports", &destinations).has(Right::Candidate));
        let reported = north.endorsed_for("north", &destinations, false);
        assert_eq!(reported[1].rights, Rights::never_primary());
    }

    #[test]
    fn far_sync_cannot_endorse_a_promotion_candidate() {
        let mut members = Members::default();
        let near = MemberRights { name: "near".into(), rights: Rights::far_sync() };
        members.endorse(&[all(&["south", "north"]), vec![near]].concat());
        members.endorse_as("near", &all(&["near", "evil", "north"]));
        assert!(may(&members, "north", Right::Candidate), "as it is known already");
        assert!(!may(&members, "near", Right::Candidate) && !may(&members, "evil", Right::Candidate));
        members.endorse_as("north", &all(&["north", "oslo"]));
        assert!(may(&members, "oslo", Right::Candidate), "who may become primary is trusted");
    }

    #[test]
    fn standby_accepts_redo_after_failover_from_endorsed_members() {
        let mut members = Members::default();
        assert!(!may(&members, "paris", Right::Send), "no host is listed at first");
        members.endorse(&all(&["paris", "oslo", "bergen"]));
        assert!(["paris", "oslo", "bergen"].iter().all(|name| may(&members, name, Right::Send)));
        assert_eq!(names(&members.endorsed_for("lyon", &[], false)), ["lyon"]);
        let forwarded = members.endorsed_for("lyon", &[], true);
        assert_eq!(names(&forwarded), ["bergen", "lyon", "oslo", "paris"], "it forwards");
        members.endorse(&all(&["oslo", "bergen"]));
        assert!(
            !may(&members, "paris", Right::Send),
            "a member that the new primary does not endorse is out"
        );
    }

    #[test]
    fn removed_host_loses_all_its_rights() {
        let mut members = Members::default();
        let number = issued(&mut members, "oslo", Rights::all());
        members.redeem(NOW, &number, "oslo", |_| true).unwrap();
        let second = issued(&mut members, "oslo", Rights::all());
        members.endorse(&all(&["oslo", "paris"]));
        assert!(members.remove("oslo") && !members.remove("oslo"));
        assert!(!members.is_listed("oslo", &[]));
        assert_eq!(members.redeem(NOW, &second, "oslo", |_| true), Err(BadToken::Unknown));
        assert_eq!(members.rights("oslo", &["oslo".into()]), Rights::default(), "also as a destination");
    }

    #[test]
    fn stored_token_data_cannot_produce_a_proof() {
        let mut members = Members::default();
        let token = members.issue([1; 32], "oslo", Rights::all(), NOW, HOUR).unwrap();
        let secret = &token.reveal()[token.reveal().len() - 48..];
        let kept = serde_json::to_string(&members).unwrap();
        assert!(!kept.contains(secret) && !format!("{members:?}").contains(&token.key().unwrap().to_hex()));
        let read: Members = serde_json::from_str(&kept).unwrap();
        assert_eq!(read, members);
        // A stolen file contains only what verifies proofs.
        let stolen = TokenKey::from_hex(&read.tokens.values().next().unwrap().verifier).unwrap();
        assert!(stolen == token.key().unwrap() && TokenKey::from_old_hex(&stolen.to_hex()) != Some(stolen));
    }

    #[test]
    fn older_member_list_is_read_without_keeping_its_keys() {
        let key = "01".repeat(32);
        let old = format!(
            r#"{{"tokens": {{"00ff": {{"key": "{key}", "name": "lyon", "never_primary": true, "expires": 1800000001}}}},
                "joined": {{"oslo": {{"never_primary": false}}, "reports": {{"never_primary": true}}}},
                "vouched": ["bergen", "paris"]}}"#
        );
        let mut members: Members = serde_json::from_str(&old).unwrap();
        assert_eq!(members.rights("oslo", &[]), Rights::all());
        assert_eq!(members.rights("reports", &[]), Rights::never_primary());
        assert_eq!(members.rights("bergen", &[]), Rights::all());
        assert!(!serde_json::to_string(&members).unwrap().contains(&key));
        let expected = TokenKey::from_old_hex(&key).unwrap();
        assert_eq!(members.redeem(NOW, "00ff", "lyon", |key| *key == expected), Ok(()), "it stays good");
        assert_eq!(members.rights("lyon", &[]), Rights::never_primary());
    }

    #[test]
    fn endorsements_of_an_older_release_are_names_only() {
        let reported = as_reported(&[], &["oslo".into()], "paris");
        assert_eq!((names(&reported), &reported[0].rights), (vec!["oslo", "paris"], &Rights::all()));
        let newer = [MemberRights { name: "near".into(), rights: Rights::far_sync() }];
        assert_eq!(as_reported(&newer, &["oslo".into()], "paris"), newer);
    }

    #[test]
    fn unused_tokens_are_forgotten_once_they_expire() {
        let mut members = Members::default();
        for _ in 0..TOKENS_MAX {
            issued(&mut members, "oslo", Rights::all());
        }
        assert!(members.issue([1; 32], "oslo", Rights::all(), NOW, HOUR).is_err());
        assert!(members.issue([1; 32], "oslo", Rights::all(), NOW + HOUR, HOUR).is_ok());
        assert_eq!(members.tokens.len(), 1);
    }
}
