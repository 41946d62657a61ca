//! What providers say when they refuse, limit or break, from the public record: one row each, and what it must mean.

/// What an answer must be taken for; where it goes out itself, as which words of the caller's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The answer.
    Final(&'static str),
    /// Not taken: every operation goes on. The reason that callers read if nothing is left.
    Refused(&'static str),
    /// Perhaps executed: only what may be repeated goes on.
    Ambiguous(&'static str),
    /// The same, but it goes out unchanged if nothing better comes.
    Kept(&'static str),
}

/// What it does to the Endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Its Circuit stays closed.
    None,
    /// One more failure.
    Failure,
    /// One more failure, unless something went well within the window.
    FailureIfNew,
    /// It is left alone for a while, and has not failed.
    Rest,
}

/// How the body is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Length,
    Chunks,
    GzipInChunks,
}

/// One provider's answer. In `body` and `fields` `ID` stands for the id that was sent, `ELSEWHERE` for another host.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub provider: &'static str,
    /// Where it was reported; empty for what needs no witness.
    pub source: &'static str,
    pub status: u16,
    pub fields: &'static [&'static str],
    pub form: Form,
    pub body: &'static str,
    pub meaning: Meaning,
    pub effect: Effect,
}

const JSON: &[&str] = &["Content-Type: application/json"];
const TEXT: &[&str] = &["content-type: text/plain; charset=UTF-8"];
const HTML: &[&str] = &["Content-Type: text/html"];
const REJECTED: (Meaning, Effect) = (Meaning::Refused("rejected"), Effect::FailureIfNew);
const LIMITED: (Meaning, Effect) = (Meaning::Refused("rate_limited"), Effect::Rest);
const NO_ANSWER: (Meaning, Effect) = (Meaning::Ambiguous("invalid_response"), Effect::Failure);
const BROKEN: (Meaning, Effect) = (Meaning::Ambiguous("http_status"), Effect::Failure);

const fn answer(words: &'static str) -> (Meaning, Effect) {
    (Meaning::Final(words), Effect::None)
}

const fn row(
    provider: &'static str,
    source: &'static str,
    (status, fields): (u16, &'static [&'static str]),
    body: &'static str,
    (meaning, effect): (Meaning, Effect),
) -> Row {
    Row { provider, source, status, fields, form: Form::Length, body, meaning, effect }
}

/// JSON-RPC. Rate limits and quotas first, then keys, then what is no answer, then what is one.
#[rustfmt::skip]
pub const JSON_RPC: &[Row] = &[
    // 429: busy, whatever the body is. Waits in a body are nobody's: see `a_wait_in_a_body_is_not_read`.
    row("Infura, per second", "INFURA/infura#201", (429, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"project ID request rate exceeded","data":{"rate":{"allowed_rps":50,"backoff_seconds":0,"current_rps":52.3},"see":"https://infura.io/docs/ethereum/json-rpc/ratelimits"}}}"#,
        LIMITED),
    row("Infura, the older form", "ethers-io/ethers.js#640", (429, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"project ID request rate exceeded","data":{"see":"https://infura.io/docs/ethereum/jsonrpc/ratelimits","current_rps":13.333,"allowed_rps":10.0,"backoff_seconds":30.0}}}"#,
        LIMITED),
    row("Infura, per day", "gochain/web3#180", (429, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited","data":{"rate":{"allowed_rps":1,"backoff_seconds":0,"current_rps":2.2},"see":"https://infura.io/dashboard"}}}"#,
        LIMITED),
    row("Infura, without an id", "herdius/herdius-core#58", (429, JSON),
        r#"{"jsonrpc":"2.0","error":{"code":-32005,"message":"legacy access request rate exceeded","data":{"reason":"project ID not provided","see":"https://infura.io/dashboard"}}}"#,
        LIMITED),
    row("Alchemy, compute units", "conduitxyz/node#36", (429, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":429,"message":"Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message."}}"#,
        LIMITED),
    row("Alchemy, per month", "ethers-io/ethers.js#5071", (429, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":429,"message":"Monthly capacity limit exceeded."}}"#, LIMITED),
    row("QuickNode, no envelope", "foundry-rs/foundry#4894", (429, JSON),
        r#"{"code":-32007,"message":"100/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"}"#,
        LIMITED),
    row("QuickNode, in an envelope", "quicknode.com/docs: error references", (429, JSON),
        r#"{"jsonrpc":"2.0","error":{"code":429,"message":"The requests per second (RPS) of your requests are higher than your plan allows."},"id":ID}"#,
        LIMITED),
    row("Chainstack", "mysteriumnetwork/payments#129", (429, HTML),
        "<html>\n<head><title>429 Too Many Requests</title></head>\n<body>\n</body></html>", LIMITED),
    row("MaticVigil", "mysteriumnetwork/payments#129", (429, JSON),
        r#"{"error":{"details":"Rate limit exceeded: 40 per 1 second. Check response body for more details on backoff."}}"#,
        LIMITED),
    row("Base (proxyd)", "base/node#368", (429, JSON),
        r#"{"jsonrpc":"2.0","error":{"code":-32016,"message":"over rate limit"},"id":ID}"#, LIMITED),
    row("Cloudflare, plain text", "web3/web3.js#4843", (429, TEXT), "error code: 1015", LIMITED),
    row("a Solana RPC pool", "solana-labs/cluster#26", (429, HTML), "<html><body>slow down, please</body></html>", LIMITED),
    row("with a wait in its head", "RFC 6585, 4", (429, &["retry-after: 3", "content-type: text/html"]),
        "<html><body>I only allow 50 requests per hour</body></html>", LIMITED),
    row("unavailable for so long", "RFC 9110, 15.6.4", (503, &["Retry-After: 2"]), "Service Unavailable, come again", LIMITED),
    // The same words under 200 are a valid answer of the node, and final: the caller hears them.
    row("QuickNode, under 200", "foundry-rs/foundry#4894", (200, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32007,"message":"100/second request limit reached - reduce calls per second"}}"#,
        answer(r#""error":{"code":-32007,"message":"100/second request limit reached - reduce calls per second"}"#)),
    row("Chainstack, under 200", "BobTheBuidler/dank_mids#728", (200, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"You've exceeded the RPS limit available on the current plan."}}"#,
        answer(r#""error":{"code":-32005,"message":"You've exceeded the RPS limit available on the current plan."}"#)),
    row("Alchemy, per month, under 200", "a16z/zkdocs#9", (200, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Monthly capacity limit exceeded."}}"#,
        answer(r#""error":{"code":-32000,"message":"Monthly capacity limit exceeded."}"#)),
    // 401, 402, 403: our key, our plan, our place. Never for the caller, whatever code is in it.
    row("Infura, wrong key", "graphprotocol/indexer#145",
        (401, &["content-type: text/plain; charset=utf-8", "www-authenticate: Basic realm=\"Auth failure, invalid project id\""]),
        "invalid project id\n", REJECTED),
    row("Infura, no archive", "miguelmota/ethereum-development-with-go-book#42", (403, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32002,"message":"project ID is required to access archive state","data":{"see":"https://infura.io/dashboard"}}}"#,
        REJECTED),
    row("Alchemy, per month, as an invalid request", "xmtp/xmtpd#672", (403, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"Monthly capacity limit exceeded. Visit the dashboard to upgrade your scaling policy for continued service."}}"#,
        REJECTED),
    row("Ankr, with a code that is one of ours", "wevm/viem#3476", (403, TEXT),
        "message: API key is not allowed to access blockchain, json-rpc code: -32052, rest code: 403", REJECTED),
    row("a plan that is not paid", "RFC 9110, 15.5.3", (402, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"upgrade your plan for this method"}}"#, REJECTED),
    row("a key for another path", "RFC 9110, 15.5.5", (404, JSON), r#"{"message":"no Route matched with those values"}"#, REJECTED),
    // What is no answer.
    row("Ankr, without a key", "BitteProtocol/near-ca#173", (200, JSON),
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Unauthorized: You must authenticate your request with an API key."},"id":null}"#,
        NO_ANSWER),
    row("Infura, the wrong Host", "INFURA/infura#82", (200, JSON), "invalid host specified", NO_ANSWER),
    row("a page that wants a browser", "MetaMask/metamask-extension#1424", (200, HTML),
        "<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>", NO_ANSWER),
    row("no envelope", "blockscout/blockscout#8226", (200, JSON),
        r#"{"message":"429 Too Many Requests","result":null,"status":"0"}"#, NO_ANSWER),
    row("a word and no envelope", "", (200, JSON), r#"{"message":"Internal Server Error"}"#, NO_ANSWER),
    row("nothing", "", (200, JSON), "", NO_ANSWER),
    row("an array for one Call", "ethers-io/ethers.js#3155", (200, JSON),
        r#"[{"jsonrpc":"2.0","id":ID,"result":"somebody's words"}]"#, NO_ANSWER),
    row("the answer to another Call", "erpc/erpc#846", (200, JSON),
        r#"{"jsonrpc":"2.0","id":1234567890123,"result":"somebody's words"}"#, NO_ANSWER),
    row("no batches", "ethers-io/ethers.js#3155", (200, JSON),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch too large"}}"#, NO_ANSWER),
    row("Infura, its backend", "INFURA/infura#12", (502, HTML), "<html><body>the backend is not there</body></html>", BROKEN),
    row("Infura, too long a request", "MetaMask/metamask-extension#1424", (500, HTML), "<html><body>something is wrong</body></html>", BROKEN),
    row("CloudFront", "MyEtherWallet/etherwallet#906", (502, HTML),
        "<HTML><HEAD><TITLE>ERROR: The request could not be satisfied</TITLE></HEAD></HTML>", BROKEN),
    row("unavailable, for who knows how long", "tronprotocol/tronweb#237", (503, HTML),
        "<html><body>Service Temporarily Unavailable</body></html>", BROKEN),
    row("Cloudflare, origin unknown", "developers.cloudflare.com: 5xx errors", (520, TEXT), "error code: 520, unknown origin", BROKEN),
    row("Cloudflare, origin too slow", "developers.cloudflare.com: 5xx errors", (524, TEXT), "error code: 524, slow origin", BROKEN),
    row("proxyd without backends", "ethereum-optimism/infra: proxyd", (503, JSON),
        r#"{"jsonrpc":"2.0","error":{"code":-32011,"message":"no backends available for method"},"id":ID}"#,
        (Meaning::Kept(r#""error":{"code":-32011,"message":"no backends available for method"}"#), Effect::Failure)),
    // Another place: never followed, no key goes there.
    row("moved for good", "RFC 9110, 15.4", (301, &["Location: http://ELSEWHERE/v3/key"]), "moved permanently, sorry", REJECTED),
    row("moved for now", "RFC 9110, 15.4", (302, &["location: //ELSEWHERE/"]), "moved temporarily, sorry", REJECTED),
    row("moved, the same way", "RFC 9110, 15.4", (307, &["Location: http://ELSEWHERE/"]), "moved temporarily, sorry", REJECTED),
    row("moved for good, the same way", "RFC 9110, 15.4", (308, &["Location: http://ELSEWHERE/"]), "moved permanently, sorry", REJECTED),
    // Whose fault a 400 is shows in its body.
    row("a 400 with an answer", "ethereum/go-ethereum: nodes and proxies vary", (400, JSON),
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":3,"message":"execution reverted","data":"0x08c379a0"}}"#,
        answer(r#""error":{"code":3,"message":"execution reverted","data":"0x08c379a0"}"#)),
    row("a 400 without one", "", (400, TEXT), "Bad Request, says a proxy", (Meaning::Refused("bad_request"), Effect::None)),
    row("a body that is too long for a proxy", "quicknode.com/docs: error references", (413, HTML),
        "<html><body>Request Entity Too Large</body></html>", (Meaning::Refused("bad_request"), Effect::None)),
    // Odd, and good.
    row("labelled as text", "", (200, TEXT), r#"{"jsonrpc":"2.0","id":ID,"result":"0x1"}"#, answer(r#""result":"0x1""#)),
    row("no label", "", (200, &[]), "\u{feff}", NO_ANSWER),
    Row { form: Form::Chunks, ..row("in chunks", "", (200, &["CONTENT-TYPE: APPLICATION/JSON"]),
        "\n {\"id\":ID,\"result\":null,\"jsonrpc\":\"2.0\"}\n", answer(r#""result":null"#)) },
    Row { form: Form::GzipInChunks, ..row("in chunks and gzip, which nobody asked for", "drpcorg/dshackle#192", (200, &["content-encoding: gzip"]),
        r#"{"jsonrpc":"2.0","id":ID,"result":{"a":[1e999]}}"#, answer(r#""result":{"a":[1e999]}"#)) },
    Row { form: Form::GzipInChunks, ..row("limited, in chunks and gzip", "", (429, &["content-encoding: gzip"]),
        "<html><body>slow down, please</body></html>", LIMITED) },
];

/// TRON's HTTP API.
#[rustfmt::skip]
pub const TRON_HTTP: &[Row] = &[
    row("TronGrid, too many a second", "iexbase/tron-api#171", (403, JSON),
        r#"{"Error":"request rate exceeded the allowed_rps(10), and the query server is suspended for 5 s"}"#, REJECTED),
    row("TronGrid, frequency limit", "developers.tron.network: rate limits", (403, JSON),
        r#"{"Error":"The key exceeds the frequency limit(30), and the query server is suspended for 30s"}"#, REJECTED),
    row("TronGrid, frequency limit, v1", "developers.tron.network: rate limits", (403, JSON),
        r#"{"success":false,"error":"The key exceeds the frequency limit(15), and the query server is suspended for 30s","statusCode":403}"#, REJECTED),
    row("TronGrid, too many", "tronprotocol/wallet-cli#985", (429, JSON), r#"{"Error":"too many requests, please slow down"}"#, LIMITED),
    row("TronGrid, the older way", "tronprotocol/tronweb#237", (503, HTML),
        "<html><body>Service Temporarily Unavailable</body></html>", BROKEN),
    row("TronGrid, its backend", "tronprotocol/tron-grid#10", (504, HTML),
        "<html><head><title>504 Gateway Time-out</title></head></html>", BROKEN),
    row("TronGrid, at times", "TRON-US/trongrid#9", (404, JSON), r#"{"success":false,"statusCode":404,"error":"Not Found, at times"}"#, REJECTED),
    row("TronGrid, per day, under 200", "andelf/tronpy#148", (200, JSON),
        r#"{"Error":"Exceed the user daily usage (100000), the maximum query frequency is 1 time per second"}"#,
        answer(r#"{"Error":"Exceed the user daily usage (100000), the maximum query frequency is 1 time per second"}"#)),
    row("moved", "RFC 9110, 15.4", (302, &["Location: http://ELSEWHERE/wallet"]), "moved temporarily, sorry", REJECTED),
    row("a page that wants a browser", "tronscan/tronscan-frontend#1580", (403, HTML),
        "<html>\n<head><title>403 Forbidden</title></head>\n<body>\n</body>\n</html>", REJECTED),
    row("a page under 200", "", (200, HTML), "<!DOCTYPE html><html>Just a moment...</html>", NO_ANSWER),
    Row { form: Form::GzipInChunks, ..row("in gzip", "", (200, &["content-encoding: gzip"]), r#"{ "a":1 }"#, answer(r#"{ "a":1 }"#)) },
];
