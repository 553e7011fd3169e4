//! The files of boot loaders against what the kernel was booted with.

use super::{
    boot::CPU_LISTS,
    facts::{Facts, some},
    verdict::{Verdict, note, unknown},
};
use quiet_types::finding::When;

/// Parameters in the loader's files against those of the running kernel.
pub(super) fn not_booted(f: &Facts) -> Verdict {
    let files: Vec<(&String, &String)> =
        f.settings().filter(|(path, _)| is_loader_file(path)).collect();
    if files.is_empty() {
        return unknown("no file of a boot loader was found or may be read");
    }
    let mut found = Vec::new();
    for name in CPU_LISTS.iter().chain(&["threadirqs", "preempt"]) {
        let asked = files.iter().rev().find_map(|(path, text)| {
            words(text).rev().find(|w| is_named(w, name)).map(|word| (*path, word))
        });
        let runs = f.machine.kernel.boot_parameters.iter().rev().find(|word| is_named(word, name));
        let (title, evidence, remedy, when) = match (asked, runs) {
            (Some((path, word)), runs) if runs.map(String::as_str) != Some(word) => (
                format!("`{word}` is set for the next boot and not in force"),
                format!("/{path}; /proc/cmdline has {}", runs.map_or("none", |w| w.as_str())),
                "reboot; if it stays so, the loader does not read this file \
                    (run update-grub, or grubby)",
                When::Reboot,
            ),
            (None, Some(word)) => (
                format!("`{word}` is in force and stands in no loader file that was found"),
                format!("/proc/cmdline; looked in {}", some(&names(&files), 4)),
                "after the next kernel update it may be gone: see which entry booted",
                When::Reboot,
            ),
            _ => continue,
        };
        found.push(
            note(title)
                .evidence(evidence)
                .effect("the machine that was tested is not the one that will boot")
                .remedy(remedy)
                .when(when),
        );
    }
    Verdict::of(found, "what the loader's files ask for is what the kernel was booted with")
}

fn names(files: &[(&String, &String)]) -> Vec<String> {
    files.iter().map(|(path, _)| format!("/{path}")).collect()
}

pub(super) fn is_loader_file(path: &str) -> bool {
    path.starts_with("etc/default/grub")
        || path.ends_with("cmdline.txt")
        || path == "etc/kernel/cmdline"
}

fn is_named(word: &str, name: &str) -> bool {
    word.split('=').next() == Some(name)
}

/// The words of a loader's file, outside of comments; quotes are blanks.
fn words(text: &str) -> std::vec::IntoIter<&str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let all: Vec<&str> = lines
        .flat_map(|line| line.split([' ', '\t', '"', '\'']))
        .filter(|word| !word.is_empty())
        .collect();
    all.into_iter()
}
