//! What peers may do at an instance: the list, and what the operator is told.

use crate::environment::Environment;
use standfast_transport::{
    CertificateGrant, CertificateRequest, CertificateRight, Refusal, RefuseCode, Wish,
};

impl Environment {
    /// Names of the configured destinations.
    pub fn destination_names(&self) -> Vec<String> {
        // What is configured while the instance runs is in the file and in force; the list here is that of the start.
        let current = crate::config::Config::load(&self.paths.directory);
        let destinations =
            current.map_or_else(|_| self.config.destinations.clone(), |config| config.destinations);
        destinations.into_iter().map(|destination| destination.name).collect()
    }

    /// Whom this instance vouches for. One that forwards redo passes on whom its source vouches for.
    pub fn vouched_for(&self, forwards: bool) -> Vec<String> {
        let own = &self.config.instance.name;
        // Without the list nobody else is vouched for; the standbys go on with this instance.
        self.keeper.members().map_or_else(
            |_| vec![own.clone()],
            |members| members.vouched_for(own, &self.destination_names(), forwards),
        )
    }

    /// Whether the peer whose certificate is for `peer` may do what it wishes.
    ///
    /// # Errors
    /// The refusal it is told.
    pub fn authorise(&self, peer: &str, wish: Wish) -> Result<(), Refusal> {
        let unreadable = |error: crate::InstanceError| Refusal::new(RefuseCode::Source, error.to_string());
        let members = self.keeper.members().map_err(unreadable)?;
        let own = &self.config.instance.name;
        let (allowed, what) = match wish {
            Wish::SendRedo => (members.may_send(peer), "send redo to"),
            Wish::Read => (members.may_read(peer, &self.destination_names()), "read from"),
        };
        if allowed {
            return Ok(());
        }
        Err(Refusal::new(
            RefuseCode::NotAllowed,
            format!(
                "`{peer}` is not listed among those that may {what} `{own}`; `standfast cert show` there lists them, and \
                 a token of the primary adds one"
            ),
        ))
    }

    /// A source that was accepted vouches for `peers`.
    pub fn note_vouched(&self, source: &str, peers: &[String]) {
        if let Err(error) = self.keeper.vouched(source, peers) {
            self.alert.say(format!("the list of peers cannot be kept: {error}"));
        }
    }

    /// Answers who asks for a certificate.
    ///
    /// # Errors
    /// The refusal it is told.
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
        self.alert.say(format!("`{}` has got a certificate {how}", wish.name));
        Ok(grant)
    }
}
