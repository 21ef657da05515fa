//! Requests over HTTP, to one of several servers of an engine.

use crate::StoreError;
use rustls::crypto::ring;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// An answer has one record, and each candidate's name in it.
const ANSWER_MAX: u64 = 1 << 20;
const ENCRYPTED: &str = "https://";
/// How much of a server's error is shown.
const ERROR_MAX: usize = 200;
/// Where Debian and Red Hat keep the authorities that the system trusts.
const SYSTEM_AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Where an engine is, and how a member proves who it is.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// URLs of servers: `http://` or `https://`, host and port.
    pub endpoints: Vec<String>,
    /// Whether plain HTTP may be used.
    pub is_insecure: bool,
    /// Certificates of the authorities that are trusted, PEM; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// Certificate and key of this member, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// User, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// How long a request may take, with all its attempts.
    pub limit: Duration,
}

/// Asks the servers in turn, beginning with the one that answered last.
pub struct Client {
    access: Access,
    /// The server that is asked first.
    first: usize,
    /// Made again after an error: certificates are renewed.
    agent: Option<Agent>,
}

impl Client {
    pub fn new(access: Access) -> Client {
        Client { access, first: 0, agent: None }
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Sends `body` and returns the answer. Another server is asked only if the request has not been sent.
    ///
    /// # Errors
    /// When no server answers in time, or one refuses.
    pub fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &impl Serialize,
        what: &'static str,
    ) -> Result<T, StoreError> {
        let until = Instant::now() + self.access.limit;
        let servers = self.access.endpoints.len().max(1);
        let mut error = None;
        for _ in 0..servers {
            let endpoint = self.access.endpoints.get(self.first).cloned().unwrap_or_default();
            match self.post_to(&endpoint, path, token, body, until, what) {
                Ok(answer) => return Ok(answer),
                Err(failed @ StoreError::Status { status, .. }) => {
                    // It cannot serve now: it is a learner, has no quorum, is full, or is a proxy without a server.
                    if status >= 500 || status == 429 || status == 404 {
                        self.agent = None;
                        self.first = (self.first + 1) % servers;
                    }
                    return Err(failed);
                }
                Err(failed) => {
                    self.agent = None;
                    self.first = (self.first + 1) % servers;
                    if may_have_arrived(&failed) {
                        return Err(failed);
                    }
                    error = Some(failed);
                }
            }
        }
        Err(error.unwrap_or(StoreError::Answer { endpoint: String::new(), what }))
    }

    fn post_to<T: DeserializeOwned>(
        &mut self,
        endpoint: &str,
        path: &str,
        token: Option<&str>,
        body: &impl Serialize,
        until: Instant,
        what: &'static str,
    ) -> Result<T, StoreError> {
        let failed = |source| StoreError::Request { endpoint: endpoint.to_owned(), source };
        if !self.access.is_insecure && !endpoint.starts_with(ENCRYPTED) {
            return Err(StoreError::Plain { endpoint: endpoint.to_owned() });
        }
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.agent.insert(agent(&self.access)?).clone(),
        };
        // Not zero, which is no limit.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let body = serde_json::to_vec(body)
            .map_err(|_| StoreError::Answer { endpoint: endpoint.to_owned(), what })?;
        let mut request = agent
            .post(format!("{endpoint}{path}"))
            .config()
            .timeout_global(Some(left))
            .build()
            .header("Content-Type", "application/json");
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let mut answer = request.send(&body[..]).map_err(failed)?;
        let status = answer.status().as_u16();
        let text = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_MAX)
            .lossy_utf8(true)
            .read_to_string()
            .map_err(failed)?;
        if status != 200 {
            let text = text.trim().chars().take(ERROR_MAX).collect();
            return Err(StoreError::Status { endpoint: endpoint.to_owned(), status, text });
        }
        serde_json::from_str(&text).map_err(|_| StoreError::Answer { endpoint: endpoint.to_owned(), what })
    }
}

/// Whether the server may have received the request; the others are not asked then.
fn may_have_arrived(error: &StoreError) -> bool {
    use std::io::ErrorKind;
    let StoreError::Request { source, .. } = error else { return false };
    match source {
        ureq::Error::Timeout(at) => !matches!(at, ureq::Timeout::Resolve | ureq::Timeout::Connect),
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
        ),
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Rustls(_) => false,
        _ => true,
    }
}

fn agent(access: &Access) -> Result<Agent, StoreError> {
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
    if access.endpoints.iter().any(|endpoint| endpoint.starts_with(ENCRYPTED)) {
        let of_the_system = || SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
        let authorities = access.authorities.as_deref().or_else(of_the_system);
        let roots = authorities.map_or(Ok(Vec::new()), certificates)?;
        let identity = match &access.identity {
            None => None,
            Some((certificate, key)) => {
                let secret = PrivateKey::from_pem(&contents(key)?)
                    .map_err(|_| content(key, "there is no private key in it"))?;
                Some(ClientCert::new_with_certs(&certificates(certificate)?, secret))
            }
        };
        tls = tls.root_certs(RootCerts::new_with_certs(&roots)).client_cert(identity);
    }
    let servers = access.endpoints.len().max(1) as u32;
    let config = Agent::config_builder()
        // The environment of a daemon names no proxy for its arbiter.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        // A host that is gone leaves time for the others.
        .timeout_connect(Some(access.limit / servers))
        .tls_config(tls.build())
        .build();
    Ok(Agent::new_with_config(config))
}

/// Reads the certificates in a file.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, StoreError> {
    let text = contents(path)?;
    let found = parse_pem(&text).flatten().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(content(path, "there is no certificate in it"));
    }
    Ok(found)
}

pub(crate) fn contents(path: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(path).map_err(|source| StoreError::File { path: path.display().to_string(), source })
}

fn content(path: &Path, what: &'static str) -> StoreError {
    StoreError::Content { path: path.display().to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_used_only_where_it_is_allowed() {
        for endpoint in ["http://127.0.0.1:2379", "127.0.0.1:2379", ""] {
            let access = Access { endpoints: vec![endpoint.into()], ..Access::default() };
            let refused = Client::new(access).post::<u8>("/", None, &(), "answer").unwrap_err();
            assert!(matches!(refused, StoreError::Plain { .. }), "{refused}");
        }
    }
}
