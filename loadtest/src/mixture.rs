//! Requests as callers of Ethereum's main network mix them: which method, and how large its result is.
//!
//! Both follow from the request alone, so that the upstream and the judge agree without talking: the method from the
//! request's number, the size from the key in its params. The shares and sizes are [`CLASSES`].

use crate::payload::{SIZE_MAX, Template, mix, seed};

/// The smallest result of a mix: `"0x…"` with one whole stamp, so that a swapped answer shows.
const RESULT_BYTES_MIN: usize = 20;
/// Bytes of `{"jsonrpc":"2.0","id":1,"result":}`: what measured sizes of answers hold besides the result.
const ENVELOPE_BYTES: f64 = 34.0;
/// Sizes of a class: this many quantiles, in even steps.
const LEVELS: usize = 64;
/// Draws methods and sizes apart from each other, from the keys and from the faults.
const METHOD_SALT: u64 = 0x6d65_7468_6f64;
const SIZE_SALT: u64 = 0x7369_7a65;

/// What the params of a method look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Params {
    /// `[{"to":…,"data":MARK},"latest"]`
    Call,
    /// `[{"fromBlock":…,"toBlock":…,"topics":[MARK]}]`
    Logs,
    /// `[MARK,"latest"]`
    AtLatest,
    /// `["latest",false,MARK]`: nodes take no third one, gateways don't count.
    Block,
    /// `[MARK]`
    Hash,
    /// None, and so no mark: the result can't be told from another's.
    None,
}

/// A method, its share and its sizes.
#[derive(Debug)]
pub struct Class {
    /// The method's name.
    pub method: &'static str,
    /// What its params look like.
    pub params: Params,
    /// Of a hundred requests, so many.
    pub share: u32,
    /// Bytes of an answer that half, nine tenths and all answers stay within.
    sizes: [f64; 3],
}

/// Measured on the main network: the shares of the first six methods, and the sizes of eth_call, of
/// eth_getBlockByNumber, of receipts (their largest apart: here twice the nine tenths) and of eth_getLogs. The other
/// 14 of 100 requests are not named there; here 2 are eth_getLogs and 12 ask for a number.
pub const CLASSES: &[Class] = &[
    Class { method: "eth_call", params: Params::Call, share: 53, sizes: [38.0, 187.0, 395.0] },
    Class { method: "eth_getBlockByNumber", params: Params::Block, share: 10, sizes: [11_000.0, 425_000.0, 623_000.0] },
    Class { method: "eth_getBalance", params: Params::AtLatest, share: 7, sizes: [54.0, 54.0, 54.0] },
    Class { method: "eth_chainId", params: Params::None, share: 6, sizes: [39.0, 39.0, 39.0] },
    Class { method: "eth_getTransactionReceipt", params: Params::Hash, share: 6, sizes: [1_000.0, 6_300.0, 12_600.0] },
    Class { method: "eth_blockNumber", params: Params::None, share: 4, sizes: [45.0, 45.0, 45.0] },
    Class { method: "eth_getLogs", params: Params::Logs, share: 2, sizes: [6_400.0, 274_000.0, 431_000.0] },
    Class { method: "eth_getTransactionCount", params: Params::AtLatest, share: 12, sizes: [54.0, 54.0, 54.0] },
];

impl Class {
    /// The class of request `n`.
    pub fn of(n: u64) -> &'static Self {
        let draw = mix(METHOD_SALT ^ mix(n)) % u64::from(CLASSES.iter().map(|class| class.share).sum::<u32>());
        let mut below = 0;
        let found = CLASSES.iter().find(|class| {
            below += u64::from(class.share);
            draw < below
        });
        found.unwrap_or(&CLASSES[0])
    }

    /// Bytes of a result at a quantile from 0 to 1: between the measured ones sizes grow by equal factors; the smallest
    /// is a quarter of the median.
    fn size(&self, quantile: f64) -> usize {
        let [p50, p90, most] = self.sizes;
        let (from, to, share) = if quantile < 0.5 {
            (p50 / 4.0, p50, quantile / 0.5)
        } else if quantile < 0.9 {
            (p50, p90, (quantile - 0.5) / 0.4)
        } else {
            (p90, most, (quantile - 0.9) / 0.1)
        };
        let answer = from * (to / from).powf(share);
        // A double as large as SIZE_MAX at most, and not negative: the cast keeps it.
        let result = (answer - ENVELOPE_BYTES).round().clamp(0.0, SIZE_MAX as f64) as usize;
        result.max(RESULT_BYTES_MIN)
    }
}

/// The results of a mix; each size's template is made when it is first needed.
pub struct Mixture {
    templates: Vec<Vec<Option<Template>>>,
}

impl Mixture {
    /// No template made yet.
    pub fn new() -> Self {
        let levels = || (0..LEVELS).map(|_| None).collect();
        Self { templates: CLASSES.iter().map(|_| levels()).collect() }
    }

    /// The template of the result of `method` that belongs to `key`; a method outside the mix is taken for the first.
    pub fn template(&mut self, method: &[u8], key: &[u8]) -> &Template {
        let at = CLASSES.iter().position(|class| class.method.as_bytes() == method).unwrap_or(0);
        // Below LEVELS, so it fits.
        let level = usize::try_from(mix(SIZE_SALT ^ seed(key)) % LEVELS as u64).unwrap_or(0);
        self.templates[at][level].get_or_insert_with(|| {
            let middle = (level as f64 + 0.5) / LEVELS as f64;
            Template::new(CLASSES[at].size(middle))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_hundred_and_are_met() {
        assert_eq!(CLASSES.iter().map(|class| class.share).sum::<u32>(), 100);
        for class in CLASSES {
            let met = (0..100_000).filter(|n| Class::of(*n).method == class.method).count();
            let wanted = class.share as usize * 1000;
            // Five standard deviations of the largest share.
            assert!(met.abs_diff(wanted) < 800, "{}: {met}", class.method);
        }
    }

    #[test]
    fn sizes_meet_what_was_measured() {
        let block = &CLASSES[1];
        assert_eq!(block.size(0.5), 11_000 - 34);
        assert_eq!(block.size(0.9), 425_000 - 34);
        assert_eq!(block.size(1.0), 623_000 - 34);
        assert_eq!(block.size(0.0), 11_000 / 4 - 34);
        assert_eq!(CLASSES[0].size(0.5), RESULT_BYTES_MIN);
        for class in CLASSES {
            let sizes: Vec<usize> = (0..=100).map(|hundredth| class.size(f64::from(hundredth) / 100.0)).collect();
            assert!(sizes.is_sorted(), "{}", class.method);
        }
    }

    #[test]
    fn a_result_follows_from_method_and_key_alone() {
        let (mut one, mut two) = (Mixture::new(), Mixture::new());
        let mut sizes = std::collections::BTreeSet::new();
        for n in (0..500u64).rev() {
            two.template(b"eth_getLogs", &n.to_be_bytes());
        }
        for n in 0..500u64 {
            let key = n.to_be_bytes();
            let (mut first, mut second) = (Vec::new(), Vec::new());
            one.template(b"eth_getLogs", &key).append(seed(&key), &mut first);
            two.template(b"eth_getLogs", &key).append(seed(&key), &mut second);
            assert!(first == second, "key {n}");
            sizes.insert(first.len());
        }
        assert_eq!(sizes.len(), LEVELS);
    }

    #[test]
    fn a_method_outside_the_mix_gets_a_result_too() {
        assert!(Mixture::new().template(b"eth_unheard", b"k").size() >= RESULT_BYTES_MIN);
    }
}
