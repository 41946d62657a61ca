//! Which blocks does a result speak of? Their numbers and hashes, where the facts of the method say that they stand.
//!
//! The text was checked before and is JSON; what is none after all ends the walk, and harms nobody.

use super::block_args::{decimal, hex_number};
use super::hex::Hex;
use super::json::{Members, skip_value, skip_whitespace};
use super::json_text::says;
use super::jsonrpc_check::RESPONSE_DEPTH_MAX;
use super::params::string;
use crate::logic::block::Hash;
use crate::logic::facts::Shows;
use memchr::memchr;
use memchr::memmem::Finder;

/// Hands on the number and the hash of each block that `result` shows, in the order of the text, until `each` says
/// that it is enough (`false`). Where one of the two is missing, `null` or no number or hash, there is no block.
pub fn blocks(shows: Shows, result: &[u8], each: &mut dyn FnMut(u64, &Hash) -> bool) {
    let start = skip_whitespace(result, 0);
    let names = match shows {
        Shows::Nothing => return,
        Shows::Block => Names { number: b"number", hash: b"hash" },
        Shows::Inside | Shows::Listed => Names { number: b"blockNumber", hash: b"blockHash" },
    };
    if shows == Shows::Listed {
        return listed(result, start, each);
    }
    if let Some((number, hash)) = in_object(result, start, &names) {
        each(number, &hash);
    }
}

/// Whether a result says that there is nothing: `null`, or a list without elements.
pub fn is_empty(result: &[u8]) -> bool {
    match result.trim_ascii() {
        b"null" => true,
        [b'[', inner @ .., b']'] => skip_whitespace(inner, 0) == inner.len(),
        _ => false,
    }
}

struct Names {
    number: &'static [u8],
    hash: &'static [u8],
}

/// The block of the object that starts at `start`.
fn in_object(text: &[u8], start: usize, names: &Names) -> Option<(u64, Hash)> {
    if text.get(start) != Some(&b'{') {
        return None;
    }
    let (mut number, mut hash) = (None, None);
    let mut members = Members::new(text, start + 1);
    while let Some(name) = members.next_name().ok()? {
        let name = text.get(name)?;
        let (is_number, is_hash) = (says(name, names.number), says(name, names.hash));
        let value = text.get(members.skip(RESPONSE_DEPTH_MAX).ok()?)?;
        // Should one come twice, the first counts, here as elsewhere.
        if is_number && number.is_none() {
            number = Some(read_number(value)?);
        } else if is_hash && hash.is_none() {
            hash = Some(read_hash(value)?);
        }
        if let (Some(number), Some(hash)) = (number, hash) {
            return Some((number, hash));
        }
    }
    None
}

/// Elements one after the other.
fn listed(text: &[u8], start: usize, each: &mut dyn FnMut(u64, &Hash) -> bool) {
    if text.get(start) != Some(&b'[') {
        return;
    }
    let finders = Finders { number: Finder::new(b"\"blockNumber\""), hash: Finder::new(b"\"blockHash\"") };
    let mut at = skip_whitespace(text, start + 1);
    while let Ok(end) = skip_value(text, at, RESPONSE_DEPTH_MAX) {
        let found = text.get(at..end).and_then(|element| finders.in_element(element));
        if found.is_some_and(|(number, hash)| !each(number, &hash)) {
            return;
        }
        at = skip_whitespace(text, end);
        match text.get(at) {
            Some(b',') => at = skip_whitespace(text, at + 1),
            _ => return,
        }
    }
}

struct Finders {
    number: Finder<'static>,
    hash: Finder<'static>,
}

impl Finders {
    fn in_element(&self, element: &[u8]) -> Option<(u64, Hash)> {
        let inner = element.strip_prefix(b"{")?;
        let slow = || in_object(element, 0, &Names { number: b"blockNumber", hash: b"blockHash" });
        // With no other object in it and no escape, a name that is found is a name of this object and the only way
        // to write it.
        if memchr(b'{', inner).is_some() || memchr(b'\\', inner).is_some() {
            return slow();
        }
        let number = read_number(value_of(&self.number, inner)?)?;
        Some((number, read_hash(value_of(&self.hash, inner)?)?))
    }
}

/// The scalar behind the first place where the quoted name stands as a name. Without escapes, quotes are no part of
/// what a string says: what is found between two of them is a whole string, and a name if a colon follows.
fn value_of<'t>(finder: &Finder<'_>, inner: &'t [u8]) -> Option<&'t [u8]> {
    let mut from = 0;
    loop {
        let at = from + finder.find(inner.get(from..)?)?;
        from = at + finder.needle().len();
        let colon = skip_whitespace(inner, from);
        if inner.get(colon) == Some(&b':') {
            let start = skip_whitespace(inner, colon + 1);
            return inner.get(start..skip_value(inner, start, 0).ok()?);
        }
    }
}

/// A quantity, or a number as traces have it.
fn read_number(value: &[u8]) -> Option<u64> {
    string(value).map_or_else(|| decimal(value), hex_number)
}

fn read_hash(value: &[u8]) -> Option<Hash> {
    let hex = Hex::new(string(value)?.strip_prefix(b"0x")?)?;
    let mut hash = Hash::default();
    if hex.len() != hash.len() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = hex.byte(at)?;
    }
    Some(hash)
}
