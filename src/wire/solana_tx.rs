//! Which signature names the transaction that a Solana `sendTransaction` carries?
//!
//! Legacy and version 0 transactions: a count, that many signatures of 64 bytes, then the message. Others
//! (version 1 puts its signatures last, after a first byte of 129) are left to the node.

use super::json_text::unescape;
use super::params::{Elements, members, string};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The largest transaction: what fits one packet of 1280 bytes beside its headers.
const TRANSACTION_MAX: usize = 1232;
/// The longest base58 text that such a transaction can have. Decoding takes quadratic time: never more.
const BASE58_MAX: usize = 1683;
/// The longest base64 text.
const BASE64_MAX: usize = TRANSACTION_MAX.div_ceil(3) * 4;

const SIGNATURE: usize = 64;

/// The first signature in base58, from the JSON text of `params`: the transaction's text, and at most one
/// more element, an object (or `null`) whose `encoding` is `base58` (the default) or `base64`.
///
/// `None` for everything malformed.
pub fn first_signature(params: &[u8]) -> Option<String> {
    let mut elements = Elements::new(params)?;
    let text = unescape(string(elements.next_value().ok()??)?)?;
    let encoding = match elements.next_value().ok()? {
        None => Encoding::Base58,
        Some(options) if elements.next_value().ok()?.is_none() => Encoding::read(options)?,
        Some(_) => return None,
    };
    // One byte more than base64 decoding reckons with.
    let mut buffer = [0; BASE64_MAX / 4 * 3 + 1];
    let length = match encoding {
        Encoding::Base58 if text.len() <= BASE58_MAX => bs58::decode(text.as_bytes()).onto(&mut buffer).ok()?,
        Encoding::Base64 if text.len() <= BASE64_MAX => {
            BASE64_STANDARD.decode_slice(text.as_bytes(), &mut buffer).ok()?
        }
        _ => return None,
    };
    let signature = signature_of(buffer.get(..length)?)?;
    Some(bs58::encode(signature).into_string())
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Base58,
    Base64,
}

impl Encoding {
    fn read(options: &[u8]) -> Option<Encoding> {
        if options == b"null" {
            return Some(Encoding::Base58);
        }
        let [encoding] = members(options, [b"encoding"])?;
        let encoding = match encoding {
            None | Some(b"null") => return Some(Encoding::Base58),
            Some(value) => unescape(string(value)?)?,
        };
        match &*encoding {
            // `binary` is the old name of base58.
            "base58" | "binary" => Some(Encoding::Base58),
            "base64" => Some(Encoding::Base64),
            _ => None,
        }
    }
}

fn signature_of(transaction: &[u8]) -> Option<&[u8; SIGNATURE]> {
    if transaction.len() > TRANSACTION_MAX {
        return None;
    }
    // The count is a compact-u16; one of two bytes (128 and more) would not fit the packet.
    let (&count @ 1..0x80, rest) = transaction.split_first()? else { return None };
    let (signatures, message) = rest.split_at_checked(usize::from(count) * SIGNATURE)?;
    let required = match *message.first()? {
        // Version 0: the same header follows.
        0x80 => *message.get(1)?,
        0x81.. => return None,
        required => required,
    };
    // Each required signer has signed, or the node takes nothing.
    if required != count { None } else { signatures.first_chunk() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transaction(count: u8, head: &[u8], message: &[u8]) -> Vec<u8> {
        let signatures: Vec<u8> = (0..usize::from(count) * SIGNATURE).map(|at| (at * 7 % 251) as u8).collect();
        [&[count][..], &signatures, head, message].concat()
    }

    fn base58(bytes: &[u8]) -> String {
        bs58::encode(bytes).into_string()
    }

    fn in_base58(bytes: &[u8]) -> Option<String> {
        first_signature(format!("[\"{}\"]", base58(bytes)).as_bytes())
    }

    fn in_base64(bytes: &[u8]) -> Option<String> {
        let text = BASE64_STANDARD.encode(bytes);
        first_signature(format!("[\"{text}\",{{\"encoding\":\"base64\"}}]").as_bytes())
    }

    #[test]
    fn the_first_signature_of_either_version_and_encoding() {
        for count in [1, 2, 12] {
            for head in [&[count][..], &[0x80, count]] {
                let bytes = transaction(count, head, &[9; 100]);
                let expected = Some(base58(&bytes[1..65]));
                assert_eq!(in_base58(&bytes), expected, "{count} {head:?}");
                assert_eq!(in_base64(&bytes), expected, "{count} {head:?}");
            }
        }
    }

    #[test]
    fn base58_unless_the_options_say_otherwise() {
        let bytes = transaction(1, &[1], &[3; 150]);
        let expected = Some(base58(&bytes[1..65]));
        let (short, long) = (base58(&bytes), BASE64_STANDARD.encode(&bytes));
        for options in [
            "",
            ",null",
            ",{}",
            ",{\"skipPreflight\":true}",
            ",{\"encoding\":null}",
            ",{\"encoding\":\"base58\"}",
            ", {\"maxRetries\":3, \"encoding\" : \"binary\"} ",
        ] {
            assert_eq!(first_signature(format!("[\"{short}\"{options}]").as_bytes()), expected, "{options}");
            assert_eq!(first_signature(format!("[\"{long}\"{options}]").as_bytes()), None, "{options}");
        }
        let escaped = long.replace('/', "\\/");
        let options = "{\"preflightCommitment\":\"confirmed\",\"\\u0065ncoding\":\"base64\"}";
        assert_eq!(first_signature(format!("[\"{escaped}\",{options}]").as_bytes()), expected);
        for options in [
            ",1",
            ",\"base64\"",
            ",[]",
            ",{\"encoding\":\"base64\",\"encoding\":\"base64\"}",
            ",{\"encoding\":1}",
            ",{\"encoding\":\"BASE64\"}",
            ",{\"encoding\":\"json\"}",
            ",{\"encoding\":\"base64\"},1",
            ",{",
        ] {
            assert_eq!(first_signature(format!("[\"{short}\"{options}]").as_bytes()), None, "{options}");
            assert_eq!(first_signature(format!("[\"{long}\"{options}]").as_bytes()), None, "{options}");
        }
    }

    #[test]
    fn malformed_params_have_no_signature() {
        for params in ["", "[]", "[1]", "[null]", "[\"\"]", "{\"a\":1}", "[\"0OIl\"]", "[\"é\"]", "[\"\\ud800\"]"] {
            assert_eq!(first_signature(params.as_bytes()), None, "{params}");
        }
        let bytes = transaction(1, &[1], &[3; 150]);
        let unpadded = BASE64_STANDARD.encode(&bytes).trim_end_matches('=').to_owned();
        assert_eq!(bytes.len() % 3, 0, "one byte less needs padding");
        assert!(in_base64(&bytes[..bytes.len() - 1]).is_some());
        let cut = BASE64_STANDARD.encode(&bytes[..bytes.len() - 1]);
        for text in [cut.trim_end_matches('='), &format!("{unpadded}="), &format!("{unpadded} "), &unpadded[1..]] {
            let params = format!("[\"{text}\",{{\"encoding\":\"base64\"}}]");
            assert_eq!(first_signature(params.as_bytes()), None, "{params}");
        }
    }

    #[test]
    fn malformed_transactions_have_no_signature() {
        let signature = [5; SIGNATURE];
        for (bytes, why) in [
            (vec![], "nothing"),
            (vec![0, 1, 2, 3], "no signature"),
            ([&[1][..], &signature[1..]].concat(), "half a signature"),
            ([&[1][..], &signature].concat(), "no message"),
            ([&[2][..], &signature, &[2; 10]].concat(), "one signature of two"),
            ([&[1][..], &signature, &[2; 10]].concat(), "two signers, one signature"),
            ([&[1][..], &signature, &[0x80]].concat(), "no header"),
            ([&[1][..], &signature, &[0x80, 2]].concat(), "two signers, one signature, version 0"),
            ([&[1][..], &signature, &[0x81, 1, 1]].concat(), "another version"),
            ([&[0x81, 0][..], &signature, &[1; 10]].concat(), "a longer count"),
            ([&[0x81, 1][..], &[5; 600], &[1; 10]].concat(), "version 1, or 129 signatures"),
            (transaction(1, &[1], &[3; TRANSACTION_MAX]), "larger than a packet"),
        ] {
            assert_eq!(in_base58(&bytes), None, "{why}");
            assert_eq!(in_base64(&bytes), None, "{why}");
        }
    }

    #[test]
    fn the_largest_transaction_is_read() {
        let bytes = transaction(1, &[1], &[255; TRANSACTION_MAX - 66]);
        assert_eq!(bytes.len(), TRANSACTION_MAX);
        let expected = Some(base58(&bytes[1..65]));
        assert_eq!(in_base58(&bytes), expected);
        assert_eq!(in_base64(&bytes), expected);
        assert_eq!(in_base58(&[&bytes[..], &[1]].concat()), None);
        assert_eq!(in_base64(&[&bytes[..], &[1]].concat()), None);
        let highest = base58(&[255; TRANSACTION_MAX]);
        assert_eq!(highest.len(), BASE58_MAX, "no transaction has a longer text");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(params in ".{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            first_signature(params.as_bytes());
            first_signature(&bytes);
            prop_assert_eq!(in_base58(&bytes), in_base64(&bytes));
        }

        #[test]
        fn whatever_is_read_is_what_stands_first(
            count in 1..12u8,
            message in prop::collection::vec(any::<u8>(), 0..200),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = transaction(count, &[count], &message);
            let expected = Some(base58(&bytes[1..65]));
            prop_assert_eq!(in_base64(&bytes), expected.clone());
            let cut = cut.index(usize::from(count) * SIGNATURE + 1);
            prop_assert_eq!(in_base64(&bytes[..cut]), None);
        }
    }
}
