//! The docs hold: every link leads somewhere, every page is in the book, every command is one that the program takes, and the words
//! are those of the glossary.
//!
//! After a wanted change: `QUIETCORES_BLESS=1 cargo test -p quietcores --test docs` writes docs/verbs.md and docs/words.txt anew; look at
//! the difference: a new word in the list may be a slip.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::tree;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_quietcores");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn bless() -> bool {
    std::env::var_os("QUIETCORES_BLESS").is_some_and(|v| v == "1")
}

/// Every page, by its path from the root.
fn pages() -> Vec<(String, String)> {
    let all = tree::sources().into_iter().filter(|path| path.ends_with(".md"));
    let pages: Vec<_> = all
        .map(|path| {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            (path, text)
        })
        .collect();
    assert!(pages.len() > 30, "{}", pages.len());
    pages
}

/// Those that are read as a book, without what is generated.
fn book() -> Vec<(String, String)> {
    let mut pages = pages();
    pages.retain(|(path, _)| {
        (path.starts_with("docs/") && path != "docs/verbs.md" && path != "docs/SUMMARY.md")
            || path == "README.md"
            || path == "CONTRIBUTING.md"
            || path == "SECURITY.md"
    });
    pages
}

/// Lines, and whether each stands in a block of code.
fn lines(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut code = false;
    text.lines().filter_map(move |line| {
        if line.trim_start().starts_with("```") {
            code = !code;
            return None;
        }
        Some((code, line))
    })
}

/// Without spans of code.
fn prose(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("CODE")
}

/// `[words](target)` in a line: the targets.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let target = &rest[at + 2..];
        let end = target.find(')').unwrap_or(target.len());
        found.push(target[..end].split(' ').next().unwrap_or_default());
        rest = &target[end..];
    }
    found
}

/// As GitHub and mdBook make it of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let text = text.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    text.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (page, text) in pages() {
        let dir = root().join(&page).parent().unwrap().to_owned();
        for (_, line) in lines(&text).filter(|(code, _)| !code) {
            let line = prose(line);
            for link in links(&line) {
                if link.starts_with("http") || link.starts_with("mailto:") {
                    continue;
                }
                seen += 1;
                let (path, part) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() { root().join(&page) } else { dir.join(path) };
                if !target.exists() {
                    wrong.push(format!("{page}: {link} leads nowhere"));
                } else if !part.is_empty() {
                    let text = fs::read_to_string(&target).unwrap_or_default();
                    let heads = lines(&text).filter(|(code, line)| !code && line.starts_with('#'));
                    if !heads.map(|(_, line)| anchor(line)).any(|have| have == part) {
                        wrong.push(format!("{page}: {link}: no such heading"));
                    }
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: Vec<&str> = summary.lines().flat_map(links).collect();
    let all: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), all.len(), "a page stands twice");
    let there: BTreeSet<String> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    assert_eq!(all, there.iter().map(String::as_str).collect());
}

/// The words of a command in a line, without what explains it.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    let line = line.strip_prefix("quietcores ")?;
    let line = line.split("  ").next().unwrap();
    let line = line.split(" #").next().unwrap();
    let line = line.split([';', '|', '>', '&']).next().unwrap().trim().trim_end_matches('\\');
    // Forms, not commands: something may be left out, or anything may stand there.
    if line.contains(['[', '<', '{', '*', '$']) || line.contains("...") || line.contains('…') {
        return None;
    }
    let words = line.split_whitespace().map(|word| match word.trim_matches('"') {
        "N" | "GID" | "UID" => "1".to_owned(),
        "SECONDS" => "60".to_owned(),
        "TIME" | "LENGTH" => "1s".to_owned(),
        "LIST" | "CPUS" => "0".to_owned(),
        "ADDRESS:PORT" => "127.0.0.1:7070".to_owned(),
        word => word.trim_end_matches([',', '.']).to_owned(),
    });
    Some(words.collect())
}

#[test]
fn every_command_in_the_docs_is_one_that_the_program_takes() {
    let mut tried = BTreeSet::new();
    let mut wrong = Vec::new();
    // Of the page of verbs a test knows where it is from; its lines are broken to a width.
    let others = ["CHANGELOG.md", "docs/verbs.md"];
    for (page, text) in pages().into_iter().filter(|(page, _)| !others.contains(&page.as_str())) {
        for (code, line) in lines(&text) {
            let mut commands = Vec::new();
            if code {
                commands.extend(command(line));
            } else {
                let spans = line.split('`').skip(1).step_by(2);
                commands.extend(spans.filter_map(command));
            }
            for mut words in commands {
                if words.is_empty() || !tried.insert(words.clone()) {
                    continue;
                }
                // Everything before it is looked at: names, and values one by one.
                let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
                words.insert(end, "--help".into());
                let mut program = Command::new(PROGRAM);
                let done = program.args(&words).stdin(Stdio::null()).output().unwrap();
                if !done.status.success() {
                    let said = String::from_utf8_lossy(&done.stderr);
                    let said = said.lines().next().unwrap_or_default().to_owned();
                    wrong.push(format!("{page}: {}: {said}", line.trim()));
                }
            }
        }
    }
    assert!(tried.len() > 100, "{}", tried.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn help(words: &[&str]) -> String {
    let mut program = Command::new(PROGRAM);
    program.args(words).arg("--help").env("COLUMNS", "100");
    String::from_utf8(program.output().unwrap().stdout).unwrap()
}

fn subcommands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let list = list.lines().take_while(|line| line.starts_with(' '));
    let list = list.filter(|line| !line.starts_with("   "));
    let words = list.filter_map(|line| line.split_whitespace().next());
    words.filter(|word| *word != "help").map(str::to_owned).collect()
}

#[test]
fn the_page_of_verbs_is_what_the_program_says() {
    let mut page = "# Verbs\n\nWhat `--help` of each verb says. This page is written by a test, and held by it.\n"
        .to_owned();
    let mut put = |words: &[&str], said: &str| {
        let marks = "#".repeat(words.len() + 1);
        let said: Vec<&str> = said.trim_end().lines().map(str::trim_end).collect();
        page += &format!("\n{marks} {}\n\n```text\n{}\n```\n", words.join(" "), said.join("\n"));
    };
    let all = help(&[]);
    put(&["quietcores"], &all);
    for verb in subcommands(&all) {
        let said = help(&[&verb]);
        put(&[&verb], &said);
        for probe in subcommands(&said) {
            put(&[&verb, &probe], &help(&[&verb, &probe]));
        }
    }
    let file = root().join("docs/verbs.md");
    if bless() {
        fs::write(&file, &page).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let line = page.lines().zip(committed.lines()).position(|(a, b)| a != b);
    assert!(page == committed, "docs/verbs.md, line {line:?}: again with QUIETCORES_BLESS=1");
}

/// Longest line that is no table, in characters.
const LINE: usize = 165;
/// Longest sentence, in words.
const SENTENCE: usize = 26;

#[test]
fn lines_and_sentences_are_not_endless() {
    let mut wrong = Vec::new();
    // The page of the live faces has longer lines.
    for (page, text) in book().into_iter().filter(|(page, _)| page != "docs/live.md") {
        let mut paragraph = String::new();
        for (code, line) in lines(&text).chain([(false, "")]) {
            if code {
                continue;
            }
            let table = line.trim_start().starts_with('|');
            if !table && line.chars().count() > LINE {
                wrong.push(format!("{page}: {} characters: {line}", line.chars().count()));
            }
            let item = line.trim_start().starts_with(['-', '#', '|'])
                || line.trim_start().starts_with(|c: char| c.is_ascii_digit());
            if line.trim().is_empty() || item {
                for sentence in paragraph.split(['.', ':', ';', '?', '!']) {
                    let count = sentence.split_whitespace().count();
                    if count > SENTENCE {
                        wrong.push(format!("{page}: {count} words: {sentence}"));
                    }
                }
                paragraph.clear();
            }
            if !table {
                paragraph += &prose(line);
                paragraph.push(' ');
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words that the glossary has others for, and what stands in their place.
const FORBIDDEN: &[(&str, &str)] = &[
    ("glitch", "xrun"),
    ("glitches", "xruns"),
    ("dropout", "xrun"),
    ("dropouts", "xruns"),
    ("fragment", "period"),
    ("fragments", "periods"),
    ("jitter", "latency, and its percentiles"),
    ("soundcard", "card"),
    ("whitelist", "list"),
    ("blacklist", "list"),
];

fn words(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in lines(text).filter(|(code, _)| !code) {
        let line = prose(line);
        // Links: their words count, not where they lead.
        let mut plain = String::new();
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            plain.push_str(&rest[..at]);
            plain.push(' ');
            rest = rest[at..].find(')').map_or("", |end| &rest[at + end..]);
        }
        plain.push_str(rest);
        for word in plain
            .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_' && c != '/' && c != '.')
        {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            // Names of files and figures are no words of a language.
            let plain = word.chars().all(|c| c.is_ascii_lowercase() || c == '\'');
            if plain && word.len() > 1 {
                found.insert(word.trim_end_matches("'s").to_owned());
            }
        }
    }
    found
}

#[test]
fn words_are_those_of_the_glossary_and_of_the_list() {
    let mut all = BTreeSet::new();
    let mut wrong = Vec::new();
    for (page, text) in book() {
        let here = words(&text);
        for (forbidden, better) in FORBIDDEN.iter().filter(|(word, _)| here.contains(*word)) {
            wrong.push(format!("{page}: `{forbidden}`: {better}"));
        }
        all.extend(here.into_iter().map(|word| (word, page.clone())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let file = root().join("docs/words.txt");
    if bless() {
        let list: BTreeSet<&str> = all.iter().map(|(word, _)| word.as_str()).collect();
        let list: Vec<&str> = list.into_iter().collect();
        fs::write(&file, list.join("\n") + "\n").unwrap();
    }
    let list = fs::read_to_string(&file).unwrap_or_default();
    let known: BTreeSet<&str> = list.lines().collect();
    assert!(known.len() > 500, "{}", known.len());
    let unknown: Vec<String> = all
        .iter()
        .filter(|(word, _)| !known.contains(word.as_str()))
        .map(|(word, page)| format!("{page}: {word}"))
        .collect();
    assert!(
        unknown.is_empty(),
        "no word of the list docs/words.txt; a slip, or again with QUIETCORES_BLESS=1:\n{}",
        unknown.join("\n")
    );
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= 60, "{} lines", text.lines().count());
}
