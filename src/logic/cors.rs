//! Which pages of other sites may read answers (the Fetch standard's CORS protocol).
//!
//! No answer ever allows credentials, and no header of a caller but `traceparent` crosses to an Endpoint: so any
//! header that a page wants to send may be sent.

/// What a Gateway's `cors` allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cors {
    /// Every origin: `origins = ["*"]`.
    Any,
    /// These, as a browser serialises them: scheme, host and port, in lower case.
    Listed(Box<[Box<str>]>),
}

impl Cors {
    /// The value of `Access-Control-Allow-Origin` for a request from `origin`; `None` = that page may not read it.
    pub fn allows<'o>(&self, origin: &'o str) -> Option<&'o str> {
        match self {
            Cors::Any => Some("*"),
            Cors::Listed(origins) => origins.iter().any(|one| **one == *origin).then_some(origin),
        }
    }
}

/// Whether a text is an origin as browsers send it: `https://app.example`, `http://localhost:3000`, or `null`.
/// A path, a slash at the end, or capitals would never match.
pub fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return text == "null" };
    let is_scheme = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    let is_authority = |byte: u8| is_scheme(byte) && byte != b'+' || b"_:[]".contains(&byte);
    scheme.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && scheme.bytes().all(is_scheme)
        && !authority.is_empty()
        && authority.bytes().all(is_authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_are_allowed_and_are_named() {
        let cors = Cors::Listed(["https://app.example".into(), "http://localhost:3000".into()].into());
        assert_eq!(cors.allows("https://app.example"), Some("https://app.example"));
        assert_eq!(cors.allows("http://localhost:3000"), Some("http://localhost:3000"));
        for other in ["http://app.example", "https://app.example:8443", "https://app.example.evil.example", "null", ""]
        {
            assert_eq!(cors.allows(other), None, "{other}");
        }
        assert_eq!(Cors::Any.allows("https://any.example"), Some("*"));
    }

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for right in
            ["https://app.example", "http://localhost:3000", "http://[::1]:80", "null", "chrome-extension://abc"]
        {
            assert!(is_origin(right), "{right}");
        }
        for wrong in
            ["", "*", "app.example", "https://", "https://app.example/", "HTTPS://app.example", "https://App.example"]
        {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }
}
