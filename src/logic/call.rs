//! What a Call is, before anybody decides anything about it.

use std::borrow::Cow;

/// What a repeated execution of the operation would mean; decides what may follow a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Reads, simulations and pure builders: any Endpoint, any number of times.
    Stateless,
    /// A transaction signed by the caller: the same bytes may be sent again, the chain takes them once.
    SignedBroadcast,
    /// Meaningful at one Endpoint only (filters, txpool, node status).
    Local,
    /// Changes something each time it runs.
    Effect,
    /// In no table, any other spelling or case included.
    Unrecognised,
}

impl Class {
    /// Whether the same bytes may be sent to another Endpoint after an ambiguous failure.
    pub const fn replayable(self) -> bool {
        matches!(self, Class::Stateless | Class::SignedBroadcast)
    }

    /// The word that people read.
    pub const fn word(self) -> &'static str {
        match self {
            Class::Stateless => "stateless",
            Class::SignedBroadcast => "signed_broadcast",
            Class::Local => "local",
            Class::Effect => "effect",
            Class::Unrecognised => "unrecognised",
        }
    }

    /// Whether a running attempt is cut short when the caller goes away: only what has no effect.
    pub const fn ends_with_caller(self) -> bool {
        matches!(self, Class::Stateless)
    }
}

/// The caller's id, byte for byte as it came (a string, a number or `null`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id<'a> {
    /// No `id` member: a notification.
    Absent,
    /// The JSON text of the id, quotes included.
    Present(&'a [u8]),
}

impl<'a> Id<'a> {
    /// The bytes that stand for this id in an answer; a notification that must be answered says `null`.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Id::Absent => b"null",
            Id::Present(bytes) => bytes,
        }
    }
}

/// One JSON-RPC call, borrowed from the bytes that the caller sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// The caller's id.
    pub id: Id<'a>,
    /// The decoded method name.
    pub method: Cow<'a, str>,
    /// The JSON text of `params`; absent if the caller sent none.
    pub params: Option<&'a [u8]>,
}

impl Call<'_> {
    /// A Call without an id: it is sent alone, and nobody waits for its answer.
    pub fn is_notification(&self) -> bool {
        self.id == Id::Absent
    }

    /// The id that goes upstream: the caller's own where no node can distort it
    /// (`0|[1-9][0-9]{0,14}`), else `fallback`.
    pub fn upstream_id(&self, fallback: u64) -> u64 {
        match self.id {
            Id::Present(bytes) => safe_integer(bytes).unwrap_or(fallback),
            Id::Absent => fallback,
        }
    }
}

/// Reads `0|[1-9][0-9]{0,14}`: integers that survive a 64-bit float and every JSON library.
pub fn safe_integer(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [b'0'] => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() <= 14 && rest.iter().all(u8::is_ascii_digit) => {
            Some(bytes.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_answered_to_the_byte_and_sent_on_where_no_node_distorts_it() {
        let call = |id| Call { id, method: "eth_chainId".into(), params: None };
        for (text, upstream) in [(&b"7"[..], 7), (b"\"7\"", 99), (b"1.0", 99), (b"null", 99)] {
            let call = call(Id::Present(text));
            assert!(!call.is_notification());
            assert_eq!((call.id.bytes(), call.upstream_id(99)), (text, upstream));
        }
        let notification = call(Id::Absent);
        assert!(notification.is_notification());
        assert_eq!((notification.id.bytes(), notification.upstream_id(99)), (&b"null"[..], 99));
    }

    #[test]
    fn only_integers_that_no_node_distorts_go_upstream_as_they_are() {
        assert_eq!(safe_integer(b"0"), Some(0));
        assert_eq!(safe_integer(b"7"), Some(7));
        assert_eq!(safe_integer(b"999999999999999"), Some(999_999_999_999_999));
        for odd in [&b""[..], b"00", b"01", b"-1", b"1.0", b"1e3", b"1000000000000000", b"\"7\"", b"null"] {
            assert_eq!(safe_integer(odd), None, "{}", String::from_utf8_lossy(odd));
        }
    }
}
