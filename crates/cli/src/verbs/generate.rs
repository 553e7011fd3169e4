//! `generate`: man pages and shell completions, made from the same definition as `--help`.

use crate::face;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use quiet_types::said::{GENERATED, Generated};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Write man pages and shell completions into a directory
#[derive(clap::Args)]
#[command(hide = true, after_help = "Example: quietcores generate /usr/local/share")]
pub struct Args {
    /// Where: gets `man/man1` and `completions`
    dir: PathBuf,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run<C: CommandFactory>(args: Args) -> anyhow::Result<ExitCode> {
    let man = args.dir.join("man/man1");
    let completions = args.dir.join("completions");
    for dir in [&man, &completions] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut command = C::command();
    command.build();
    page(&command, "quietcores", &man)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        page(verb, &format!("quietcores-{}", verb.get_name()), &man)?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut command, "quietcores", &completions)
            .with_context(|| format!("cannot write into {}", completions.display()))?;
    }
    if args.json {
        face::print_json(&Generated {
            schema: GENERATED.to_owned(),
            man: man.display().to_string(),
            completions: completions.display().to_string(),
        })?;
    } else {
        face::say(&format!("wrote {} and {}", man.display(), completions.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command, name: &str, into: &Path) -> anyhow::Result<()> {
    let path = into.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_owned())).render(&mut text)?;
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
