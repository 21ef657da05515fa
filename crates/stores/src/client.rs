//! Requests over HTTP, to one of several servers of an engine.

use crate::StoreError;
use rustls::crypto::ring;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use standfast_io::resolve;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::Authority;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// An answer has one record, and each candidate's name in it.
const ANSWER_MAX: u64 = 1 << 20;
const ADDRESSES_MAX: usize = 16;
/// A connection over a long link, with TLS, takes this long.
const SHARE_MIN: Duration = Duration::from_millis(300);
const ENCRYPTED: &str = "https://";
/// How much of a server's error is shown.
const ERROR_MAX: usize = 200;
/// Where Debian and Red Hat keep the authorities that the system trusts.
const SYSTEM_AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Reads a file that only its owner may read; the text says why that failed.
pub type ReadSecret = fn(&Path) -> Result<String, String>;

/// Where an engine is, and how a member proves who it is.
#[derive(Clone, Debug)]
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
    pub read_secret: ReadSecret,
    /// How long a request may take, with all its attempts.
    pub limit: Duration,
}

impl Access {
    pub(crate) fn secret(&self, path: &Path) -> Result<String, StoreError> {
        (self.read_secret)(path).map_err(StoreError::Secret)
    }
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

    /// Sends `body` and returns the answer. A server that fails is not asked alone: the next one is asked the same, although
    /// the first may have carried it out. So a request must have its effect only once.
    ///
    /// # Errors
    /// When no server answers until `until`, or one refuses.
    pub fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &impl Serialize,
        what: &'static str,
        until: Instant,
    ) -> Result<T, StoreError> {
        let servers = self.access.endpoints.len();
        let mut failed = None;
        for asked in 0..servers {
            let at = (self.first + asked) % servers;
            let left = until.saturating_duration_since(Instant::now());
            let share = (left / (servers - asked) as u32).max(SHARE_MIN.min(left));
            match self.post_to(at, path, token, body, what, share) {
                Ok(answer) => {
                    self.first = at;
                    return Ok(answer);
                }
                Err(error) if error.is_the_same_everywhere() => return Err(error),
                Err(error) => {
                    self.agent = None;
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or(StoreError::Answer { endpoint: String::new(), what }))
    }

    fn post_to<T: DeserializeOwned>(
        &mut self,
        at: usize,
        path: &str,
        token: Option<&str>,
        body: &impl Serialize,
        what: &'static str,
        limit: Duration,
    ) -> Result<T, StoreError> {
        let endpoint = self.access.endpoints[at].clone();
        let failed = |source| match source {
            ureq::Error::Timeout(_) => StoreError::Silent { endpoint: endpoint.clone() },
            source => StoreError::Request { endpoint: endpoint.clone(), source },
        };
        if !self.access.is_insecure && !endpoint.starts_with(ENCRYPTED) {
            return Err(StoreError::Plain { endpoint });
        }
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.agent.insert(agent(&self.access)?).clone(),
        };
        let body =
            serde_json::to_vec(body).map_err(|_| StoreError::Answer { endpoint: endpoint.clone(), what })?;
        let mut request = agent
            .post(format!("{endpoint}{path}"))
            .config()
            // Not zero, which is no limit.
            .timeout_global(Some(limit.max(Duration::from_millis(1))))
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
            return Err(StoreError::Status { endpoint, status, text });
        }
        // Only an object: serde would take an array for the fields in their order.
        let answer = serde_json::from_str::<Value>(&text).ok().filter(Value::is_object);
        let answer = answer.and_then(|answer| T::deserialize(answer).ok());
        answer.ok_or(StoreError::Answer { endpoint, what })
    }
}

/// Looks names up as the rest of the instance does: ureq's own way starts a thread for each request, and panics when that
/// cannot be started.
#[derive(Debug)]
struct Names;

impl Resolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let address = uri.authority().map(Authority::as_str).unwrap_or_default();
        let found = resolve::SYSTEM.resolve(address, *timeout.after, &|| false)?;
        let mut addresses = self.empty();
        found.into_iter().take(ADDRESSES_MAX).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
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
                let secret = PrivateKey::from_pem(access.secret(key)?.as_bytes())
                    .map_err(|_| content(key, "there is no private key in it"))?;
                Some(ClientCert::new_with_certs(&certificates(certificate)?, secret))
            }
        };
        tls = tls.root_certs(RootCerts::new_with_certs(&roots)).client_cert(identity);
    }
    let config = Agent::config_builder()
        // The environment of a daemon names no proxy for its arbiter.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .tls_config(tls.build())
        .build();
    Ok(Agent::with_parts(config, DefaultConnector::default(), Names))
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

fn contents(path: &Path) -> Result<Vec<u8>, StoreError> {
    let failed = |source| StoreError::File { path: path.display().to_string(), source };
    // A pipe would be waited for without a limit.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(content(path, "it is no regular file"));
    }
    std::fs::read(path).map_err(failed)
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
            let access = Access {
                endpoints: vec![endpoint.into()],
                is_insecure: false,
                authorities: None,
                identity: None,
                login: None,
                read_secret: |_| Ok(String::new()),
                limit: Duration::ZERO,
            };
            let refused =
                Client::new(access).post::<u8>("/", None, &(), "answer", Instant::now()).unwrap_err();
            assert!(matches!(refused, StoreError::Plain { .. }), "{refused}");
        }
    }
}
