//! The HTTP server over loopback, with well-behaved and misbehaving clients.

use super::serving::LIMITS;
use super::site::PAGE;
use super::*;
use standfast_types::Hint;
use std::io::{Read, Write};

fn server() -> HttpServer {
    let config = HttpConfig { listen: "127.0.0.1:0".into(), anonymous: true, ..HttpConfig::default() };
    let server = HttpServer::start(&config, Path::new("."), &Weak::new(), &Arc::default());
    server.unwrap().unwrap()
}

fn get(server: &HttpServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn page(server: &HttpServer, path: &str) -> String {
    get(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

#[test]
fn pages_are_served_with_a_strict_content_security_policy() {
    let server = server();
    for (path, content) in
        [("/", "<title>Standfast"), ("/dashboard.js", "'use strict'"), ("/dashboard.css", ":root")]
    {
        let answer = page(&server, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(content), "{path}: {answer}");
        assert!(answer.contains("Content-Security-Policy: default-src 'none';"), "{answer}");
    }
    for inline in ["style=", "onclick=", "<style", "http://", "https://"] {
        assert!(!PAGE.contains(inline), "{inline}");
    }
}

#[test]
fn endpoints_return_503_before_the_first_observation() {
    let server = server();
    for path in ["/metrics", "/healthz", "/api/dashboard", "/api/observation"] {
        assert!(page(&server, path).starts_with("HTTP/1.1 503 "), "{path}");
    }
    assert!(page(&server, "/etc/passwd").starts_with("HTTP/1.1 404 "));
}

#[test]
fn probes_need_no_token_where_that_is_configured_and_nothing_else_does() {
    let directory = standfast_testkit::TempDir::new("http-probes").unwrap();
    let server = |open_probes| {
        let config = HttpConfig { listen: "127.0.0.1:0".into(), open_probes, ..HttpConfig::default() };
        HttpServer::start(&config, directory.path(), &Weak::new(), &Arc::default()).unwrap().unwrap()
    };
    let status = |server: &HttpServer, path: &str| page(server, path)[9..12].to_owned();
    let open = server(true);
    // An instance that is stopping lives, and serves nothing.
    for (path, expected) in [("/livez", "200"), ("/readyz", "503"), ("/primary", "503"), ("/standby", "503")]
    {
        assert_eq!(status(&open, path), expected, "{path}");
    }
    for path in ["/", "/metrics", "/healthz", "/api/observation", "/livez/x"] {
        assert_eq!(status(&open, path), "401", "{path}");
    }
    assert!(get(&open, "POST /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 401 "));
    assert_eq!(status(&server(false), "/livez"), "401");
}

#[test]
fn only_get_and_head_requests_are_answered() {
    let server = server();
    let post = get(&server, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("Allow: GET, HEAD\r\n"), "{post}");
    assert!(get(&server, "\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let foreign = get(&server, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let head = get(&server, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn silent_connections_do_not_keep_a_client_out() {
    let server = server();
    let mut silent: Vec<TcpStream> =
        (0..2 * LIMITS.unauthenticated).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for stream in &mut silent {
        // Connections that lost their slot are closed.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n");
    }
    assert!(page(&server, "/icon.svg").starts_with("HTTP/1.1 200 "));
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let left = silent.iter().filter(is_open).count();
    assert!(left <= LIMITS.per_address, "{left} are still open");
}

#[test]
fn silent_connections_do_not_displace_an_allowed_client() {
    let latest = Arc::new(Latest::default());
    let config = HttpConfig { listen: "127.0.0.1:0".into(), anonymous: true, ..HttpConfig::default() };
    let server = HttpServer::start(&config, Path::new("."), &Weak::new(), &latest).unwrap().unwrap();
    let mut allowed = TcpStream::connect(server.address()).unwrap();
    // The answer cannot be made while this lock is held.
    latest.with(|_| {
        allowed.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(page(&server, "/icon.svg").starts_with("HTTP/1.1 200 "), "the request before it was read");
        let _silent: Vec<TcpStream> =
            (0..2 * LIMITS.per_address).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        assert!(page(&server, "/icon.svg").starts_with("HTTP/1.1 200 "));
    });
    let mut answer = String::new();
    allowed.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn clients_that_do_not_read_do_not_block_others() {
    let server = server();
    let _deaf: Vec<TcpStream> = (0..2 * LIMITS.authenticated)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let _ = stream.write_all(b"GET /dashboard.js HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream
        })
        .collect();
    assert!(page(&server, "/").starts_with("HTTP/1.1 200 "));
}

#[test]
fn too_long_request_head_is_refused() {
    let server = server();
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    // Unread bytes reset the connection, possibly before the client reads the answer.
    if stream.read_to_end(&mut answer).is_ok() {
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn nothing_is_served_without_the_token_even_on_loopback() {
    let directory = std::env::temp_dir().join(format!("standfast-http-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let start = |listen: &str, token_file: &str, anonymous: bool| {
        let config = HttpConfig {
            listen: listen.into(),
            token_file: token_file.into(),
            anonymous,
            ..HttpConfig::default()
        };
        HttpServer::start(&config, &directory, &Weak::new(), &Arc::default())
    };
    let error = start("0.0.0.0:0", "", true).err().unwrap().for_terminal();
    assert!(error.contains("not a loopback address") && error.contains("anonymous = true"), "{error}");
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(directory.join(name), text).unwrap();
        std::fs::set_permissions(directory.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    write("weak", "secret\n", 0o600);
    assert!(start("127.0.0.1:0", "weak", false).err().unwrap().for_terminal().contains("16 or more"));
    write("token", "0123456789abcdef\n", 0o644);
    assert!(start("127.0.0.1:0", "token", false).err().unwrap().for_terminal().contains("chmod 600"));
    write("token", "0123456789abcdef\n", 0o600);
    let own = directory.join(OWN_TOKEN);
    for (listen, token_file) in [("0.0.0.0:0", "token"), ("127.0.0.1:0", ""), ("127.0.0.1:0", "")] {
        let before = std::fs::read_to_string(&own).ok();
        let server = start(listen, token_file, false).unwrap().unwrap();
        let token = match token_file {
            "" => std::fs::read_to_string(&own).unwrap(),
            given => std::fs::read_to_string(directory.join(given)).unwrap(),
        };
        assert!(token_file == "token" || before.is_none_or(|before| before == token), "it is made once");
        let local = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
        let ask = |path: &str, headers: &str| {
            let mut stream = TcpStream::connect(local).unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        for path in ["/", "/metrics", "/api/dashboard", "/api/observation", "/healthz", "/?token=guess"] {
            let answer = ask(path, "Host: localhost\r\n");
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        }
        let bearer = format!("Authorization: Bearer {}\r\n", token.trim());
        assert!(ask("/", &bearer).starts_with("HTTP/1.1 200 "));
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&own).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn http_server_does_not_start_without_configuration() {
    let none = HttpServer::start(&HttpConfig::default(), Path::new("."), &Weak::new(), &Arc::default());
    assert!(none.unwrap().is_none());
}
