//! Judges answers: each one against what was asked, byte for byte.

use memchr::memmem;

use crate::{
    batch,
    exchange::{BEFORE_ID, BEFORE_RESULT, CHAIN_ID, Results, TIP, Work, append_height, append_id, key, value},
    mixture::Params,
    payload::seed,
};

/// An upstream is at most this many blocks past its start.
const TIP_SPAN: u64 = 100_000;

/// What an answer's body turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The id and the result of the request, byte for byte.
    Right,
    /// Another id, or none.
    WrongId,
    /// The right id with another result.
    WrongPayload,
    /// The right id with a JSON-RPC error.
    RpcError,
}

/// Judges the answers of a run.
pub struct Judge {
    work: Work,
    results: Results,
    /// The height that the upstream told last.
    height: u64,
    expected: Vec<u8>,
}

impl Judge {
    /// Expects the answers to what `work` asks for.
    pub fn new(work: Work) -> Self {
        let (results, expected) = (Results::new(work.size, work.mix), Vec::with_capacity(work.size + 128));
        Self { work, results, height: TIP, expected }
    }

    /// Judges the body that came for request `n`.
    pub fn judge(&mut self, n: u64, body: &[u8]) -> Judgement {
        if self.work.batch == 1 {
            return self.judge_call(n, body);
        }
        self.expected.clear();
        for call in self.work.calls(n) {
            self.expected.push(if self.expected.is_empty() { b'[' } else { b',' });
            self.expect(call);
        }
        self.expected.push(b']');
        if body == self.expected.as_slice() { Judgement::Right } else { self.judge_members(n, body) }
    }

    /// The slow look at a batch: its members may come in any order, but each Call's must be among them.
    fn judge_members(&mut self, n: u64, body: &[u8]) -> Judgement {
        let Some(members) = batch::members(body) else { return Judgement::WrongPayload };
        if members.len() as u64 != self.work.batch {
            return Judgement::WrongId;
        }
        for (at, call) in self.work.calls(n).enumerate() {
            let in_place = members.get(at).map_or(Judgement::WrongId, |member| self.judge_call(call, member));
            let found = in_place == Judgement::Right
                || members.iter().any(|member| self.judge_call(call, member) == Judgement::Right);
            if !found {
                // Where another Call's answer stands, the order is free and what is missing is this one's.
                return in_place;
            }
        }
        Judgement::Right
    }

    /// Judges the answer to Call `n`.
    fn judge_call(&mut self, n: u64, body: &[u8]) -> Judgement {
        if self.is_right(n, body) {
            return Judgement::Right;
        }
        self.expected.clear();
        let (id_end, result_start) = self.expect(n);
        if body == self.expected.as_slice() {
            return Judgement::Right;
        }
        if self.asks_for_height(n)
            && let Some(height) = height(body).filter(|height| *height != self.height)
        {
            self.height = height;
            return self.judge_call(n, body);
        }
        let result_end = self.expected.len() - 1;
        let (id, result) = (&self.expected[BEFORE_ID.len()..id_end], &self.expected[result_start..result_end]);
        inspect(body, id, result)
    }

    /// The quick look: compares in place, since copying a large result costs more than comparing it.
    fn is_right(&mut self, n: u64, body: &[u8]) -> bool {
        let (method, params) = self.work.asks(n);
        if params == Params::None {
            return false;
        }
        self.expected.clear();
        self.expected.extend_from_slice(BEFORE_ID);
        append_id(n, &mut self.expected);
        self.expected.extend_from_slice(BEFORE_RESULT);
        let result = body.strip_prefix(self.expected.as_slice()).and_then(|rest| rest.strip_suffix(b"}"));
        let key = key(n);
        result.is_some_and(|result| self.results.template(method.as_bytes(), &key).is(seed(&key), result))
    }

    fn asks_for_height(&self, n: u64) -> bool {
        self.work.asks(n).0 == "eth_blockNumber"
    }

    /// Appends the answer to Call `n` to what is expected. Says where its id ends and its result begins.
    fn expect(&mut self, n: u64) -> (usize, usize) {
        let expected = &mut self.expected;
        expected.extend_from_slice(BEFORE_ID);
        append_id(n, expected);
        let id_end = expected.len();
        expected.extend_from_slice(BEFORE_RESULT);
        let result_start = expected.len();
        match self.work.asks(n) {
            ("eth_chainId", _) => expected.extend_from_slice(CHAIN_ID),
            ("eth_blockNumber", _) => append_height(self.height, expected),
            (method, _) => {
                let key = key(n);
                self.results.template(method.as_bytes(), &key).append(seed(&key), expected);
            }
        }
        expected.push(b'}');
        (id_end, result_start)
    }
}

/// The height that an answer tells, if an upstream can have got there.
fn height(body: &[u8]) -> Option<u64> {
    const BEFORE: &[u8] = b"\"result\":\"0x";
    let rest = body.get(memmem::find(body, BEFORE)? + BEFORE.len()..)?;
    let digits = rest.get(..memchr::memchr(b'"', rest)?)?;
    let height = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (TIP..TIP + TIP_SPAN).contains(&height).then_some(height)
}

/// The slow look at an answer that isn't as expected: says what is wrong, or that only the members' order differs.
fn inspect(body: &[u8], id: &[u8], result: &[u8]) -> Judgement {
    let result_first = [b"{\"jsonrpc\":\"2.0\",\"result\":", result, b",\"id\":", id, b"}"].concat();
    if body == result_first {
        return Judgement::Right;
    }
    let found = memmem::find_iter(body, b"\"id\":").any(|at| value(&body[at + 5..]) == id);
    if !found {
        Judgement::WrongId
    } else if memmem::find(body, b"\"error\":").is_some() {
        Judgement::RpcError
    } else {
        Judgement::WrongPayload
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        exchange::{Asker, Reader, append_answer_start},
        mixture::Class,
        payload::Template,
    };

    fn request(n: u64, size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        Asker::new("h", "/eth", Work::single(size)).append(n, &mut out);
        out
    }

    fn body(message: &[u8]) -> &[u8] {
        let at = memmem::find(message, b"\r\n\r\n").unwrap();
        &message[at + 4..]
    }

    fn answer(id: &[u8], key: &[u8], size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        append_answer_start(id, &mut out);
        Template::new(size).append(seed(key), &mut out);
        out.push(b'}');
        out
    }

    #[test]
    fn the_upstream_sees_the_id_and_key_that_were_asked() {
        for size in [120, 5000] {
            for n in 0..64 {
                let message = request(n, size);
                let seen = Reader::new().see(body(&message));
                let mut id = Vec::new();
                append_id(n, &mut id);
                assert_eq!(seen.id, id);
                assert_eq!(seen.key, key(n));
                assert!(seen.marked);
                assert_eq!(Judge::new(Work::single(size)).judge(n, &answer(seen.id, seen.key, size)), Judgement::Right);
            }
        }
    }

    #[test]
    fn a_judge_tells_wrong_ids_results_and_errors_apart() {
        let mut judge = Judge::new(Work::single(120));
        for n in 0..8 {
            let mut id = Vec::new();
            append_id(n, &mut id);
            let right = answer(&id, &key(n), 120);
            assert_eq!(judge.judge(n, &right), Judgement::Right);
            assert_eq!(judge.judge(n, &answer(&id, &key(n + 4), 120)), Judgement::WrongPayload);
            assert_eq!(judge.judge(n, &answer(b"77", &key(n), 120)), Judgement::WrongId);
            assert_eq!(judge.judge(n, &right[..right.len() - 1]), Judgement::WrongPayload);
            assert_eq!(judge.judge(n, b""), Judgement::WrongId);
            let error = [b"{\"id\":", id.as_slice(), b",\"error\":{\"code\":-32000}}"].concat();
            assert_eq!(judge.judge(n, &error), Judgement::RpcError);
        }
    }

    #[test]
    fn each_changed_byte_of_an_answer_is_seen() {
        let mut judge = Judge::new(Work::single(2000));
        let mut id = Vec::new();
        append_id(5, &mut id);
        let right = answer(&id, &key(5), 2000);
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert_ne!(judge.judge(5, &wrong), Judgement::Right, "byte {at}");
        }
    }

    #[test]
    fn the_order_of_the_members_is_free() {
        let mut result = Vec::new();
        Template::new(120).append(seed(&key(0)), &mut result);
        let swapped = [b"{\"jsonrpc\":\"2.0\",\"result\":", result.as_slice(), b",\"id\":0}"].concat();
        assert_eq!(Judge::new(Work::single(120)).judge(0, &swapped), Judgement::Right);
    }

    const BATCH: Work = Work { size: 120, batch: 20, mix: false };
    const MIX: Work = Work { size: 120, batch: 1, mix: true };

    /// What an upstream answers to the members of a batch.
    fn member_answers(n: u64) -> Vec<Vec<u8>> {
        let mut message = Vec::new();
        Asker::new("h", "/eth", BATCH).append(n, &mut message);
        let reader = Reader::new();
        let asked = batch::members(body(&message)).unwrap();
        asked.iter().map(|call| reader.see(call)).map(|seen| answer(seen.id, seen.key, 120)).collect()
    }

    fn array(members: &[Vec<u8>]) -> Vec<u8> {
        [b"[".as_slice(), &members.join(b",".as_slice()), b"]"].concat()
    }

    #[test]
    fn a_batch_is_right_in_any_order() {
        let mut judge = Judge::new(BATCH);
        for n in 0..3 {
            let mut members = member_answers(n);
            assert_eq!(members.len(), 20);
            assert_eq!(judge.judge(n, &array(&members)), Judgement::Right);
            members.reverse();
            assert_eq!(judge.judge(n, &array(&members)), Judgement::Right);
            assert_eq!(judge.judge(n + 1, &array(&members)), Judgement::WrongId);
        }
    }

    #[test]
    fn one_wrong_member_of_a_batch_is_seen() {
        let (mut judge, right) = (Judge::new(BATCH), member_answers(2));
        for at in 0..right.len() {
            let with = |member: Vec<u8>| {
                let mut members = right.clone();
                members[at] = member;
                array(&members)
            };
            let mut changed = right[at].clone();
            let place = changed.len() - 10;
            changed[place] ^= 1;
            assert_eq!(judge.judge(2, &with(changed)), Judgement::WrongPayload, "member {at}");
            // Another one twice, with this one missing.
            assert_eq!(judge.judge(2, &with(right[(at + 1) % 20].clone())), Judgement::WrongId, "member {at}");
            let mut id = Vec::new();
            append_id(40 + at as u64, &mut id);
            let error = [b"{\"id\":", id.as_slice(), b",\"error\":{\"code\":-32055}}"].concat();
            assert_eq!(judge.judge(2, &with(error)), Judgement::RpcError, "member {at}");
        }
        assert_eq!(judge.judge(2, &array(&right[1..])), Judgement::WrongId);
        assert_eq!(judge.judge(2, &right[0]), Judgement::WrongPayload);
        assert_eq!(judge.judge(2, b"[{"), Judgement::WrongPayload);
    }

    #[test]
    fn a_mix_asks_for_every_method_and_swapped_results_show() {
        let (mut judge, mut results, reader) = (Judge::new(MIX), Results::new(0, true), Reader::new());
        let mut methods = HashSet::new();
        for n in 0..400 {
            let mut message = Vec::new();
            Asker::new("h", "/eth", MIX).append(n, &mut message);
            let seen = reader.see(body(&message));
            methods.insert(seen.method.to_vec());
            if !seen.marked {
                continue;
            }
            let mut right = |key: &[u8]| {
                let mut out = Vec::new();
                append_answer_start(seen.id, &mut out);
                results.template(seen.method, key).append(seed(key), &mut out);
                out.push(b'}');
                out
            };
            let (own, others) = (right(seen.key), right(&key(n + 1)));
            assert_eq!(judge.judge(n, &own), Judgement::Right, "request {n}");
            assert_eq!(judge.judge(n, &others), Judgement::WrongPayload, "request {n}");
        }
        assert_eq!(methods.len(), crate::mixture::CLASSES.len());
    }

    #[test]
    fn a_height_may_have_grown_and_nothing_else() {
        let mut judge = Judge::new(MIX);
        let n = (0..).find(|n| Class::of(*n).method == "eth_blockNumber").unwrap();
        let mut told = |result: &str| {
            let mut out = Vec::new();
            append_answer_start(
                &{
                    let mut id = Vec::new();
                    append_id(n, &mut id);
                    id
                },
                &mut out,
            );
            out.extend_from_slice(result.as_bytes());
            out.push(b'}');
            judge.judge(n, &out)
        };
        for result in ["\"0x1312d00\"", "\"0x1312d07\"", "\"0x1312d00\""] {
            assert_eq!(told(result), Judgement::Right, "{result}");
        }
        for result in ["\"0x1312cff\"", "\"0x01312d00\"", "\"0x1312D00\"", "\"0x2\"", "null", "\"0x1312d00"] {
            assert_eq!(told(result), Judgement::WrongPayload, "{result}");
        }
    }
}
