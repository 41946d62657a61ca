//! Requests from a grammar that knows what parsers quarrel about, and bytes of them broken.

/// SplitMix64: small, and the same everywhere for one seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const METHODS: &[&str] =
    &["POST", "POST", "POST", "GET", "HEAD", "OPTIONS", "PUT", "post", "M-SEARCH", "CONNECT", "P!"];
const TARGETS: &[&str] = &[
    "/",
    "/eth",
    "/eth/KEY?a=b",
    "/a%20b?c?d",
    "/a//../b",
    "/?",
    "/{}|^`\"<>\\",
    "/~a;b=c,d",
    "*",
    "http://h.example/x?y",
    "http://h.example:8545",
    "HTTPS://h/?q",
    "http://[::1]:80/",
    "h.example:443",
    "/a#b",
    "http://u@h/",
    "http:///x",
    "ftp://h/x",
    "//h/x",
    "/\u{e9}",
    "relative",
];
const VERSIONS: &[&str] =
    &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "http/1.1"];
const FIELDS: &[&str] = &[
    "Content-Type: application/json",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: Keep-Alive, close",
    "Connection: x , keep-alive",
    "Connection: \u{e9}, close",
    "Expect: 100-continue",
    "Expect: x",
    "Accept: */*",
    "X: \u{e9}",
    "X:",
    "X:\ta\t",
    "a!#$%&'*+-.^_`|~: b",
    "Origin: http://a",
    "Upgrade: websocket",
    "Content-Encoding: gzip",
    "Transfer_Encoding: chunked",
    "X: a\r\n b",
    "X : a",
    " X: a",
    "X: \u{1}",
    "X",
    ": x",
    "Trailer: X",
    "Host: second",
    "X: \0",
    "Cookie: a=b; c=\"d\"",
];
const LENGTH_FORMS: &[&str] =
    &["N", "N", "N", "N", " N ", "0N", "+N", "N, N", "N,N", "N ,M", "N N", "0xN", "N.0", "", "-N", "N;", "M"];
const CODINGS: &[&str] = &[
    "chunked",
    "chunked",
    "chunked",
    "Chunked",
    " chunked\t",
    "gzip, chunked",
    "chunked, gzip",
    "identity",
    "chunked, chunked",
    "xchunked",
    "chunked;a=b",
    "",
    "\"chunked\"",
    ",chunked",
    "chunked,",
];

/// The bytes of one connection: up to three messages, and after that some damage.
pub fn connection(dice: &mut Dice) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + dice.below(3) {
        message(dice, &mut out);
    }
    if dice.one_in(2) {
        for _ in 0..1 + dice.below(3) {
            damage(dice, &mut out);
        }
    }
    if dice.one_in(8) {
        let length = dice.below(out.len() + 1);
        out.truncate(length);
    }
    out
}

fn line(out: &mut Vec<u8>, text: &str, end: &str) {
    // One byte a character: what is not ASCII is obs-text, not UTF-8.
    out.extend(text.chars().map(|c| c as u32 as u8));
    out.extend_from_slice(end.as_bytes());
}

fn message(dice: &mut Dice, out: &mut Vec<u8>) {
    for _ in 0..if dice.one_in(10) { dice.below(7) } else { 0 } {
        let end = if dice.one_in(6) { "\n" } else { "\r\n" };
        line(out, "", end);
    }
    // Most connections are ordinary but for one thing.
    let odd = dice.one_in(3);
    let method = if odd { dice.pick(METHODS) } else { "POST" };
    let target = if odd { dice.pick(TARGETS) } else { "/eth" };
    let version = if odd { dice.pick(VERSIONS) } else { "HTTP/1.1" };
    let blank = if dice.one_in(60) { dice.pick(&["  ", "\t", ""]) } else { " " };
    line(out, &format!("{method}{blank}{target} {version}"), "\r\n");
    let mut fields: Vec<String> = Vec::new();
    if !dice.one_in(20) {
        let odd_host = dice.one_in(15);
        fields.push(
            if odd_host {
                dice.pick(&["host: a:", "Host:", "HOST: [::1]:8545", "Host: a b", "Host: u@h", "Host: a,b"])
            } else {
                "Host: a"
            }
            .to_owned(),
        );
    }
    for _ in 0..dice.below(4) {
        let field = if dice.one_in(3) { dice.pick(FIELDS) } else { "Accept: */*" };
        fields.push(field.to_owned());
    }
    if dice.one_in(200) {
        let count = super::HEADERS_MAX - 2 + dice.below(5) - fields.len().min(2);
        fields.extend((0..count).map(|at| format!("F{at}: x")));
    }
    let body = body(dice, &mut fields);
    for at in (1..fields.len()).rev() {
        fields.swap(at, dice.below(at + 1));
    }
    for field in &fields {
        line(out, field, "\r\n");
    }
    line(out, "", "\r\n");
    out.extend_from_slice(&body);
}

/// A body, and the fields that frame it: well or badly.
fn body(dice: &mut Dice, fields: &mut Vec<String>) -> Vec<u8> {
    let payload = &b"{\"id\":1}\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"[..dice.pick(&[0, 1, 8, 12, 39])];
    match dice.below(8) {
        0 => return Vec::new(),
        1 | 2 => {
            fields.push(format!("Transfer-Encoding: {}", if dice.one_in(3) { dice.pick(CODINGS) } else { "chunked" }));
            return chunked(dice, payload);
        }
        3 if dice.one_in(3) => {
            fields.push("Transfer-Encoding: chunked".to_owned());
            lengths(dice, payload.len(), fields);
            return chunked(dice, payload);
        }
        _ => {}
    }
    lengths(dice, payload.len(), fields);
    payload.to_vec()
}

fn lengths(dice: &mut Dice, length: usize, fields: &mut Vec<String>) {
    for _ in 0..if dice.one_in(12) { 2 } else { 1 } {
        let form = if dice.one_in(4) { dice.pick(LENGTH_FORMS) } else { "N" };
        let value = form.replace('N', &length.to_string()).replace('M', &(length + 1).to_string());
        fields.push(format!("Content-Length: {value}"));
    }
}

fn chunked(dice: &mut Dice, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in payload.chunks(dice.pick(&[1, 5, 16, 100])) {
        size_line(dice, &mut out, chunk.len());
        out.extend_from_slice(chunk);
        let end = if dice.one_in(40) { dice.pick(&["\n", "", "\r", "x\r\n"]) } else { "\r\n" };
        line(&mut out, "", end);
    }
    size_line(dice, &mut out, 0);
    if dice.one_in(5) {
        let trailer = dice.pick(&["A: b", "A:", "A : b", " A: b", "A", "Content-Length: 5", "A: \u{1}", "A: b\r\n c"]);
        line(&mut out, trailer, "\r\n");
    }
    let end = if dice.one_in(40) { dice.pick(&["\n", "", "x\r\n"]) } else { "\r\n" };
    line(&mut out, "", end);
    out
}

fn size_line(dice: &mut Dice, out: &mut Vec<u8>, size: usize) {
    let digits = match dice.below(40) {
        0 => format!("{size:X}"),
        1 => format!("000{size:x}"),
        2 => format!("{size:017x}"),
        3 => format!("0x{size:x}"),
        4 => format!(" {size:x}"),
        5 => format!("{size:x} "),
        6 => String::new(),
        7 => format!("+{size:x}"),
        8 => format!("1000000000000000{size:x}"),
        _ => format!("{size:x}"),
    };
    let extension = match dice.below(12) {
        0 => dice.pick(&[
            ";a",
            ";a=b",
            ";a=\"b;\\\" c\"",
            ";",
            ";a=",
            "; a",
            ";a =b",
            ";a=\"b",
            " ;a",
            ";a\u{1}",
            ";\u{e9}",
            ";a=b\rc",
        ]),
        _ => "",
    };
    let end = if dice.one_in(60) { "\n" } else { "\r\n" };
    line(out, &format!("{digits}{extension}"), end);
}

fn damage(dice: &mut Dice, out: &mut Vec<u8>) {
    if out.is_empty() {
        return;
    }
    let at = dice.below(out.len());
    let byte = if dice.one_in(3) { dice.below(256) as u8 } else { dice.pick(b"\r\n \t:,;0129afPX\0\x7f\x80/#?*") };
    match dice.below(5) {
        0 => out[at] = byte,
        1 => out.insert(at, byte),
        2 => drop(out.remove(at)),
        3 => {
            let end = (at + dice.below(24)).min(out.len());
            let piece = out[at..end].to_vec();
            let to = dice.below(out.len());
            out.splice(to..to, piece);
        }
        _ => {
            let end = (at + dice.below(6)).min(out.len());
            out.drain(at..end);
        }
    }
}
