//! Which id names the transaction that a TRON broadcast carries?
//!
//! The id is the SHA-256 of the transaction's `raw_data` in protobuf bytes. A node makes the id of what it
//! decoded and encoded again: bytes that no usual encoder writes get none here.

use super::hex::Hex;
use super::params::{members, string};
use sha2::{Digest, Sha256};

/// The id of the transaction in the body of `/wallet/broadcasttransaction`, from its `raw_data_hex`.
///
/// Nodes read `raw_data` instead, so an answer that names another id than this is about another
/// transaction. `None` if `raw_data_hex` is missing, if `txID` contradicts it, or if the body is malformed.
pub fn txid_of_broadcast(body: &[u8]) -> Option<[u8; 32]> {
    let [raw_data, claimed] = members(body, [b"raw_data_hex", b"txID"])?;
    let raw_data = Hex::new(string(raw_data?)?)?;
    if !is_message(raw_data) {
        return None;
    }
    let id = sha256(raw_data);
    match claimed {
        Some(claimed) if !Hex::new(string(claimed)?)?.is(&id) => None,
        _ => Some(id),
    }
}

/// The id of the transaction in the body of `/wallet/broadcasthex`: `{"transaction":"..."}`, the protobuf
/// bytes of the whole transaction in hexadecimal. `None` if the body is malformed.
pub fn txid_of_hex(body: &[u8]) -> Option<[u8; 32]> {
    let [transaction] = members(body, [b"transaction"])?;
    let digits = string(transaction?)?;
    let transaction = Hex::new(digits.strip_prefix(b"0x").unwrap_or(digits))?;
    let mut raw_data = None;
    let mut fields = Fields { bytes: transaction, at: 0, last: 0 };
    while let Some(field) = fields.next_field()? {
        // A second one would be merged into the first.
        if field.number == RAW_DATA && raw_data.replace(field.content?).is_some() {
            return None;
        }
    }
    raw_data.filter(|&raw_data| is_message(raw_data)).map(sha256)
}

/// The field of a transaction that holds what is signed.
const RAW_DATA: u64 = 1;

fn sha256(bytes: Hex<'_>) -> [u8; 32] {
    let mut sha256 = Sha256::new();
    bytes.for_each_chunk(|chunk| sha256.update(chunk));
    sha256.finalize().into()
}

/// Whether this is a protobuf message with at least one field, all in rising order.
fn is_message(bytes: Hex<'_>) -> bool {
    let mut fields = Fields { bytes, at: 0, last: 0 };
    loop {
        match fields.next_field() {
            Some(Some(_)) => {}
            Some(None) => return !bytes.is_empty(),
            None => return false,
        }
    }
}

/// The fields of one protobuf message, one after the other.
struct Fields<'a> {
    bytes: Hex<'a>,
    at: usize,
    last: u64,
}

struct Field<'a> {
    number: u64,
    /// What a length-delimited field holds.
    content: Option<Hex<'a>>,
}

impl<'a> Fields<'a> {
    /// The next field; `Some(None)` at the end, `None` if the rest is no message as encoders write it.
    fn next_field(&mut self) -> Option<Option<Field<'a>>> {
        if self.at == self.bytes.len() {
            return Some(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number < self.last {
            return None;
        }
        self.last = number;
        let mut content = None;
        match tag & 7 {
            0 => _ = self.varint()?,
            1 => _ = self.take(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                content = Some(self.take(length)?);
            }
            5 => _ = self.take(4)?,
            // Groups, which proto3 does not have.
            _ => return None,
        }
        Some(Some(Field { number, content }))
    }

    fn take(&mut self, length: usize) -> Option<Hex<'a>> {
        let end = self.at.checked_add(length)?;
        let content = self.bytes.range(self.at, end)?;
        self.at = end;
        Some(content)
    }

    /// A number in its shortest form.
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes.byte(self.at)?;
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::hex;
    use super::*;
    use proptest::prelude::*;

    /// A call of a token contract on the Nile test network, and the id that the network knows it by.
    const RAW: &str = "0a028ad92208eaef69105495eb1540f09fc0cfcd335aae01081f12a9010a31747970652e676f6f676c65617069732e636f\
        6d2f70726f746f636f6c2e54726967676572536d617274436f6e747261637412740a1541495511a493d8c362be4267224e6d81013a6862ee\
        121541eca9bc828a3005b9a3b909f2cc5c2a54794de05f2244a9059cbb00000000000000000000004150125bea243a640bf85348873b6c4f\
        3c517aee7a00000000000000000000000000000000000000000000000000000000000000017090cbbccfcd33900180c2d72f";
    const ID: &str = "c70b20da8cb8d96a99c1aceb283412acb9dea313a9e467178431a3c6ae8b9f08";

    fn bytes(digits: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Hex::new(digits.as_bytes()).unwrap().for_each_chunk(|chunk| bytes.extend_from_slice(chunk));
        bytes
    }

    fn digits(bytes: &[u8]) -> String {
        let mut digits = vec![0; bytes.len() * 2];
        hex::encode(&mut digits, bytes);
        String::from_utf8(digits).unwrap()
    }

    fn sha256_of(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn field(number: u64, content: &[u8]) -> Vec<u8> {
        [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
    }

    fn of_hex(transaction: &[u8]) -> Option<[u8; 32]> {
        txid_of_hex(format!("{{\"transaction\":\"{}\"}}", digits(transaction)).as_bytes())
    }

    fn of_raw_data(raw_data: &[u8]) -> Option<[u8; 32]> {
        txid_of_broadcast(format!("{{\"raw_data_hex\":\"{}\"}}", digits(raw_data)).as_bytes())
    }

    #[test]
    fn a_known_transaction_has_its_known_id() {
        assert_eq!(of_raw_data(&bytes(RAW)).map(|id| digits(&id)).as_deref(), Some(ID));
    }

    #[test]
    fn both_bodies_name_the_same_transaction() {
        let raw = bytes(RAW);
        let id = sha256_of(&raw);
        let transaction = [field(1, &raw), field(2, &[7; 65]), field(2, &[8; 65])].concat();
        assert_eq!(of_hex(&transaction), Some(id));
        assert_eq!(of_raw_data(&raw), Some(id));
        for body in [
            format!(" {{\"transaction\" : \"0x{}\" }} ", digits(&transaction)),
            format!("{{\"visible\":true,\"transaction\":\"{}\"}}", digits(&transaction).to_uppercase()),
        ] {
            assert_eq!(txid_of_hex(body.as_bytes()), Some(id), "{body}");
        }
        let claimed = digits(&id);
        for body in [
            format!("{{\"txID\":\"{claimed}\",\"raw_data\":{{\"contract\":[{{}}]}},\"raw_data_hex\":\"{RAW}\"}}"),
            format!("{{\"raw_data_hex\":\"{RAW}\",\"signature\":[\"00\"],\"txID\":\"{}\"}}", claimed.to_uppercase()),
        ] {
            assert_eq!(txid_of_broadcast(body.as_bytes()), Some(id), "{body}");
        }
    }

    #[test]
    fn a_body_that_contradicts_itself_names_none() {
        let claimed = digits(&sha256_of(&bytes(RAW)));
        let other = digits(&sha256_of(b"other"));
        for id in [&*other, "", "0x", &claimed[2..], &format!("{claimed}00"), &format!("0x{claimed}")] {
            let body = format!("{{\"raw_data_hex\":\"{RAW}\",\"txID\":\"{id}\"}}");
            assert_eq!(txid_of_broadcast(body.as_bytes()), None, "{body}");
        }
        for rest in [
            format!(",\"txID\":\"{claimed}\",\"txID\":\"{claimed}\""),
            ",\"txID\":null".to_owned(),
            format!(",\"raw_data_hex\":\"{RAW}\""),
            format!(",\"raw_data\\u005fhex\":\"{RAW}\""),
        ] {
            let body = format!("{{\"raw_data_hex\":\"{RAW}\"{rest}}}");
            assert_eq!(txid_of_broadcast(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn malformed_bodies_name_none() {
        for body in [
            "".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            "{\"raw_data_hex\":1,\"transaction\":1}".to_owned(),
            "{\"raw_data_hex\":\"\",\"transaction\":\"\"}".to_owned(),
            "{\"raw_data_hex\":\"0\",\"transaction\":\"0\"}".to_owned(),
            "{\"raw_data_hex\":\"zz\",\"transaction\":\"zz\"}".to_owned(),
            format!("{{\"raw_data_hex\":\"0x{RAW}\",\"transaction\":\"{RAW}\"}}"),
            format!("{{\"raw_data_hex\":\"{RAW}\""),
            format!("{{\"raw_data_hex\":\"{RAW}\"}}}}"),
            format!("raw_data_hex={RAW}"),
        ] {
            assert_eq!(txid_of_broadcast(body.as_bytes()), None, "{body}");
            assert_eq!(txid_of_hex(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn bytes_that_a_node_would_encode_otherwise_name_none() {
        let raw = bytes(RAW);
        let one = field(1, &raw);
        for (transaction, why) in [
            ([one.clone(), one.clone()].concat(), "twice: they would be merged"),
            ([field(2, &[7; 65]), one.clone()].concat(), "falling order"),
            (field(2, &[7; 65]), "no raw_data"),
            (field(1, &[]), "an empty one"),
            ([&one[..], &[0x12]].concat(), "a field that is cut off"),
            ([&one[..], &[0x12, 5, 1]].concat(), "a content that is cut off"),
            ([&one[..], &[0x13]].concat(), "a group"),
            ([&one[..], &[0x10, 0x80, 0]].concat(), "a longer number than needed"),
            ([&one[..], &[0x10], &[0xff; 9], &[2]].concat(), "a number over 64 bits"),
            ([&one[..], &[0x10], &[0xff; 11]].concat(), "a number without end"),
            ([&one[..], &[0]].concat(), "field 0"),
            (vec![0x08, 1], "raw_data as a number"),
            (field(1, &[0x12]), "raw_data that is cut off"),
        ] {
            assert_eq!(of_hex(&transaction), None, "{why}");
        }
        let widest = [&one[..], &[0x10], &[0xff; 9], &[1]].concat();
        assert_eq!(of_hex(&widest), Some(sha256_of(&raw)), "all 64 bits");
        assert_eq!(of_raw_data(&[field(11, &raw), field(4, &raw)].concat()), None, "falling order in raw_data");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in ".{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            txid_of_hex(body.as_bytes());
            txid_of_broadcast(body.as_bytes());
            txid_of_hex(&bytes);
            txid_of_broadcast(&bytes);
            of_hex(&bytes);
            if let Some(id) = of_raw_data(&bytes) {
                prop_assert_eq!(id, sha256_of(&bytes));
            }
        }

        #[test]
        fn the_signatures_do_not_count_and_the_data_does(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..6),
            signature in prop::collection::vec(any::<u8>(), 0..70),
            place in any::<prop::sample::Index>(),
            flip in 1..=255u8,
        ) {
            let raw: Vec<u8> = contents.iter().zip(1..).flat_map(|(content, number)| field(number, content)).collect();
            let transaction = [field(1, &raw), field(2, &signature)].concat();
            let id = sha256_of(&raw);
            prop_assert_eq!(of_hex(&transaction), Some(id));
            prop_assert_eq!(of_raw_data(&raw), Some(id));
            let mut changed = raw.clone();
            changed[place.index(raw.len())] ^= flip;
            prop_assert_ne!(of_hex(&[field(1, &changed), field(2, &signature)].concat()), Some(id));
            prop_assert_eq!(of_hex(&transaction[..transaction.len() - 1]), None);
        }
    }
}
