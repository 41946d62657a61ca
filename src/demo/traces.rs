//! Traces of blocks: made up, one transaction in each.

use super::chain::{self, Hash, hex};
use super::past::{Answer, Past, Refusal, invalid};
use serde_json::{Value, json};

/// The hash of a block's transaction.
pub fn transaction(block: &Hash) -> Hash {
    chain::digest(b"transaction", block)
}

/// `trace_block`: the one call of its transaction.
pub fn of_block(params: &[Value], past: &Past) -> Answer {
    let Some(number) = traceable(params, past)? else { return Ok(Value::Null) };
    let block = past.branch.hash(number);
    Ok(json!([{
        "action": {
            "callType": "call",
            "from": "0x2222222222222222222222222222222222222222",
            "gas": "0x5208",
            "input": "0x",
            "to": "0x1111111111111111111111111111111111111111",
            "value": "0xde0b6b3a7640000",
        },
        "blockHash": hex(&block),
        "blockNumber": number,
        "result": {"gasUsed": "0x0", "output": "0x"},
        "subtraces": 0,
        "traceAddress": [],
        "transactionHash": hex(&transaction(&block)),
        "transactionPosition": 0,
        "type": "call",
    }]))
}

/// `debug_traceBlockByNumber`: the same without a tracer.
pub fn of_transactions(params: &[Value], past: &Past) -> Answer {
    let Some(number) = traceable(params, past)? else { return Err((-32000, "block not found".into())) };
    let hash = hex(&transaction(&past.branch.hash(number)));
    let result = json!({"gas": 21_000, "failed": false, "returnValue": "0x", "structLogs": []});
    Ok(json!([{"txHash": hash, "result": result}]))
}

/// The block to be traced; `None` = it is not there yet.
fn traceable(params: &[Value], past: &Past) -> Result<Option<u64>, Refusal> {
    let Some(number) = past.height(params.first()) else {
        return invalid("the first one must be a block number or tag").map(|_| None);
    };
    if number > past.branch.head() {
        return Ok(None);
    }
    past.has_history(number)?;
    past.has_state_before(number)?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::super::branch::Branch;
    use super::super::fleet::NODES;
    use super::*;

    #[test]
    fn a_trace_is_of_the_block_that_was_named() {
        let past = Past { node: &NODES[1], branch: Branch::common(1_790_000_000) };
        let trace = of_block(&["latest".into()], &past).unwrap();
        assert_eq!(trace[0]["blockHash"], hex(&past.branch.hash(past.branch.head())));
        assert_eq!(trace[0]["blockNumber"], past.branch.head());
        let same = of_transactions(&["latest".into()], &past).unwrap();
        assert_eq!(same[0]["txHash"], trace[0]["transactionHash"]);
    }

    #[test]
    fn what_is_not_there_is_not_traced() {
        let past = Past { node: &NODES[1], branch: Branch::common(1_790_000_000) };
        let next = [Value::from(chain::quantity(past.branch.head() + 1))];
        assert_eq!(of_block(&next, &past), Ok(Value::Null));
        assert_eq!(of_transactions(&next, &past).unwrap_err().0, -32000);
        assert_eq!(of_block(&["0x1".into()], &past).unwrap_err().1, "state at block #0 is pruned");
        assert_eq!(of_block(&[], &past).unwrap_err().0, -32602);
    }
}
