//! Authentication of members: certificates in handshakes without a network.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use standfast_tls::*;
use std::sync::Arc;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn authority() -> Authority {
    Authority::create("0123", NOW).unwrap()
}

fn identity_pem(authority: &Authority, name: &str) -> String {
    let request = Request::create(name).unwrap();
    request.identity_pem(&authority.sign(name, request.der(), NOW).unwrap(), name).unwrap()
}

fn at(now: u64) -> Clock {
    Arc::new(FixedClock(now))
}

fn member(authority: &Authority, name: &str, now: u64) -> Identity {
    Identity::from_pem(&identity_pem(authority, name), authority.certificate_pem(), &at(now)).unwrap()
}

/// Carries bytes between the two ends until both are silent. Returns the error of each end, client first.
fn shake_hands(client: &mut Connection, server: &mut Connection) -> (Option<String>, Option<String>) {
    let (mut client_error, mut server_error) = (None, None);
    loop {
        let mut moved = false;
        for turn in 0..2 {
            let (from, to, error) = match turn {
                0 => (&mut *client, &mut *server, &mut server_error),
                _ => (&mut *server, &mut *client, &mut client_error),
            };
            let mut wire = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut wire).unwrap();
            }
            let mut wire = &wire[..];
            while !wire.is_empty() && error.is_none() {
                moved = true;
                to.read_tls(&mut wire).unwrap();
                *error = to.process_new_packets().err().map(|error| error.to_string());
            }
        }
        if !moved {
            return (client_error, server_error);
        }
    }
}

fn connect(
    client: &Arc<rustls::ClientConfig>,
    server: &Identity,
) -> (Connection, Connection, [Option<String>; 2]) {
    let name = ServerName::try_from("standfast").unwrap();
    let mut client = Connection::Client(ClientConnection::new(client.clone(), name).unwrap());
    let mut server = Connection::Server(ServerConnection::new(server.server().clone()).unwrap());
    let (first, second) = shake_hands(&mut client, &mut server);
    (client, server, [first, second])
}

fn peer_name(connection: &Connection) -> Option<String> {
    connection.peer_certificates().map(|chain| CertificateInfo::of(&chain[0]).unwrap().name)
}

#[test]
fn members_of_a_family_know_each_other_by_name() {
    let authority = authority();
    let (paris, oslo) = (member(&authority, "paris", NOW), member(&authority, "oslo", NOW));
    let (client, server, errors) = connect(paris.client(), &oslo);
    assert_eq!(errors, [None, None]);
    assert_eq!((peer_name(&client).as_deref(), peer_name(&server).as_deref()), (Some("oslo"), Some("paris")));
    assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    let exported =
        |connection: &Connection| connection.export_keying_material([0; 32], b"EXPORTER", None).unwrap();
    assert_eq!(exported(&client), exported(&server));
}

#[test]
fn authority_with_the_same_name_is_not_trusted() {
    let (ours, theirs) = (authority(), authority());
    let (paris, foreign) = (member(&ours, "paris", NOW), member(&theirs, "paris", NOW));
    let (_, _, [client, _]) = connect(paris.client(), &foreign);
    let no_member = |error: Option<String>| {
        let error = error.unwrap();
        assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    };
    no_member(client);
    let trusting = Identity::from_pem(
        &identity_pem(&theirs, "paris"),
        &[theirs.certificate_pem(), ours.certificate_pem()].concat(),
        &at(NOW),
    );
    let (_, _, [_, server]) = connect(trusting.unwrap().client(), &paris);
    // The server checks, too.
    no_member(server);
}

#[test]
fn expired_certificates_are_refused_by_both_ends() {
    let authority = authority();
    let last = NOW + VALID_DAYS * DAY;
    let meets = |client_clock: u64, server_clock: u64| {
        let (paris, oslo) =
            (member(&authority, "paris", client_clock), member(&authority, "oslo", server_clock));
        connect(paris.client(), &oslo).2
    };
    assert_eq!(meets(last, last), [None, None]);
    assert!(meets(last + 1, last)[0].as_ref().unwrap().contains("expired"), "the client sees it");
    assert!(meets(last, last + 1)[1].as_ref().unwrap().contains("expired"), "the server sees it");
    assert_eq!(meets(NOW - DAY, NOW), [None, None], "clocks may differ by a day");
    assert!(meets(NOW - DAY - 1, NOW)[0].is_some());
}

#[test]
fn joining_client_trusts_only_the_pinned_authority() {
    let (ours, theirs) = (authority(), authority());
    let paris = member(&ours, "paris", NOW);
    let (client, server, errors) = connect(&joining(ours.fingerprint(), &at(NOW)).unwrap(), &paris);
    assert_eq!(errors, [None, None]);
    assert_eq!((peer_name(&client).as_deref(), peer_name(&server)), (Some("paris"), None));
    let (_, _, [client, _]) = connect(&joining(theirs.fingerprint(), &at(NOW)).unwrap(), &paris);
    assert!(client.unwrap().contains("UnknownIssuer"));
}

#[test]
fn member_certificate_cannot_sign_others() {
    let authority = authority();
    let request = Request::create("oslo").unwrap();
    let certificate = authority.sign("oslo", request.der(), NOW).unwrap();
    let pem = request.identity_pem(&certificate, "oslo").unwrap();
    let key = &pem[..pem.find("-----BEGIN CERTIFICATE").unwrap()];
    let forger = Authority::from_pem(&certificate, key).unwrap();
    let forged = Identity::from_pem(
        &identity_pem(&forger, "paris"),
        &[&certificate, authority.certificate_pem()].concat(),
        &at(NOW),
    );
    // The forger may load its own identity; no other member accepts it.
    if let Ok(forged) = forged {
        let (_, _, [_, server]) = connect(forged.client(), &member(&authority, "oslo", NOW));
        assert!(server.is_some());
    }
}

#[test]
fn authority_reloads_from_its_files_but_not_anothers_key() {
    let (ours, theirs) = (authority(), authority());
    let again = Authority::from_pem(ours.certificate_pem(), &ours.key_pem()).unwrap();
    assert_eq!(again.fingerprint(), ours.fingerprint());
    let (paris, oslo) = (member(&ours, "paris", NOW), member(&again, "oslo", NOW));
    assert_eq!(connect(paris.client(), &oslo).2, [None, None]);
    let error = Authority::from_pem(ours.certificate_pem(), &theirs.key_pem()).unwrap_err();
    assert!(error.to_string().contains("another certificate"));
}

#[test]
fn only_the_requested_certificate_is_accepted() {
    let authority = authority();
    let (request, other) = (Request::create("oslo").unwrap(), Request::create("oslo").unwrap());
    let certificate = authority.sign("oslo", request.der(), NOW).unwrap();
    assert!(request.identity_pem(&certificate, "oslo").is_ok());
    assert!(request.identity_pem(&certificate, "paris").is_err(), "another name");
    assert!(other.identity_pem(&certificate, "oslo").is_err(), "another key");
    let mut damaged = request.der().to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(authority.sign("oslo", &damaged, NOW).is_err(), "not signed by its key");
    assert!(authority.sign("oslo", b"garbage", NOW).is_err());
}

#[test]
fn debug_output_shows_no_secret_key() {
    let authority = authority();
    let pem = identity_pem(&authority, "oslo");
    let identity = Identity::from_pem(&pem, authority.certificate_pem(), &at(NOW)).unwrap();
    let shown = format!("{authority:?} {identity:?} {:?}", Request::create("oslo").unwrap());
    for secret in [&pem, &authority.key_pem()] {
        let key: String = secret.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
        assert!(key.len() > 100 && !shown.contains(&key[40..60]), "{shown}");
    }
    let broken = pem.replacen("MIG", "MIH", 1);
    let error = Identity::from_pem(&broken, authority.certificate_pem(), &at(NOW)).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(&pem[40..60]));
}

#[test]
fn authority_is_trusted_only_when_a_trusted_one_endorses_it() {
    let (old, new, foreign) = (authority(), authority(), Authority::create("evil", NOW).unwrap());
    let endorsed = endorse(old.certificate_pem(), &old.key_pem(), new.certificate_pem()).unwrap();
    let all = format!("{}{}{}", new.certificate_pem(), old.certificate_pem(), foreign.certificate_pem());
    let (trusted, refused) = grown(old.certificate_pem(), &all, std::slice::from_ref(&endorsed)).unwrap();
    assert_eq!(trusted, format!("{}{}", new.certificate_pem(), old.certificate_pem()));
    assert_eq!(refused.len(), 1);
    assert!(refused[0].name.contains("evil"), "{refused:?}");
    // Without the old authority's endorsement the new one is not trusted, and neither is one that endorses itself or
    // lies.
    let own = endorse(foreign.certificate_pem(), &foreign.key_pem(), foreign.certificate_pem()).unwrap();
    let lie = Endorsement { by: endorsed.by.clone(), ..own.clone() };
    for endorsements in [vec![], vec![own, lie]] {
        let (trusted, refused) = grown(old.certificate_pem(), &all, &endorsements).unwrap();
        assert_eq!((trusted.as_str(), refused.len()), (old.certificate_pem(), 2));
    }
    // A trusted authority stays trusted when it is not offered.
    let (trusted, _) = grown(old.certificate_pem(), new.certificate_pem(), &[endorsed]).unwrap();
    assert_eq!(trusted, format!("{}{}", new.certificate_pem(), old.certificate_pem()));
}

#[test]
fn signature_names_its_member_and_fits_no_other_purpose() {
    let family = authority();
    let oslo = identity_pem(&family, "oslo");
    let signed = sign(&oslo, "promotion", b"2").unwrap();
    let by = |signed: &Signature, family: &Authority, purpose: &str, message: &[u8]| {
        signer(signed, family.certificate_pem(), purpose, message).ok()
    };
    assert_eq!(by(&signed, &family, "promotion", b"2").as_deref(), Some("oslo"));
    assert_eq!(by(&signed, &family, "promotion", b"3"), None);
    assert_eq!(by(&signed, &family, "promotio", b"n2"), None);
    assert_eq!(by(&signed, &authority(), "promotion", b"2"), None, "of another family");
    let paris = sign(&identity_pem(&family, "paris"), "promotion", b"2").unwrap();
    let mixed = Signature { certificate: paris.certificate, ..signed };
    assert_eq!(by(&mixed, &family, "promotion", b"2"), None, "another's certificate");
}

#[test]
fn certificate_renewal_is_due_at_two_thirds_of_its_life() {
    let family = authority();
    let request = Request::create("oslo").unwrap();
    for (seconds, due) in [(3600, 2400), (10, 6), (365 * DAY, 365 * DAY / 3 * 2)] {
        let pem = family.sign_for("oslo", request.der(), NOW, seconds).unwrap();
        let info = CertificateInfo::of(&first_certificate(&pem).unwrap()).unwrap();
        assert_eq!((info.not_after - NOW, info.renew_at() - NOW), (seconds, due));
    }
}
