//! What is publicly known of chains: their ids and how fast their blocks come, by the names that people write.
//!
//! Ids: the public registry at chainid.network (ethereum-lists/chains), as the chain definitions of viem 2.57
//! repeat it. Block times: those definitions, but for Ethereum's test networks (slots of 12 s in its consensus
//! specifications), Polygon's (as its chain), BSC (BEP-619: 0.45 s), opBNB (its Fourier upgrade: 0.25 s),
//! Sei (docs.sei.io: 0.4 s), Arbitrum Nova and TRON's test networks (as their chains).
//! Only times below a second change anything here, so a time that varies or that none of these gives is left out.

use super::units::{MS, Nanos, SECOND};

/// Facts about one public network.
#[derive(Debug)]
pub struct Known {
    /// Names of the chain.
    chains: &'static [&'static str],
    /// Names of the network.
    networks: &'static [&'static str],
    /// What `eth_chainId` says.
    pub chain_id: u64,
    /// Time between blocks.
    pub block_time_ns: Option<Nanos>,
}

/// What is known under these names; case counts, as everywhere in the configuration.
pub fn known(chain: &str, network: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.chains.contains(&chain) && known.networks.contains(&network))
}

/// So many blocks are normal to be behind: two, and on fast chains as many as come in two seconds, because a poll
/// and a block on its way take their time however fast blocks are.
pub fn max_lag(block_time_ns: Option<Nanos>) -> u64 {
    block_time_ns.map_or(LAG_MIN, |time| (2 * SECOND).div_ceil(time.max(1)).max(LAG_MIN))
}

const LAG_MIN: u64 = 2;

const MAINNET: &[&str] = &["mainnet"];
const SEPOLIA: &[&str] = &["sepolia"];
const TESTNET: &[&str] = &["testnet"];

/// Where blocks come when there is something to put into them, or no source above says how often.
const UNSAID: u64 = 0;

const fn row(
    chains: &'static [&'static str],
    networks: &'static [&'static str],
    chain_id: u64,
    block_time_ms: u64,
) -> Known {
    let block_time_ns = if block_time_ms == UNSAID { None } else { Some(block_time_ms * MS) };
    Known { chains, networks, chain_id, block_time_ns }
}

const ETHEREUM: &[&str] = &["ethereum", "eth"];
const POLYGON: &[&str] = &["polygon", "matic"];
const BSC: &[&str] = &["bsc", "bnb"];
const ARBITRUM: &[&str] = &["arbitrum", "arbitrum-one"];
const OPTIMISM: &[&str] = &["optimism", "op"];
const AVALANCHE: &[&str] = &["avalanche", "avax"];
const GNOSIS: &[&str] = &["gnosis", "xdai"];
const ZKSYNC: &[&str] = &["zksync", "zksync-era"];

static KNOWN: &[Known] = &[
    row(ETHEREUM, MAINNET, 1, 12_000),
    row(ETHEREUM, SEPOLIA, 11_155_111, 12_000),
    row(ETHEREUM, &["holesky"], 17_000, 12_000),
    row(ETHEREUM, &["hoodi"], 560_048, 12_000),
    row(&["ethereum-classic"], MAINNET, 61, UNSAID),
    row(POLYGON, MAINNET, 137, 2_000),
    row(POLYGON, &["amoy"], 80_002, 2_000),
    row(&["polygon-zkevm"], MAINNET, 1_101, UNSAID),
    row(BSC, MAINNET, 56, 450),
    row(BSC, &["testnet", "chapel"], 97, 450),
    row(&["opbnb"], MAINNET, 204, 250),
    row(&["opbnb"], TESTNET, 5_611, 250),
    row(ARBITRUM, &["mainnet", "one"], 42_161, 250),
    row(ARBITRUM, SEPOLIA, 421_614, 250),
    row(ARBITRUM, &["nova"], 42_170, 250),
    row(&["arbitrum-nova"], MAINNET, 42_170, 250),
    row(OPTIMISM, MAINNET, 10, 2_000),
    row(OPTIMISM, SEPOLIA, 11_155_420, 2_000),
    row(&["base"], MAINNET, 8_453, 2_000),
    row(&["base"], SEPOLIA, 84_532, 2_000),
    row(AVALANCHE, MAINNET, 43_114, 1_700),
    row(AVALANCHE, &["fuji"], 43_113, 1_700),
    row(GNOSIS, MAINNET, 100, 5_000),
    row(GNOSIS, &["chiado"], 10_200, 5_000),
    row(&["linea"], MAINNET, 59_144, 2_000),
    row(&["linea"], SEPOLIA, 59_141, 2_000),
    row(&["scroll"], MAINNET, 534_352, 3_000),
    row(&["scroll"], SEPOLIA, 534_351, 3_000),
    row(ZKSYNC, MAINNET, 324, 200),
    row(ZKSYNC, SEPOLIA, 300, 200),
    row(&["abstract"], MAINNET, 2_741, 200),
    row(&["abstract"], TESTNET, 11_124, 200),
    row(&["blast"], MAINNET, 81_457, 2_000),
    row(&["blast"], SEPOLIA, 168_587_773, 2_000),
    row(&["mantle"], MAINNET, 5_000, UNSAID),
    row(&["mantle"], SEPOLIA, 5_003, UNSAID),
    row(&["celo"], MAINNET, 42_220, 1_000),
    row(&["celo"], SEPOLIA, 11_142_220, 1_000),
    row(&["fantom"], MAINNET, 250, UNSAID),
    row(&["fantom"], TESTNET, 4_002, UNSAID),
    row(&["sonic"], MAINNET, 146, 630),
    row(&["unichain"], MAINNET, 130, 1_000),
    row(&["unichain"], SEPOLIA, 1_301, 1_000),
    row(&["berachain"], MAINNET, 80_094, 2_000),
    row(&["berachain"], &["bepolia"], 80_069, 2_000),
    row(&["monad"], MAINNET, 143, 300),
    row(&["monad"], TESTNET, 10_143, 300),
    row(&["ink"], MAINNET, 57_073, UNSAID),
    row(&["ink"], SEPOLIA, 763_373, UNSAID),
    row(&["worldchain"], MAINNET, 480, 2_000),
    row(&["zora"], MAINNET, 7_777_777, 2_000),
    row(&["mode"], MAINNET, 34_443, 2_000),
    row(&["soneium"], MAINNET, 1_868, 2_000),
    row(&["fraxtal"], MAINNET, 252, 2_000),
    row(&["cronos"], MAINNET, 25, UNSAID),
    row(&["moonbeam"], MAINNET, 1_284, UNSAID),
    row(&["moonriver"], MAINNET, 1_285, UNSAID),
    row(&["kaia"], MAINNET, 8_217, UNSAID),
    row(&["ronin"], MAINNET, 2_020, UNSAID),
    row(&["sei"], MAINNET, 1_329, 400),
    row(&["sei"], TESTNET, 1_328, 400),
    row(&["taiko"], MAINNET, 167_000, UNSAID),
    row(&["metis"], MAINNET, 1_088, UNSAID),
    row(&["hyperevm", "hyperliquid"], MAINNET, 999, UNSAID),
    row(&["plasma"], MAINNET, 9_745, 1_000),
    row(&["rootstock"], MAINNET, 30, UNSAID),
    row(&["tron"], MAINNET, 728_126_428, 3_000),
    row(&["tron"], &["nile"], 3_448_148_188, 3_000),
    row(&["tron"], &["shasta"], 2_494_104_990, 3_000),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn well_known_ids() {
        for (chain, network, id) in [
            ("ethereum", "mainnet", 0x1),
            ("eth", "mainnet", 0x1),
            ("ethereum", "sepolia", 0xaa36a7),
            ("ethereum", "holesky", 0x4268),
            ("ethereum", "hoodi", 0x88bb0),
            ("polygon", "mainnet", 0x89),
            ("bsc", "mainnet", 0x38),
            ("bsc", "chapel", 0x61),
            ("arbitrum", "mainnet", 0xa4b1),
            ("optimism", "mainnet", 0xa),
            ("base", "mainnet", 0x2105),
            ("avalanche", "mainnet", 0xa86a),
            ("gnosis", "mainnet", 0x64),
            ("linea", "mainnet", 0xe708),
            ("scroll", "mainnet", 0x82750),
            ("zksync", "mainnet", 0x144),
            ("celo", "mainnet", 0xa4ec),
            ("fantom", "mainnet", 0xfa),
            // A TRON chain's id is the last four bytes of its first block's hash.
            ("tron", "mainnet", 0x2b6653dc),
            ("tron", "nile", 0xcd8690dc),
            ("tron", "shasta", 0x94a9059e),
        ] {
            assert_eq!(known(chain, network).map(|known| known.chain_id), Some(id), "{chain} {network}");
        }
        for (chain, network) in [("ethereum", "Mainnet"), ("acme", "mainnet"), ("solana", "mainnet"), ("", "")] {
            assert!(known(chain, network).is_none(), "{chain} {network}");
        }
    }

    #[test]
    fn no_name_means_two_chains_and_one_id_is_one_pace() {
        let (mut names, mut paces) = (HashMap::new(), HashMap::new());
        for known in KNOWN {
            for chain in known.chains {
                for network in known.networks {
                    assert_eq!(names.insert((chain, network), known.chain_id), None, "{chain} {network}");
                }
            }
            let pace = *paces.entry(known.chain_id).or_insert(known.block_time_ns);
            assert_eq!(pace, known.block_time_ns, "{known:?}");
        }
    }

    #[test]
    fn what_comes_in_two_seconds_is_no_lag() {
        let of = |chain| max_lag(known(chain, "mainnet").expect("known").block_time_ns);
        let lags = ["ethereum", "tron", "celo", "sonic", "bsc", "monad", "arbitrum", "zksync", "fantom"].map(of);
        assert_eq!(lags, [2, 2, 2, 4, 5, 7, 8, 10, 2]);
        assert_eq!([None, Some(0), Some(1), Some(u64::MAX)].map(max_lag), [2, 2 * SECOND, 2 * SECOND, 2]);
        assert_eq!(max_lag(Some(999 * MS)), 3);
    }
}
