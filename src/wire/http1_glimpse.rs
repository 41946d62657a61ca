//! What can be told of a request head that is refused, or never came whole: enough to answer it in the right form.
//!
//! Nothing here is acted upon: it only chooses the words and the headers of an error that ends the connection.

use super::http1::{trim, visible};
use super::http1_request::REQUEST_ID_MAX;
use super::http1_target::read_target;

/// The parts of a broken head that could be read. Only lines that have ended count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glimpse<'b> {
    /// The path of the target.
    pub path: &'b str,
    /// HEAD: an answer has no body.
    pub head_only: bool,
    /// The authority of an absolute target, else `Host`.
    pub host: Option<&'b str>,
    /// `Origin`, if it came once.
    pub origin: Option<&'b str>,
    /// `X-Request-Id`, as it would be echoed to a good request.
    pub request_id: Option<&'b str>,
}

/// Looks at the head at the front of `buf`; `None` = not even its first line makes sense.
pub fn glimpse(buf: &[u8]) -> Option<Glimpse<'_>> {
    let ends = memchr::memchr_iter(b'\n', buf);
    let mut from = 0;
    let mut lines = ends.map(|end| {
        let line = &buf[from..end];
        from = end + 1;
        line.strip_suffix(b"\r").unwrap_or(line)
    });
    let first = lines.by_ref().find(|line| !line.is_empty())?;
    let mut words = first.split(|&byte| byte == b' ');
    let (method, target) = (visible(words.next()?)?.as_bytes(), words.next()?);
    let target = read_target(method, target).ok()?;
    let (mut host, mut origin, mut request_id) = (None, None, None);
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], visible(trim(&line[colon + 1..])));
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        if name.eq_ignore_ascii_case(b"host") {
            host = host.or(Some(value));
        } else if name.eq_ignore_ascii_case(b"origin") {
            origin = Some(if origin.is_none() { Some(value) } else { None });
        } else if name.eq_ignore_ascii_case(b"x-request-id") && value.len() <= REQUEST_ID_MAX {
            request_id = request_id.or(Some(value));
        }
    }
    Some(Glimpse {
        path: target.path,
        head_only: method == b"HEAD",
        host: target.authority.or(host),
        origin: origin.flatten(),
        request_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_a_broken_head_the_good_lines_are_seen() {
        let text = "\r\nPOST /eth?a=b HTTP/9.9 x\r\nHost: h:1\r\nX y: \0\r\nnocolon\norigin:  https://a.example \r\n\
                    X-Request-Id: r-1\r\nX-Request-Id: r-2\r\n\r\nOrigin: https://body.example\r\n";
        let seen = glimpse(text.as_bytes()).unwrap();
        assert_eq!((seen.path, seen.host, seen.head_only), ("/eth", Some("h:1"), false));
        assert_eq!((seen.origin, seen.request_id), (Some("https://a.example"), Some("r-1")));
        let seen = glimpse(b"HEAD http://other/x HTTP/1.1\r\nHost: h\r\n").unwrap();
        assert_eq!((seen.path, seen.host, seen.head_only), ("/x", Some("other"), true));
    }

    #[test]
    fn what_is_not_there_whole_or_twice_is_not_seen() {
        assert_eq!(glimpse(b"POST /eth HTTP/1.1\r\nOrigin: https://a.exa").unwrap().origin, None);
        let seen = glimpse(b"POST /eth HTTP/1.1\r\nOrigin: https://a\r\nOrigin: https://a\r\nOrigin: https://a\r\n");
        assert_eq!(seen.unwrap().origin, None);
        assert_eq!(glimpse(b"POST /eth HTTP/1.1\r\nOrigin: a\xffb\r\nX-Request-Id: a b\r\n").unwrap().request_id, None);
        for text in
            ["", "\r\n\r\n", "POST /eth HTTP/1.1", "POST\r\n", "POST eth x\r\n", "P\u{1}ST /eth\r\n", "\u{16}\u{3}\n"]
        {
            assert_eq!(glimpse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..80) {
            let _ = glimpse(&bytes);
            let text = b"POST /eth HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n";
            let _ = glimpse(&[&text[..cut.min(text.len())], &bytes].concat());
        }
    }
}
