//! The forms in which boot loaders' files hold kernel parameters, and the two edits: words in,
//! words out. Pure: bytes to bytes, everything that is not ours as it was.

use super::grubenv;
use super::lines::lines;
use quiet_types::boot::split;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How a file holds kernel parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FileForm {
    /// A boot loader entry with `options` lines (systemd-boot, GRUB with blscfg).
    ///
    /// # Source
    /// The Boot Loader Specification, type 1 entries.
    Bls,
    /// `/etc/kernel/cmdline`: parameters over any number of lines, `#` for remarks.
    KernelCmdline,
    /// `cmdline.txt` of the Raspberry Pi: one line, no remarks.
    OneLine,
    /// `extlinux.conf`, `syslinux.cfg`: `APPEND` lines of labels.
    Extlinux,
    /// One `key=value` line of an environment file of U-Boot, made where it is missing.
    Assignment {
        /// `extraargs`, `cmdline`.
        key: String,
    },
    /// GRUB's environment block: the variable `kernelopts`.
    GrubEnv,
    /// A shell file that is sourced: a line of ours at its end appends to a variable.
    ShellAppend {
        /// `GRUB_CMDLINE_LINUX_DEFAULT`.
        variable: String,
    },
    /// A file that is ours as a whole, made from nothing.
    Owned,
}

/// One place in a file where parameters stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The bytes of the parameters, blanks at the end not among them. Where it is not at the start
    /// of a line, a blank, a quote or `=` stands before it, or it begins with a blank.
    pub range: Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// The entry's title or label, where it has one.
    pub entry: String,
    /// An entry for emergencies: left as it is, so that there is a way back.
    pub rescue: bool,
    /// Every parameter of the entry, also those that stand elsewhere in the file.
    pub words: Vec<String>,
}

/// The places where a file of this form holds parameters, in order.
///
/// # Errors
/// A sentence when the file is not of this form.
pub fn spots(form: &FileForm, text: &[u8]) -> Result<Vec<Spot>, String> {
    match form {
        FileForm::Bls => bls(text),
        FileForm::KernelCmdline => Ok(kernel_cmdline(text)),
        FileForm::OneLine => one_line(text),
        FileForm::Extlinux => extlinux(text),
        FileForm::Assignment { key } => assignment(text, key),
        FileForm::GrubEnv => grubenv::variable(text, "kernelopts").map(|range| {
            range.into_iter().map(|range| spot(text, range, String::new(), false)).collect()
        }),
        FileForm::ShellAppend { variable } => Ok(shell_append(text, variable)),
        FileForm::Owned => Ok(Vec::new()),
    }
}

/// The file with `words` at the end of each place that is no rescue entry.
///
/// # Errors
/// A sentence when the file is not of this form or has no such place.
pub fn add(form: &FileForm, text: &[u8], words: &[String]) -> Result<Vec<u8>, String> {
    let run = run(words);
    match form {
        FileForm::Owned => return Ok(text.to_vec()),
        FileForm::ShellAppend { variable } => {
            let line = format!("{variable}=\"${{{variable}}}{run}\" {MARK}");
            return Ok(with_line(text, &line));
        }
        FileForm::Assignment { key } if assignment(text, key)?.is_empty() => {
            return Ok(with_line(text, &format!("{key}={}", words.join(" "))));
        }
        FileForm::KernelCmdline if kernel_cmdline(text).is_empty() => {
            return Ok(with_line(text, &words.join(" ")));
        }
        _ => {}
    }
    let places: Vec<Spot> = spots(form, text)?.into_iter().filter(|spot| !spot.rescue).collect();
    if places.is_empty() {
        return Err("it has no place for kernel parameters outside of rescue entries".into());
    }
    if let Some(open) = places.iter().find(|spot| has_open_quote(&text[spot.range.clone()])) {
        return Err(format!("line {}: a double quote is opened and not closed", open.line));
    }
    let mut new = text.to_vec();
    for place in places.iter().rev() {
        new.splice(place.range.end..place.range.end, run.bytes());
    }
    if *form == FileForm::GrubEnv { grubenv::repad(&new, text.len()) } else { Ok(new) }
}

/// The file without `words`, and how many of them were there: all of them in one run where they
/// stand as [`add`] put them, else each by itself.
///
/// # Errors
/// A sentence when the file is not of this form.
pub fn remove(form: &FileForm, text: &[u8], words: &[String]) -> Result<(Vec<u8>, usize), String> {
    match form {
        FileForm::Owned => return Ok((text.to_vec(), 0)),
        FileForm::ShellAppend { variable } => {
            let start = format!("{variable}=\"${{{variable}}} ");
            if let Some(without) = without_line(text, |line| {
                line.starts_with(start.as_bytes()) && line.ends_with(MARK.as_bytes())
            }) {
                return Ok((without, words.len()));
            }
        }
        FileForm::Assignment { .. } | FileForm::KernelCmdline => {
            let ours = match form {
                FileForm::Assignment { key } => format!("{key}={}", words.join(" ")),
                _ => words.join(" "),
            };
            if let Some(without) = without_line(text, |line| line == ours.as_bytes()) {
                return Ok((without, words.len()));
            }
        }
        _ => {}
    }
    let mut new = text.to_vec();
    let mut found = 0;
    for place in spots(form, text)?.iter().rev().filter(|spot| !spot.rescue) {
        let (without, some) = cut(&text[place.range.clone()], words);
        found += some;
        new.splice(place.range.clone(), without);
    }
    if *form == FileForm::GrubEnv && found > 0 {
        new = grubenv::repad(&new, text.len())?;
    }
    Ok((new, found))
}

/// Every parameter in the file that is not in a rescue entry, with its line.
///
/// # Errors
/// A sentence when the file is not of this form.
pub fn parameters(form: &FileForm, text: &[u8]) -> Result<Vec<(String, usize)>, String> {
    let mut all = Vec::new();
    for spot in spots(form, text)?.iter().filter(|spot| !spot.rescue) {
        all.extend(spot.words.iter().map(|word| (word.clone(), spot.line)));
    }
    Ok(all)
}

/// At the end of a line that is ours within a file of others.
const MARK: &str = "# quietcores";

fn has_open_quote(value: &[u8]) -> bool {
    value.iter().filter(|b| **b == b'"').count() % 2 == 1
}

fn run(words: &[String]) -> String {
    words.iter().map(|word| format!(" {word}")).collect()
}

pub(super) fn words_of(bytes: &[u8]) -> Vec<String> {
    split(&String::from_utf8_lossy(bytes))
}

/// The bytes without our words.
fn cut(value: &[u8], words: &[String]) -> (Vec<u8>, usize) {
    let run = run(words);
    // What stands within somebody's quotes is a part of their word.
    let whole = |at: usize| {
        value.get(at + run.len()).is_none_or(|b| b.is_ascii_whitespace())
            && !has_open_quote(&value[..at])
    };
    if let Some(at) = positions(value, run.as_bytes()).find(|at| whole(*at)) {
        let mut left = value.to_vec();
        left.drain(at..at + run.len());
        return (left, words.len());
    }
    let mut left = value.to_vec();
    let mut found = 0;
    for word in words {
        let whole = |at: &usize| {
            (*at == 0 || left[at - 1].is_ascii_whitespace())
                && left.get(at + word.len()).is_none_or(|b| b.is_ascii_whitespace())
                && !has_open_quote(&left[..*at])
        };
        let Some(at) = positions(&left, word.as_bytes()).find(whole) else { continue };
        // One blank goes with it.
        let end = at + word.len();
        let range = if at > 0 { at - 1..end } else { 0..(end + 1).min(left.len()) };
        left.drain(range);
        found += 1;
    }
    (left, found)
}

fn positions(text: &[u8], part: &[u8]) -> impl Iterator<Item = usize> {
    let last = if part.is_empty() { 0 } else { (text.len() + 1).saturating_sub(part.len()) };
    (0..last).filter(move |at| text[*at..].starts_with(part))
}

/// With a line of ours at the end. A file without a final newline keeps none.
fn with_line(text: &[u8], line: &str) -> Vec<u8> {
    let mut new = text.to_vec();
    if text.is_empty() || text.ends_with(b"\n") {
        new.extend_from_slice(line.as_bytes());
        new.push(b'\n');
    } else {
        new.push(b'\n');
        new.extend_from_slice(line.as_bytes());
    }
    new
}

/// Without the last line that is ours, taken out as [`with_line`] put it in.
fn without_line(text: &[u8], ours: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let line = lines(text).filter(|line| ours(&text[line.clone()])).last()?;
    let mut new = text.to_vec();
    if line.end < text.len() {
        new.drain(line.start..line.end + 1);
    } else {
        new.drain(line.start.saturating_sub(1)..line.end);
    }
    Some(new)
}

/// `range` without blanks at its end, as a place.
fn spot(text: &[u8], range: Range<usize>, entry: String, rescue: bool) -> Spot {
    let blank = |b: &u8| b.is_ascii_whitespace();
    let kept = text[range.clone()].iter().rposition(|b| !blank(b)).map_or(0, |n| n + 1);
    let line = 1 + text[..range.start].iter().filter(|b| **b == b'\n').count();
    let range = range.start..range.start + kept;
    let words = words_of(&text[range.clone()]);
    Spot { range, line, entry, rescue, words }
}

/// A line as a keyword (as written), and the range of what follows it, blanks first.
fn keyword(text: &[u8], line: &Range<usize>) -> Option<(String, Range<usize>)> {
    let bytes = &text[line.clone()];
    let indent = bytes.iter().position(|b| !b.is_ascii_whitespace())?;
    let word = bytes[indent..].iter().position(|b| b.is_ascii_whitespace());
    let word_end = word.map_or(bytes.len(), |n| indent + n);
    let name = String::from_utf8_lossy(&bytes[indent..word_end]).into_owned();
    Some((name, line.start + word_end..line.end))
}

fn value(text: &[u8], range: &Range<usize>) -> String {
    String::from_utf8_lossy(&text[range.clone()]).trim().to_owned()
}

/// Whether an entry is for emergencies, by its title and its parameters.
pub(super) fn is_rescue(title: &str, parameters: &[String]) -> bool {
    const WORDS: [&str; 7] = [
        "single",
        "rescue",
        "emergency",
        "recovery",
        "systemd.unit=rescue.target",
        "systemd.unit=emergency.target",
        "1",
    ];
    let title = title.to_lowercase();
    ["rescue", "recovery", "emergency"].iter().any(|word| title.contains(word))
        || parameters.iter().any(|word| WORDS.contains(&word.as_str()))
}

fn bls(text: &[u8]) -> Result<Vec<Spot>, String> {
    let mut title = String::new();
    let mut options: Option<Range<usize>> = None;
    let mut all = Vec::new();
    for line in lines(text) {
        let Some((key, rest)) = keyword(text, &line) else { continue };
        match key.as_str() {
            "title" | "version" => title = format!("{title} {}", value(text, &rest)),
            "options" => {
                all.extend(words_of(&text[rest.clone()]));
                options = Some(rest);
            }
            _ => {}
        }
    }
    let options = options.ok_or("it has no `options` line")?;
    let rescue = is_rescue(&title, &all);
    let place = spot(text, options, title.trim().to_owned(), rescue);
    Ok(vec![Spot { words: all, ..place }])
}

fn kernel_cmdline(text: &[u8]) -> Vec<Spot> {
    let content = |line: &Range<usize>| {
        let bytes = &text[line.clone()];
        bytes.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| *b != b'#')
    };
    let all: Vec<Range<usize>> = lines(text).filter(content).collect();
    let words = all.iter().flat_map(|line| words_of(&text[line.clone()])).collect();
    let last = all.last().map(|range| spot(text, range.clone(), String::new(), false));
    last.map(|place| Spot { words, ..place }).into_iter().collect()
}

fn one_line(text: &[u8]) -> Result<Vec<Spot>, String> {
    let mut all = lines(text);
    let first = all.next().unwrap_or(0..0);
    if all.any(|line| text[line].iter().any(|b| !b.is_ascii_whitespace())) {
        return Err("it has more than one line, and the firmware reads the first one only; join \
                    them by hand"
            .into());
    }
    Ok(vec![spot(text, first, String::new(), false)])
}

fn assignment(text: &[u8], key: &str) -> Result<Vec<Spot>, String> {
    let start = format!("{key}=");
    let found: Vec<Range<usize>> =
        lines(text).filter(|line| text[line.clone()].starts_with(start.as_bytes())).collect();
    match found.as_slice() {
        [] => Ok(Vec::new()),
        [one] => Ok(vec![spot(text, one.start + start.len()..one.end, key.to_owned(), false)]),
        _ => Err(format!("it sets {key} {} times; only the last one counts", found.len())),
    }
}

fn shell_append(text: &[u8], variable: &str) -> Vec<Spot> {
    let start = format!("{variable}=\"${{{variable}}}");
    let mut found = Vec::new();
    for line in lines(text) {
        let bytes = &text[line.clone()];
        if !bytes.starts_with(start.as_bytes()) {
            continue;
        }
        let from = line.start + start.len();
        if let Some(quote) = text[from..line.end].iter().position(|b| *b == b'"') {
            found.push(spot(text, from..from + quote, variable.to_owned(), false));
        }
    }
    found
}

/// One label of extlinux.conf while it is read.
#[derive(Default)]
struct Label {
    name: String,
    kernel: String,
    append: Option<Range<usize>>,
    line: usize,
}

impl Label {
    /// Whether it starts Linux: not a module of syslinux, a memory test or another menu.
    fn is_linux(&self) -> bool {
        let kernel = self.kernel.to_lowercase();
        let other = [".c32", ".bin", ".bss", ".bs", ".0", ".com", ".cbt", ".img"];
        !kernel.is_empty()
            && !other.iter().any(|end| kernel.ends_with(end))
            && !kernel.contains("memtest")
    }
}

fn extlinux(text: &[u8]) -> Result<Vec<Spot>, String> {
    let mut all = Vec::new();
    let mut label: Option<Label> = None;
    let mut default: Option<Range<usize>> = None;
    for (at, line) in lines(text).enumerate() {
        let Some((key, rest)) = keyword(text, &line) else { continue };
        match key.to_lowercase().as_str() {
            "label" => {
                all.extend(label.take());
                label = Some(Label { name: value(text, &rest), line: at + 1, ..Label::default() });
            }
            "menu" if value(text, &rest).to_lowercase().starts_with("label ") => {
                if let Some(label) = &mut label {
                    label.name = format!("{} {}", label.name, value(text, &rest));
                }
            }
            "kernel" | "linux" => {
                if let Some(label) = &mut label {
                    label.kernel = value(text, &rest);
                }
            }
            "append" => match &mut label {
                Some(label) => label.append = Some(rest),
                None => default = Some(rest),
            },
            _ => {}
        }
    }
    all.extend(label);
    let mut spots: Vec<Spot> = default
        .iter()
        .map(|range| spot(text, range.clone(), "every label".into(), false))
        .collect();
    for label in all.iter().filter(|label| label.is_linux()) {
        match &label.append {
            // A lone `-` means: not even the default ones.
            Some(range) if value(text, range) == "-" => {}
            Some(range) => {
                let rescue = is_rescue(&label.name, &words_of(&text[range.clone()]));
                spots.push(spot(text, range.clone(), label.name.clone(), rescue));
            }
            None if default.is_some() || is_rescue(&label.name, &[]) => {}
            None => {
                return Err(format!(
                    "line {}: label {} has no APPEND line; give it one, which may be empty",
                    label.line,
                    quiet_types::printable(&label.name, 60)
                ));
            }
        }
    }
    Ok(spots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ours() -> Vec<String> {
        ["isolcpus=managed_irq,domain,2-3", "irqaffinity=0-1", "skew_tick=1"].map(Into::into).into()
    }

    const RUN: &str = " isolcpus=managed_irq,domain,2-3 irqaffinity=0-1 skew_tick=1";

    fn added(form: &FileForm, text: &str) -> String {
        let new = add(form, text.as_bytes(), &ours()).unwrap();
        let (back, found) = remove(form, &new, &ours()).unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), text, "{form:?}");
        assert!(found >= ours().len());
        String::from_utf8(new).unwrap()
    }

    #[test]
    fn an_entry_gets_the_words_at_the_end_of_its_options() {
        let text = "title Debian\nversion 6.12\noptions root=/dev/vda2 rw \t\r\nlinux /v\n";
        assert_eq!(
            added(&FileForm::Bls, text),
            format!("title Debian\nversion 6.12\noptions root=/dev/vda2 rw{RUN} \t\r\nlinux /v\n")
        );
        // Of several options lines, the last one; without a final newline.
        assert_eq!(
            added(&FileForm::Bls, "options a\noptions b"),
            format!("options a\noptions b{RUN}")
        );
        assert_eq!(added(&FileForm::Bls, "options\n"), format!("options{RUN}\n"));
        assert_eq!(
            add(&FileForm::Bls, b"title x\nlinux /v\n", &ours()).unwrap_err(),
            "it has no `options` line"
        );
    }

    #[test]
    fn a_rescue_entry_stays_as_the_way_back() {
        let text = b"title Fedora (0-rescue-ab) 40\noptions root=/dev/vda2\n";
        assert!(add(&FileForm::Bls, text, &ours()).unwrap_err().contains("rescue"));
        let text = "DEFAULT l0\nLABEL l0\n\tMENU LABEL Debian\n\tlinux /v\n\tappend root=a\n\n\
                    LABEL l0r\n\tMENU LABEL Debian (rescue target)\n\tlinux /v\n\tappend root=a single\n";
        let new = added(&FileForm::Extlinux, text);
        assert_eq!(new, text.replacen("append root=a", &format!("append root=a{RUN}"), 1));
    }

    #[test]
    fn labels_that_start_something_else_are_left_alone() {
        let text = "append quiet\nlabel hdt\n kernel hdt.c32\n append modules=x\nlabel a\n linux /v\n\
                    label b\n linux /v\n append -\nlabel m\n kernel /memtest\n append x\n";
        let new = added(&FileForm::Extlinux, text);
        assert_eq!(new, text.replacen("append quiet", &format!("append quiet{RUN}"), 1));
        let bare = b"label a\n linux /v\n";
        let why = add(&FileForm::Extlinux, bare, &ours()).unwrap_err();
        assert_eq!(why, "line 1: label a has no APPEND line; give it one, which may be empty");
    }

    #[test]
    fn the_one_line_stays_one_line() {
        let form = FileForm::OneLine;
        assert_eq!(
            added(&form, "console=tty1 rootwait\r\n"),
            format!("console=tty1 rootwait{RUN}\r\n")
        );
        assert_eq!(added(&form, "rootwait"), format!("rootwait{RUN}"));
        assert_eq!(added(&form, ""), RUN);
        assert!(add(&form, b"a\nb\n", &ours()).unwrap_err().contains("more than one line"));
    }

    #[test]
    fn a_missing_assignment_is_made_and_taken_away_again() {
        let form = FileForm::Assignment { key: "extraargs".into() };
        let words = ours().join(" ");
        assert_eq!(added(&form, "rootdev=x\n"), format!("rootdev=x\nextraargs={words}\n"));
        assert_eq!(added(&form, "rootdev=x"), format!("rootdev=x\nextraargs={words}"));
        assert_eq!(added(&form, "extraargs=\nb=1\n"), format!("extraargs={RUN}\nb=1\n"));
        assert_eq!(added(&form, "extraargs=a b\nb=1\n"), format!("extraargs=a b{RUN}\nb=1\n"));
        assert!(
            add(&form, b"extraargs=a\nextraargs=b\n", &ours()).unwrap_err().contains("2 times")
        );
    }

    #[test]
    fn a_sourced_file_gets_a_line_of_ours() {
        let form = FileForm::ShellAppend { variable: "GRUB_CMDLINE_LINUX_DEFAULT".into() };
        let new = added(&form, "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
        assert!(new.ends_with(&format!(
            "\nGRUB_CMDLINE_LINUX_DEFAULT=\"${{GRUB_CMDLINE_LINUX_DEFAULT}}{RUN}\" # quietcores\n"
        )));
        added(&form, "GRUB_CMDLINE_LINUX_DEFAULT='quiet'");
    }

    #[test]
    fn remarks_and_several_lines_of_a_kernel_cmdline_stay() {
        let form = FileForm::KernelCmdline;
        assert_eq!(
            added(&form, "# mine\nroot=a\nrw \n\n"),
            format!("# mine\nroot=a\nrw{RUN} \n\n")
        );
        assert_eq!(added(&form, "# only a remark\n"), format!("# only a remark\n{}\n", RUN.trim()));
    }

    #[test]
    fn the_parameters_of_an_entry_are_those_of_all_its_lines() {
        let of = |form, text: &[u8]| {
            let found = parameters(&form, text).unwrap();
            found.into_iter().map(|(word, _)| word).collect::<Vec<String>>()
        };
        assert_eq!(
            of(FileForm::Bls, b"options root=a nohz=off\noptions quiet\n"),
            ["root=a", "nohz=off", "quiet"]
        );
        assert_eq!(of(FileForm::KernelCmdline, b"# x\nroot=a\nquiet"), ["root=a", "quiet"]);
    }

    #[test]
    fn words_that_were_moved_or_joined_by_others_are_found_one_by_one() {
        let text =
            b"options skew_tick=1 root=a irqaffinity=0-1 rw isolcpus=managed_irq,domain,2-3\n";
        let (left, found) = remove(&FileForm::Bls, text, &ours()).unwrap();
        assert_eq!((String::from_utf8(left).unwrap().as_str(), found), ("options root=a rw\n", 3));
        // A longer word that begins alike is another's.
        let text = b"options a isolcpus=managed_irq,domain,2-3,5 skew_tick=12\n";
        let (left, found) = remove(&FileForm::Bls, text, &ours()).unwrap();
        assert_eq!((left.as_slice(), found), (text.as_slice(), 0));
    }

    /// Words like ours within quotes of others are theirs.
    #[test]
    fn what_stands_in_quotes_stays() {
        for text in [
            "dyndbg=\"a skew_tick=1 irqaffinity=0-1 isolcpus=managed_irq,domain,2-3 b\" rw\n",
            "x=\"a skew_tick=1 b\"\n",
        ] {
            let with = add(&FileForm::OneLine, text.as_bytes(), &ours()).unwrap();
            let (left, found) = remove(&FileForm::OneLine, &with, &ours()).unwrap();
            assert_eq!((String::from_utf8(left).unwrap().as_str(), found), (text, 3));
            let (left, found) = remove(&FileForm::OneLine, text.as_bytes(), &ours()).unwrap();
            assert_eq!((left.as_slice(), found), (text.as_bytes(), 0));
        }
    }

    fn forms() -> impl Strategy<Value = FileForm> {
        prop_oneof![
            Just(FileForm::Bls),
            Just(FileForm::KernelCmdline),
            Just(FileForm::OneLine),
            Just(FileForm::Extlinux),
            Just(FileForm::Assignment { key: "extraargs".into() }),
            Just(FileForm::ShellAppend { variable: "GRUB_CMDLINE_LINUX_DEFAULT".into() }),
        ]
    }

    /// Files of the kind, more or less: lines of keywords and blanks in any order, any ends.
    fn files() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just("options "),
            Just("options"),
            Just("title Debian"),
            Just("LABEL l0"),
            Just("\tappend "),
            Just("  APPEND\t"),
            Just("linux /vmlinuz"),
            Just("KERNEL /boot/Image"),
            Just("extraargs="),
            Just("root=/dev/vda2"),
            Just(" "),
            Just("\t"),
            Just("\n"),
            Just("\r\n"),
            Just("quiet"),
            Just("# remark"),
            Just("dyndbg=\"a b\""),
            Just("single"),
            Just("GRUB_CMDLINE_LINUX_DEFAULT="),
            Just("isolcpus"),
            Just("skew_tick"),
            Just("irqaffinity=0"),
            Just("-"),
            Just("\u{e4}"),
        ];
        (prop::collection::vec(piece, 0..40), prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(pieces, wild)| [pieces.concat().into_bytes(), wild].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn what_is_added_is_taken_away_to_the_byte(form in forms(), text in files()) {
            if let Ok(new) = add(&form, &text, &ours()) {
                prop_assert!(new.len() > text.len());
                let (back, found) = remove(&form, &new, &ours()).unwrap();
                prop_assert!(found > 0);
                prop_assert_eq!(back, text);
            }
        }

        #[test]
        fn nothing_but_our_words_is_new(form in forms(), text in files()) {
            if let Ok(new) = add(&form, &text, &ours()) {
                // The old text is the new one with pieces taken out.
                let mut rest = new.iter();
                prop_assert!(text.iter().all(|byte| rest.any(|other| other == byte)));
                let before = parameters(&form, &text).unwrap();
                let after = parameters(&form, &new).unwrap();
                prop_assert!(before.iter().all(|word| after.contains(word)));
                for word in ours() {
                    prop_assert!(after.iter().any(|(found, _)| *found == word), "{} lacks", word);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(form in forms(), text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = spots(&form, &text);
            let _ = remove(&form, &text, &ours());
        }
    }
}
