//! What TLS needs, as read from files: certificates and keys as bytes, before any library makes something of them.

/// A certificate in DER (X.509, RFC 5280).
pub type Certificate = Box<[u8]>;

/// The form of a private key's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// RFC 5958.
    Pkcs8,
    /// RFC 8017: RSA only.
    Pkcs1,
    /// RFC 5915: elliptic curves only.
    Sec1,
}

/// A private key in DER. It never reaches an error, a log, a metric or an admin answer.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    /// What its bytes are.
    pub form: KeyForm,
    /// Its bytes: for the TLS library, nothing else.
    pub der: Box<[u8]>,
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// Who somebody is: a certificate with those that lead to its root, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The own certificate first.
    pub chain: Vec<Certificate>,
    /// The key of the first.
    pub key: PrivateKey,
}

/// TLS towards an Endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Whom to trust; empty = whom this machine trusts.
    pub roots: Vec<Certificate>,
    /// What the Endpoint is shown if it asks.
    pub identity: Option<Identity>,
}

/// TLS towards callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenTls {
    /// What callers are shown.
    pub identity: Identity,
    /// Who may have signed a caller's certificate; empty = no caller needs one.
    pub client_roots: Vec<Certificate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let key = PrivateKey { form: KeyForm::Pkcs8, der: (*b"s3cret").into() };
        assert_eq!(format!("{key:?}"), "PrivateKey(…)");
    }
}
