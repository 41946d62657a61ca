//! Arguments and exit code.

use clap::{Parser, Subcommand};
use ringway::boot;
use ringway::logic::snapshot::Secret;
use ringway::ops::{ask, explain_table};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A gateway for blockchain RPC: it stands between callers and nodes or providers, picks an Endpoint for
/// every Call, tries another where that is safe, and never replays what must not be replayed.
#[derive(Parser)]
#[command(
    name = "ringway",
    version,
    after_help = "\
Start here:
  ringway demo                            a Gateway over simulated nodes, with a curl line to paste
  ringway check ringway.toml              what is wrong with a configuration, all at once
  ringway serve --config ringway.toml     serve it; SIGTERM drains and ends
  ringway explain --config ringway.toml GATEWAY METHOD
                                          how the running gateway would decide a Call now

The folder config/ of the source holds a minimal example and a full reference."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a configuration file until SIGTERM or SIGINT, which drain; SIGHUP reloads it
    Serve {
        /// The configuration file (TOML)
        #[arg(long, value_name = "FILE")]
        config: String,
    },
    /// Judge a configuration file: all faults at once (exit code 1), or a summary (0)
    Check {
        /// The configuration file (TOML)
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Show how a running gateway would decide a Call now, without sending it: which Endpoints would be asked, in
    /// which order, and why not the others
    #[command(after_help = "\
Examples:
  ringway explain --config ringway.toml eth eth_blockNumber
  ringway explain --config ringway.toml eth eth_getBalance '[\"0x...\", \"0x10d4f\"]'
  ringway explain --config ringway.toml eth '{\"method\":\"eth_call\",\"params\":[{},\"latest\"]}'
  ringway explain --config ringway.toml --json eth - < call.json
  ringway explain --admin 127.0.0.1:9545 eth eth_blockNumber
  ringway explain --config ringway.toml tron /wallet/getnowblock")]
    Explain(Explain),
    /// Start simulated nodes and a Gateway in this process, and print how to call them
    Demo(ringway::demo::run::Options),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("door").required(true).multiple(true))]
struct Explain {
    /// The configuration file of the running gateway: where its admin port is, and its token
    #[arg(long, value_name = "FILE", group = "door")]
    config: Option<String>,
    /// Another admin port than the file's, or without a file: 127.0.0.1:9545, http://host:9545; then the token, if it
    /// wants one, is in RINGWAY_ADMIN_TOKEN
    #[arg(long, value_name = "ADDR", group = "door")]
    admin: Option<String>,
    /// Print the JSON of POST /v1/explain
    #[arg(long)]
    json: bool,
    /// The id of the Gateway
    #[arg(value_name = "GATEWAY")]
    gateway: String,
    /// The Call: JSON, `-` for JSON from standard input, or the name of a method (a path of TRON's HTTP API)
    #[arg(value_name = "CALL", allow_hyphen_values = true)]
    call: String,
    /// With a method's name: its params in JSON (with a path: the body); none where left out
    #[arg(value_name = "PARAMS")]
    params: Option<String>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve { config } => boot::serve(&config),
        Command::Check { file } => check(&file),
        Command::Explain(wish) => explain(wish),
        Command::Demo(options) => ringway::demo::run::run(&options),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("ringway: {}", failure.0);
            ExitCode::from(1)
        }
    }
}

fn check(file: &str) -> Result<u8, boot::Failure> {
    let resolved = boot::read_here(file)?;
    let (lines, faulty) = boot::report(file, &resolved);
    lines.iter().for_each(|line| print(line));
    if faulty {
        return Ok(1);
    }
    if let Some(snapshot) = &resolved.snapshot {
        print(ringway::config::summary::summary(snapshot).trim_end());
    }
    Ok(0)
}

fn explain(wish: Explain) -> Result<u8, boot::Failure> {
    let file = wish.config.as_deref().map(boot::admin_door).transpose()?;
    let (name, at) = match (wish.admin, &file) {
        (Some(typed), _) => (typed.clone(), ask::addresses(&typed).map_err(boot::Failure)?),
        (None, Some(file)) => (file.admin.to_string(), vec![file.admin]),
        (None, None) => (String::new(), Vec::new()),
    };
    if at.iter().all(|at| at.port() == 0) {
        return Err(boot::Failure("the file leaves the admin port open: name it in --admin".into()));
    }
    let source = if file.is_some() { ask::Source::File } else { ask::Source::Environment };
    let token = match file {
        Some(file) => file.token,
        None => std::env::var(ask::TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()).map(Secret::new),
    };
    let door = ask::Door { name: &name, at: &at, token: token.as_ref(), source };
    let typed = match wish.call.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| error.to_string()),
        call => Ok(call.to_owned()),
    };
    let call = typed.and_then(|call| ask::typed_call(&call, wish.params.as_deref())).map_err(boot::Failure)?;
    let told = ask::explain(&door, &wish.gateway, &call).map_err(boot::Failure)?;
    let shown = if wish.json { Some(told) } else { explain_table::table(&told, &call) };
    let odd =
        || boot::Failure(format!("the gateway at {name} answers in a way that this version can't read: use --json"));
    print(shown.ok_or_else(odd)?.trim_end());
    Ok(0)
}

/// To standard output, without a panic when nobody reads it any more.
fn print(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}
