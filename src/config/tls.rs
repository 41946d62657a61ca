//! `tls` of `[server]` and of an Endpoint: certificates and keys, read from PEM files (RFC 7468).

use super::fault::Faults;
use super::file::View;
use crate::logic::snapshot::Url;
use crate::logic::tls::{Certificate, Identity, KeyForm, ListenTls, PrivateKey, UpstreamTls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use std::io;
use std::sync::Arc;

/// Reads a file that the configuration names.
pub type Files<'f> = &'f dyn Fn(&str) -> io::Result<Vec<u8>>;

/// Largest file with certificates: a bundle of all public roots has a quarter of it.
pub const PEM_BYTES_MAX: usize = 1 << 20;

/// TLS towards callers, if it is wanted.
pub(super) fn listen(server: &View<'_>, files: Files<'_>, faults: &mut Faults<'_>) -> Option<ListenTls> {
    if !server.typed("tls") {
        return None;
    }
    let view = server.table("tls");
    let reader = Reader { view: &view, files };
    let client_roots = reader.roots("client_ca", faults);
    for name in ["cert", "key"] {
        if !view.typed(name) {
            let text = format!("is missing; write tls = {{ cert = \"cert.pem\", key = \"key.pem\" }} with {name}");
            faults.fault(view.at, view.path_of(name), text);
        }
    }
    let identity = reader.identity(faults)?;
    Some(ListenTls { identity, client_roots })
}

/// TLS towards an Endpoint.
pub(super) fn upstream(
    endpoint: &View<'_>,
    url: Option<&Url>,
    files: Files<'_>,
    faults: &mut Faults<'_>,
) -> UpstreamTls {
    if !endpoint.typed("tls") {
        return UpstreamTls::default();
    }
    if url.is_some_and(|url| !url.https) {
        let text = "is written, and the URL is http://, so no TLS would be spoken; make it https://, or remove tls";
        faults.fault(endpoint.at_of("tls"), endpoint.path_of("tls"), text);
    }
    let view = endpoint.table("tls");
    let reader = Reader { view: &view, files };
    let roots = reader.roots("ca", faults);
    let (one, other) = if view.typed("cert") { ("cert", "key") } else { ("key", "cert") };
    if view.typed(one) && !view.typed(other) {
        faults.fault(view.at_of(one), view.path_of(one), format!("needs {other} beside it; write both, or neither"));
    }
    UpstreamTls { roots, identity: reader.identity(faults) }
}

struct Reader<'v> {
    view: &'v View<'v>,
    files: Files<'v>,
}

impl Reader<'_> {
    /// The bytes of the file that a key names.
    fn file(&self, name: &str, faults: &mut Faults<'_>) -> Option<Vec<u8>> {
        let path = self.view.text(name)?;
        let said = match (self.files)(&path) {
            Ok(bytes) if bytes.len() <= PEM_BYTES_MAX => return Some(bytes),
            Ok(_) => "names a file that is larger than 1 MiB; it should hold a few certificates".to_owned(),
            Err(error) => format!("names a file that can't be read ({}); {WHERE}", kind(&error)),
        };
        faults.fault(self.view.at_of(name), self.view.path_of(name), said);
        None
    }

    fn certificates(&self, name: &str, faults: &mut Faults<'_>) -> Vec<Certificate> {
        let Some(bytes) = self.file(name, faults) else { return Vec::new() };
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match read {
            Ok(found) if !found.is_empty() => return found.iter().map(|one| one.as_ref().into()).collect(),
            Ok(_) => faults.fault(self.view.at_of(name), self.view.path_of(name), NO_CERTIFICATE),
            Err(_) => faults.fault(self.view.at_of(name), self.view.path_of(name), BAD_PEM),
        }
        Vec::new()
    }

    /// Whom to trust.
    fn roots(&self, name: &str, faults: &mut Faults<'_>) -> Vec<Certificate> {
        let found = self.certificates(name, faults);
        let mut store = RootCertStore::empty();
        if found.iter().any(|one| store.add(CertificateDer::from(&**one)).is_err()) {
            let text = "holds a certificate that can't be a root (not X.509, or broken); export it again";
            faults.fault(self.view.at_of(name), self.view.path_of(name), text);
        }
        found
    }

    /// `cert` and `key`, if both are there and belong together.
    fn identity(&self, faults: &mut Faults<'_>) -> Option<Identity> {
        let chain = self.certificates("cert", faults);
        let key = self.key(faults)?;
        if chain.is_empty() {
            return None;
        }
        let identity = Identity { chain, key };
        let text = match check(&identity) {
            Ok(()) => {
                if let Some(text) = out_of_date(&identity.chain) {
                    faults.warn(self.view.at_of("cert"), self.view.path_of("cert"), text);
                }
                return Some(identity);
            }
            Err(Error::InconsistentKeys(_)) => {
                "is not the key of the first certificate in `cert`; write the one that belongs to it"
            }
            Err(_) => {
                "holds a key or `cert` a certificate that can't be used (RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519 would do)"
            }
        };
        faults.fault(self.view.at_of("key"), self.view.path_of("key"), text);
        None
    }

    fn key(&self, faults: &mut Faults<'_>) -> Option<PrivateKey> {
        let bytes = self.file("key", faults)?;
        let text = match PrivateKeyDer::from_pem_slice(&bytes) {
            Ok(PrivateKeyDer::Pkcs8(key)) => return Some(private(KeyForm::Pkcs8, key.secret_pkcs8_der())),
            Ok(PrivateKeyDer::Pkcs1(key)) => return Some(private(KeyForm::Pkcs1, key.secret_pkcs1_der())),
            Ok(PrivateKeyDer::Sec1(key)) => return Some(private(KeyForm::Sec1, key.secret_sec1_der())),
            _ if bytes.windows(9).any(|window| window == b"ENCRYPTED") => {
                "names a file with an encrypted key; write it without a passphrase, readable by Ringway alone"
            }
            _ => "names a file without a private key in PEM (`-----BEGIN PRIVATE KEY-----`)",
        };
        faults.fault(self.view.at_of("key"), self.view.path_of("key"), text);
        None
    }
}

const WHERE: &str = "a relative path starts at the folder of this file";
const NO_CERTIFICATE: &str = "names a file without a certificate in PEM (`-----BEGIN CERTIFICATE-----`)";
const BAD_PEM: &str = "names a file whose PEM is broken; export it again";

/// Why a file can't be read, in words that hold no part of a path.
fn kind(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => "it is no regular file".to_owned(),
        other => other.to_string(),
    }
}

/// What to say of a certificate that nobody accepts today: it is over, or not valid yet.
fn out_of_date(chain: &[Certificate]) -> Option<&'static str> {
    let own = CertificateDer::from(&**chain.first()?);
    let mut roots = RootCertStore::empty();
    // Whom the verifier would trust does not matter: the dates are looked at first.
    roots.add(own.clone()).ok()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let name = ServerName::try_from("any.example").ok()?;
    match verifier.verify_server_cert(&own, &[], &name, &[], UnixTime::now()) {
        Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            Some("names a certificate that is over; nobody accepts it, so put a new one there")
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. })) => {
            Some(
                "names a certificate that is not valid yet; nobody accepts it before its day (is this machine's clock right?)",
            )
        }
        _ => None,
    }
}

fn private(form: KeyForm, der: &[u8]) -> PrivateKey {
    PrivateKey { form, der: der.into() }
}

fn check(identity: &Identity) -> Result<(), Error> {
    let chain = identity.chain.iter().map(|one| CertificateDer::from(one.to_vec())).collect();
    let der = identity.key.der.to_vec();
    let key = match identity.key.form {
        KeyForm::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
        KeyForm::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
        KeyForm::Sec1 => PrivateKeyDer::Sec1(der.into()),
    };
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::resolve::probe::with;
    use super::super::resolve::resolve_with;
    use crate::config::fault::Severity;
    use crate::logic::snapshot::Snapshot;
    use rcgen::{CertificateParams, KeyPair};
    use std::io;
    use std::sync::OnceLock;

    /// A certificate with its key, and a key of somebody else.
    fn made() -> &'static [String; 3] {
        static MADE: OnceLock<[String; 3]> = OnceLock::new();
        MADE.get_or_init(|| {
            let [key, other] = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
            let own = CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
            [own.pem(), key.serialize_pem(), other.serialize_pem()]
        })
    }

    fn file(name: &str) -> io::Result<Vec<u8>> {
        let [cert, key, other] = made();
        let text = match name {
            "cert.pem" => cert.clone(),
            "two.pem" => format!("words before it\n{cert}{cert}"),
            "key.pem" => key.clone(),
            "other.pem" => other.clone(),
            "both.pem" => format!("{key}{cert}"),
            "empty.pem" => String::new(),
            "torn.pem" => cert[..cert.len() / 2].to_owned(),
            "odd.pem" => "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            "locked.pem" => {
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n".to_owned()
            }
            "large.pem" => "x".repeat(super::PEM_BYTES_MAX + 1),
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(text.into_bytes())
    }

    fn sound(text: &str) -> Snapshot {
        let resolved = resolve_with(text, &|_| Some("s3cret-of-env".to_owned()), &|name| file(name), None);
        resolved.snapshot.unwrap_or_else(|| panic!("{:#?}", resolved.faults))
    }

    #[track_caller]
    fn faulty(text: &str, path: &str, says: &str) {
        let resolved = resolve_with(text, &|_| Some("s3cret-of-env".to_owned()), &|name| file(name), None);
        let faults: Vec<_> = resolved.faults.iter().filter(|fault| fault.severity == Severity::Fault).collect();
        let [found] = faults.as_slice() else { panic!("not exactly one: {faults:#?}") };
        assert_eq!(found.path, path, "{found:?}");
        assert!(found.text.contains(says), "{:?} does not say {says:?}", found.text);
        assert!(found.line > 1, "{found:?}");
    }

    const URL: &str = "url = \"http://10.0.0.1:8545\"";

    fn upstream(tls: &str) -> String {
        with(URL, &format!("url = \"https://h\"\ntls = {tls}"))
    }

    #[test]
    fn certificates_and_keys_are_read() {
        let endpoint = |tls: &str| sound(&upstream(tls)).endpoints[0].tls.clone();
        assert_eq!(endpoint("{}"), Default::default());
        assert_eq!(endpoint("{ ca = \"two.pem\" }").roots.len(), 2);
        let own = endpoint("{ cert = \"cert.pem\", key = \"key.pem\" }").identity.expect("an identity");
        assert_eq!(endpoint("{ cert = \"both.pem\", key = \"both.pem\" }").identity, Some(own));
        let listen = |tls: &str| sound(&with("shards = 2", &format!("tls = {tls}"))).server.tls.expect("TLS");
        assert!(listen("{ cert = \"cert.pem\", key = \"key.pem\" }").client_roots.is_empty());
        let mutual = listen("{ cert = \"two.pem\", key = \"key.pem\", client_ca = \"cert.pem\" }");
        assert_eq!((mutual.identity.chain.len(), mutual.client_roots.len()), (2, 1));
        assert!(sound(&with(URL, "url = \"https://h\"")).endpoints[0].url.https);
    }

    #[test]
    fn what_can_t_be_used_is_a_fault_where_it_stands() {
        for (tls, key, says) in [
            ("{ ca = \"none.pem\" }", "ca", "can't be read (entity not found)"),
            ("{ ca = \"empty.pem\" }", "ca", "without a certificate"),
            ("{ ca = \"torn.pem\" }", "ca", "PEM is broken"),
            ("{ ca = \"odd.pem\" }", "ca", "can't be a root"),
            ("{ ca = \"large.pem\" }", "ca", "larger than 1 MiB"),
            ("{ cert = \"cert.pem\" }", "cert", "needs key beside it"),
            ("{ key = \"key.pem\" }", "key", "needs cert beside it"),
            ("{ cert = \"cert.pem\", key = \"other.pem\" }", "key", "not the key of the first certificate"),
            ("{ cert = \"cert.pem\", key = \"cert.pem\" }", "key", "without a private key"),
            ("{ cert = \"cert.pem\", key = \"locked.pem\" }", "key", "encrypted key"),
            ("{ cert = \"key.pem\", key = \"key.pem\" }", "cert", "without a certificate"),
            ("{ cert = \"odd.pem\", key = \"key.pem\" }", "key", "can't be used"),
        ] {
            faulty(&upstream(tls), &format!("endpoint[geth-1].tls.{key}"), says);
        }
        faulty(
            &with(URL, &format!("{URL}\ntls = {{ ca = \"cert.pem\" }}")),
            "endpoint[geth-1].tls",
            "the URL is http://",
        );
        for (tls, key, says) in [
            ("{ cert = \"cert.pem\" }", "key", "is missing"),
            ("{ key = \"key.pem\" }", "cert", "is missing"),
            ("{ cert = \"none.pem\", key = \"key.pem\" }", "cert", "the folder of this file"),
            (
                "{ cert = \"cert.pem\", key = \"key.pem\", client_ca = \"empty.pem\" }",
                "client_ca",
                "without a certificate",
            ),
        ] {
            faulty(&with("shards = 2", &format!("tls = {tls}")), &format!("server.tls.{key}"), says);
        }
    }

    #[test]
    fn a_certificate_that_nobody_accepts_today_is_warned_of() {
        let dated = |from: i32, to: i32| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
            (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
            params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
        };
        for (from, to, says) in [(2020, 2021, "is over"), (2990, 2999, "not valid yet"), (2020, 2999, "")] {
            let both = dated(from, to);
            let text = upstream("{ cert = \"both\", key = \"both\" }");
            let resolved =
                resolve_with(&text, &|_| Some("s3cret-of-env".to_owned()), &|_| Ok(both.clone().into()), None);
            assert!(resolved.snapshot.is_some(), "{:#?}", resolved.faults);
            match resolved.faults.as_slice() {
                [] => assert_eq!(says, ""),
                [one] => assert!(one.path == "endpoint[geth-1].tls.cert" && one.text.contains(says), "{one:?}"),
                more => panic!("{more:#?}"),
            }
        }
    }

    #[test]
    fn no_key_is_in_what_is_shown() {
        let snapshot = sound(&upstream("{ cert = \"cert.pem\", key = \"key.pem\" }"));
        let shown = format!("{:?}", snapshot.endpoints);
        assert!(shown.contains("PrivateKey(…)"), "{shown}");
    }
}
