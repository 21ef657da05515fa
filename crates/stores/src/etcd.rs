//! The record in etcd, through the JSON form of its version 3 API, which each etcd since 3.4 serves on its client port
//! (etcd documentation, "gRPC gateway"). The version of the record is the `mod_revision` of its key, with the value.
//!
//! Reads are linearizable, as etcd's are unless asked otherwise. A record is replaced by a transaction that compares the
//! revision of the key and its value; 0 is the revision of a key that does not exist.

use crate::client::{Access, Client};
use crate::{Replaced, Store, StoreError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use standfast_arbitration::record::{Kept, Record, Version};
use std::time::Instant;

/// etcd answers one of these when a token is too old: it has expired, or users have been changed since.
const NOT_LOGGED_IN: [u16; 2] = [401, 400];

pub struct Etcd {
    client: Client,
    key: String,
    /// Of the user that is logged in.
    token: Option<String>,
}

#[derive(Deserialize)]
struct KeyValue {
    /// A number of 64 bits, which JSON writes as text.
    mod_revision: String,
    value: String,
}

/// Keys that were found. A part that has its default value is omitted; the header shows that it is etcd that answers.
#[derive(Deserialize)]
struct Range {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct TxnPart {
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Txn {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnPart>,
}

#[derive(Deserialize)]
struct LoggedIn {
    token: String,
}

impl Etcd {
    /// `key`: the record's.
    pub fn new(access: Access, key: &str) -> Etcd {
        Etcd { client: Client::new(access), key: BASE64.encode(key), token: None }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
        what: &'static str,
    ) -> Result<T, StoreError> {
        let until = Instant::now() + self.client.access().limit;
        if self.token.is_none() {
            self.log_in(until)?;
        }
        let answer = self.client.post(path, self.token.as_deref(), body, what, until);
        match answer {
            // Nothing has been carried out.
            Err(StoreError::Status { status, .. })
                if self.token.is_some() && NOT_LOGGED_IN.contains(&status) =>
            {
                self.log_in(until)?;
                self.client.post(path, self.token.as_deref(), body, what, until)
            }
            other => other,
        }
    }

    fn log_in(&mut self, until: Instant) -> Result<(), StoreError> {
        self.token = None;
        let Some((user, password)) = self.client.access().login.clone() else { return Ok(()) };
        let password = self.client.access().secret(&password)?;
        let body = json!({ "name": user, "password": password.trim_end() });
        let answer: LoggedIn = self.client.post("/v3/auth/authenticate", None, &body, "token", until)?;
        self.token = Some(answer.token);
        Ok(())
    }

    fn kept(&self, range: Range) -> Result<Option<Kept>, StoreError> {
        let Some(found) = range.kvs.into_iter().next() else { return Ok(None) };
        let record = BASE64.decode(&found.value).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let endpoint = self.client.access().endpoints.join(", ");
        let record = record.ok_or(StoreError::Answer { endpoint, what: "record of fast-start failover" })?;
        Ok(Some(Kept { version: version(&found.mod_revision, &found.value), record }))
    }
}

/// Revision and value: a cluster that is restored from a backup counts on from an earlier revision.
fn version(revision: &str, value: &str) -> Version {
    Version(format!("{revision} {value}"))
}

impl Store for Etcd {
    fn read(&mut self) -> Result<Option<Kept>, StoreError> {
        let body = json!({ "key": self.key });
        let range = self.ask("/v3/kv/range", &body, "range of keys")?;
        self.kept(range)
    }

    fn replace(&mut self, expected: Option<&Version>, record: &Record) -> Result<Replaced, StoreError> {
        let (revision, old) = expected.and_then(|version| version.0.split_once(' ')).unwrap_or(("0", ""));
        let mut compare =
            vec![json!({ "key": self.key, "target": "MOD", "result": "EQUAL", "mod_revision": revision })];
        if !old.is_empty() {
            compare.push(json!({ "key": self.key, "target": "VALUE", "result": "EQUAL", "value": old }));
        }
        let value = serde_json::to_vec(record)
            .map(|text| BASE64.encode(text))
            .map_err(|_| StoreError::Answer { endpoint: String::new(), what: "record" })?;
        let body = json!({
            "compare": compare,
            "success": [{ "request_put": { "key": self.key, "value": value } }],
            "failure": [{ "request_range": { "key": self.key } }],
        });
        let answer: Txn = self.ask("/v3/kv/txn", &body, "answer to a transaction")?;
        if answer.succeeded {
            return Ok(Replaced::Yes(version(&answer.header.revision, &value)));
        }
        let range = answer.responses.into_iter().find_map(|part| part.response_range);
        let endpoint = self.client.access().endpoints.join(", ");
        let range = range.ok_or(StoreError::Answer { endpoint, what: "answer to a transaction" })?;
        Ok(Replaced::No(self.kept(range)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    const LOGGED_IN: (&str, &str) = ("200 OK", r#"{"token": "t"}"#);

    /// A server that gives these answers, one to each connection.
    fn answering(answers: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                // Head and body may come apart.
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut part = [0; 4096];
                    let bytes = stream.read(&mut part).unwrap();
                    request.extend_from_slice(&part[..bytes]);
                }
                let head = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        url
    }

    fn etcd(url: String) -> Etcd {
        let access = Access {
            endpoints: vec![url],
            is_insecure: true,
            authorities: None,
            identity: None,
            login: Some(("alpha".into(), "password".into())),
            read_secret: |_| Ok("secret".into()),
            limit: Duration::from_secs(60),
        };
        Etcd::new(access, "key")
    }

    #[test]
    fn token_is_renewed_when_it_has_expired_or_users_were_changed() {
        for status in ["401 Unauthorized", "400 Bad Request"] {
            let answers = vec![
                LOGGED_IN,
                (status, r#"{"message": "etcdserver: revision of auth store is old"}"#),
                LOGGED_IN,
                ("200 OK", r#"{"header": {"revision": "7"}}"#),
            ];
            let mut etcd = etcd(answering(answers.leak()));
            assert_eq!(etcd.read().unwrap(), None, "{status}");
        }
    }

    #[test]
    fn answer_of_another_server_is_not_taken_for_an_empty_store() {
        for body in ["{}", "[]", r#"{"kvs": []}"#, r#"[["7"], []]"#] {
            let mut etcd = etcd(answering(vec![LOGGED_IN, ("200 OK", body)].leak()));
            assert!(matches!(etcd.read(), Err(StoreError::Answer { .. })), "{body}");
        }
    }
}
