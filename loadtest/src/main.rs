//! Arguments and exit code: 0 = all went right, 1 = bad answers, 2 = could not run.

mod batch;
mod caller;
mod certificates;
mod cores;
mod cpu;
mod exchange;
mod faults;
mod http;
mod judge;
mod load;
mod mixture;
mod payload;
mod relay;
mod reply;
mod schedule;
mod served;
mod share;
mod tally;
mod timer;
mod upstream;
mod wire;

use std::{
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};

use crate::{
    exchange::Work,
    faults::{Fault, Faults},
    load::Plan,
    relay::Relay,
    reply::Manner,
    share::Sharing,
    upstream::Upstream,
};

/// Open-loop load and a scripted upstream for gateways of JSON-RPC.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer JSON-RPC as cheaply as possible; prints the bound address on a line, then serves until it is killed.
    Upstream(UpstreamArgs),
    /// Write a root and a server's certificate for `localhost` to a folder: ca.pem, cert.pem, key.pem, both.pem.
    Certificates {
        /// The folder.
        #[arg(long)]
        into: PathBuf,
    },
    /// Carry bytes, understanding nothing: the floor under every proxy; prints the bound address on a line.
    Relay {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Where the bytes go.
        #[arg(long)]
        to: SocketAddr,
        /// A spike instead: whole requests of all callers, pipelined on so many upstream connections.
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
        share: Option<u16>,
    },
    /// Send requests at a fixed rate and judge every answer; a JSON line goes to stdout, a line for people to stderr.
    Load(LoadArgs),
}

#[derive(Args)]
struct UpstreamArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Bytes of each result; above 1,024 an array of logs.
    #[arg(long, default_value_t = 120, value_parser = size)]
    size: usize,
    /// Results as large as the main network's, by method; in place of --size.
    #[arg(long)]
    mix: bool,
    /// Microseconds before each answer.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=60_000_000))]
    delay_us: u64,
    /// Threads; connections are dealt to them in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// The share of requests that get a fault, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    fault_rate: f64,
    /// The kinds of fault, by equal shares.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "status503")]
    fault: Vec<Fault>,
    /// Give the first kind of fault to this request (counted from 1 on each thread).
    #[arg(long)]
    fault_at: Option<u64>,
    /// Another sequence of faults.
    #[arg(long, default_value_t = 0)]
    fault_seed: u64,
    /// Speak TLS with the certificates in this PEM file; each handshake is told on stderr.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Their key.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Milliseconds before a stalled answer.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(..=600_000))]
    stall_ms: u64,
}

#[derive(Args)]
struct LoadArgs {
    /// Whom to ask.
    #[arg(long)]
    target: SocketAddr,
    /// The path to ask at.
    #[arg(long, default_value = "/", value_parser = path)]
    path: String,
    /// Connections kept open.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests a second; 0 = closed loop: each connection sends when its answer has come.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    rate: u64,
    /// Seconds of measuring.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds before measuring.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// Bytes of each result, as given to the upstream.
    #[arg(long, default_value_t = 120, value_parser = size)]
    size: usize,
    /// Calls in one request: with more than one, each body is a JSON-RPC batch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Methods and results as the main network's, to an upstream with --mix; in place of --size.
    #[arg(long)]
    mix: bool,
    /// Milliseconds that an answer may take.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_ms: u64,
    /// Speak TLS, with whom the roots in this PEM file vouch for as `localhost`.
    #[arg(long)]
    tls_ca: Option<PathBuf>,
    /// Connect anew for each request.
    #[arg(long)]
    fresh: bool,
    /// Take up TLS sessions again.
    #[arg(long, requires = "tls_ca")]
    resume: bool,
    /// Measure the CPU time of these processes in the window.
    #[arg(long, value_delimiter = ',')]
    cpu_of: Vec<u32>,
    /// Count how these CPUs spend their whole time in the window.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<u32>,
}

fn size(text: &str) -> Result<usize, String> {
    let size = text.parse::<usize>().map_err(|error| error.to_string())?;
    if (payload::SIZE_MIN..=payload::SIZE_MAX).contains(&size) {
        Ok(size)
    } else {
        Err(format!("from {} to {}", payload::SIZE_MIN, payload::SIZE_MAX))
    }
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "from 0 to 1".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds)).ok_or_else(|| "from 0 to 86400".to_owned())
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err("a path begins with / and has no blanks".to_owned())
    }
}

fn main() -> ExitCode {
    let ran = match Cli::parse().command {
        Command::Upstream(args) => serve(args),
        Command::Certificates { into } => certificates::write(&into).map(|()| ExitCode::SUCCESS),
        Command::Relay { listen, to, share } => relay(listen, to, share),
        Command::Load(args) => load(args),
    };
    ran.unwrap_or_else(|error| {
        // Nothing is left to tell it to if stderr is gone.
        let _ = writeln!(io::stderr(), "ringway-loadtest: {error}");
        ExitCode::from(2)
    })
}

fn serve(args: UpstreamArgs) -> io::Result<ExitCode> {
    let faults = Faults { rate: args.fault_rate, kinds: args.fault, at: args.fault_at, seed: args.fault_seed };
    let manner = Manner {
        size: args.size,
        mix: args.mix,
        delay: Duration::from_micros(args.delay_us),
        stall: Duration::from_millis(args.stall_ms),
        faults,
    };
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(wire::server(&fs::read(cert)?, &fs::read(key)?)?),
        _ => None,
    };
    let upstream = Upstream::start(args.listen, usize::from(args.threads), &manner, tls)?;
    tell(upstream.addr())?;
    upstream.wait()?;
    Ok(ExitCode::SUCCESS)
}

fn relay(listen: SocketAddr, to: SocketAddr, share: Option<u16>) -> io::Result<ExitCode> {
    if let Some(count) = share {
        let sharing = Sharing::new(listen, to, usize::from(count))?;
        tell(sharing.addr()?)?;
        sharing.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let relay = Relay::new(listen, to)?;
    tell(relay.addr()?)?;
    relay.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Says where something listens, for whoever started it.
fn tell(addr: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{addr}")?;
    stdout.flush()
}

fn load(args: LoadArgs) -> io::Result<ExitCode> {
    let report = load::run(&Plan {
        target: args.target,
        path: args.path,
        connections: usize::from(args.connections),
        rate: args.rate,
        work: Work { size: args.size, batch: args.batch, mix: args.mix },
        warmup: Duration::from_secs_f64(args.warmup),
        window: Duration::from_secs_f64(args.seconds),
        timeout: Duration::from_millis(args.timeout_ms),
        tls_ca: args.tls_ca.map(fs::read).transpose()?,
        fresh: args.fresh,
        resume: args.resume,
        cpu_of: args.cpu_of,
        cores: args.cores,
    })?;
    writeln!(io::stdout(), "{}", report.json())?;
    writeln!(io::stderr(), "{}", report.line())?;
    Ok(if report.tally.any_bad() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
