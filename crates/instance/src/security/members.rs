//! Which hosts may do what: tokens that are out, and names that are listed. No clock and no files.
//!
//! ```text
//!  token issued for a name ── redeemed ──> joined: may read here, and is vouched for
//!  destination configured ───────────────> may read here, and is vouched for
//!  stream of a listed source ── vouched ─> the names that it says, in the place of those it said before
//! ```
//!
//! Who may *read* may copy databases and fetch redo and the state. Who may *send* may bring redo here. A standby lists
//! as senders what its primary vouches for, so that after a failover it takes redo from the new primary.

use serde::{Deserialize, Serialize};
use standfast_tls::{TlsError, Token, TokenKey, hex};
use std::collections::{BTreeMap, BTreeSet};

/// Tokens that are out at a time.
const TOKENS_MAX: usize = 1000;

/// See the module. The content of `members.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Members {
    /// By number, in hexadecimal.
    tokens: BTreeMap<String, IssuedToken>,
    /// Who has joined with a token of this instance.
    joined: BTreeMap<String, Joined>,
    /// Whom the last primary vouched for, itself among them.
    vouched: BTreeSet<String>,
}

/// What is kept of a token: a hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct IssuedToken {
    key: String,
    name: String,
    never_primary: bool,
    /// Second from which on it is worth nothing.
    expires: u64,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedToken({}, key withheld)", self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Joined {
    /// It only ever receives: others need not take redo from it.
    never_primary: bool,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// No such number: never issued, used, or forgotten after its time.
    Unknown,
    /// Its time is over.
    Expired,
    /// It is for another name.
    Name,
    /// The proof does not hold.
    Proof,
}

impl Members {
    /// A new token with which a host may join as `name`.
    ///
    /// # Errors
    /// `Random`; `Request` when too many are out.
    pub fn issue(
        &mut self,
        authority: [u8; 32],
        name: &str,
        never_primary: bool,
        now: u64,
        ttl_seconds: u64,
    ) -> Result<Token, TlsError> {
        self.tokens.retain(|_, token| token.expires > now);
        if self.tokens.len() >= TOKENS_MAX {
            return Err(TlsError::Request(format!("{TOKENS_MAX} tokens are out; wait until some expire")));
        }
        let token = Token::generate(authority)?;
        let expires = now.saturating_add(ttl_seconds);
        let issued = IssuedToken { key: token.key().to_hex(), name: name.into(), never_primary, expires };
        self.tokens.insert(hex(&token.number), issued);
        Ok(token)
    }

    /// Takes a token in: it is worth nothing from now on, and its bearer is listed.
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
        if !TokenKey::from_hex(&token.key).is_some_and(|key| proves(&key)) {
            return Err(BadToken::Proof);
        }
        let never_primary = token.never_primary;
        self.tokens.remove(number);
        self.allow(name, never_primary);
        Ok(())
    }

    /// Lists a host.
    pub fn allow(&mut self, name: &str, never_primary: bool) {
        self.joined.insert(name.into(), Joined { never_primary });
    }

    /// A listed source says whom it vouches for. Whom the one before vouched for is not listed any more.
    pub fn vouch(&mut self, source: &str, names: &[String]) {
        self.vouched = names.iter().cloned().chain([source.to_owned()]).collect();
    }

    /// Takes a host from the list.
    pub fn remove(&mut self, name: &str) -> bool {
        self.tokens.retain(|_, token| token.name != name);
        let joined = self.joined.remove(name).is_some();
        self.vouched.remove(name) || joined
    }

    /// Whether `name` may read here, where `destinations` are configured.
    pub fn may_read(&self, name: &str, destinations: &[String]) -> bool {
        self.joined.contains_key(name)
            || self.vouched.contains(name)
            || destinations.iter().any(|destination| destination == name)
    }

    /// Whether `name` may send redo here.
    pub fn may_send(&self, name: &str) -> bool {
        match self.joined.get(name) {
            Some(joined) => !joined.never_primary,
            None => self.vouched.contains(name),
        }
    }

    /// Whom an instance called `own`, with these destinations, vouches for; if it `forwards`, also for whom its source
    /// vouches for.
    pub fn vouched_for(&self, own: &str, destinations: &[String], forwards: bool) -> Vec<String> {
        let never = |name: &String| self.joined.get(name).is_some_and(|joined| joined.never_primary);
        let names: BTreeSet<String> = destinations
            .iter()
            .chain(self.joined.keys())
            .chain(self.vouched.iter().filter(|_| forwards))
            .filter(|name| !never(name))
            .cloned()
            .chain([own.to_owned()])
            .collect();
        names.into_iter().collect()
    }

    /// Names that are listed, with what they may do.
    pub fn listed(&self, destinations: &[String]) -> Vec<(String, bool)> {
        let names: BTreeSet<&String> = self.joined.keys().chain(&self.vouched).chain(destinations).collect();
        names.into_iter().map(|name| (name.clone(), self.may_send(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    fn issued(members: &mut Members, name: &str, never_primary: bool) -> String {
        hex(&members.issue([1; 32], name, never_primary, NOW, HOUR).unwrap().number)
    }

    #[test]
    fn a_token_is_good_once_for_its_name_until_it_expires() {
        let mut members = Members::default();
        let number = issued(&mut members, "oslo", false);
        assert_eq!(members.redeem(NOW, "00", "oslo", |_| true), Err(BadToken::Unknown));
        assert_eq!(members.redeem(NOW, &number, "paris", |_| true), Err(BadToken::Name));
        assert_eq!(members.redeem(NOW, &number, "oslo", |_| false), Err(BadToken::Proof));
        assert_eq!(members.redeem(NOW + HOUR, &number, "oslo", |_| true), Err(BadToken::Expired));
        assert!(!members.may_read("oslo", &[]));
        assert_eq!(members.redeem(NOW + HOUR - 1, &number, "oslo", |_| true), Ok(()));
        assert_eq!(members.redeem(NOW, &number, "oslo", |_| true), Err(BadToken::Unknown), "used");
        assert!(members.may_read("oslo", &[]) && members.may_send("oslo"));
    }

    #[test]
    fn a_host_that_is_never_primary_reads_and_does_not_send() {
        let mut members = Members::default();
        let number = issued(&mut members, "reports", true);
        members.redeem(NOW, &number, "reports", |_| true).unwrap();
        assert!(members.may_read("reports", &[]) && !members.may_send("reports"));
        let destinations = ["oslo".to_owned(), "reports".to_owned()];
        assert_eq!(members.vouched_for("paris", &destinations, false), ["oslo", "paris"]);
    }

    #[test]
    fn after_a_failover_a_standby_takes_redo_from_whom_its_primary_vouched_for() {
        let mut members = Members::default();
        assert!(!members.may_send("paris"), "nobody is listed at first");
        members.vouch("paris", &["oslo".into(), "bergen".into()]);
        assert!(["paris", "oslo", "bergen"].iter().all(|name| members.may_send(name)));
        assert_eq!(members.vouched_for("lyon", &[], false), ["lyon"]);
        assert_eq!(
            members.vouched_for("lyon", &[], true),
            ["bergen", "lyon", "oslo", "paris"],
            "it forwards"
        );
        members.vouch("oslo", &["bergen".into()]);
        assert!(!members.may_send("paris"), "whom the new primary does not vouch for is out");
    }

    #[test]
    fn a_host_that_is_removed_may_do_nothing() {
        let mut members = Members::default();
        let number = issued(&mut members, "oslo", false);
        members.redeem(NOW, &number, "oslo", |_| true).unwrap();
        let second = issued(&mut members, "oslo", false);
        members.vouch("paris", &["oslo".into()]);
        assert!(members.remove("oslo") && !members.remove("oslo"));
        assert!(!members.may_read("oslo", &[]) && !members.may_send("oslo"));
        assert_eq!(members.redeem(NOW, &second, "oslo", |_| true), Err(BadToken::Unknown));
        assert!(members.may_read("oslo", &["oslo".into()]), "a destination is one still");
    }

    #[test]
    fn what_is_kept_of_a_token_is_no_token() {
        let mut members = Members::default();
        let token = members.issue([1; 32], "oslo", false, NOW, HOUR).unwrap();
        let secret = &token.reveal()[token.reveal().len() - 48..];
        let kept = serde_json::to_string(&members).unwrap();
        assert!(!kept.contains(secret) && !format!("{members:?}").contains(&token.key().to_hex()));
        assert_eq!(serde_json::from_str::<Members>(&kept).unwrap(), members);
    }

    #[test]
    fn tokens_that_nobody_used_are_forgotten() {
        let mut members = Members::default();
        for _ in 0..TOKENS_MAX {
            issued(&mut members, "oslo", false);
        }
        assert!(members.issue([1; 32], "oslo", false, NOW, HOUR).is_err());
        assert!(members.issue([1; 32], "oslo", false, NOW + HOUR, HOUR).is_ok());
        assert_eq!(members.tokens.len(), 1);
    }
}
