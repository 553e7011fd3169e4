//! The program `quietcores`: it alone prints, reads the terminal and exits.
#![forbid(unsafe_code)]

mod asked;
mod face;
mod hands;
mod keep;
mod next;
mod probing;
mod progress;
mod talk;
mod user;
mod verbs;
mod work;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Give a low-latency audio chain its own CPU cores, and prove that it holds.
#[derive(Parser)]
#[command(name = "quietcores", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    Setup(verbs::setup::Args),
    Demo(verbs::demo::Args),
    Inspect(verbs::inspect::Args),
    Check(verbs::check::Args),
    Doctor(verbs::doctor::Args),
    Plan(verbs::plan::Args),
    Apply(verbs::apply::Args),
    Approve(verbs::approve::Args),
    Confirm(verbs::confirm::Args),
    Status(verbs::status::Args),
    Lend(verbs::lend::Args),
    Revert(verbs::revert::Args),
    Watch(verbs::watch::Args),
    Top(verbs::top::Args),
    Serve(verbs::serve::Args),
    Persist(verbs::persist::Args),
    Unpersist(verbs::unpersist::Args),
    Measure(verbs::measure::Args),
    Explain(verbs::explain::Args),
    Reach(verbs::reach::Args),
    Stress(verbs::stress::Args),
    Prove(verbs::prove::Args),
    Tune(verbs::tune::Args),
    Play(verbs::play::Args),
    Campaign(verbs::campaign::Args),
    Compare(verbs::compare::Args),
    Runs(verbs::runs::Args),
    Predict(verbs::predict::Args),
    Render(verbs::render::Args),
    Bench(verbs::bench::Args),
    Report(verbs::report::Args),
    Import(verbs::import::Args),
    Export(verbs::export::Args),
    Farm(verbs::farm::Args),
    Generate(verbs::generate::Args),
    #[command(hide = true)]
    Worker(verbs::worker::Args),
    #[command(hide = true)]
    Taster(verbs::taster::Args),
    #[command(hide = true)]
    Keeper(verbs::keeper::Args),
    #[command(hide = true)]
    Hold(verbs::hold::Args),
    #[command(hide = true)]
    Guard(verbs::guard::Args),
}

fn main() -> ExitCode {
    let called = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&called).unwrap_or_else(|error| error.exit());
    let Some(verb) = cli.verb else {
        return ended(verbs::greet::run());
    };
    // `top` and `serve` show how a probe goes that another command runs.
    quiet_probe::tell_in(|| quiet_engine::control::private_dir().ok());
    let done = match verb {
        Verb::Setup(args) => verbs::setup::run(args),
        Verb::Demo(args) => verbs::demo::run(args),
        Verb::Inspect(args) => verbs::inspect::run(args),
        Verb::Check(args) => verbs::check::run(args),
        Verb::Doctor(args) => verbs::doctor::run(args),
        Verb::Plan(args) => verbs::plan::run(args),
        Verb::Apply(args) => verbs::apply::run(args),
        Verb::Approve(args) => verbs::approve::run(args),
        Verb::Confirm(args) => verbs::confirm::run(args),
        Verb::Status(args) => verbs::status::run(args),
        Verb::Lend(args) => verbs::lend::run(args),
        Verb::Revert(args) => verbs::revert::run(args),
        Verb::Watch(args) => verbs::watch::run(args),
        Verb::Top(args) => verbs::top::run(args),
        Verb::Serve(args) => verbs::serve::run(args),
        Verb::Persist(args) => verbs::persist::run(args),
        Verb::Unpersist(args) => verbs::unpersist::run(args),
        Verb::Measure(args) => verbs::measure::run(args),
        Verb::Explain(args) => verbs::explain::run(args),
        Verb::Reach(args) => verbs::reach::run(args),
        Verb::Stress(args) => verbs::stress::run(args),
        Verb::Prove(args) => verbs::prove::run(args),
        Verb::Tune(args) => verbs::tune::run(args),
        Verb::Play(args) => verbs::play::run(args),
        Verb::Campaign(args) => verbs::campaign::run(args),
        Verb::Compare(args) => verbs::compare::run(args),
        Verb::Runs(args) => verbs::runs::run(args),
        Verb::Predict(args) => verbs::predict::run(args),
        Verb::Render(args) => verbs::render::run(args),
        Verb::Bench(args) => verbs::bench::run(args),
        Verb::Report(args) => verbs::report::run(args),
        Verb::Import(args) => verbs::import::run(args),
        Verb::Export(args) => verbs::export::run(args),
        Verb::Farm(args) => verbs::farm::run(args),
        Verb::Generate(args) => verbs::generate::run::<Cli>(args),
        Verb::Worker(args) => verbs::worker::run(args),
        Verb::Taster(args) => verbs::taster::run(args),
        Verb::Keeper(args) => verbs::keeper::run(args),
        Verb::Hold(args) => verbs::hold::run(args),
        Verb::Guard(args) => verbs::guard::run(args),
    };
    if let Ok(ended) = &done {
        next::say(&called, *ended);
    }
    ended(done)
}

fn ended(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        face::error(&error);
        ExitCode::from(2)
    })
}
