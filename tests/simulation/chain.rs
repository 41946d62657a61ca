//! The simulated chain: which node holds which signed transaction, and what each says about one that it has
//! seen before. What a node means by its words is written down here a second time, to judge the judge.

use crate::simulation::node::Ending;
use crate::simulation::random::Random;
use crate::simulation::table::{How, Meaning, row};
use ringway::logic::broadcast::{Said, judge_error};
use ringway::logic::methods::Family;
use ringway::logic::snapshot::EndpointIx;
use ringway::logic::snapshot::Protocol;
use ringway::logic::units::{MS, Nanos, SECOND};
use ringway::logic::verdict::Body;

/// What a node's error means where the transaction may have been sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It holds this very transaction.
    Known,
    /// It has seen it, and says the same of what it turned down.
    Seen,
    /// Anything else.
    Other,
}

/// A node's error: what stands in it, and what it means by that.
#[derive(Debug, Clone, Copy)]
pub struct Speech {
    code: i64,
    message: &'static str,
    pub word: Word,
}

const fn speech(code: i64, message: &'static str, word: Word) -> Speech {
    Speech { code, message, word }
}

/// What nodes of several makes say to bytes that they have already. The last ones have wordings that are
/// nobody's, or that mean something else too.
const EVM: [Speech; 11] = [
    speech(-32000, "already known", Word::Known),
    speech(-32000, "Known transaction", Word::Known),
    speech(
        -32000,
        "known transaction: 0x608f9e3b4bb0a4fd63a8162b5cbee34c723093797b462c2a2f953dc251713d54",
        Word::Known,
    ),
    speech(-32003, "transaction already imported", Word::Known),
    speech(-32010, "Transaction with the same hash was already imported.", Word::Known),
    speech(-32010, "AlreadyKnown", Word::Seen),
    speech(-32000, "ALREADY_EXISTS: already known", Word::Seen),
    speech(-32000, "known transaction. transaction with hash 0x60 is already in the system", Word::Other),
    speech(3, "already known", Word::Other),
    speech(-32000, "nonce too low", Word::Other),
    speech(-32000, "replacement transaction underpriced", Word::Other),
];
const SOLANA: [Speech; 2] = [
    speech(-32002, "Transaction simulation failed: This transaction has already been processed", Word::Known),
    speech(-32002, "Transaction simulation failed: Blockhash not found", Word::Other),
];
/// No transaction has a name there.
const TRON: [Speech; 1] = [speech(-32000, "already known", Word::Other)];

/// What nodes say to bytes that they don't want.
const REFUSALS: [&str; 6] = [
    "nonce too low",
    "replacement transaction underpriced",
    "insufficient funds for gas * price + value",
    "unknown transaction",
    "execution reverted: already known",
    "OldNonce, Current nonce: 8, nonce of rejected tx: 7",
];

#[derive(Debug, Clone, Copy)]
struct Transaction {
    named: bool,
    /// Another one took its nonce: no node wants it.
    spoiled: bool,
    /// Nodes that have it, one bit each...
    holders: u128,
    /// ...and those that turned it down.
    refusers: u128,
}

pub struct Chain {
    protocol: Protocol,
    family: Family,
    /// What each node says to bytes that it has already.
    speeches: Vec<Speech>,
    transactions: Vec<Transaction>,
}

impl Chain {
    pub fn new((protocol, family): (Protocol, Family), nodes: usize, random: &mut Random) -> Chain {
        let speeches: &[Speech] = match family {
            Family::Evm => &EVM,
            Family::Solana => &SOLANA,
            Family::Tron => &TRON,
        };
        Chain {
            protocol,
            family,
            speeches: (0..nodes).map(|_| random.pick(speeches)).collect(),
            transactions: Vec::new(),
        }
    }

    /// The transaction of a new Call: a fresh one, or one that a caller sends once more.
    pub fn enters(&mut self, random: &mut Random) -> usize {
        if random.once_in(6) && !self.transactions.is_empty() {
            let back = random.below(4).min(self.transactions.len() as u64 - 1) as usize;
            return self.transactions.len() - 1 - back;
        }
        let named = self.family != Family::Tron && !random.once_in(8);
        self.transactions.push(Transaction { named, spoiled: random.once_in(6), holders: 0, refusers: 0 });
        self.transactions.len() - 1
    }

    /// Whether it has a name to ask by.
    pub fn named(&self, transaction: usize) -> bool {
        self.transactions[transaction].named
    }

    pub fn holds(&self, transaction: usize, node: EndpointIx) -> bool {
        self.transactions[transaction].holders & bit(node) != 0
    }

    /// Whether any node has it.
    pub fn took(&self, transaction: usize) -> bool {
        self.transactions[transaction].holders != 0
    }

    /// A node has read the bytes and would run them: whether it takes them now.
    pub fn runs(&mut self, transaction: usize, node: EndpointIx) -> bool {
        let transaction = &mut self.transactions[transaction];
        let fresh = transaction.holders & bit(node) == 0;
        if transaction.spoiled && fresh {
            transaction.refusers |= bit(node);
            return false;
        }
        transaction.holders |= bit(node);
        fresh
    }

    /// A node got the bytes, and this is how it would answer to an operation without a memory. Returns
    /// whether it takes them now, and what it says if it answers with an error.
    pub fn receives(
        &mut self,
        (transaction, node): (usize, EndpointIx),
        ending: &mut Ending,
        (executed, notification): (bool, bool),
        random: &mut Random,
    ) -> (bool, Option<Speech>) {
        let answers = row((self.protocol, self.family), notification, &ending.how).meaning == Meaning::Final;
        let succeeds = matches!(&ending.how, How::Answered(response) if response.body == Body::Result);
        let had = self.transactions[transaction];
        let runs = executed || (answers && succeeds);
        let own = self.speeches[usize::from(node.0)];
        let remembers = own.word == Word::Seen && had.refusers & bit(node) != 0;
        let takes = runs && !remembers && self.runs(transaction, node);
        let How::Answered(response) = &mut ending.how else { return (takes, None) };
        if runs && !takes && response.body == Body::Result {
            let said = match had.holders & bit(node) != 0 || remembers {
                true => own,
                false => speech(-32000, random.pick(&REFUSALS), Word::Other),
            };
            response.body = Body::Error(said.code);
            return (takes, Some(said));
        }
        let Body::Error(code) = response.body else { return (takes, None) };
        if answers && !runs {
            self.transactions[transaction].refusers |= bit(node);
        }
        (takes, Some(speech(code, random.pick(&REFUSALS), Word::Other)))
    }

    /// A node tells its peers, or some of them, or nobody: after how long.
    pub fn gossips(random: &mut Random) -> Option<Nanos> {
        let soon = random.pick(&[MS, 50 * MS, SECOND]);
        random.once_in(2).then(|| random.below(soon))
    }

    /// Some of the peers have heard of it.
    pub fn spreads(&mut self, transaction: usize, random: &mut Random) {
        let everybody = u128::MAX >> (128 - self.speeches.len());
        let some = (u128::from(random.bits()) << 64) | u128::from(random.bits());
        self.transactions[transaction].holders |= some & everybody;
    }

    /// What the judge makes of an error; wrong if the node meant something else.
    pub fn judged(&self, speech: Speech) -> Result<Said, String> {
        let said = judge_error(self.family, speech.code, speech.message);
        let right = match speech.word {
            Word::Known => Said::AlreadyKnown,
            Word::Seen => Said::Seen,
            Word::Other => Said::Other,
        };
        if said == right { Ok(said) } else { Err(format!("{speech:?} was taken for {said:?}")) }
    }
}

fn bit(node: EndpointIx) -> u128 {
    1u128 << node.0
}
