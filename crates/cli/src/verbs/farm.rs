//! `farm`

use super::{farm_ask, farm_collect, farm_member, farm_send};
use clap::Subcommand;
use std::process::ExitCode;

/// Many machines as one question: records to a collector, percentiles of their sum
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores farm join tls://farm.example:4222 --credentials me.creds --show    what would leave this machine
  quietcores farm send --follow                   sends what was kept and what plays, again and again
  quietcores farm collect /media/stick            no server: stores that were copied
  quietcores farm ask --by kernel last=7          percentiles of the sum, by kernel, of the last seven days")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Join(farm_member::JoinArgs),
    Leave(farm_member::LeaveArgs),
    Status(farm_member::StatusArgs),
    Send(farm_send::SendArgs),
    Collect(farm_collect::CollectArgs),
    Serve(farm_collect::ServeArgs),
    Ask(farm_ask::AskArgs),
    Metrics(farm_ask::MetricsArgs),
    Page(farm_ask::PageArgs),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Join(args) => farm_member::join(args),
        What::Leave(args) => farm_member::leave(args),
        What::Status(args) => farm_member::status(args),
        What::Send(args) => farm_send::send(args),
        What::Collect(args) => farm_collect::collect(args),
        What::Serve(args) => farm_collect::serve(args),
        What::Ask(args) => farm_ask::ask(args),
        What::Metrics(args) => farm_ask::metrics(args),
        What::Page(args) => farm_ask::page(args),
    }
}
