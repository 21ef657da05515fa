//! HTTP requests from browsers, monitoring and scripts: parsing of the head, access control, and the head of the
//! answer.

use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Longest request head, bytes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Name of the cookie in which a browser keeps the token.
const COOKIE: &str = "standfast_token";

/// The parts of a request head that the server uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Path without the query string.
    pub path: String,
    /// Token after `?token=`.
    pub query_token: Option<String>,
    /// Token of `Authorization: Bearer` or of the cookie.
    pub header_token: Option<String>,
    /// Value of the `Host` header: the name by which the client addresses this server.
    pub host: Option<String>,
}

/// Result of parsing a request head.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Partial,
    Whole(Request),
    /// The bytes are not an HTTP request.
    Malformed,
}

/// Parses the head of a request.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Parsed::Malformed,
    }
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else { return Parsed::Malformed };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let cookie = header("cookie").and_then(|value| {
        value.split(';').find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
    });
    Parsed::Whole(Request {
        method: method.into(),
        path: path.into(),
        query_token: query.split('&').find_map(|pair| pair.strip_prefix("token=")).map(str::to_owned),
        header_token: bearer.or(cookie).map(|token| token.trim().to_owned()),
        host: header("host").map(str::to_owned),
    })
}

/// Rule for which clients may read.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// Any client that addresses the port of this machine by an IP address or as `localhost`. A browser that a page of
    /// another site led here sends that site's name, and is refused.
    Local,
    /// Any client that presents the token.
    Token(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// Answer it with a redirect that sets the cookie and removes the token from the address.
    Remember,
    /// The token is missing or wrong.
    Unauthorized,
    /// The `Host` header is missing, or is neither an IP address nor `localhost`.
    Forbidden,
}

impl Access {
    pub fn decide(&self, request: &Request) -> Decision {
        let Access::Token(token) = self else {
            let local = request.host.as_deref().is_some_and(is_address_or_localhost);
            return if local { Decision::Allow } else { Decision::Forbidden };
        };
        // Constant time: a wrong token of the right length takes as long to compare as the right one.
        let is_it = |given: &String| bool::from(given.as_bytes().ct_eq(token.as_bytes()));
        match (&request.header_token, &request.query_token) {
            (_, Some(given)) if is_it(given) => Decision::Remember,
            (Some(given), _) if is_it(given) => Decision::Allow,
            _ => Decision::Unauthorized,
        }
    }
}

fn is_address_or_localhost(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, _)) => inner,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code with its reason phrase.
    pub status: &'static str,
    pub content_type: &'static str,
    /// Further header lines, each with its line end.
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns an answer without further headers.
    pub fn new(status: &'static str, content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, content_type, headers: String::new(), body: body.into() }
    }

    /// Returns one line of plain text.
    pub fn text(status: &'static str, line: &str) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", format!("{line}\n"))
    }

    /// Sets the token of the request as a cookie and redirects to the same page without the token in the address.
    pub fn remember(request: &Request) -> Answer {
        let mut answer = Answer::text("303 See Other", "see other");
        // A path that begins with `//` would be read as a host and redirect elsewhere.
        let path = if request.path.starts_with("//") { "/" } else { request.path.as_str() };
        answer.headers = format!(
            "Location: {path}\r\nSet-Cookie: {COOKIE}={}; Path=/; HttpOnly; SameSite=Strict\r\n",
            request.query_token.as_deref().unwrap_or_default()
        );
        answer
    }

    /// Returns the bytes to send. `with_body` is false for HEAD.
    pub fn bytes(&self, with_body: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n{}\r\n",
            self.status,
            self.content_type,
            self.body.len(),
            self.headers
        );
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str) -> Request {
        match parse(head.as_bytes()) {
            Parsed::Whole(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn http_request_is_parsed_with_its_tokens() {
        let all = request(
            "GET /api/dashboard?x=1&token=abc HTTP/1.1\r\nHost: a:1\r\nCookie: k=v; standfast_token=def\r\n\r\n",
        );
        assert_eq!((all.method.as_str(), all.path.as_str()), ("GET", "/api/dashboard"));
        assert_eq!((all.query_token.as_deref(), all.header_token.as_deref()), (Some("abc"), Some("def")));
        let bearer = request("GET / HTTP/1.1\r\nAuthorization: Bearer abc\r\n\r\n");
        assert_eq!((bearer.header_token.as_deref(), bearer.host), (Some("abc"), None));
        assert_eq!(parse(b"GET / HT"), Parsed::Partial);
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Parsed::Malformed);
    }

    #[test]
    fn only_the_complete_token_grants_access() {
        let access = Access::Token("secret".into());
        let decide = |head: &str| access.decide(&request(head));
        assert_eq!(decide("GET / HTTP/1.1\r\n\r\n"), Decision::Unauthorized);
        assert_eq!(decide("GET / HTTP/1.1\r\nAuthorization: Bearer secre\r\n\r\n"), Decision::Unauthorized);
        assert_eq!(decide("GET / HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n"), Decision::Allow);
        assert_eq!(decide("GET / HTTP/1.1\r\nCookie: standfast_token=secret\r\n\r\n"), Decision::Allow);
        assert_eq!(decide("GET /?token=secret HTTP/1.1\r\n\r\n"), Decision::Remember);
        assert_eq!(decide("GET /?token=secrets HTTP/1.1\r\n\r\n"), Decision::Unauthorized);
        assert_eq!(decide("GET /?token= HTTP/1.1\r\n\r\n"), Decision::Unauthorized);
    }

    #[test]
    fn without_token_only_ip_or_localhost_host_headers_are_allowed() {
        let decide =
            |host: &str| Access::Local.decide(&request(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")));
        for host in ["127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "127.0.0.1"] {
            assert_eq!(decide(host), Decision::Allow, "{host}");
        }
        assert_eq!(decide("evil.example:8080"), Decision::Forbidden);
        assert_eq!(Access::Local.decide(&request("GET / HTTP/1.0\r\n\r\n")), Decision::Forbidden);
    }

    #[test]
    fn url_token_becomes_a_cookie_and_is_removed_from_the_url() {
        let answer = Answer::remember(&request("GET //evil?token=t HTTP/1.1\r\n\r\n"));
        let text = String::from_utf8(answer.bytes(true)).unwrap();
        assert!(text.contains("Location: /\r\n"), "{text}");
        assert!(
            text.contains("Set-Cookie: standfast_token=t; Path=/; HttpOnly; SameSite=Strict\r\n"),
            "{text}"
        );
    }
}
