//! Certificates for a run with TLS: a root, and a server's for `localhost` and 127.0.0.1; ECDSA P-256.

use std::{fs, io, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::wire::NAME;

/// Writes `ca.pem`, `cert.pem`, `key.pem`, and `both.pem` (HAProxy wants certificate and key in one file) to a folder.
pub fn write(into: &Path) -> io::Result<()> {
    let Made { ca, cert, key } = make().map_err(io::Error::other)?;
    for (name, text) in [("ca.pem", ca), ("both.pem", format!("{cert}{key}")), ("cert.pem", cert), ("key.pem", key)] {
        fs::write(into.join(name), text)?;
    }
    Ok(())
}

/// Root, certificate and key in PEM.
pub struct Made {
    /// The root.
    pub ca: String,
    /// The server's certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

/// Makes them anew.
pub fn make() -> Result<Made, rcgen::Error> {
    let mut root = CertificateParams::new(Vec::new())?;
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    root.distinguished_name.push(DnType::CommonName, "a root for one run");
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate()?)?;
    let mut server = CertificateParams::new(vec![NAME.to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, NAME);
    let key = KeyPair::generate()?;
    let cert = server.signed_by(&key, &root)?;
    Ok(Made { ca: root.pem(), cert: cert.pem(), key: key.serialize_pem() })
}
