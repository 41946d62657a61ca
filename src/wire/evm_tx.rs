//! What is the hash of the transaction that an `eth_sendRawTransaction` carries?
//!
//! Legacy transactions and types 1 to 4 (EIP-2718, 2930, 1559, 4844, 7702): Keccak-256 of the signed bytes.
//! A blob transaction on its way to a node carries its blobs; the chain knows it without them (EIP-4844
//! "Networking", EIP-7594), and so does its hash. Only what the hash needs is looked at, in place: the outer
//! list must fit exactly and be written as RLP wants it, what stands in the payload is for the node to judge.

use super::hex::{self, Hex};
use super::params::{Elements, string};
use sha3::{Digest, Keccak256};

/// The type byte of blob transactions.
const BLOB: u8 = 3;

/// The hash that the chain knows the transaction by, from the JSON text of `params`: an array whose first
/// element is the `0x` text of the signed transaction (further elements change nothing).
///
/// `None` for other transaction types and for everything malformed.
pub fn transaction_hash(params: &[u8]) -> Option<[u8; 32]> {
    let mut elements = Elements::new(params)?;
    let first = elements.next_value().ok()??;
    while elements.next_value().ok()?.is_some() {}
    let text = string(first)?;
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    hash(Hex::new(digits)?)
}

/// `0x` and 64 lower-case digits.
pub fn hash_text(hash: &[u8; 32]) -> [u8; 66] {
    let mut text = [b'0'; 66];
    hex::encode(text.iter_mut().skip(2), hash);
    text[1] = b'x';
    text
}

fn hash(signed: Hex<'_>) -> Option<[u8; 32]> {
    match signed.byte(0)? {
        0xc0.. => {
            let list = Item::read(signed, 0, signed.len())?;
            (list.end == signed.len()).then(|| keccak(&[], signed))
        }
        kind @ 1..=4 => {
            let list = Item::read(signed, 1, signed.len())?;
            if !list.is_list || list.end != signed.len() {
                return None;
            }
            let payload = if kind == BLOB { blob_payload(signed, list)? } else { list };
            Some(keccak(&[kind], signed.range(payload.start, payload.end)?))
        }
        _ => None,
    }
}

/// The payload of a blob transaction, whose outer list is `list`: that list itself, or its first element if
/// it is the network form `[payload, blobs, commitments, proofs]` or
/// `[payload, wrapper version, blobs, commitments, proofs]`.
fn blob_payload(signed: Hex<'_>, list: Item) -> Option<Item> {
    let payload = Item::read(signed, list.content, list.end)?;
    if !payload.is_list {
        // The chain id: the payload without a wrapper.
        return Some(list);
    }
    let mut next = Item::read(signed, payload.end, list.end)?;
    if !next.is_list {
        // The only version there is; a later one might mean another layout.
        if signed.byte(next.content)? != 1 || next.end - next.content != 1 {
            return None;
        }
        next = Item::read(signed, next.end, list.end)?;
    }
    for _ in 0..2 {
        if !next.is_list {
            return None;
        }
        next = Item::read(signed, next.end, list.end)?;
    }
    (next.is_list && next.end == list.end).then_some(payload)
}

fn keccak(prefix: &[u8], bytes: Hex<'_>) -> [u8; 32] {
    let mut keccak = Keccak256::new_with_prefix(prefix);
    bytes.for_each_chunk(|chunk| keccak.update(chunk));
    keccak.finalize().into()
}

/// The place of one RLP item.
#[derive(Debug, Clone, Copy)]
struct Item {
    is_list: bool,
    /// Where its head starts.
    start: usize,
    /// Where its content starts.
    content: usize,
    /// Where it ends: not after the end of what holds it.
    end: usize,
}

impl Item {
    /// The item whose head stands at `start` and which ends at or before `limit`. Only the one encoding that
    /// RLP allows for a length is taken: clients hash what they decoded, not what they got.
    fn read(bytes: Hex<'_>, start: usize, limit: usize) -> Option<Item> {
        let bytes = bytes.range(0, limit)?;
        let head = bytes.byte(start)?;
        let after = start.checked_add(1)?;
        let (content, length) = match head {
            0..0x80 => (start, 1),
            0x80..=0xb7 => (after, usize::from(head - 0x80)),
            0xb8..=0xbf => long_length(bytes, after, usize::from(head - 0xb7))?,
            0xc0..=0xf7 => (after, usize::from(head - 0xc0)),
            0xf8.. => long_length(bytes, after, usize::from(head - 0xf7))?,
        };
        let end = content.checked_add(length).filter(|&end| end <= limit)?;
        if head == 0x81 && bytes.byte(content)? < 0x80 {
            return None;
        }
        Some(Item { is_list: head >= 0xc0, start, content, end })
    }
}

/// Where the content starts, and its length, from a length of `size` bytes at `at`.
fn long_length(bytes: Hex<'_>, at: usize, size: usize) -> Option<(usize, usize)> {
    let content = at.checked_add(size)?;
    let mut length = 0u64;
    for place in at..content {
        length = length << 8 | u64::from(bytes.byte(place)?);
    }
    let minimal = length >= 56 && bytes.byte(at)? != 0;
    minimal.then_some((content, usize::try_from(length).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The transaction and its hash from the example of EIP-155.
    const EIP_155: &str = "f86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025\
        a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3\
        dc64214b297fb1966a3b6d83";
    const EIP_155_HASH: &str = "0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788";

    fn digits(bytes: &[u8]) -> String {
        let mut digits = vec![0; bytes.len() * 2];
        hex::encode(&mut digits, bytes);
        String::from_utf8(digits).unwrap()
    }

    fn hash_of(bytes: &[u8]) -> Option<[u8; 32]> {
        transaction_hash(format!("[\"0x{}\"]", digits(bytes)).as_bytes())
    }

    fn keccak_of(parts: &[&[u8]]) -> [u8; 32] {
        let mut keccak = Keccak256::new();
        parts.iter().for_each(|part| keccak.update(part));
        keccak.finalize().into()
    }

    fn encoded(offset: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        let zeros = length.iter().take_while(|&&byte| byte == 0).count();
        let mut item = match content.len() {
            short @ 0..56 => vec![offset + short as u8],
            _ => [&[offset + 55 + (8 - zeros) as u8][..], &length[zeros..]].concat(),
        };
        item.extend_from_slice(content);
        item
    }

    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        encoded(0xc0, &items.concat())
    }

    fn text(content: &[u8]) -> Vec<u8> {
        match content {
            [0..0x80] => content.to_vec(),
            _ => encoded(0x80, content),
        }
    }

    /// A list of what stands in a signed transaction, as far as the hash cares: the chain id comes first.
    fn payload(fields: &[Vec<u8>]) -> Vec<u8> {
        let fields: Vec<_> = [text(&[1])].into_iter().chain(fields.iter().map(|field| text(field))).collect();
        list(&fields)
    }

    fn sidecar(blob: &[u8]) -> [Vec<u8>; 3] {
        [list(&[text(blob)]), list(&[text(&[7; 48])]), list(&[text(&[8; 48]), text(&[9; 48])])]
    }

    /// Both network forms of a blob transaction with this payload.
    fn network_forms(payload: &[u8], sidecar: [Vec<u8>; 3]) -> [Vec<u8>; 2] {
        let [blobs, commitments, proofs] = sidecar;
        let old = list(&[payload.to_vec(), blobs.clone(), commitments.clone(), proofs.clone()]);
        let new = list(&[payload.to_vec(), text(&[1]), blobs, commitments, proofs]);
        [old, new].map(|form| [&[BLOB][..], &form].concat())
    }

    #[test]
    fn the_example_of_eip_155() {
        let params = format!("[\"0x{EIP_155}\"]");
        let hash = transaction_hash(params.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&hash_text(&hash)), Ok(EIP_155_HASH));
    }

    #[test]
    fn only_what_the_text_says_counts() {
        let hash = transaction_hash(format!("[\"0x{EIP_155}\"]").as_bytes());
        assert!(hash.is_some());
        for params in [
            format!(" [ \"0x{EIP_155}\" ]\n"),
            format!("[\"0X{}\"]", EIP_155.to_uppercase()),
            format!("[\"0x{EIP_155}\",{{\"a\":[1]}} , null]"),
        ] {
            assert_eq!(transaction_hash(params.as_bytes()), hash, "{params}");
        }
    }

    #[test]
    fn malformed_params_have_no_hash() {
        for params in [
            "".to_owned(),
            "[]".to_owned(),
            "null".to_owned(),
            "[null]".to_owned(),
            "[[]]".to_owned(),
            "[\"\"]".to_owned(),
            "[\"0x\"]".to_owned(),
            "[\"0\"]".to_owned(),
            format!("\"0x{EIP_155}\""),
            format!("{{\"tx\":\"0x{EIP_155}\"}}"),
            format!("[\"{EIP_155}\"]"),
            format!("[\" 0x{EIP_155}\"]"),
            format!("[\"0x{EIP_155} \"]"),
            format!("[\"0x{EIP_155}0\"]"),
            format!("[\"0x{EIP_155}00\"]"),
            format!("[\"0x{}\"]", &EIP_155[..EIP_155.len() - 1]),
            format!("[\"0x{}\"]", &EIP_155[..EIP_155.len() - 2]),
            format!("[\"0x{}g\"]", &EIP_155[..EIP_155.len() - 1]),
            format!("[\"0x{EIP_155}\""),
            format!("[\"0x{EIP_155}]"),
            format!("[\"0x{EIP_155}\",]"),
            format!("[\"0x{EIP_155}\"]]"),
            format!("[1,\"0x{EIP_155}\"]"),
        ] {
            assert_eq!(transaction_hash(params.as_bytes()), None, "{params}");
        }
    }

    #[test]
    fn typed_transactions_are_hashed_with_their_type() {
        let payload = payload(&[vec![2; 20], vec![], vec![3; 100]]);
        for kind in 1..=4 {
            assert_eq!(hash_of(&[&[kind][..], &payload].concat()), Some(keccak_of(&[&[kind], &payload])), "{kind}");
        }
        for kind in (0..=255).filter(|kind| !(1..=4).contains(kind)) {
            assert_eq!(hash_of(&[&[kind][..], &payload].concat()), None, "{kind}");
        }
    }

    #[test]
    fn a_typed_transaction_is_a_list() {
        for kind in 1..=4 {
            for content in [vec![], vec![5], text(&[5; 80])] {
                assert_eq!(hash_of(&[&[kind][..], &content].concat()), None, "{kind} {content:?}");
            }
        }
    }

    #[test]
    fn lengths_have_one_encoding() {
        let [short, long] = [[1; 10], [1; 10]].map(|fields| fields.to_vec());
        for (list, right) in [
            ([vec![0xca], short.clone()].concat(), true),
            ([vec![0xf8, 10], short.clone()].concat(), false),
            ([vec![0xf9, 0, 10], short].concat(), false),
            ([vec![0xf8, 56], [long.clone(), vec![1; 46]].concat()].concat(), true),
            ([vec![0xf9, 0, 56], [long.clone(), vec![1; 46]].concat()].concat(), false),
            ([vec![0xf8, 55], [long, vec![1; 45]].concat()].concat(), false),
            (vec![0xff; 9], false),
            (vec![0xff; 200], false),
            (vec![0xf8], false),
            (vec![0xf9, 1], false),
        ] {
            assert_eq!(hash_of(&list), right.then(|| keccak_of(&[&list])), "{list:?}");
            let typed = [&[2][..], &list].concat();
            assert_eq!(hash_of(&typed), right.then(|| keccak_of(&[&typed])), "{typed:?}");
        }
    }

    #[test]
    fn a_real_blob_changes_nothing_about_the_hash() {
        let payload = payload(&[vec![4; 20], vec![5; 300]]);
        let expected = keccak_of(&[&[BLOB], &payload]);
        assert_eq!(hash_of(&[&[BLOB][..], &payload].concat()), Some(expected));
        for form in network_forms(&payload, sidecar(&vec![6; 131_072])) {
            assert_eq!(hash_of(&form), Some(expected));
        }
    }

    #[test]
    fn other_wrappers_have_no_hash() {
        let payload = payload(&[vec![4; 20]]);
        let [blobs, commitments, proofs] = sidecar(&[6; 100]);
        let lists = [blobs, commitments, proofs];
        let wrap = |items: Vec<Vec<u8>>| [&[BLOB][..], &list(&items)].concat();
        let with = |extra: &[Vec<u8>]| [std::slice::from_ref(&payload), extra].concat();
        for items in [
            with(&[]),
            with(&lists[..2]),
            with(&[text(&[1])]),
            with(&[&[text(&[1])], &lists[..2]].concat()),
            with(&[&lists[..], &[text(&[1])]].concat()),
            with(&[&lists[..], &[list(&[])]].concat()),
            with(&[&[text(&[1])], &lists[..], &[list(&[])]].concat()),
            with(&[&[text(&[])], &lists[..]].concat()),
            with(&[&[text(&[0])], &lists[..]].concat()),
            with(&[&[text(&[2])], &lists[..]].concat()),
            with(&[&[text(&[1, 1])], &lists[..]].concat()),
            with(&[text(&[1]), text(&[1]), lists[1].clone(), lists[2].clone()]),
            with(&[lists[0].clone(), text(&[9; 9]), lists[2].clone()]),
        ] {
            assert_eq!(hash_of(&wrap(items.clone())), None, "{items:?}");
        }
    }

    #[test]
    fn the_item_that_tells_the_forms_apart_is_well_formed() {
        for (first, right) in [(&[0x01][..], true), (&[0x81, 0x80], true), (&[0x81, 0x7f], false), (&[0x83, 1], false)]
        {
            let bare = [&[BLOB][..], &encoded(0xc0, first)].concat();
            assert_eq!(hash_of(&bare), right.then(|| keccak_of(&[&bare])), "{first:?}");
        }
    }

    fn fields() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..14)
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(params in ".{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            transaction_hash(params.as_bytes());
            transaction_hash(&bytes);
            if let Some(hash) = hash_of(&bytes) {
                prop_assert!(matches!(bytes[0], 1..=4 | 0xc0..));
                prop_assert!(bytes[0] == BLOB || hash == keccak_of(&[&bytes]));
            }
        }

        #[test]
        fn only_the_payload_of_a_blob_transaction_counts(
            fields in fields(),
            blob in prop::collection::vec(any::<u8>(), 0..400),
            place in any::<prop::sample::Index>(),
            flip in 1..=255u8,
        ) {
            let payload = payload(&fields);
            let expected = keccak_of(&[&[BLOB], &payload]);
            let bare = [&[BLOB][..], &payload].concat();
            prop_assert_eq!(hash_of(&bare), Some(expected));
            for form in network_forms(&payload, sidecar(&blob)) {
                prop_assert_eq!(hash_of(&form), Some(expected));
                // Any byte of it changed: the hash of what is the payload now, or none.
                let mut changed = form.clone();
                let at = place.index(form.len());
                changed[at] ^= flip;
                let start = form.len() - form[1..].windows(payload.len()).position(|part| part == payload).unwrap();
                let payload_at = form.len() - start + 1;
                let inside = (payload_at..payload_at + payload.len()).contains(&at);
                match hash_of(&changed) {
                    None => {}
                    Some(hash) if inside => prop_assert_ne!(hash, expected),
                    // A legacy or typed transaction of the same bytes, or the same payload.
                    Some(hash) if changed[0] == BLOB => prop_assert_eq!(hash, expected),
                    Some(hash) => prop_assert_ne!(hash, expected),
                }
            }
        }

        #[test]
        fn cut_or_longer_transactions_have_no_hash(
            fields in fields(),
            kind in 0..=4u8,
            cut in any::<prop::sample::Index>(),
            more in prop::collection::vec(any::<u8>(), 1..4),
        ) {
            let payload = payload(&fields);
            let bytes = if kind == 0 { payload } else { [&[kind][..], &payload].concat() };
            prop_assert_eq!(hash_of(&bytes), Some(keccak_of(&[&bytes])));
            prop_assert_eq!(hash_of(&bytes[..cut.index(bytes.len())]), None);
            prop_assert_eq!(hash_of(&[&bytes[..], &more].concat()), None);
        }
    }
}
