//! Arguments and exit code.

use clap::{Parser, Subcommand};
use ringway::boot;
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
    /// Start simulated nodes and a Gateway in this process, and print how to call them
    Demo(ringway::demo::run::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve { config } => boot::serve(&config),
        Command::Check { file } => check(&file),
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

/// To standard output, without a panic when nobody reads it any more.
fn print(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}
