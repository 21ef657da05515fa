//! Rights of peers at an instance: checks against the allow-list, and messages to the operator.

use crate::config::address::completed;
use crate::config::error::InstanceError;
use crate::config::shared_configuration::SharedConfiguration;
use crate::context::environment::Environment;
use crate::security::clocks;
use crate::security::members::as_reported;
use crate::security::promotion::{Untrusted, Word, trusted};
use crate::state::now::now_us;
use standfast_transport::{
    CertificateGrant, CertificateRequest, CertificateRight, Incarnation, IssuerAt, MemberRights,
    PeerIdentity, Refusal, RefuseCode, Right, Rights, SenderHello, now_seconds,
};
use standfast_types::{Hint, hint};
use std::net::SocketAddr;

impl Environment {
    pub fn destination_names(&self) -> Vec<String> {
        // Destinations configured while the instance runs are in the file; the list in memory is that of the start.
        let current = crate::config::settings::Config::load(&self.paths.directory);
        let destinations =
            current.map_or_else(|_| self.config.destinations.clone(), |config| config.destinations);
        destinations.into_iter().map(|destination| destination.name).collect()
    }

    /// The members that this instance endorses, with their rights. An instance that forwards redo also forwards its
    /// source's endorsements.
    pub fn endorsed_for(&self, forwards: bool) -> Vec<MemberRights> {
        let own = &self.config.instance.name;
        // Without the list only this instance is endorsed, and its standbys continue with it.
        self.keeper.members().map_or_else(
            |_| vec![MemberRights { name: own.clone(), rights: Rights::all() }],
            |members| members.endorsed_for(own, &self.destination_names(), forwards),
        )
    }

    /// Returns the instance that renews certificates, to be reported to the destinations of this one.
    pub fn issuer(&self) -> Option<IssuerAt> {
        let port = self.config.instance.listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        self.keeper.issuer(port.filter(|port| *port != 0))
    }

    /// Checks that the peer whose certificate is for `peer` may do what it requests.
    ///
    /// # Errors
    /// The refusal sent to the peer.
    pub fn authorise(&self, peer: &str, wish: Right) -> Result<(), Refusal> {
        let members = self.keeper.members().map_err(unreadable)?;
        let own = &self.config.instance.name;
        let destinations = self.destination_names();
        let rights = members.rights(peer, &destinations);
        if rights.has(wish) {
            return Ok(());
        }
        let text = if members.is_listed(peer, &destinations) {
            format!(
                "`{peer}` may not {} at `{own}`, which lists it for: {rights}; `standfast cert allow` there changes that",
                wish.words()
            )
        } else {
            format!(
                "`{peer}` is not listed among those that may {} at `{own}`; `standfast cert show` there lists them, and a \
                 token of the primary adds one",
                wish.words()
            )
        };
        Err(Refusal::new(RefuseCode::NotAllowed, text))
    }

    /// Returns why the rights of a destination forbid sending to it; `None` when they allow it.
    pub fn objection(&self, destination: &str) -> Option<Refusal> {
        let rights = self.keeper.members().ok()?.listed_rights(destination)?.clone();
        let own = &self.config.instance.name;
        (!rights.has(Right::Receive)).then(|| {
            let text = format!(
                "`{destination}` may not receive redo, `{own}` lists it for: {rights}; `standfast cert allow {destination}` \
                 changes that"
            );
            Refusal::new(RefuseCode::NotAllowed, text)
        })
    }

    /// Reports at the start which destinations are on no list: a failover to one of them would be refused. Over plain
    /// TCP the list is not used.
    pub fn say_unlisted(&self) {
        let Ok(members) = self.keeper.members() else { return };
        let remote =
            self.config.destinations.iter().filter(|at| !at.is_local() && !self.config.instance.insecure);
        for name in remote.map(|at| &at.name).filter(|name| members.listed_rights(name).is_none()) {
            let what = format!(
                "destination `{name}` is on no list here: it receives redo, and may not become primary"
            );
            let remedy = format!(
                "`standfast cert allow {name}` if it may, `standfast cert allow {name} --never-primary` if not"
            );
            self.alert.say(hint::in_one_line(what, Some(&remedy)));
        }
    }

    /// Checks whether to trust that the incarnation `newer` has begun, as `peer` reports; `proven`: the peer has
    /// presented a certificate for its name. The refusal goes into the alert log at both ends.
    ///
    /// # Errors
    /// The refusal sent to the peer.
    pub fn may_claim(&self, peer: &PeerIdentity, newer: &Incarnation, proven: bool) -> Result<(), Refusal> {
        let own = &self.config.instance.name;
        let not_allowed = |text: String| Err(Refusal::new(RefuseCode::NotAllowed, text));
        if self.of_control(|control| control.trust.disowns(&peer.incarnations)) {
            return not_allowed(format!(
                "incarnation {}, which `{}` follows, was disowned at `{own}` when its fence was lifted; make `{}` again with \
                 `standfast standby create`",
                newer.number, peer.name, peer.name
            ));
        }
        let members = self.keeper.members().map_err(unreadable)?;
        let word = Word::of(peer, self.keeper.record_of(peer, newer), proven);
        let Err(untrusted) = trusted(word, own, &members, &self.destination_names()) else { return Ok(()) };
        let why = match untrusted {
            Untrusted::MayNot(name, rights) => format!(
                "`{name}` may not become primary, `{own}` lists it for: {rights}. Nothing has changed at `{own}`; make `{name}` \
                 again with `standfast standby create`"
            ),
            Untrusted::NoRecord(name) => format!(
                "`{name}` has not begun it, and shows no signed record of who has. Nothing has changed at `{own}`; if another \
                 instance is the new primary, configure `{own}` as a destination there: it is trusted itself"
            ),
        };
        not_allowed(format!(
            "`{}` says that incarnation {} has begun, which is not accepted: {why}",
            peer.name, newer.number
        ))
    }

    /// On a primary that began its incarnation without a record (an earlier release, or no certificate): makes the
    /// record now, so that others can pass it on.
    pub fn sign_missing_promotion(&self) {
        let control = self.control();
        let (Some(first), Some(newest)) = (control.incarnations.first(), control.incarnations.last()) else {
            return;
        };
        let is_there =
            control.trust.promotion.as_ref().is_some_and(|record| record.incarnation.id == newest.id);
        if is_there || control.incarnations.len() < 2 {
            return;
        }
        let began = Incarnation { number: newest.number, id: newest.id, branch: newest.branch };
        // The present time: the certificate that signs may not have been valid when the incarnation began.
        let signed = self.keeper.sign_promotion(first.id, began, now_us());
        let stored = signed.and_then(|record| match record {
            Some(record) => self.update_control(|control| control.trust.promotion = Some(record)).map(drop),
            None => Ok(()),
        });
        if let Err(error) = stored {
            self.alert.say(format!(
                "the record of the promotion of this instance cannot be made: {}",
                error.in_one_line()
            ));
        }
    }

    /// Stores the record of `newer` that `peer` presents, if it is valid, to present it to others.
    pub fn note_promotion(&self, peer: &PeerIdentity, newer: &Incarnation) {
        let Some(record) = self.keeper.record_of(peer, newer).cloned() else { return };
        let stored = self.update_control(|control| control.trust.promotion = Some(record));
        if let Err(error) = stored {
            self.alert.say(format!("the record of a promotion cannot be kept: {}", error.in_one_line()));
        }
    }

    /// Stores the rights of members as reported by the source of a stream.
    pub fn note_members(&self, source: &str, reported: &[MemberRights]) {
        if let Err(error) = self.keeper.endorsed(source, reported) {
            self.alert.say(format!("the list of peers cannot be kept: {}", error.in_one_line()));
        }
    }

    /// Keeps the shared configuration that the source of a stream has sent, unless it is older than the one here.
    pub fn keep_configuration(
        &self,
        source: &PeerIdentity,
        configuration: serde_json::Value,
        from: Option<SocketAddr>,
    ) {
        let name = &source.name;
        let sent = match SharedConfiguration::received(configuration, source, from) {
            Ok(sent) => sent,
            Err(why) => {
                let what = format!("the shared configuration of `{name}` does not count here: {why}");
                let remedy = "install the same release; until then a failover to this instance continues with what it has";
                self.alert.say(hint::in_one_line(what, Some(remedy)));
                return;
            }
        };
        let stored = self.shared_configuration.change(|kept| sent.replaces(kept, name).then(|| sent.clone()));
        if let Err(error) = stored {
            self.alert.say(format!("the shared configuration cannot be kept: {}", error.in_one_line()));
        }
    }

    /// Whether an instance of this name is known to the family. Plain TCP proves no name, and lists none.
    pub fn is_member(&self, name: &str) -> bool {
        let listed = self.keeper.members().map(|members| members.listed_rights(name).is_some());
        self.config.instance.insecure || listed.unwrap_or(false)
    }

    /// Stores what an accepted source reports: rights of members, the issuer of certificates, and which instance became
    /// primary.
    pub fn note_endorsed(&self, hello: &SenderHello, from: Option<SocketAddr>) {
        let reported = as_reported(&hello.members, &hello.peers, &hello.source.name);
        self.note_members(&hello.source.name, &reported);
        let issuer = hello.issuer.clone().and_then(|issuer| {
            let address = completed(&issuer.address, from)?;
            Some(IssuerAt { address, ..issuer })
        });
        if let Some(Err(error)) = issuer.map(|issuer| self.keeper.note_issuer(issuer)) {
            self.alert.say(format!("who renews certificates cannot be kept: {}", error.in_one_line()));
        }
        if let Some(newest) = hello.source.current() {
            self.note_promotion(&hello.source, newest);
        }
    }

    /// Answers a request for a certificate.
    ///
    /// # Errors
    /// The refusal sent to the peer.
    pub fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        let grant = self.keeper.certify(wish, right, &self.destination_names())?;
        let how = match right {
            CertificateRight::Token { .. } => "with its token",
            CertificateRight::Certificate => "in the place of the one it has",
        };
        let clock =
            wish.time.and_then(|theirs| differs(&wish.name, theirs, now_seconds())).unwrap_or_default();
        self.alert.say(format!("`{}` has got a certificate {how}{clock}", wish.name));
        Ok(grant)
    }
}

/// Remark on a host whose clock shows `theirs` while this one shows `ours`.
fn differs(name: &str, theirs: u64, ours: u64) -> Option<String> {
    let ahead = i64::try_from(ours).ok()?.checked_sub(i64::try_from(theirs).ok()?)?;
    clocks::difference(ahead, name).map(|text| format!("; {text}: set the one that is wrong"))
}

fn unreadable(error: InstanceError) -> Refusal {
    Refusal::new(RefuseCode::Source, error.in_one_line())
}
